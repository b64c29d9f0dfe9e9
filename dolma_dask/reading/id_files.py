"""Files of a folder in whose rows ids stand: documents, segments of token files, clusters, dropped and quarantined records."""

import base64
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from dolma_dask.formats import layout, segments
from dolma_dask.formats.json import NOT_JSON
from dolma_dask.io import files
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.files import FileInfo, Input
from dolma_dask.io.parquet import open_parquet
from dolma_dask.io.stored import START, Member
from dolma_dask.io.stream import StoredFile, compression_of, read_lines
from dolma_dask.journal import Journal
from dolma_dask.reading.entry_points import EntryPoints, last_before, scan_lines

Kind = Literal["documents", "segments", "clusters", "quarantine", "dropped"]

MIN_STEP = 1 << 20
"""Bytes of a plain file between two points at which it can be entered, at least; a larger one has 256 points."""

MAX_VALUE = 1024
"""Characters of a value in a quarantined record that may be its id."""

Rows = npt.NDArray[np.int64]
IdRows = Iterator[tuple[Rows, pa.LargeStringArray]]


class IdFile(Struct, frozen=True, omit_defaults=True):
    """A file as it was listed."""

    kind: Kind
    path: str  # relative to the folder
    bytes: int
    stamp: str
    # points of a file of lines that are known: stored offset, first row, offset in decompressed bytes
    members: tuple[tuple[int, int, int], ...] = ()

    def is_same(self, other: "IdFile | None") -> bool:
        """Tell whether another listing has it unchanged; a store that stamps no file leaves that open."""
        known = (self.kind, self.path, self.bytes, self.stamp)
        return bool(other and self.stamp and known == (other.kind, other.path, other.bytes, other.stamp))

    def start_of(self, row: int) -> Member:
        """Return the last point at or before a row."""
        return last_before([START, *(Member(*one) for one in self.members)], row)


class FileIds(NamedTuple):
    """A file of a folder to read the ids of; small, goes to workers."""

    root: str
    number: int  # in the listing
    file: IdFile

    @property
    def name(self) -> str:
        """Path of the file."""
        return self.file.path

    @property
    def url(self) -> str:
        """Where the file is."""
        return files.join(self.root, self.file.path)

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The file."""
        return (Input(self.url, FileInfo(self.file.path, self.file.bytes, self.file.stamp)),)

    def read(self) -> IdRows:
        """Yield rows (n,) and their ids (n,); one that cannot be read has none."""
        return _READERS[self.file.kind](self.url)

    def points(self) -> tuple[tuple[int, int, int], ...]:
        """Return the points of the file: those that are known, else those of a plain file of lines."""
        is_plain = self.file.kind == "documents" and layout.format_of(self.url) == "jsonl"
        if self.file.members or not is_plain:
            return self.file.members
        found, _ = scan_lines(self.url, max(MIN_STEP, self.file.bytes >> 8))
        return tuple((one.offset, one.row, one.text_offset) for one in found)


def id_files(root: str) -> list[IdFile]:
    """List the files with ids of a folder; those in folders of its own, such as datasets in it, are not among them."""
    folders = set(files.list_folders(root))
    found = [
        file for folder, kind in _FOLDERS.items() if folder in folders for file in _listed(root, folder, kind)
    ]
    if layout.JOURNAL in folders and (names := Journal(root, "dropped").by_file()):
        found += [
            IdFile("dropped", info.path, info.bytes, info.stamp)
            for info in files.list_files(root)
            if info.path in names
        ]
    return found


def with_points(root: str, listed: Sequence[IdFile]) -> list[IdFile]:
    """Return files of lines with the points at which journals know that they can be entered."""
    points = EntryPoints(root)

    def known(file: IdFile) -> IdFile:
        if file.kind not in ("documents", "dropped") or layout.format_of(file.path) == "parquet":
            return file
        members = points.attributes(FileInfo(file.path, file.bytes, file.stamp))
        found = tuple((one.offset, one.row, one.text_offset) for one in members[1:])
        return msgspec.structs.replace(file, members=found)

    return [known(file) for file in listed]


_FOLDERS: Mapping[str, Kind] = {
    layout.DOCUMENTS: "documents",
    segments.FOLDER: "segments",
    layout.CLUSTERS: "clusters",
    layout.QUARANTINE: "quarantine",
}
_SUFFIXES: Mapping[Kind, tuple[str, ...]] = {
    "documents": layout.DOCUMENT_SUFFIXES,
    "segments": (".parquet",),
    "clusters": (".parquet",),
    "quarantine": (".jsonl",),
}


def _listed(root: str, folder: str, kind: Kind) -> Iterator[IdFile]:
    for info in files.list_files(files.join(root, folder)):
        if info.path.endswith(_SUFFIXES[kind]) and (kind != "documents" or layout.suffix_of(info.path)):
            yield IdFile(kind, f"{folder}/{info.path}", info.bytes, info.stamp)


# ------------------------------------------------------------------------------------------------ readers


def _of_documents(url: str) -> IdRows:
    for block in DocumentFile(url, ("id",), ids_as_text=True, checksum=False):
        yield block.first_row + np.arange(block.num_rows), block.batch.column("id")


def _of_clusters(url: str) -> IdRows:
    first = 0
    with open_parquet(url) as file:
        if "id" not in file.schema_arrow.names:
            return  # not of ours
        for batch in file.iter_batches(columns=["id"], use_threads=False):
            yield first + np.arange(batch.num_rows), batch.column("id").cast(pa.large_string())
            first += batch.num_rows


def _of_segments(url: str) -> IdRows:
    """Yield the rows of the token file; a row that has a document twice stands there once."""
    with open_parquet(url) as file:
        for batch in file.iter_batches(columns=["row", "id"], use_threads=False):
            yield np.asarray(batch.column("row")), batch.column("id").cast(pa.large_string())


def _of_quarantine(url: str) -> IdRows:
    for block in read_lines(StoredFile(url), compression_of(url)):
        found = [
            (block.first_row + row, value) for row, line in enumerate(block) for value in _values_in(line)
        ]
        rows = np.array([row for row, _ in found], np.int64)
        yield rows, pa.array([value for _, value in found], pa.large_string())


class QuarantinedRecord(Struct):
    """A line of a quarantine file."""

    url: str
    row: int
    reason: str
    raw_base64: str

    def values(self) -> set[str]:
        """Return what may be its id: all short texts and whole numbers of the record, or what stands behind "id" in one that is no JSON."""
        raw = base64.b64decode(self.raw_base64)
        try:
            found = [*msgspec.json.decode(raw, type=dict[str, Any]).values()]
        except NOT_JSON:
            found = [text for text in map(_decoded, _ID.findall(raw)) if text is not None]
        return {
            str(value) for value in found if isinstance(value, str | int) and len(str(value)) <= MAX_VALUE
        }


_ID = re.compile(rb'"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)')


def _decoded(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except NOT_JSON:
        return None


def _values_in(line: bytes) -> set[str]:
    try:
        return msgspec.json.decode(line, type=QuarantinedRecord).values()
    except (*NOT_JSON, ValueError):
        return set()  # not of ours


_READERS: Mapping[Kind, Callable[[str], IdRows]] = {
    "documents": _of_documents,
    "segments": _of_segments,
    "clusters": _of_clusters,
    "quarantine": _of_quarantine,
    "dropped": _of_documents,
}
