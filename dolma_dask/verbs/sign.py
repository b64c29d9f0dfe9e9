"""sign: documents -> the MinHash tables of RedPajama-V2, or its tables of duplicates, one for each shard, for tools that read these.

`dedupe` needs none: it keeps signatures of its own, of any scheme, beside the documents, and reads such tables too. Ids are the published ones,
``<snapshot>/<shard>/<file>/<row>``; rows of a table are numbered by them, so that a selection of documents keeps its numbers. Signatures are made of the texts, or come
from tables that there are: those of the many files that a shard was made of become one. Memory: a few blocks, and 5,000 rows of 2 kB.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.dataset import Dataset
from dolma_dask.engine import Input, Unit
from dolma_dask.engine.documents import DocumentSource
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.metadata import PREFIX, scan_metadata
from dolma_dask.formats.redpajama import DUPLICATES, MINHASH, RisingIds, RisingPlaces
from dolma_dask.io import files
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.minhash.published import PUBLISHED
from dolma_dask.minhash.schemes import ABSENT, Signatures
from dolma_dask.options.base import Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import PublishedDocuments
from dolma_dask.outputs.published import PublishedOptions, check_not_combined, write_tables
from dolma_dask.reading.minhash_tables import TableReader, find_tables
from dolma_dask.reading.published import PublishedTables
from dolma_dask.results.summary import Summary
from dolma_dask.sinks.redpajama import DuplicateTable, MinHashTable
from dolma_dask.sinks.sink import DocumentRows, FileSink, ShardFacts

VERSION = 1
"""Raised whenever sign writes other rows for the same documents."""


@dataclass(frozen=True, kw_only=True)
class SignOptions(PublishedOptions):
    """Options of `sign`."""

    component: Annotated[
        Literal["minhash", "duplicates"],
        Opt(
            'What to write. Duplicates are documents for which `where` holds, in .duplicates.parquet files: --where "exact is not None" for those '
            "that dedupe has flagged."
        ),
    ] = "minhash"
    signatures: Annotated[
        str | None,
        Opt(
            "Folder or URL of MinHash tables, from which signatures are taken instead of making them of the texts, as in dedupe: the tables of all files that "
            "convert has combined in a shard become one table. Documents without a row there get none."
        ),
    ] = None

    def check(self) -> None:
        """Refuse signatures where none are written."""
        super().check()
        if self.signatures is not None and self.component != "minhash":
            raise UsageError(
                f"signatures={self.signatures!r} with component={self.component!r}; expected component='minhash': duplicates have no signatures."
            )


@command
def sign(
    dataset: PublishedDocuments,
    to: Annotated[
        str,
        Opt(
            "Output folder. `dedupe` takes signatures from there: --how fuzzy --scheme redpajama_v2 --signatures FOLDER."
        ),
    ],
    /,
    *,
    options: SignOptions,
) -> Summary:
    """Write MinHash signatures of documents, or a list of duplicates, as RedPajama-V2 publishes them: <snapshot>/<shard>/<lang>_<bucket>.minhash.parquet.

    Example: dolma-dask sign corpus/rpv2/v0 out/minhash

    Returns
    -------
    Summary
        With `signatures` its counts tell documents without a row in the tables, and rows without a document.

    Raises
    ------
    StageError
        Some shards failed; one with other ids does.
    UsageError
        Duplicates lack a rule, or are of shards in which published files were combined; there are no such tables; or an argument is unknown, or has
        a value that it cannot have.

    Notes
    -----
    13 words to an n-gram, 128 values, seed 42; a document of fewer words has a row without signature. A table has the documents of a shard: of one published file,
    or of those that `convert` has combined there, which its metadata lists. `dedupe` needs no tables.
    """
    opened = options.open(dataset)
    root = files.normalize(to)
    if options.component == "minhash":
        return _write_signatures(opened, TableOutput(root), options)
    check_not_combined(opened)
    if options.where is None:
        raise UsageError(
            'which documents are duplicates is not said; expected a rule. Name the flags of dedupe: --where "exact is not None".'
        )
    decided = {"component": DUPLICATES.name}
    return write_tables(opened, DuplicateOutput(root), DUPLICATES, options, decided, version=VERSION)


def _write_signatures(dataset: Dataset, output: "TableOutput", options: SignOptions) -> Summary:
    minhash: dict[str, Any] = {"minhash": PUBLISHED.params()}
    if options.signatures is None:
        return write_tables(dataset, output, MINHASH, options, minhash, version=VERSION)
    url = files.normalize(options.signatures)
    if files.resolved(url) == files.resolved(output.root):
        raise UsageError(
            f"{url} has the tables that are read; expected another folder for those that are written."
        )
    tables = find_tables(dataset.root, url, PUBLISHED, (shard.path for shard in dataset.shards))
    output = replace(output, is_published=True)
    shown = {"signatures": tables.url, "published": None}
    decided = {**minhash, "published": True}
    beside = partial(_with_tables, tables)
    return write_tables(
        dataset, output, MINHASH, options, decided, version=VERSION, shown=shown, beside=beside
    )


def _with_tables(tables: PublishedTables, documents: DocumentSource) -> "SignedDocuments":
    return SignedDocuments(documents, tables.url, tables.of_shard(documents.name))


class SignedRows(DocumentRows, frozen=True, kw_only=True):
    """Documents with their published signatures."""

    signed: Signatures


class SignedDocuments(Struct, frozen=True):
    """Documents of a shard beside its tables; see `dolma_dask.engine.map.Source`."""

    documents: DocumentSource
    url: str  # of the folder of all tables
    tables: tuple[Input, ...]

    @property
    def name(self) -> str:
        """Path of the shard."""
        return self.documents.name

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The files of the documents, and the tables."""
        return (*self.documents.inputs, *self.tables)

    def read(
        self, columns: frozenset[str], policy: RecordPolicy, quarantine: Quarantine, facts: ShardFacts
    ) -> Iterator[SignedRows]:
        """Yield documents with their signatures."""
        table = TableReader(self.url, self.name, self.tables, whole=True)
        for rows in self.documents.read(columns, policy, quarantine, facts):
            yield SignedRows(rows.batch, rows.numbers, signed=table.sign(rows.batch.column("id")))
        tables, alone = table.finish()
        facts.inputs = (*facts.inputs, *tables)
        facts.counts = {**facts.counts, "rows_without_document": alone}


