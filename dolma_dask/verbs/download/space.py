"""Sizes of objects before they are fetched, and whether they fit."""

import os
import threading
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue

from dolma_dask.display import counted
from dolma_dask.errors import DiskFullError
from dolma_dask.io import files
from dolma_dask.io.objects import ObjectSource, Version
from dolma_dask.progress import progress_of
from dolma_dask.verbs.download.selection import Wanted

MAX_ASKED = 1000
"""Objects whose sizes are asked for before a run; those of the others are taken for the mean of their component."""

_FOLDERS = 100
"""Inodes for folders, journals and partial files."""


def ask(
    source: ObjectSource, wanted: Sequence[Wanted], limit: int = MAX_ASKED, progress: bool = False
) -> dict[str, Version | None]:
    """Return what up to `limit` objects, spread evenly over all, are now, by path; None: there is none. `progress` shows how many have been asked for.

    Raises `StoreUnreachableError`: a host does not answer.
    """
    count = min(limit, len(wanted))
    chosen = [wanted[number * len(wanted) // count] for number in range(count)]
    if not chosen:
        return {}
    answers: dict[str, Version | None] = {}
    with progress_of("download-sizes", 0, count, progress) as bar:
        for path, version in _all_looked_at(source, chosen):
            answers[path] = version
            bar.advance(0, 1)
    return answers


def _all_looked_at(source: ObjectSource, wanted: Sequence[Wanted]) -> Iterator[tuple[str, Version | None]]:
    """Yield what each object is now, by path, as answers come. Ctrl-C waits for none: the threads hold nothing that anybody would miss."""
    waiting, found = deque(wanted), SimpleQueue[tuple[str, Version | Exception | None]]()

    def look() -> None:
        with suppress(IndexError):
            while one := waiting.popleft():
                try:
                    found.put((one.path, source.look(one.url)))
                except Exception as error:  # noqa: BLE001 - raised again below
                    found.put((one.path, error))

    for _ in range(min(source.connections, len(wanted))):
        threading.Thread(target=look, name="download-sizes", daemon=True).start()
    try:
        for _ in wanted:
            path, answer = found.get()
            if isinstance(answer, Exception):
                raise answer
            yield path, answer
    finally:
        waiting.clear()


def sizes(wanted: Sequence[Wanted], known: Mapping[str, Version | None]) -> dict[str, int]:
    """Return the size of each object by path: as it is known, else the mean of the known ones in its top folder."""
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for path, version in known.items():
        groups[path.split("/")[0]].append((version and version.bytes) or 0)
    means = {name: sum(group) // len(group) for name, group in groups.items()}
    found = {}
    for one in wanted:
        version = known.get(one.path, Version())
        size = 0 if version is None else version.bytes
        found[one.path] = means.get(one.path.split("/")[0], 0) if size is None else size
    return found


def check_room(target: str, needed: int, count: int, is_estimate: bool) -> None:
    """Check that so many more bytes and files fit below a local target.

    Raises `DiskFullError`: they do not.
    """
    if not files.is_local(target):
        return
    folder = next(path for path in (Path(target), *Path(target).parents) if path.exists())
    room = os.statvfs(folder)
    free = room.f_bavail * room.f_frsize
    about = "about " if is_estimate else ""
    if needed > free:
        raise DiskFullError(
            f"{target}: {about}{_gb(needed)} to fetch in {counted(count, 'file')}, {_gb(free)} free on its file system: {_gb(needed - free)} too few; expected room for all. "
            "Make room, choose another target, or fetch less (--only, fewer components).",
            url=target,
        )
    if room.f_files and count + _FOLDERS > room.f_favail:
        raise DiskFullError(
            f"{target}: {counted(count, 'file')} to fetch, room for {room.f_favail:,} more on its file system (inodes); expected room for all. Remove files, choose "
            "another target, or fetch less (--only, fewer components).",
            url=target,
        )


def _gb(size: int) -> str:
    return f"{size / 1e9:,.2f} GB" if size >= 10**7 else f"{size / 1e6:,.2f} MB"
