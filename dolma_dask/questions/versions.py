"""versions: the sources below a root, their versions, and what lies in each. Files are listed, and journals tell how many documents they hold; nothing else is read."""

import os
from collections.abc import Iterator
from typing import Annotated

from msgspec import Struct

from dolma_dask.dataset import ROOT, Dataset, open_dataset
from dolma_dask.display import counted
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.journal import Journal
from dolma_dask.options.base import Opt
from dolma_dask.options.command import command
from dolma_dask.reading.catalog import Catalog
from dolma_dask.results.answer import Answer
from dolma_dask.results.parts import Fact, Facts, Notes, Part
from dolma_dask.results.table import Column, Table

_RAW = "raw"
_COLUMNS = (
    Column("source", "name"),
    Column("version", "name"),
    Column("files"),
    Column("documents"),
    Column("stored", "size"),
    Column("attribute sets", "words", of=lambda row: ", ".join(row.attributes)),
)


class VersionRow(Struct, frozen=True):
    """A version of a source."""

    source: str
    version: str
    files: int  # of documents; of ``raw`` all of them
    documents: int | None  # as journals tell; None if they do not know each file
    stored: int  # bytes of these files
    attributes: tuple[str, ...]  # names of its attribute sets


class Versions(Answer, frozen=True):
    """The sources below a root; prints as a table. ``versions.open("wiki", "v1")`` is a dataset."""

    root: str
    rows: tuple[VersionRow, ...]
    notes: tuple[str, ...] = ()

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the sources."""
        return tuple(dict.fromkeys(row.source for row in self.rows))

    def open(self, source: str, version: str) -> Dataset:
        """Return a version as a dataset.

        Raises `UsageError`: it is not there, or holds no documents.
        """
        return open_dataset(self.root, source=source, version=version)

    def parts(self) -> Iterator[Part]:
        """Yield how many there are, and the table."""
        yield Facts(f"versions below {self.root}", [Fact("sources", len(self.sources), "integer")])
        yield Table.of("", _COLUMNS, self.rows)
        yield Notes(self.notes)


@command
def versions(
    root: Annotated[
        str | None,
        Opt(
            "Folder or URL with sources/<source>/<version> in it, or <source>/<version>; by default DOLMA_DASK_ROOT of the environment."
        ),
    ] = None,
    /,
) -> Versions:
    """List the sources below a root, with their versions, documents and attribute sets.

    Example: dolma-dask versions corpus

    Returns
    -------
    Versions
    """
    given = root or os.environ.get(ROOT)
    if not given:
        raise UsageError(
            f"no root; expected a folder or URL with sources/<source>/<version> in it, or {ROOT} in the environment."
        )
    base = files.normalize(given)
    folder = files.join(base, "sources") if "sources" in files.list_folders(base) else base
    found = [
        row
        for source in _folders(folder)
        for version in _folders(files.join(folder, source))
        if (row := _row(folder, source, version)) is not None
    ]
    if not found:
        raise UsageError(
            f"{base} holds no version of a source; expected sources/<source>/<version>/{layout.DOCUMENTS}, or sources/<source>/{_RAW}. "
            "Other datasets: dolma-dask status ROOT"
        )
    unknown = sum(row.documents is None and row.version != _RAW for row in found)
    told = f"{counted(unknown, 'version')} whose documents no journal counts; dolma-dask validate does"
    return Versions(base, tuple(found), (told,) if unknown else ())


def _folders(url: str) -> list[str]:
    return sorted(name for name in files.list_folders(url) if not name.startswith(("_", ".")))


def _row(folder: str, source: str, version: str) -> VersionRow | None:
    root = files.join(folder, f"{source}/{version}")
    below = files.list_folders(root)
    if layout.DOCUMENTS not in below:
        if version != _RAW:
            return None
        infos = [info for info in files.list_files(root) if not info.path.startswith(layout.OF_RUNS)]
        return VersionRow(source, version, len(infos), None, sum(info.bytes for info in infos), ())
    try:
        dataset = open_dataset(root)
    except UsageError:  # its folder is empty
        return VersionRow(source, version, 0, 0, 0, ())
    count = len(dataset.shards)
    return VersionRow(source, version, count, _documents(dataset), dataset.bytes, dataset.attributes)


def _documents(dataset: Dataset) -> int | None:
    """Return the documents of a dataset, if journals have a record of each of its files as it is."""
    known: dict[tuple[str, int], int] = {}
    for record in Journal(dataset.root, "validate").records.values():
        if "documents_in" in record.counts:
            known |= {(one.path, one.bytes): int(record.counts["documents_in"]) for one in record.inputs}
    for path, (_, record) in Catalog(dataset).written.items():
        known |= {(one.path, one.bytes): one.rows for one in record.files if one.path == path}
    counts = [known.get((layout.document_path(shard.path), shard.bytes)) for shard in dataset.shards]
    return None if None in counts else sum(count or 0 for count in counts)
