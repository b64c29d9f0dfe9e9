"""What a verb read, as it is now: its own dataset, another one or raw files; listed once, no file opened."""

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.journal import Journal, Record, RunRecord

FRESH, TOUCHED, GONE, CHANGED = 0, 1, 2, 3
"""Inputs are what was read; have other time stamps and the old sizes; none is there; some have other sizes or are gone."""


@dataclass
class Listing:
    """The files below a root, listed once."""

    root: str

    @cached_property
    def files(self) -> dict[str, FileInfo]:
        """By path relative to the root."""
        return {info.path: info for info in files.list_files(self.root)}

    def below(self, folder: str) -> list[str]:
        """Return the paths below a folder."""
        return [path for path in self.files if path.startswith(f"{folder}/")]

    @cached_property
    def shards(self) -> set[str]:
        """Stems of the document files."""
        paths = (path.removeprefix(f"{layout.DOCUMENTS}/") for path in self.below(layout.DOCUMENTS))
        return {layout.stem_of(path) for path in paths if layout.suffix_of(path)}


@dataclass
class Origin:
    """What a verb read: its own dataset, another one, or raw files."""

    root: str
    known: dict[str, FileInfo | None] = field(default_factory=dict)
    shards: set[str] | None = None

    def state(self, record: Record) -> int:
        """Tell whether the inputs of a record are what was read; `GONE` if none of them is there."""
        states = [
            self._state(item.path, item.bytes, item.stamp) for item in record.inputs if _is_file(item.path)
        ]
        if GONE in states:
            return GONE if states.count(GONE) == len(states) else CHANGED
        return max(states, default=FRESH)

    def _state(self, path: str, size: int, stamp: str) -> int:
        if path not in self.known:
            self.known[path] = files.stat(files.join(self.root, path)) if files.is_local(self.root) else None
        info = self.known[path]
        if info is None:
            return GONE
        if info.bytes != size:
            return CHANGED
        return FRESH if info.stamp and info.stamp == stamp else TOUCHED


def reads_files(record: Record) -> bool:
    """Tell whether a record names any file that it was made from."""
    return any(_is_file(item.path) for item in record.inputs)


def _is_file(path: str) -> bool:
    """Tell whether an input is a file below the origin; some records name rows, or files of yet another dataset."""
    return "." in posixpath.basename(path) and ":" not in path.partition("/")[0]


def _origin_of(
    journal: Journal, runs: Sequence[RunRecord], records: Sequence[Record], listed: Listing
) -> Origin:
    """Return where the inputs of some records are: a listing for a dataset, single files elsewhere."""
    origin = runs[-1].origin if runs else ""
    if not origin:
        return Origin(listed.root, dict(listed.files), listed.shards)
    local = files.is_local(journal.root) and files.is_local(origin)
    root = posixpath.normpath(f"{journal.root}/{origin}") if local else origin
    reads_dataset = any(
        item.path.startswith(f"{layout.DOCUMENTS}/") for record in records for item in record.inputs
    )
    if not reads_dataset and local:
        return Origin(root)
    there = Listing(root)
    return Origin(root, dict(there.files), there.shards if reads_dataset and there.shards else None)


class Origins:
    """Where each record's inputs are: runs of one verb may have read from several places."""

    def __init__(
        self, journal: Journal, listed: Listing, runs: Sequence[RunRecord], records: Sequence[Record]
    ) -> None:
        self._journal, self._listed, self._runs, self._records = journal, listed, runs, records
        self._found: dict[str, Origin] = {}

    def of(self, record: Record | None) -> Origin:
        """Return the origin of a record; of the newest run for None."""
        made_by = [run for run in self._runs if record is not None and record.unit.startswith(run.writes)]
        runs = made_by or self._runs
        origin = runs[-1].origin if runs else ""
        if origin not in self._found:
            self._found[origin] = _origin_of(self._journal, runs, self._records, self._listed)
        return self._found[origin]
