"""The index of the ids below a folder: made once, kept in the user's cache, renewed where the listing says that a file has changed.

What a worker finds in some files is a run of sorted keys; runs and what stays of the old index are merged range by range. A build that is stopped goes on with the runs that are there.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.engine.mapping import gather
from dolma_dask.engine.plan import Task
from dolma_dask.errors import CorruptFileError
from dolma_dask.formats.json import NOT_JSON
from dolma_dask.io import files
from dolma_dask.io.files import grouped
from dolma_dask.io.stored import Member
from dolma_dask.io.user_cache import cache_folder, locked, remove_old
from dolma_dask.options.base import Opt
from dolma_dask.options.groups import PlaceOptions
from dolma_dask.reading.id_files import FileIds, IdFile, id_files, with_points
from dolma_dask.reading.id_index import (
    IdIndex,
    Places,
    Renumbered,
    check_files,
    key_of,
    place_of,
    write_index,
)

VERSION = 1
"""Raised whenever other rows of a file have ids, or the head has another form."""

TASK_BYTES = 64 << 20
"""Stored bytes of small files that are read together."""

MAX_TASKS = 256
"""Tasks, each with a run: larger ones where there is more to read."""


DAY = 86_400.0
"""Seconds after which an index that is used is marked so."""


class Hit(NamedTuple):
    """A row that should have an id."""

    file: IdFile
    row: int
    start: Member  # a point at or before it


class Head(Struct, frozen=True):
    """Files of an index."""

    version: int
    root: str
    files: tuple[IdFile, ...]


class FolderIndex:
    """The index of a folder, open."""

    def __init__(self, path: Path) -> None:
        """Open an index.

        Raises `CorruptFileError`: it is damaged, or of another release. Raises `OSError`: there is none.
        """
        self.index = IdIndex(path)
        try:
            self.head = msgspec.json.decode(self.index.head, type=Head)
        except NOT_JSON as error:
            raise self.index.damaged("another form") from error
        if self.head.version != VERSION:
            raise self.index.damaged(f"version {self.head.version}")

    def holds(self, listed: Sequence[IdFile]) -> bool:
        """Tell whether it is of these files."""
        known = self.head.files
        return len(known) == len(listed) and all(map(IdFile.is_same, known, listed))

    def find(self, id: str) -> list[Hit]:
        """Return the rows that may have an id, in the order of the listing."""
        places = map(place_of, self.index.find(key_of(id)))
        found = [(self.head.files[number], row) for number, row in dict.fromkeys(places)]
        return [Hit(file, row, file.start_of(row)) for file, row in found]


Points = dict[int, tuple[tuple[int, int, int], ...]]
"""Points of files, see `IdFile.members`."""


class FoundRun(NamedTuple):
    """Records of the files of a task."""

    name: str
    places: Places
    points: Points  # by number of the file


class ReadIds(Struct, frozen=True):
    """Reads the ids of files; see `dolma_dask.engine.mapping.gather`."""

    verb: ClassVar[str] = "find"

    def run_shard(self, task: Task) -> FoundRun:
        """Return the records of some files in order."""
        pieces: Sequence[FileIds] = task.work
        parts = [
            Places.of(ids, piece.number, rows) for piece in pieces for rows, ids in piece.read() if len(rows)
        ]
        return FoundRun(task.shard, Places.joined(parts), {one.number: one.points() for one in pieces})


@dataclass(frozen=True, kw_only=True)
class IndexOptions(PlaceOptions):
    """`PlaceOptions`, and whether the index is believed."""

    overwrite: Annotated[
        bool,
        Opt("Read the ids of all files again, whatever the index in the user's cache says.", is_flag=True),
    ] = False


def open_index(root: str, options: IndexOptions) -> FolderIndex:
    """Return the index of the files of a folder as they are now.

    Raises `StageError`: a file cannot be read.
    """
    listed = id_files(root)
    check_files(len(listed), root)
    path = _folder() / f"{xxhash.xxh3_128_hexdigest(files.resolved(root).encode())}.ids"
    if (known := _current(path, listed, options)) is not None:
        _mark_used(path)
        return known
    with locked(path):
        if (known := _current(path, listed, options)) is not None:  # another process has made it meanwhile
            return known
        remove_old(path.parent)
        _build(path, root, listed, None if options.overwrite else _opened(path), options)
    return FolderIndex(path)


def _current(path: Path, listed: Sequence[IdFile], options: IndexOptions) -> FolderIndex | None:
    known = None if options.overwrite else _opened(path)
    return known if known is not None and known.holds(listed) else None


def _mark_used(path: Path) -> None:
    with suppress(OSError):
        if path.stat().st_mtime < time.time() - DAY:
            os.utime(path)


def forget(index: FolderIndex) -> None:
    """Remove an index that is damaged."""
    index.index.path.unlink(missing_ok=True)


@cache
def _folder() -> Path:
    """Return the folder of indexes: in the user's cache, or one of this process where nothing can be written there."""
    with suppress(OSError, RuntimeError):
        folder = cache_folder("find")
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    return Path(_kept().name)


