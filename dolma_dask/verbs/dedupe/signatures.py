"""Signatures of all documents, in files ``signatures/<parameters>/<shard>.parquet`` beside the documents, for bands of any shape.

A file has a row per document: ``id source length bytes error``, which flags need too, so that no text is read twice; ``kind`` and ``signature``, the values of
MinHash as little-endian uint32 in one binary of fixed size, null where a document has none. 512 bytes per document at 128 values, which do not compress.
"""

import posixpath
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.engine import Task
from dolma_dask.errors import CorruptFileError, UsageError
from dolma_dask.exchange.flag_rows import STAGED, FlagRows, ShardReading, StagedShard, from_batch, to_batch
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.parquet import open_parquet
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.journal import Journal, Record, canonical, work_key
from dolma_dask.minhash.schemes import ABSENT, EMPTY, SHORT, MinHash, Signatures
from dolma_dask.sinks.base import GroupedTable
from dolma_dask.text.columns import bitmap
from dolma_dask.verbs.dedupe.minhash_tables import TableReader

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from dolma_dask.verbs.dedupe.bands import SignedShard

VERSION = 1
"""Raised whenever the files change for the same documents and parameters."""

GROUP_ROWS = 8192
"""Rows of a row group."""

FOLDER = "signatures"


def folder_of(minhash: MinHash, *, published: bool = False) -> str:
    """Return the folder of signatures with these parameters, made or published, relative to the dataset."""
    return f"{FOLDER}/{minhash.label}{'-published' if published else ''}"


def signature_key(
    minhash: MinHash, source: str | None, max_record_bytes: int, *, published: bool = False
) -> str:
    """Return the key of every file."""
    params = {"minhash": minhash.params(), "source": source, "max_record_bytes": max_record_bytes}
    return work_key("signatures", VERSION, {**params, "published": True} if published else params)


@dataclass(frozen=True)
class SignatureStage:
    """Signs the documents of one shard; ``task.work`` is its `ShardKeys`, and its further inputs the tables, if signatures are `published`.

    See `dolma_dask.engine.Stage`.
    """

    root: str  # of the dataset
    minhash: MinHash
    policy: RecordPolicy
    published: str = ""  # folder of tables that have the signatures; empty: they are made
    verb: str = "signatures"

    def run_shard(self, task: Task) -> list[Record]:
        """Write the file of one shard."""
        (unit,) = task.units
        reading = ShardReading("dedupe", task.work, self.policy)
        kinds = np.zeros(ABSENT + 1, np.int64)
        table = TableReader(self.published, task.shard, task.inputs[1:]) if self.published else None
        with self._file(unit.name) as file:
            for rows, batch in reading:
                signed = table.sign(rows.ids) if table else self._made(batch)
                readable = np.asarray(batch.column(0).is_valid())
                kinds += np.bincount(signed.kinds[readable], minlength=len(kinds))
                file.write([*to_batch(rows).columns, pa.array(signed.kinds), self._binary(signed)])
        known = reading.result.record
        read, counts = known.inputs, {"short_texts": kinds[SHORT], "empty_texts": kinds[EMPTY]}
        if table:
            tables, alone = table.finish()
            counts = {
                "without_signature": kinds[SHORT],
                "not_in_tables": kinds[ABSENT],
                "rows_without_document": alone,
            }
            read = (*read, *tables)
        return [
            msgspec.structs.replace(
                known,
                unit=unit.name,
                key=unit.key,
                inputs=read,
                files=(file.record, *known.files),
                counts={**known.counts, **{name: int(count) for name, count in counts.items()}},
            )
        ]

    def _made(self, batch: pa.RecordBatch) -> Signatures:
        return self.minhash.sign(pc.fill_null(batch.column("text"), ""))

    def _file(self, path: str) -> GroupedTable:
        schema = pa.schema([*STAGED, ("kind", pa.uint8()), ("signature", self._binary_type)])
        described = schema.with_metadata({"minhash": canonical(self.minhash.params())})
        return GroupedTable(
            self.root, path, described, GROUP_ROWS, use_dictionary=["source"], random=["signature"]
        )

    @property
    def _binary_type(self) -> pa.DataType:
        return pa.binary(4 * self.minhash.num_perm)

    def _binary(self, signed: Signatures) -> pa.FixedSizeBinaryArray:
        """Return values as binaries, null where there is no signature."""
        values = np.ascontiguousarray(signed.values, "<u4")
        valid = bitmap(self.minhash.has_signature(signed.kinds))
        return pa.FixedSizeBinaryArray.from_buffers(
            self._binary_type, len(values), [valid, pa.py_buffer(values)]
        )


def remove_gone(root: str, folder: str, paths: Collection[str]) -> None:
    """Remove signatures of shards that are not in the dataset any more, below a folder; they stay where a link leads out."""
    for unit, record in Journal(root, SignatureStage.verb).records.items():
        if not unit.startswith(f"{folder}/") or record.shard in paths:
            continue
        if files.stat(files.join(root, layout.document_path(record.shard))) is None:
            with suppress(UsageError):
                files.check_links(root, posixpath.dirname(unit))
                files.remove(files.join(root, unit))


