"""What verbs share that mark documents: a spool of what is needed of each row, and aligned attribute files of marks.

Which documents are marked is known only when all shards were read (`dolma_dask.exchange`). So that no text is read twice, id, source and
length of every row wait meanwhile in an Arrow file per shard, about 40 bytes per document; the attribute file is written from it.
A mark is ``[[0, length, 1.0]]`` under the name of the set, in code points; other documents have nothing there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.formats.attributes import AttributeColumn
from dolma_dask.formats.documents import text_bytes
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.reading import AlignedShard
from dolma_dask.text.columns import code_point_lengths
from dolma_dask.writers.attributes import AttributeWriter

COLUMNS = ("id", "source", "text")
"""What is read of every document, in this order, before anything else."""

GROUP_BYTES = 32_000_000
"""Stored bytes of small shards that are read by one task."""

GROUP_SHARDS = 256
"""Shards that are read by one task at most: opening one costs as much as reading 100 kB or more, on a store far more."""

Mask = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class FlagRows:
    """Consecutive rows of a shard, as far as marks need them.

    Attributes
    ----------
    first : int
        Row of the first.
    ids, sources : pyarrow.LargeStringArray
        (n,) null where the document could not be read.
    lengths, sizes : numpy.ndarray of int64
        (n,) code points and UTF-8 bytes of the texts.
    errors : Mapping[int, str]
        Place in these rows -> why the document could not be read.
    """

    first: int
    ids: pa.LargeStringArray
    sources: pa.LargeStringArray
    lengths: Counts
    sizes: Counts
    errors: Mapping[int, str]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class StagedShard:
    """What is known of a shard that was read; JSON-able with `to_json`.

    Attributes
    ----------
    number : int
        Of the shard in the listing.
    rows : int
        With those that could not be read.
    ids_digest, content_digest : str
        See `dolma_dask.journal.Record`.
    counts : dict
        ``documents_in``, ``text_bytes``, ``bad_records``, and where attributes were read ``unproved_attribute_files``.
    inputs : tuple of InputRecord
        Files that were read.
    unproved : tuple of str
        Attribute sets that were read without proof.
    quarantined : tuple of FileRecord
        Below the dataset's root.
    spool : FileRecord or None
        The Arrow file, below the folder of the exchange.
    """

    number: int
    rows: int
    ids_digest: str
    content_digest: str
    counts: dict[str, float]
    inputs: tuple[InputRecord, ...]
    unproved: tuple[str, ...] = ()
    quarantined: tuple[FileRecord, ...] = ()
    spool: FileRecord | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON-able values."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "StagedShard":
        """Return what `to_json` told."""
        return msgspec.convert(found, cls)


@dataclass
class ShardReading:
    """One shard being read for marks: an iterable of (`FlagRows`, batch of the asked columns).

    Parameters
    ----------
    root, verb : str
        Of the dataset, and what reads it: bad records go to its quarantine.
    work : AlignedShard
        The shard and its columns, `COLUMNS` first.
    number : int
        Of the shard in the listing.
    policy : RecordPolicy
        What happens to bad records.

    Attributes
    ----------
    result : StagedShard
        Complete after the last batch.
    """

    root: str
    verb: str
    work: AlignedShard
    number: int
    policy: RecordPolicy
    result: StagedShard = field(init=False)

    def __iter__(self) -> Iterator[tuple[FlagRows, pa.RecordBatch]]:
        quarantine = Quarantine(self.root, self.verb, self.work.shard.path, self.policy)
        reader = self.work.open(max_record_bytes=self.policy.max_record_bytes, quarantine=quarantine)
        first, size = 0, 0
        for block in reader:
            batch = block.batch
            rows = _flag_rows(batch, first, block.bad)
            yield rows, batch
            first += batch.num_rows
            size += text_bytes(batch.column(2))
        kept = quarantine.close()
        state = reader.state
        counts: dict[str, float] = {
            "documents_in": first,
            "text_bytes": size,
            "bad_records": quarantine.count,
        }
        if self.work.sources:
            counts["unproved_attribute_files"] = len(state.unproved)
        self.result = StagedShard(
            self.number,
            first,
            state.ids_digest,
            state.content_digest,
            counts,
            state.inputs,
            state.unproved,
            kept,
        )


def _flag_rows(batch: pa.RecordBatch, first: int, bad: Sequence[Any]) -> FlagRows:
    text = batch.column(2)
    text = pc.fill_null(text, "") if text.null_count else text
    errors = {record.row - first: f"{record.reason}: expected {record.expected}" for record in bad}
    sizes = np.asarray(pc.binary_length(text), np.int64)
    return FlagRows(first, batch.column(0), batch.column(1), code_point_lengths(text), sizes, errors)


class FlagFile:
    """Writes the attribute file of one shard; a context manager.

    Parameters
    ----------
    root : str
        Of the dataset.
    path : str
        Of the file, below it; the suffix chooses the format.
    name : str
        Attribute set, and its only key.
    """

    def __init__(self, root: str, path: str, name: str) -> None:
        self._writer = AttributeWriter(root, path)
        self._name = name

    def __enter__(self) -> Self:
        self._writer.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._writer.__exit__(*raised)

    def write(self, rows: FlagRows, marked: Mask) -> None:
        """Append rows, with a mark where `marked` (n,) is true."""
        values = pa.array(np.ones(len(rows)), mask=~marked)
        column = AttributeColumn(self._name, "document", values)
        self._writer.write(rows.ids, rows.sources, rows.lengths, [column], rows.errors)

    @property
    def record(self) -> FileRecord:
        """What was written; after a clean exit."""
        return self._writer.record


def flag_info(name: str, reads: Sequence[str], unproved: Sequence[str] = ()) -> dict[str, Any]:
    """Return what readers of marks need to know: the kind of the key, and which columns the marks depend on."""
    info: dict[str, Any] = {"reads": sorted(reads), "kinds": {name: "document"}}
    return {**info, "unproved": list(unproved)} if unproved else info


def flagged_rows(rows: FlagRows, sorted_rows: npt.NDArray[np.int64]) -> Mask:
    """Return which of `rows` (n,) stand among the row numbers of a shard, which are in order and may repeat."""
    first, last = np.searchsorted(sorted_rows, [rows.first, rows.first + len(rows)])
    marked = np.zeros(len(rows), np.bool_)
    marked[sorted_rows[first:last] - rows.first] = True
    return marked


def grouped(items: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Group neighbouring shards so that a task reads `GROUP_BYTES` and `GROUP_SHARDS` at most, or one shard; a function of the listing alone.

    Parameters
    ----------
    items : sequence of (int, int)
        Number and stored bytes.

    Returns
    -------
    list of list of int
        Numbers.
    """
    groups: list[list[int]] = []
    size = 0
    for number, stored in items:
        if not groups or size + stored > GROUP_BYTES or len(groups[-1]) >= GROUP_SHARDS:
            groups.append([])
            size = 0
        groups[-1].append(number)
        size += stored
    return groups


def group_name(paths: Sequence[str]) -> str:
    """Return the name of a task that reads these shards."""
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