@cache
def _kept() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="dolma_dask-find-")


_open: dict[Path, tuple[tuple[int, int, int], FolderIndex]] = {}


def _opened(path: Path) -> FolderIndex | None:
    """Return the index in a file, from memory if this process has it; None if there is none, or none that can be used."""
    try:
        status = path.stat()
        stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
        if path not in _open or _open[path][0] != stamp:
            _open[path] = stamp, FolderIndex(path)
        return _open[path][1]
    except (OSError, CorruptFileError):
        _open.pop(path, None)
        return None


# ------------------------------------------------------------------------------------------------ building


def _build(
    path: Path, root: str, listed: Sequence[IdFile], known: FolderIndex | None, options: PlaceOptions
) -> None:
    """Write the index of some files, of which those are read that the known one lacks."""
    old = {} if known is None else {file.path: (number, file) for number, file in enumerate(known.head.files)}
    kept = {
        n: old[file.path]
        for n, file in enumerate(listed)
        if file.path in old and file.is_same(old[file.path][1])
    }
    pieces = [FileIds(root, n, file) for n, file in enumerate(with_points(root, listed)) if n not in kept]
    runs = _runs(path.with_suffix(".runs"), pieces, options)
    files_now = {n: file for n, (_, file) in kept.items()} | _with_points(pieces, runs)
    head = Head(VERSION, root, tuple(files_now[n] for n in range(len(listed))))
    parts = [] if known is None else [Renumbered(known.index, _numbers(len(old), kept))]
    try:
        write_index(path, [*parts, *runs], msgspec.json.encode(head))
    except CorruptFileError:  # of an old index some blocks may be damaged
        path.unlink(missing_ok=True)
        if known is None:
            raise
        _build(path, root, listed, None, options)
    shutil.rmtree(path.with_suffix(".runs"), ignore_errors=True)


def _numbers(count: int, kept: Mapping[int, tuple[int, IdFile]]) -> npt.NDArray[np.int64]:
    """Return the new numbers of so many files, -1 for those that are read again or gone."""
    numbers = np.full(count, -1, np.int64)
    for new, (before, _) in kept.items():
        numbers[before] = new
    return numbers


def _runs(folder: Path, pieces: Sequence[FileIds], options: PlaceOptions) -> list[IdIndex]:
    """Read files, and return what was found as runs; those of a build that was stopped are not made again."""
    folder.mkdir(exist_ok=True)
    limit = max(TASK_BYTES, sum(piece.file.bytes for piece in pieces) // MAX_TASKS)
    tasks = [Task.of(group) for group in grouped(pieces, lambda piece: piece.file.bytes, limit)]
    paths = {
        task.shard: folder / f"{xxhash.xxh3_128_hexdigest(repr((VERSION, task.work)).encode())}.ids"
        for task in tasks
    }

    def write(found: FoundRun) -> None:
        write_index(paths[found.name], [found.places], msgspec.json.encode(found.points))

    left = [task for task in tasks if _run(paths[task.shard]) is None]
    gather(ReadIds(), left, options, write)
    return [IdIndex(path) for path in paths.values()]


def _run(path: Path) -> IdIndex | None:
    try:
        return IdIndex(path)
    except (OSError, CorruptFileError):
        return None


def _with_points(pieces: Sequence[FileIds], runs: Sequence[IdIndex]) -> dict[int, IdFile]:
    """Return the files that were read, by their numbers."""
    points = {
        number: found for run in runs for number, found in msgspec.json.decode(run.head, type=Points).items()
    }
    return {one.number: replace(one.file, members=points[one.number]) for one in pieces}
