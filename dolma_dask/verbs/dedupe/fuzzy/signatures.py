"""Signatures of all documents, in files ``signatures/<parameters>/<shard>.parquet`` beside the documents, for bands of any shape.

A file has a row per document: ``id source length bytes error``, which flags need too, so that no text is read twice; ``kind`` and ``signature``, the values of
MinHash as little-endian uint32 in one binary of fixed size, null where a document has none. 512 bytes per document at 128 values, which do not compress.
"""

import posixpath
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.dataset import Dataset
from dolma_dask.engine import Input, Task, Unit, group_name, grouped
from dolma_dask.errors import CorruptFileError, UsageError
from dolma_dask.exchange.flag_rows import STAGED, FlagRows, StagedShard, document_rows, from_batch, to_batch
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.parquet import open_parquet
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.journal import Journal, Record, canonical, work_key
from dolma_dask.minhash.schemes import ABSENT, EMPTY, SHORT, MinHash, Signatures
from dolma_dask.reading.minhash_tables import TableReader
from dolma_dask.reading.reader import AlignedShard
from dolma_dask.sinks.base import GroupedTable
from dolma_dask.sinks.sink import FileSink, ShardFacts
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import bitmap

if TYPE_CHECKING:
    import pyarrow.parquet as pq

VERSION = 1
"""Raised whenever the files change for the same documents and parameters."""

GROUP_ROWS = 8192
"""Rows of a row group."""

FOLDER = "signatures"

VERB = "signatures"
"""Name of the journal of these files."""


def folder_of(minhash: MinHash, *, published: bool = False) -> str:
    """Return the folder of signatures with these parameters, made or published, relative to the dataset."""
    return f"{FOLDER}/{minhash.label}{'-published' if published else ''}"


def signature_key(
    minhash: MinHash, dataset: Dataset, max_record_bytes: int, *, published: bool = False
) -> str:
    """Return the key of every file."""
    params = {"minhash": minhash.params(), **dataset.params, "max_record_bytes": max_record_bytes}
    return work_key("signatures", VERSION, {**params, "published": True} if published else params)


TASK_BYTES = 64 << 20
"""Bytes of signatures that a task reads."""

TASK_SHARDS = 256
"""Shards that a task reads at most."""


