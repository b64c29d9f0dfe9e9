"""What verbs share that mark documents: a spool of what is needed of each row, and aligned attribute files of marks.

Which documents are marked is known only when all shards were read (`dolma_dask.exchange`). So that no text is read twice, id, source and
length of every row wait meanwhile in an Arrow file per shard, about 40 bytes per document; the attribute file is written from it.
A mark is ``[[0, length, 1.0]]`` under the name of the set, in code points; other documents have nothing there.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Self

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.alignment.columns import ColumnWork
from dolma_dask.engine import Task
from dolma_dask.errors import CorruptFileError
from dolma_dask.formats import layout
from dolma_dask.formats.attributes import AttributeColumn
from dolma_dask.formats.documents import text_bytes
from dolma_dask.io import files
from dolma_dask.io.publish import PublishedFile, publish
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.io.records import Block, FileRecord, InputRecord
from dolma_dask.io.stored import StoredFile
from dolma_dask.text.lengths import code_point_lengths
from dolma_dask.writers.attributes import AttributeWriter, open_attribute_writer

COLUMNS = ("id", "source", "text")
"""What is read of every document, in this order, before anything else."""

GROUP_BYTES = 32_000_000
"""Stored bytes of small shards that are read by one task."""

_SPOOL = pa.schema(
    [
        ("id", pa.large_string()),
        ("source", pa.large_string()),
        ("length", pa.int64()),
        ("bytes", pa.int64()),
        ("error", pa.large_string()),
    ]
)

Mask = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class MarkRows:
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
class Spooled:
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
    def from_json(cls, found: Mapping[str, Any]) -> "Spooled":
        """Return what `to_json` told."""
        return msgspec.convert(found, cls)


@dataclass
class ShardReading:
    """One shard being read for marks: an iterable of (`MarkRows`, batch of the asked columns).

    Parameters
    ----------
    root, verb : str
        Of the dataset, and what reads it: bad records go to its quarantine.
    work : ColumnWork
        The shard and its columns, `COLUMNS` first.
    number : int
        Of the shard in the listing.
    policy : RecordPolicy
        What happens to bad records.

    Attributes
    ----------
    result : Spooled
        Complete after the last batch.
    """

    root: str
    verb: str
    work: ColumnWork
    number: int
    policy: RecordPolicy
    result: Spooled = field(init=False)

    def __iter__(self) -> Iterator[tuple[MarkRows, pa.RecordBatch]]:
        reader = self.work.open(max_record_bytes=self.policy.max_record_bytes)
        quarantine = Quarantine(self.root, self.verb, self.work.shard.path, self.policy)
        first, size = 0, 0
        for batch in reader:
            quarantine.admit(Block(batch, first, tuple(reader.bad)))
            rows = _mark_rows(batch, first, reader.bad)
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
        self.result = Spooled(
            self.number,
            first,
            state.ids_digest,
            state.content_digest,
            counts,
            state.inputs,
            state.unproved,
            kept,
        )


def _mark_rows(batch: pa.RecordBatch, first: int, bad: Sequence[Any]) -> MarkRows:
    text = batch.column(2)
    text = pc.fill_null(text, "") if text.null_count else text
    errors = {record.row - first: f"{record.reason}: expected {record.expected}" for record in bad}
    sizes = np.asarray(pc.binary_length(text), np.int64)
    return MarkRows(first, batch.column(0), batch.column(1), code_point_lengths(text), sizes, errors)


class _Sink:
    """The little of a file object that pyarrow asks for."""

    closed = False

    def __init__(self, out: PublishedFile) -> None:
        self._out = out

    def write(self, data: object) -> None:
        self._out.write(data)

    def tell(self) -> int:
        return self._out.bytes

    def flush(self) -> None:
        """Do nothing: the file is flushed when it is published."""

    def close(self) -> None:
        self.closed = True


def spool_path(number: int) -> str:
    """Return where the rows of a shard wait, relative to the folder of the exchange."""
    return f"spool/{number:08d}.arrow"


@dataclass
class Spool:
    """Writes the rows of one shard to the folder of an exchange; a context manager.

    Parameters
    ----------
    folder : str
        Of the exchange.
    number : int
        Of the shard.

    Attributes
    ----------
    record : FileRecord
        After a clean exit.
    """

    folder: str
    number: int
    record: FileRecord = field(init=False)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._out = stack.enter_context(publish(files.join(self.folder, spool_path(self.number))))
            sink = pa.PythonFile(_Sink(self._out), mode="w")
            options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
            self._stream = stack.enter_context(pa.ipc.new_stream(sink, _SPOOL, options=options))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._stack.__exit__(*raised)
        self.record = FileRecord(spool_path(self.number), self._out.bytes, self._out.checksum)

    def known(self, read: Spooled) -> Spooled:
        """Return what is known of the shard, with its spool; after a clean exit."""
        return replace(read, spool=self.record)

    def write(self, rows: MarkRows) -> None:
        """Append rows."""
        errors = pa.array([rows.errors.get(row) for row in range(len(rows))], pa.large_string())
        if not rows.errors:
            errors = pa.nulls(len(rows), pa.large_string())
        arrays = [rows.ids, rows.sources, pa.array(rows.lengths), pa.array(rows.sizes), errors]
        self._stream.write_batch(pa.RecordBatch.from_arrays(arrays, schema=_SPOOL))


class _Stored:
    """A stored file as pyarrow reads it."""

    closed = False
    readable = staticmethod(lambda: True)
    seekable = writable = staticmethod(lambda: False)

    def __init__(self, stored: StoredFile) -> None:
        self._stored = stored

    def read(self, size: int = -1) -> bytes:
        pieces = []
        while size and (piece := self._stored.read(size) if size > 0 else self._stored.read()):
            pieces.append(piece)
            size -= len(piece) if size > 0 else 0
        return b"".join(pieces)

    def close(self) -> None:
        self.closed = True


def read_spool(folder: str, record: FileRecord | None) -> Iterator[MarkRows]:
    """Yield the rows of a shard as they were spooled.

    Raises
    ------
    CorruptFileError
        The file is gone or was changed. It is removed, so that the same command makes it again.
    """
    if record is None:
        return
    url = files.join(folder, record.path)
    stored = StoredFile(url)
    first = 0
    try:
        for batch in pa.ipc.open_stream(pa.PythonFile(_Stored(stored), mode="r")):
            yield _from_spool(batch, first)
            first += batch.num_rows
        while stored.read():
            pass
    except pa.ArrowException as error:
        raise _damaged(url, str(error)) from error
    finally:
        stored.close()
    if stored.checksum != record.checksum:
        raise _damaged(url, f"checksum {stored.checksum}, written were bytes of {record.checksum}")


def _damaged(url: str, found: str) -> CorruptFileError:
    files.remove(url)
    return CorruptFileError(
        f"{url}: damaged ({found}); expected it as it was written. It is removed: run the same command again.",
        url=url,
    )


def _from_spool(batch: pa.RecordBatch, first: int) -> MarkRows:
    lengths, sizes = (np.asarray(batch.column(name)) for name in ("length", "bytes"))
    errors = batch.column("error")
    bad = np.flatnonzero(np.asarray(errors.is_valid())).tolist() if errors.null_count < len(errors) else []
    return MarkRows(
        first,
        batch.column("id"),
        batch.column("source"),
        lengths,
        sizes,
        {row: errors[row].as_py() for row in bad},
    )


class MarkFile:
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
        self._writer: AttributeWriter = open_attribute_writer(root, path)
        self._name = name

    def __enter__(self) -> Self:
        self._writer.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._writer.__exit__(*raised)

    def write(self, rows: MarkRows, marked: Mask) -> None:
        """Append rows, with a mark where `marked` (n,) is true."""
        values = pa.array(np.ones(len(rows)), mask=~marked)
        column = AttributeColumn(self._name, "document", values)
        self._writer.write(rows.ids, rows.sources, rows.lengths, [column], rows.errors)

    @property
    def record(self) -> FileRecord:
        """What was written; after a clean exit."""
        return self._writer.record


def mark_info(name: str, reads: Sequence[str], unproved: Sequence[str] = ()) -> dict[str, Any]:
    """Return what readers of marks need to know: the kind of the key, and which columns the marks depend on."""
    info: dict[str, Any] = {"reads": sorted(reads), "kinds": {name: "document"}}
    return {**info, "unproved": list(unproved)} if unproved else info


def marked_rows(rows: MarkRows, sorted_rows: npt.NDArray[np.int64]) -> Mask:
    """Return which of `rows` (n,) stand among the row numbers of a shard, which are in order and may repeat."""
    first, last = np.searchsorted(sorted_rows, [rows.first, rows.first + len(rows)])
    marked = np.zeros(len(rows), np.bool_)
    marked[sorted_rows[first:last] - rows.first] = True
    return marked


def grouped(items: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Group neighbouring shards so that a task reads `GROUP_BYTES` or one shard; a function of the listing alone.

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
        if not groups or size + stored > GROUP_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(number)
        size += stored
    return groups


def group_name(paths: Sequence[str]) -> str:
    """Return the name of a task that reads these shards."""
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"


def mark_path(name: str, shard: str, file_format: layout.FileFormat | None) -> str:
    """Return the path of the marks of a shard."""
    return layout.attribute_path(name, shard, file_format)


def without_units(task: Task) -> Task:
    """Return a task as the exchange takes it: it makes units of its own."""
    return Task(task.shard, (), task.inputs, task.work)
