"""Several files that are put in place together: all are staged whole first, so that whoever is killed between two of them goes on."""

from collections.abc import Sequence

import msgspec
import xxhash
from msgspec import Struct

from dolma_dask.formats.json import NOT_JSON
from dolma_dask.io import files
from dolma_dask.io.publish import move, publish, remove_for_good
from dolma_dask.verbs.remove.changes import WORK, Change, Work

_STAGED = f"{WORK}/staged"
_READY = "ready.json"


class _Ready(Struct, frozen=True):
    """Says that all files of a shard are staged."""

    path: str  # the shard
    changes: tuple[Change, ...]


class Staged(Struct, frozen=True):
    """The folder in which the files of one shard wait; `path` is its first file, relative to the root, which goes first and comes last."""

    root: str
    path: str

    @property
    def folder(self) -> str:
        """URL of the folder; files lie in it as below the folder of the shard."""
        return files.join(self.root, f"{_STAGED}/{xxhash.xxh3_128_hexdigest(self.path.encode())}")

    def begin(self) -> str:
        """Throw away what a killed run has left, and return the folder."""
        files.remove_tree(self.folder)
        return self.folder

    def ready(self, changes: Sequence[Change]) -> tuple[Change, ...]:
        """Say that all files are staged, and put them in place."""
        with publish(files.join(self.folder, _READY)) as out:
            out.write(msgspec.json.encode(_Ready(self.path, tuple(changes))))
        return self._place(changes)

    def finish(self) -> tuple[Change, ...] | None:
        """Put staged files in place, as far as they are not yet; None if not all were staged."""
        ready = _ready_in(self.folder)
        return None if ready is None else self._place(ready.changes)

    def _place(self, changes: Sequence[Change]) -> tuple[Change, ...]:
        first = [change for change in changes if change.path == self.path]
        if first and not self._is_placed(first[0]):
            files.remove(files.join(self.root, self.path))
        for change in (*(one for one in changes if one.path != self.path), *first):
            if not self._is_placed(change):
                move(self._staged(change), files.join(self.root, change.path))
            Work(self.root).announce(change)
        return tuple(changes)

    def _is_placed(self, change: Change) -> bool:
        url = files.join(self.root, change.path)
        return files.stat(url) is not None and files.checksum(url) == change.after.checksum

    def _staged(self, change: Change) -> str:
        above = self.path.rpartition("/")[0]
        return files.join(self.folder, change.path.removeprefix(above).strip("/"))


def finish_all(root: str) -> None:
    """Put in place what killed runs have staged whole."""
    for name in files.list_folders(files.join(root, _STAGED)):
        ready = _ready_in(files.join(root, f"{_STAGED}/{name}"))
        if ready is not None:
            Staged(root, ready.path).finish()


def _ready_in(folder: str) -> _Ready | None:
    try:
        return msgspec.json.decode(files.read_bytes(files.join(folder, _READY)), type=_Ready)
    except (FileNotFoundError, *NOT_JSON):
        return None


def clear(root: str) -> None:
    """Remove all staged files."""
    remove_for_good(files.join(root, _STAGED))