class DocumentSigner(Struct, frozen=True):
    """Documents of a shard with their signatures, made of the texts or from published tables; see `dolma_dask.engine.map.Source`."""

    documents: AlignedShard
    minhash: MinHash
    url: str = ""  # folder of published tables; empty: signatures are made
    tables: tuple[Input, ...] = ()  # of the shard

    @property
    def name(self) -> str:
        """Path of the shard."""
        return self.documents.name

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The document file and the tables."""
        return (*self.documents.inputs, *self.tables)

    def read(
        self, columns: frozenset[str], policy: RecordPolicy, quarantine: Quarantine, facts: ShardFacts
    ) -> Iterator[tuple[FlagRows, Signatures]]:
        """Yield rows with their signatures."""
        table = TableReader(self.url, self.name, self.tables) if self.url else None
        for rows, batch in document_rows(self.documents, policy, quarantine, facts):
            yield rows, table.sign(rows.ids) if table else self._made(batch)
        if table:
            tables, alone = table.finish()
            facts.inputs = (*facts.inputs, *tables)
            facts.counts = {**facts.counts, "rows_without_document": alone}

    def _made(self, batch: pa.RecordBatch) -> Signatures:
        texts = batch.column("text")
        return self.minhash.sign(pc.fill_null(texts, "") if texts.null_count else texts)


class SignatureOutput(Struct, frozen=True):
    """Signatures of all documents; see `dolma_dask.sinks.sink.Output`."""

    root: str  # of the dataset
    minhash: MinHash
    is_published: bool = False
    verb: ClassVar[str] = "dedupe"
    columns: ClassVar[tuple[str, ...]] = ()  # besides those of the source

    def open(self, unit: Unit, shard: str) -> "SignatureSink":
        """See `dolma_dask.sinks.sink.Output`."""
        return SignatureSink(self, unit.name)


class SignatureSink(FileSink[GroupedTable]):
    """Writes the signatures of one shard, and counts the documents that have none."""

    def __init__(self, output: SignatureOutput, path: str) -> None:
        self._minhash = output.minhash
        self._binary_type = pa.binary(4 * output.minhash.num_perm)
        schema = pa.schema([*STAGED, ("kind", pa.uint8()), ("signature", self._binary_type)])
        described = schema.with_metadata({"minhash": canonical(output.minhash.params())})
        dictionary, random = ["source"], ["signature"]
        super().__init__(
            GroupedTable(output.root, path, described, GROUP_ROWS, use_dictionary=dictionary, random=random)
        )
        self._counted = {SHORT: "short_texts", EMPTY: "empty_texts"}
        if output.is_published:
            self._counted = {SHORT: "without_signature", ABSENT: "not_in_tables"}
        self.counts.update(dict.fromkeys(self._counted.values(), 0))

    def write(self, signed: tuple[FlagRows, Signatures]) -> None:
        """Append rows with their signatures."""
        rows, signatures = signed
        self.writer.write([*to_batch(rows).columns, pa.array(signatures.kinds), self._binaries(signatures)])
        readable = signatures.kinds[np.asarray(rows.ids.is_valid())]
        for kind, name in self._counted.items():
            self.counts[name] += int(np.count_nonzero(readable == kind))

    def _binaries(self, signed: Signatures) -> pa.FixedSizeBinaryArray:
        """Return values as binaries, null where there is no signature."""
        values = np.ascontiguousarray(signed.values, "<u4")
        valid = bitmap(self._minhash.has_signature(signed.kinds))
        return pa.FixedSizeBinaryArray.from_buffers(
            self._binary_type, len(values), [valid, pa.py_buffer(values)]
        )

    def record(self, unit: Unit, facts: ShardFacts, quarantined: tuple[FileRecord, ...]) -> Record:
        """See `dolma_dask.sinks.sink.Sink`."""
        file = self.writer.record
        return facts.record(unit, (file, *quarantined), file.rows, counts=self.counts)


def remove_gone(root: str, folder: str, paths: Collection[str]) -> None:
    """Remove signatures of shards that are not in the dataset any more, below a folder; they stay where a link leads out."""
    for unit, record in Journal(root, VERB).records.items():
        if not unit.startswith(f"{folder}/") or record.shard in paths:
            continue
        if files.stat(files.join(root, layout.document_path(record.shard))) is None:
            with suppress(UsageError):
                files.check_links(root, posixpath.dirname(unit))
                files.remove(files.join(root, unit))


class SignedShard(Struct, frozen=True):
    """A shard with signatures."""

    number: int  # in the listing
    root: str  # of its dataset
    path: str  # relative to ``documents/``
    first: int  # docno of its first row
    rows: int
    file: FileRecord  # of its signatures
    choice: FileRecord | None = None  # in the work folder; None: all documents take part
    hint: str = ""  # what to do if the file is damaged; empty: it is removed, and made again

    @property
    def inputs(self) -> tuple[InputRecord, ...]:
        """The files as tasks name them: the checksum in place of a time stamp, since they are of this job."""
        read = (self.file, self.choice) if self.choice else (self.file,)
        return tuple(InputRecord(file.path, file.bytes, file.checksum, file.checksum) for file in read)

    @property
    def url(self) -> str:
        """File of its signatures."""
        return files.join(self.root, self.file.path)

    def inputs_at(self, folder: str) -> tuple[Input, ...]:
        """Return the files as inputs of a task, below the dataset and the work folder."""
        roots = (self.root, folder)
        return tuple(
            Input(files.join(base, one.path), FileInfo(one.path, one.bytes, one.stamp))
            for base, one in zip(roots, self.inputs, strict=False)
        )


def holding(shards: Sequence[SignedShard], first: int, last: int, shift: int) -> slice:
    """Return which shards hold the documents whose docnos, shifted up, lie from `first` to ``last - 1``."""
    begin = bisect_right(shards, first >> shift, key=attrgetter("first")) - 1
    return slice(max(begin, 0), bisect_right(shards, (last - 1) >> shift, key=attrgetter("first")))


def signed_tasks(folder: str, shards: Sequence[SignedShard]) -> list[Task]:
    """Return tasks that read the signatures of all shards, small ones together; `folder` is the work folder."""
    return [
        Task(
            group_name([shard.path for shard in group]),
            (),
            tuple(item for shard in group for item in shard.inputs_at(folder)),
            tuple(group),
        )
        for group in grouped(shards, lambda shard: shard.file.bytes, TASK_BYTES, TASK_SHARDS)
    ]


# ------------------------------------------------------------------------------------------------ reading


def read_signatures(
    url: str, num_perm: int
) -> Iterator[tuple[npt.NDArray[np.uint32], npt.NDArray[np.bool_]]]:
    """Yield the values (n, num_perm) of neighbouring rows, and which of the rows have a signature (n,); the values of the others are undefined."""
    for batch in read_columns(url, ["signature"]):
        yield values_of(batch.column(0), num_perm)


class SignatureReader:
    """Signatures of documents in the order of their docnos, over all shards: row groups without a requested document are left out."""

    def __init__(self, shards: Sequence["SignedShard"], num_perm: int) -> None:
        self._shards, self._num_perm = shards, num_perm
        self._starts = np.array([shard.first for shard in shards], np.int64)
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
        number = int(np.searchsorted(self._starts, docno, "right")) - 1
        shard = self._shards[number]
        url, group = shard.url, (docno - shard.first) // GROUP_ROWS
        with intact(url, shard.hint):
            if self._open is None or self._open[0] != number:
                self.close()
                self._open = number, open_parquet(url)
            table = self._open[1].read_row_group(group, columns=["signature"], use_threads=False)
        column = table.column(0).combine_chunks()
        values, _ = values_of(column, self._num_perm)
        return shard.first + group * GROUP_ROWS, values

    def close(self) -> None:
        """Close the file that is open."""
        if self._open is not None:
            self._open[1].close()
            self._open = None


def values_of(
    column: pa.FixedSizeBinaryArray, num_perm: int
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.bool_]]:
    """Return the values (n, num_perm) of a column of signatures, undefined where it is null, and the rows where it is not (n,)."""
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


def read_columns(url: str, columns: list[str], hint: str = "") -> Iterator[pa.RecordBatch]:
    """Yield columns of a table, `GROUP_ROWS` rows at a time; see `intact`."""
    with intact(url, hint), open_parquet(url) as file:
        yield from decoded(file, columns)


@contextmanager
def intact(url: str, hint: str = "") -> Iterator[None]:
    """Remove a table that turns out to be damaged, so that the same command makes it again, or with `hint` say what to do.

    pyarrow reports pages of another checksum as an `OSError` without number.
    """
    try:
        yield
    except (CorruptFileError, pa.ArrowException, LookupError, OSError) as error:
        if getattr(error, "errno", None):
            raise
        if hint:
            raise CorruptFileError(
                f"{url} is damaged: {error}; expected the file as it was written. {hint}", url=url
            ) from error
        raise files.damaged(url, str(error)) from error


def decoded(file: "pq.ParquetFile", columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield columns of a file of signatures, `GROUP_ROWS` rows at a time."""
    for batch in file.iter_batches(GROUP_ROWS, columns=columns, use_threads=False):
        source = batch.schema.get_field_index("source")
        if source >= 0 and pa.types.is_dictionary(batch.column(source).type):
            batch = batch.set_column(source, "source", batch.column(source).dictionary_decode())
        yield batch


def staged_shard(number: int, record: Record) -> StagedShard:
    """Return a shard whose rows are read from the file of its signatures, from their record."""
    if not record.files:
        raise CorruptFileError(
            f"the journal names no file with the signatures of {record.shard}: it is damaged. Make everything anew with --overwrite.",
            shard=record.shard,
        )
    file, *kept = record.files
    documents = record.inputs[:1]  # readers of flags know of no table
    return StagedShard(number, replace(record, inputs=documents, files=tuple(kept)), file)