class TableOutput(Struct, frozen=True):
    """A table for each shard of documents."""

    root: str
    is_published: bool = False  # signatures come with the documents
    verb: ClassVar[str] = "sign"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that signatures are made of."""
        return ("id",) if self.is_published else ("id", "text")

    def open(self, unit: Unit, shard: str) -> "TableSink":
        """See `dolma_dask.sinks.sink.Output`."""
        return TableSink(self.root, unit.name, shard)


class TableSink(FileSink[MinHashTable]):
    """Writes the table of one shard."""

    def __init__(self, root: str, path: str, shard: str) -> None:
        super().__init__(MinHashTable(root, path), without_signature=0)
        self._ids = RisingPlaces(layout.document_path(shard))

    def write(self, rows: DocumentRows) -> None:
        """See `dolma_dask.sinks.sink.Sink`."""
        if not len(rows.batch):
            return
        parts = list(self._ids.parts(rows.batch.column("id")))
        signed = rows.signed if isinstance(rows, SignedRows) else PUBLISHED.sign(rows.batch.column("text"))
        is_there = signed.kinds != ABSENT
        valid = PUBLISHED.has_signature(signed.kinds)
        for start, stop, shard_id, numbers in parts:
            own = start + np.flatnonzero(is_there[start:stop])
            self.writer.add(shard_id, numbers[own - start], signed.values[own], valid[own])
        self.counts["without_signature"] += int((is_there & ~valid).sum())
        if isinstance(rows, SignedRows):
            self.counts["not_in_tables"] += int((~is_there).sum())


class DuplicateOutput(Struct, frozen=True):
    """A table of duplicates for each shard of documents."""

    root: str
    verb: ClassVar[str] = "sign"
    columns: ClassVar[tuple[str, ...]] = ("id", "metadata")

    def open(self, unit: Unit, shard: str) -> "DuplicateSink":
        """See `dolma_dask.sinks.sink.Output`."""
        return DuplicateSink(self.root, unit.name, shard)


class DuplicateSink(FileSink[DuplicateTable]):
    """Writes the table of duplicates of one shard."""

    def __init__(self, root: str, path: str, shard: str) -> None:
        super().__init__(DuplicateTable(root, path), duplicates=0)
        self._ids = RisingIds(layout.document_path(shard))

    def write(self, rows: DocumentRows) -> None:
        """See `dolma_dask.sinks.sink.Sink`."""
        if not len(rows.batch):
            return
        shard_id, numbers = self._ids.split(rows.batch.column("id"))
        fields, _ = scan_metadata(rows.batch.column("metadata"), {f"{PREFIX}digest": "string"})
        self.writer.add(shard_id, numbers, fields[f"{PREFIX}digest"])
        self.counts["duplicates"] += len(numbers)
