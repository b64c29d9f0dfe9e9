"""A listing by path, of a million files too: as records they take 0.3 kB each, as columns 24 bytes where their paths are held elsewhere; looking one up takes 2 microseconds more."""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from dolma_dask.io.files import FileInfo

FEW = 25_000
"""Files that are kept as records."""

_TIME = "mtime:"


def by_path(infos: Sequence[FileInfo], named: Sequence[str] = ()) -> Mapping[str, FileInfo]:
    """Return files, sorted by their paths as `dolma_dask.io.files.list_files` gives them, by path; `named` are paths that are held elsewhere, and need not be held twice."""
    return {info.path: info for info in infos} if len(infos) <= FEW else _Columns(infos, named)


class _Columns(Mapping[str, FileInfo]):
    """Files by their paths, each made when it is looked at."""

    def __init__(self, infos: Sequence[FileInfo], named: Sequence[str]) -> None:
        paths, named = [info.path for info in infos], list(named)
        self._paths = named if paths == named else paths
        self._bytes = array("q", [info.bytes for info in infos])
        # local stamps are numbers, those of stores any text
        self._stamps: Sequence[int | str] = [info.stamp for info in infos]
        if all(info.stamp.startswith(_TIME) for info in infos):
            with suppress(OverflowError):  # a time beyond the year 2262
                self._stamps = array("q", [int(info.stamp.removeprefix(_TIME)) for info in infos])

    def __getitem__(self, path: str) -> FileInfo:
        at = bisect_left(self._paths, path)
        if at == len(self._paths) or self._paths[at] != path:
            raise KeyError(path)
        stamp = self._stamps[at]
        return FileInfo(path, self._bytes[at], stamp if isinstance(stamp, str) else f"{_TIME}{stamp}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)
