"""State of what shards were made from: a listing of a dataset, and of the datasets and raw files that its records name."""

import posixpath
from collections.abc import Iterable, Sequence
from functools import cached_property

from msgspec import Struct, structs

from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.records import InputRecord
from dolma_dask.journal import Record, RunRecord

FRESH, TOUCHED, GONE, CHANGED = 0, 1, 2, 3
"""Inputs are what was read; have other time stamps and the old sizes; none is there; some have other sizes or are gone."""


class Listing(Struct, dict=True):
    """The files below a root, listed once; raw files on a disk, which may be many, are looked at one by one."""

    root: str
    has_documents: bool = True
    skip: tuple[str, ...] = ()  # names of files below documents/ that are left out

    @cached_property
    def files(self) -> dict[str, FileInfo]:
        """By path relative to the root."""
        if files.is_web(self.root) or (not self.has_documents and files.is_local(self.root)):
            return {}
        listed = {info.path: info for info in files.list_files(self.root)}
        above = f"{layout.DOCUMENTS}/"
        skipped = {
            path
            for path in (listed if self.skip else ())
            if path.startswith(above) and layout.is_named(path.removeprefix(above), self.skip)
        }
        return {path: info for path, info in listed.items() if path not in skipped}

    def below(self, folder: str) -> list[str]:
        """Return the paths below a folder."""
        return [path for path in self.files if path.startswith(f"{folder}/")]

    @cached_property
    def shards(self) -> set[str]:
        """Stems of the document files, where records read any."""
        if not self.has_documents:
            return set()
        paths = (path.removeprefix(f"{layout.DOCUMENTS}/") for path in self.below(layout.DOCUMENTS))
        return {layout.stem_of(path) for path in paths if layout.suffix_of(path)}

    def state(self, record: Record) -> int:
        """Tell whether the inputs of a record are what was read; `GONE` if none of them is there, or no document of theirs. Servers are not asked: `download --refresh` does that."""
        if files.is_web(self.root):
            return FRESH
        states = {item.path: self.state_of(item) for item in record.inputs if _is_file(item.path)}
        documents = [state for path, state in states.items() if path.startswith(f"{layout.DOCUMENTS}/")]
        if GONE in states.values():
            return GONE if set(documents or states.values()) == {GONE} else CHANGED
        return max(states.values(), default=FRESH)

    def state_of(self, item: InputRecord) -> int:
        """Tell the same of one input."""
        info = self.files.get(item.path)
        if info is None and files.is_local(self.root) and files.is_inside(item.path):
            info = files.stat(files.join(self.root, item.path))
        if info is None:
            return GONE
        if info.bytes != item.bytes:
            return CHANGED
        return FRESH if info.stamp and info.stamp == item.stamp else TOUCHED

    @cached_property
    def is_there(self) -> bool:
        """True if there is anything at all."""
        if files.is_local(self.root):
            return files.local_path(self.root).exists()
        return bool(self.files)


def reads_files(record: Record) -> bool:
    """Tell whether a record names any file that it was made from."""
    return any(_is_file(item.path) for item in record.inputs)


def _is_file(path: str) -> bool:
    """Tell whether an input is a file below the origin; some records name rows, or files of yet another dataset."""
    return "." in posixpath.basename(path) and ":" not in path.partition("/")[0]


_TABLES = ("tables", "signatures")
"""Options that name a folder of tables; records name its files ``<component>:<path>``."""


class Origins:
    """Places of each record's inputs: runs of one verb may have read from several roots."""

    def __init__(self, listed: Listing, runs: Sequence[RunRecord], records: Iterable[Record]) -> None:
        self._origins = {"": listed}
        self._root, self._runs = listed.root, runs
        paths = (item.path for record in records for item in record.inputs)
        self._read_documents = any(path.startswith(f"{layout.DOCUMENTS}/") for path in paths)

    def state(self, record: Record) -> int:
        """Tell whether the inputs of a record are what was read, its tables among them; where no tables are any more, it stands as it is."""
        state = self.of(record).state(record)
        tables = self._tables_of(record)
        if tables is None or not tables.is_there or state == GONE:
            return state
        parts = ((item, *item.path.partition(":")) for item in record.inputs if not _is_file(item.path))
        named = [structs.replace(item, path=path) for item, _, colon, path in parts if colon]
        states = (tables.state_of(item) for item in named)
        return max([state, *(CHANGED if each == GONE else each for each in states)])

    def _tables_of(self, record: Record) -> Listing | None:
        """Return the folder of tables that the newest run with these outputs has read; None if it has read none."""
        run = self._run_of(record)
        given = [run.params.get(name) for name in _TABLES] if run else []
        url = next((url for url in given if isinstance(url, str) and url), None)
        if url is None or files.is_web(url):
            return None
        return self._origins.setdefault(f"tables {url}", Listing(url, has_documents=False))

    def _run_of(self, record: Record | None) -> RunRecord | None:
        made_by = [run for run in self._runs if record is not None and record.unit.startswith(run.writes)]
        runs = made_by or self._runs
        return runs[-1] if runs else None

    def of(self, record: Record | None) -> Listing:
        """Return the files among which the inputs of a record are; those of the newest run for None."""
        run = self._run_of(record)
        origin = run.origin if run else ""
        if origin not in self._origins:
            is_local = files.is_local(self._root) and files.is_local(origin)
            root = posixpath.normpath(f"{self._root}/{origin}") if is_local else origin
            self._origins[origin] = Listing(root, self._read_documents)
        return self._origins[origin]
