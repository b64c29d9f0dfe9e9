"""sign: documents -> the MinHash tables of RedPajama-V2, or its tables of duplicates, one for each shard, for tools that read these.

`dedupe` needs none: it keeps signatures of its own, of any scheme, beside the documents, and reads such tables too. Ids are the published ones,
``<snapshot>/<shard>/<file>/<row>``; rows of a table are numbered by them, so that a selection of documents keeps its numbers. Memory: a few blocks, and 5,000 rows
of 2 kB.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from msgspec import Struct

from dolma_dask.engine import Unit
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.metadata import PREFIX, scan_metadata
from dolma_dask.formats.redpajama import DUPLICATES, MINHASH, RisingIds
from dolma_dask.io import files
from dolma_dask.minhash.published import PUBLISHED
from dolma_dask.options.base import Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import PublishedDocuments
from dolma_dask.outputs.published import PublishedOptions, write_tables
from dolma_dask.results.summary import Summary
from dolma_dask.sinks.redpajama import DuplicateTable, MinHashTable
from dolma_dask.sinks.sink import DocumentRows, FileSink

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

    Raises
    ------
    StageError
        Some shards failed; one with other ids does.
    UsageError
        Published files were combined in the shards; duplicates lack a rule; or an argument is unknown, or has a value that it cannot have.

    Notes
    -----
    13 words to an n-gram, 128 values, seed 42; a document of fewer words has a row without signature. Tables are of published files, one each: of a
    dataset in which `convert` has combined them there are none. `dedupe` needs no tables.
    """
    opened = options.open(dataset)
    root = files.normalize(to)
    if options.component == "minhash":
        minhash = {"minhash": PUBLISHED.params()}
        return write_tables(opened, TableOutput(root), MINHASH, options, minhash, version=VERSION)
    if options.where is None:
        raise UsageError(
            'which documents are duplicates is not said; expected a rule. Name the flags of dedupe: --where "exact is not None".'
        )
    decided = {"component": DUPLICATES.name}
    return write_tables(opened, DuplicateOutput(root), DUPLICATES, options, decided, version=VERSION)


class TableOutput(Struct, frozen=True):
    """A table for each shard of documents."""

    root: str
    verb: ClassVar[str] = "sign"
    columns: ClassVar[tuple[str, ...]] = ("id", "text")

    def open(self, unit: Unit, shard: str) -> "TableSink":
        """See `dolma_dask.sinks.sink.Output`."""
        return TableSink(self.root, unit.name, shard)


class TableSink(FileSink[MinHashTable]):
    """Writes the table of one shard."""

    def __init__(self, root: str, path: str, shard: str) -> None:
        super().__init__(MinHashTable(root, path), without_signature=0)
        self._ids = RisingIds(layout.document_path(shard))

    def write(self, rows: DocumentRows) -> None:
        """See `dolma_dask.sinks.sink.Sink`."""
        if not len(rows.batch):
            return
        shard_id, numbers = self._ids.split(rows.batch.column("id"))
        signed = PUBLISHED.sign(rows.batch.column("text"))
        valid = PUBLISHED.has_signature(signed.kinds)
        self.writer.add(shard_id, numbers, signed.values, valid)
        self.counts["without_signature"] += len(numbers) - int(valid.sum())


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
