"""The search of ids below roots: hits of the index of each folder, each compared with what stands in its row."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.dataset import DEPTH
from dolma_dask.errors import CorruptFileError
from dolma_dask.formats import layout
from dolma_dask.formats.segments import FOLDER
from dolma_dask.io import files
from dolma_dask.questions.tracing.index import FolderIndex, Hit, IndexOptions, forget, open_index
from dolma_dask.questions.tracing.origins import Documents
from dolma_dask.questions.tracing.places import (
    AttributePlace,
    ClusterPlace,
    DocumentPlace,
    DroppedPlace,
    FoundId,
    IndexPlace,
    QuarantinePlace,
    TokenPlace,
)
from dolma_dask.reading.id_files import QuarantinedRecord
from dolma_dask.reading.indexes import indexed_datasets
from dolma_dask.reading.one_row import read_attributes, read_line, read_row, read_table_row
from dolma_dask.reading.roots import Roots, roots_below
from dolma_dask.reading.segments import read_segments

Place = Any


class Searched(Struct, frozen=True, dict=True):
    """Folders below some roots, with their indexes."""

    roots: tuple[Roots, ...]
    options: IndexOptions

    @classmethod
    def below(cls, roots: Sequence[str], options: IndexOptions, depth: int = DEPTH) -> "Searched":
        """Return what is below roots; a folder below several of them is searched once."""
        return cls(tuple(roots_below(root, depth) for root in roots), options)

    @cached_property
    def folders(self) -> list[str]:
        """URLs of all folders with ids."""
        every = (one.url(path) for one in self.roots for path in (*one.datasets, *one.tokens, *one.dropped))
        return list({files.resolved(url): url for url in every}.values())

    @cached_property
    def untraced(self) -> list[str]:
        """Folders of token files that have no segments."""
        every = [one.url(path) for one in self.roots for path in one.tokens]
        return [url for url in every if FOLDER not in files.list_folders(url)]

    def find(self, ids: Sequence[str], source: str | None = None) -> list[FoundId]:
        """Return the places of ids; with a source, those of documents of it, or of none."""
        found = {id: FoundId(id) for id in ids}
        for folder in self.folders:
            index = _Folder(folder, open_index(folder, self.options), self.options)
            for id, known in found.items():
                found[id] = _with(known, index.places(id), source)
        return [self._beside(one) for one in found.values()]

    def _beside(self, found: FoundId) -> FoundId:
        """Return the places of an id with those that follow from its documents."""
        datasets = {files.resolved(one.dataset) for one in found.documents}
        indexes = [
            IndexPlace(index, dataset)
            for index, dataset in self._indexed
            if files.resolved(dataset) in datasets
        ]
        attributes = [place for one in found.documents for place in attributes_of(one, self._documents)]
        return replace(found, attributes=tuple(attributes), indexes=tuple(indexes))

    @cached_property
    def _documents(self) -> Documents:
        return Documents()

    @cached_property
    def _indexed(self) -> list[tuple[str, str]]:
        """Indexes of `dedupe`, and the datasets in them."""
        every = [one.url(path) for one in self.roots for path in one.indexes]
        return [(url, one.place(url)) for url in every for one in indexed_datasets(url)]


def _with(found: FoundId, places: Sequence[tuple[str, Place]], source: str | None) -> FoundId:
    """Return the places of an id with more of them; those of another source are left out."""
    more: dict[str, tuple[Place, ...]] = {}
    for name, place in places:
        own = getattr(place, "source", None)
        if source is None or own is None or own == source:
            more[name] = (*more.get(name, getattr(found, name)), place)
    return replace(found, **more)


class _Folder:
    """A folder with its index."""

    def __init__(self, url: str, index: FolderIndex, options: IndexOptions) -> None:
        self.url, self.index, self.options = url, index, options

    def places(self, id: str) -> list[tuple[str, Place]]:
        """Return the places of an id, each with its kind."""
        try:
            hits = self.index.find(id)
        except CorruptFileError:
            forget(self.index)
            self.index = open_index(self.url, self.options)
            hits = self.index.find(id)
        return [found for hit in hits for found in _PLACES[hit.file.kind](self.url, hit, id)]


Places = Iterator[tuple[str, Place]]


def _document(root: str, hit: Hit, id: str) -> Places:
    row = read_row(files.join(root, hit.file.path), hit.row, hit.start, ("id", "source"))
    if row is not None and row["id"] == id:
        yield "documents", DocumentPlace(root, hit.file.path, hit.row, id, row["source"])


def _tokens(root: str, hit: Hit, id: str) -> Places:
    file = hit.file.path.removeprefix(f"{FOLDER}/").removesuffix(".parquet")
    for one in read_segments(root, file, [hit.row]).to_pylist():
        if one["id"] == id:
            known = {
                name: one[name] for name in ("row", "place", "size", "start", "source", "path", "document")
            }
            yield "tokens", TokenPlace(root, file, **known)


def _cluster(root: str, hit: Hit, id: str) -> Places:
    row = read_table_row(files.join(root, hit.file.path), hit.row)
    if row is not None and row["id"] == id:
        name = hit.file.path.removeprefix(f"{layout.CLUSTERS}/").removesuffix(".parquet")
        where = [row.get("cluster_dataset"), row["cluster_shard"], f"row {row['cluster_row']:,}"]
        known = {key: row[key] for key in ("shard", "row", "source", "size", "survivor")}
        cluster = " ".join(filter(None, where))
        yield "clusters", ClusterPlace(root, name, row.get("dataset", "."), **known, cluster=cluster)


def _quarantined(root: str, hit: Hit, id: str) -> Places:
    line = read_line(files.join(root, hit.file.path), hit.row)
    record = None if line is None else msgspec.json.decode(line, type=QuarantinedRecord)
    if record is not None and id in record.values():
        yield (
            "quarantine",
            QuarantinePlace(root, hit.file.path, hit.row, record.url, record.row, record.reason),
        )


class _DroppedLine(Struct):
    id: str | None
    source: str | None
    shard: str
    row: int
    reasons: tuple[str, ...]


def _dropped(root: str, hit: Hit, id: str) -> Places:
    line = read_line(files.join(root, hit.file.path), hit.row, hit.start)
    row = None if line is None else msgspec.json.decode(line, type=_DroppedLine)
    if row is not None and row.id == id:
        known = row.source, row.shard, row.row, row.reasons
        yield "dropped", DroppedPlace(root, hit.file.path, hit.row, *known)


_PLACES = {
    "documents": _document,
    "segments": _tokens,
    "clusters": _cluster,
    "quarantine": _quarantined,
    "dropped": _dropped,
}


# ------------------------------------------------------------------------------------------------ attributes


def attributes_of(place: DocumentPlace, documents: Documents) -> Iterator[AttributePlace]:
    """Yield the rows of attribute files beside a document."""
    shard = place.path.removeprefix(f"{layout.DOCUMENTS}/")
    for name in files.list_folders(files.join(place.dataset, layout.ATTRIBUTES)):
        paths = (f"{layout.ATTRIBUTES}/{name}/{path}" for path in layout.attribute_candidates(shard))
        path = next((path for path in paths if files.stat(files.join(place.dataset, path))), None)
        if path is not None:
            start = documents.start(place.dataset, path, place.row)
            id, values = read_attributes(files.join(place.dataset, path), place.row, start)
            shown = {key: summary_of(value) for key, value in values.items()}
            is_stale = id is not None and id != place.id
            yield AttributePlace(place.dataset, name, path, place.row, shown, is_stale)


def summary_of(value: Any) -> Any:
    """Return the value of an attribute in brief: the score of a single span, else how many there are."""
    if not isinstance(value, list):
        return value
    score = value[0][2] if len(value) == 1 and isinstance(value[0], list) and len(value[0]) == 3 else None
    return f"{len(value)} spans" if score is None else score