# ------------------------------------------------------------------------------------------------ reading


def read_signatures(
    url: str, num_perm: int
) -> Iterator[tuple[npt.NDArray[np.uint32], npt.NDArray[np.bool_]]]:
    """Yield the values (n, num_perm) of neighbouring rows, and which of the rows have a signature (n,); the values of the others are undefined."""
    for batch in read_columns(url, ["signature"]):
        yield _values(batch.column(0), num_perm)


class SignatureReader:
    """Signatures of documents in the order of their docnos, over all shards: row groups without a requested document are left out."""

    def __init__(self, shards: Sequence["SignedShard"], num_perm: int) -> None:
        self._shards, self._num_perm = shards, num_perm
        self._firsts = np.array([shard.first for shard in shards], np.int64)
        self._held = (
            0,
            np.empty((0, num_perm), np.uint32),
        )  # docno of the first, and signatures, of a row group
        self._open: tuple[int, pq.ParquetFile] | None = None

    def take(self, docnos: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
        """Return the signatures (n, num_perm) of documents in rising order, repeats allowed, none before those of the last call."""
        values = np.empty((len(docnos), self._num_perm), np.uint32)
        wanted, at = docnos.astype(np.int64), 0
        while at < len(wanted):
            first, held = self._held
            if not first <= wanted[at] < first + len(held):
                first, held = self._held = self._read_group(int(wanted[at]))
            end = at + int(np.searchsorted(wanted[at:], first + len(held)))
            values[at:end] = held[wanted[at:end] - first]
            at = end
        return values

    def _read_group(self, docno: int) -> tuple[int, npt.NDArray[np.uint32]]:
        number = int(np.searchsorted(self._firsts, docno, "right")) - 1
        shard = self._shards[number]
        url, group = shard.url, (docno - shard.first) // GROUP_ROWS
        with _intact(url):
            if self._open is None or self._open[0] != number:
                self.close()
                self._open = number, open_parquet(url)
            table = self._open[1].read_row_group(group, columns=["signature"], use_threads=False)
        column = table.column(0).combine_chunks()
        values, _ = _values(column, self._num_perm)
        return shard.first + group * GROUP_ROWS, values

    def close(self) -> None:
        """Close the file that is open."""
        if self._open is not None:
            self._open[1].close()
            self._open = None


def _values(
    column: pa.FixedSizeBinaryArray, num_perm: int
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.bool_]]:
    values = np.frombuffer(column.buffers()[1], "<u4")[column.offset * num_perm :]
    return values[: len(column) * num_perm].reshape(-1, num_perm), np.asarray(column.is_valid())


def read_rows(url: str) -> Iterator[FlagRows]:
    """Yield the rows of a shard without their signatures."""
    first = 0
    for batch in read_columns(url, STAGED.names):
        yield from_batch(batch, first)
        first += batch.num_rows


def read_lengths(url: str) -> npt.NDArray[np.int64]:
    """Return the code points of the text of each row (n,)."""
    parts = [np.asarray(batch.column(0)) for batch in read_columns(url, ["length"])]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def read_readable(url: str) -> npt.NDArray[np.bool_]:
    """Return which rows could be read (n,)."""
    parts = [np.asarray(batch.column(0).is_null()) for batch in read_columns(url, ["error"])]
    return np.concatenate(parts) if parts else np.empty(0, np.bool_)


def read_columns(url: str, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield columns of a table, `GROUP_ROWS` rows at a time; one that is damaged is removed, so that the same command makes it again."""
    with _intact(url), open_parquet(url) as file:
        yield from _decoded(file, columns)


@contextmanager
def _intact(url: str) -> Iterator[None]:
    """Remove a table that turns out to be damaged: pyarrow reports pages of another checksum as an `OSError` without number."""
    try:
        yield
    except (CorruptFileError, pa.ArrowException, LookupError, OSError) as error:
        if getattr(error, "errno", None):
            raise
        raise files.damaged(url, str(error)) from error


def _decoded(file: "pq.ParquetFile", columns: list[str]) -> Iterator[pa.RecordBatch]:
    for batch in file.iter_batches(GROUP_ROWS, columns=columns, use_threads=False):
        source = batch.schema.get_field_index("source")
        if source >= 0 and pa.types.is_dictionary(batch.column(source).type):
            batch = batch.set_column(source, "source", batch.column(source).dictionary_decode())
        yield batch


def staged_shard(number: int, record: Record) -> StagedShard:
    """Return a shard whose rows are read from the file of its signatures, from its record of `SignatureStage`."""
    file, *kept = record.files
    documents = record.inputs[:1]  # readers of flags know of no table
    return StagedShard(number, msgspec.structs.replace(record, inputs=documents, files=tuple(kept)), file)
