"""What a root holds, by one listing: documents and what lines up with them, files with ids, token files, and the journals that speak of them.

Folders of raw files, pages and models are listed as others: nobody knows which of their bytes are of a document.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.dataset import as_recorded
from dolma_dask.formats import layout
from dolma_dask.formats.segments import FOLDER as SEGMENTS_FOLDER
from dolma_dask.formats.segments import segments_path
from dolma_dask.formats.token_files import FORMATS
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.records import FileRecord
from dolma_dask.journal import Journal, Record
from dolma_dask.reading.segments import TokenFile, token_files
from dolma_dask.verbs.remove.changes import Change

Members = tuple[tuple[int, int, int], ...]

_WITH_IDS = (layout.CLUSTERS, "signatures", layout.QUARANTINE, SEGMENTS_FOLDER)
"""Folders of a root whose files name documents."""

_IDS = (*(one.data for one in FORMATS.values()), ".h5")
"""Suffixes of token files; tables may be anything else."""

TOKEN_VERBS = ("ragged", "hdf5")
"""Verbs that write token files."""

_OWN = (layout.TOMBSTONES, layout.WORK, layout.JOURNAL)


class Place(Struct, frozen=True):
    """A file, by the root that it belongs to; a root is relative to that of the takedown, empty for that itself."""

    root: str
    path: str  # relative to the root
    info: FileInfo  # relative to the root of the takedown

    @property
    def whole(self) -> str:
        """Path relative to the root of the takedown."""
        return self.info.path


class TokenPlace(Struct, frozen=True):
    """A token file."""

    path: str  # of its ids, relative to the root of the takedown
    file: TokenFile
    segments: str | None  # the file of its segments, likewise

    @property
    def folder(self) -> str:
        """Folder of the file, relative to the root of the takedown."""
        return self.path.rpartition("/")[0]


class Reading(Struct, frozen=True):
    """A way to read documents, as a run did."""

    source: str | None = None
    ids_as_text: bool = False


class Listing(Struct, frozen=True, dict=True):
    """Files at and below a root."""

    root: str
    infos: Mapping[str, FileInfo]  # by path

    @classmethod
    def of(cls, root: str) -> "Listing":
        """List a root."""
        return cls(root, {info.path: info for info in files.list_files(root)})

    @cached_property
    def journals(self) -> list[Journal]:
        """Journals of all verbs below all roots, but that of takedowns."""
        found: dict[tuple[str, str], None] = {}
        for path in self.infos:
            folder, mark, rest = f"/{path}".partition(f"/{layout.JOURNAL}/")
            verb = rest.split("/")[0]
            if mark and verb != "remove" and "/" in rest:
                found[folder.strip("/"), verb] = None
        return [Journal(self.url(root), verb) for root, verb in sorted(found)]

    def place_of(self, journal: Journal) -> str:
        """Return the root of a journal, relative to this one."""
        return journal.root.removeprefix(self.root).strip("/")

    def url(self, path: str) -> str:
        """Return the URL of a path below the root."""
        return files.join(self.root, path)

    @cached_property
    def datasets(self) -> tuple[str, ...]:
        """Roots of all datasets."""
        return tuple(dict.fromkeys(place.root for place in self.documents))

    @cached_property
    def documents(self) -> list[Place]:
        """Files of documents; their paths are below ``documents/``."""
        return [place for place in self._below(layout.DOCUMENTS) if layout.suffix_of(place.path)]

    def attributes_of(self, document: Place) -> Iterator[tuple[str, str]]:
        """Yield the attribute sets of a file of documents, each with its file."""
        for name, known in self._attributes.get(document.root, {}).items():
            candidates = [path for path in layout.attribute_candidates(document.path) if path in known]
            if len(candidates) > 1:
                candidates = [
                    path for path in candidates if path == document.path or not self._is_shard(document, path)
                ]
            for path in candidates[:1]:
                yield name, known[path].whole

    @cached_property
    def orphans(self) -> list[Place]:
        """Attribute files of documents that are not there."""
        taken = {path for document in self.documents for _, path in self.attributes_of(document)}
        return [
            place
            for sets in self._attributes.values()
            for known in sets.values()
            for place in known.values()
            if place.whole not in taken and layout.suffix_of(place.whole)
        ]

    @cached_property
    def with_ids(self) -> list[Place]:
        """Further files that name documents: bad and dropped records, signatures, clusters, published tables, orphans."""
        found = {place.whole: place for place in self.orphans}
        for path, info in self.infos.items():
            parts = path.split("/")
            folder = next((part for part in parts if part in (*_WITH_IDS, *_OWN)), "")
            if path in self._data or path in self._token_files or path in self._segments:
                continue
            if folder in _WITH_IDS and layout.suffix_of(path):
                at = parts.index(folder)
                found[path] = Place("/".join(parts[:at]), "/".join(parts[at:]), info)
            elif not folder and path in self._recorded and layout.suffix_of(path):
                root = self._recorded[path]
                found[path] = Place(root, path.removeprefix(root).strip("/"), info)
        return list(found.values())

    @cached_property
    def tokens(self) -> list[TokenPlace]:
        """Token files, by the file of their ids."""
        return [TokenPlace(path, file, self._segments_of(path)) for path, file in self._token_files.items()]

    def _segments_of(self, path: str) -> str | None:
        """Return the file of the segments of a token file, if it has one: in its folder, or in one above, as the root of the output may be."""
        folder = path
        while folder:
            folder = folder.rpartition("/")[0]
            found = f"{folder}/{segments_path(path.removeprefix(folder).strip('/'))}".strip("/")
            if found in self.infos:
                return found
        return None

    @cached_property
    def others(self) -> list[str]:
        """Files that nobody looks into, but for the bytes of ids."""
        known = {
            *self._data,
            *(place.whole for place in self.with_ids),
            *self._token_files,
            *self._beside_tokens,
            *self._segments,
        }
        return [path for path in self.infos if path not in known and not _is_own(path)]

    def unchanged(self, changes: Iterable[Change]) -> dict[str, int]:
        """Return how many files of each kind are not among some changes."""
        changed = {change.path for change in changes}
        kinds: dict[str, Set[str]] = {
            "documents and attributes": self._data,
            "files that name documents": {place.whole for place in self.with_ids},
            "token files": self._token_files.keys(),
            "other files": {*self.others},
        }
        return {kind: len(paths - changed) for kind, paths in kinds.items()}

    def made_of(self, path: str) -> frozenset[tuple[str, int]]:
        """Return what a file was made of, as far as journals tell: checksum and bytes of each input."""
        return frozenset(
            (item.checksum, item.bytes) for record in self._records.get(path, ()) for item in record.inputs
        )

    def made_with(self, path: str) -> tuple[FileRecord, ...]:
        """Return the files that were written together with one, itself among them; their paths are relative to the root."""
        for record in self._records.get(path, ()):
            for file in record.files:
                root = path.removesuffix(file.path)
                if f"/{path}".endswith(f"/{file.path}"):
                    return tuple(replace(one, path=root + one.path) for one in record.files)
        return ()

    def members_of(self, path: str) -> tuple[FileRecord, ...]:
        """Return what journals know of a file."""
        return tuple(self._file_records.get(path, ()))

    def readings(self, root: str) -> tuple[Reading, ...]:
        """Return the ways in which runs have read the documents of a dataset."""
        found = dict.fromkeys([Reading()])
        for journal in self.journals:
            for run in journal.runs if self.place_of(journal) == root else ():
                found[Reading(**as_recorded(run.params))] = None
                if run.params.get("source"):
                    found[Reading(None, bool(run.params.get("ids_as_text")))] = None
        return tuple(found)

    # how files are sorted out

    @cached_property
    def _data(self) -> set[str]:
        attributes = (
            place.whole
            for sets in self._attributes.values()
            for known in sets.values()
            for place in known.values()
        )
        return {*(place.whole for place in self.documents), *attributes}

    def _below(self, folder: str) -> Iterator[Place]:
        for path, info in self.infos.items():
            root, mark, rest = f"/{path}".partition(f"/{folder}/")
            if mark and not any(part.startswith("_") for part in root.split("/")):
                yield Place(root.strip("/"), rest, info)

    @cached_property
    def _attributes(self) -> dict[str, dict[str, dict[str, Place]]]:
        """Attribute files by dataset, set and path below the set."""
        found: dict[str, dict[str, dict[str, Place]]] = {}
        for place in self._below(layout.ATTRIBUTES):
            name, mark, rest = place.path.partition("/")
            if mark and f"/{layout.DOCUMENTS}/" not in f"/{place.root}/":
                found.setdefault(place.root, {}).setdefault(name, {})[rest] = replace(place, path=rest)
        return found

    def _is_shard(self, document: Place, path: str) -> bool:
        return f"{document.root}/{layout.DOCUMENTS}/{path}".strip("/") in self.infos

    @cached_property
    def _recorded(self) -> dict[str, str]:
        """Files that a record names, and the root of its journal."""
        return {
            f"{root}/{path}".strip("/"): root
            for journal in self.journals
            for root in [self.place_of(journal)]
            for path in journal.by_file()
        }

    @cached_property
    def _records(self) -> dict[str, list[Record]]:
        """Records that tell what a file was made of: those that name it, and of HDF5 that of all rows."""
        found: dict[str, list[Record]] = {}
        for journal in self.journals:
            root, whole = self.place_of(journal), journal.records.get("tokens")
            for record in journal.records.values():
                both = (record,) if whole is None or journal.verb != "hdf5" else (record, whole)
                for file in record.files:
                    found.setdefault(f"{root}/{file.path}".strip("/"), []).extend(both)
        return found

    @cached_property
    def _file_records(self) -> dict[str, list[FileRecord]]:
        found: dict[str, list[FileRecord]] = {}
        for journal in self.journals:
            root = self.place_of(journal)
            for record in journal.records.values():
                for file in record.files:
                    found.setdefault(f"{root}/{file.path}".strip("/"), []).append(file)
        return found

    @cached_property
    def _token_files(self) -> dict[str, TokenFile]:
        """Token files by path; their own paths are relative to their folder."""
        folders = dict.fromkeys(
            path.rpartition("/")[0]
            for path in self.infos
            if path.endswith(_IDS)
            and path not in self._data
            and not _is_own(path)
            and f"{SEGMENTS_FOLDER}/" not in path
        )
        return {
            f"{folder}/{file.path}".strip("/"): file
            for folder in folders
            for file in token_files(self.url(folder))
            if f"{folder}/{file.path}".strip("/") not in self._data
        }

    @cached_property
    def _segments(self) -> set[str]:
        """Segments of token files that are there."""
        return {place.segments for place in self.tokens if place.segments is not None}

    @cached_property
    def _beside_tokens(self) -> set[str]:
        found = set()
        for path, file in self._token_files.items():
            if file.format != "hdf5":
                stem = path.removesuffix(FORMATS[file.format].data)
                found |= {stem + suffix for suffix in FORMATS[file.format].beside}
        return found


def _is_own(path: str) -> bool:
    return any(part in _OWN for part in path.split("/"))
