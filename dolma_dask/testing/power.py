"""A disk that forgets: what a power failure may leave of what this process did to files.

Bytes of a file are safe once it is synced, and names in a folder once that is. Before that each may be there or not, in any combination: a file with the right
name and no bytes, half of them, or zeros; a rename, a removal or a new folder that did not happen. `Disk` hears of all operations below a folder (by an audit
hook, and in place of ``os.fsync``, which needs no real disk here), keeps what is removed or replaced until that is safe, and when the power fails takes back
some of what is not.

It hears what Python does, not what C libraries do that open files themselves; the package writes none of its own so.
"""

import os
import random
import shutil
import stat
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, NamedTuple


class _Operation(NamedTuple):
    """An operation that is not safe before a folder, or a file that was written in place, is synced; and how to take it back."""

    path: Path
    undo: Callable[[], object]


class Disk:
    """Operations of this process below a folder, of which some are lost when the power fails.

    Parameters
    ----------
    within : Path
        The folder; what is kept lies beside it.
    at : int
        Number of the operation before which the power fails, from 1 on: a file opened for writing, renamed or removed, a folder made, either of them synced.
    seed : str
        Decides what is lost.
    then : callable
        Ends the process.
    """

    def __init__(self, within: Path, at: int, seed: str, then: Callable[[], None]) -> None:
        self.within, self.at, self.then = within, at, then
        self.count = 0
        self._draw = random.Random(seed)
        self._unsafe: list[_Operation] = []
        self._safe: dict[
            Path, int
        ] = {}  # files that were opened for writing, and how many of their bytes are safe
        self._kept = Path(tempfile.mkdtemp(prefix="kept-", dir=within.parent))
        self._lock = threading.RLock()
        self._own = threading.local()

    def install(self) -> None:
        """Hear of what this process does from now on."""
        sys.addaudithook(self._hear)
        os.fsync = self._sync  # type: ignore[assignment]

    # ------------------------------------------------------------------------------------------- what happens to files

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Hear of an operation before it is done."""
        note = self._NOTES.get(event)
        if note is None or getattr(self._own, "is_at_work", False):
            return
        path = _path(arguments[0])
        if self.within not in path.parents or (
            event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR)
        ):
            return
        with self._lock:
            self._own.is_at_work = True
            try:
                self._step()
                note(self, path, arguments)
            finally:
                self._own.is_at_work = False

    def _step(self) -> None:
        self.count += 1
        if self.count == self.at:
            self.fail()
            self.then()

    def _opened(self, path: Path, arguments: tuple[Any, ...]) -> None:
        if path.is_dir():
            return
        if not path.exists():
            self._note(path.parent, lambda: path.unlink(missing_ok=True))
        elif path not in self._safe:
            old = shutil.copyfile(path, self._place())
            self._note(path, lambda: path.write_bytes(old.read_bytes()))
        if arguments[2] & os.O_APPEND and path.exists():
            self._safe.setdefault(path, path.stat().st_size)
        else:
            self._safe[path] = 0

    def _renamed(self, path: Path, arguments: tuple[Any, ...]) -> None:
        target = _path(arguments[1])
        if not path.exists():
            return
        old = self._keep(target)

        def undo() -> None:
            target.replace(path)
            if old is not None:
                old.replace(target)

        def stay() -> None:
            if not path.exists():
                os.link(target, path)

        if path.parent != target.parent and path.is_file():
            self._note(path.parent, stay)
        self._note(target.parent, undo)
        self._safe = {_moved(one, path, target): safe for one, safe in self._safe.items()}

    def _removed(self, path: Path, arguments: tuple[Any, ...]) -> None:
        old = self._keep(path)
        if old is not None:
            self._note(path.parent, lambda: None if path.exists() else old.replace(path))

    def _tree_removed(self, path: Path, arguments: tuple[Any, ...]) -> None:
        if path.is_dir():
            old = shutil.copytree(path, self._place())
            self._note(path.parent, lambda: None if path.exists() else old.replace(path))

    def _made(self, path: Path, arguments: tuple[Any, ...]) -> None:
        if not path.exists():
            self._note(path.parent, lambda: shutil.rmtree(path))

    _NOTES: ClassVar[dict[str, Callable[["Disk", Path, tuple[Any, ...]], None]]] = {
        "open": _opened,
        "os.rename": _renamed,
        "os.remove": _removed,
        "shutil.rmtree": _tree_removed,
        "os.mkdir": _made,
    }

    def _keep(self, path: Path) -> Path | None:
        """Keep the file whose name is about to be lost."""
        if not path.is_file():
            return None
        kept = self._place()
        os.link(path, kept)
        if path in self._safe:
            self._safe[kept] = self._safe.pop(path)
        return kept

    def _place(self) -> Path:
        return self._kept / str(self.count)

    def _note(self, path: Path, undo: Callable[[], object]) -> None:
        self._unsafe.append(_Operation(path, undo))

    def _sync(self, descriptor: int) -> None:
        """Make the bytes of a file safe, or the names in a folder."""
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if self.within not in (path, *path.parents):
            return
        with self._lock:
            self._own.is_at_work = True
            try:
                self._step()
                status = os.fstat(descriptor)
                if not stat.S_ISDIR(status.st_mode):
                    self._safe[path] = status.st_size
                self._unsafe = [one for one in self._unsafe if one.path != path]
            finally:
                self._own.is_at_work = False

    # ------------------------------------------------------------------------------------------- when the power fails

    def fail(self) -> None:
        """Take back all, none or some of what is not safe."""
        names, content = self._draw.choice((0.0, 0.3, 0.7, 1.0)), self._draw.choice((0.0, 0.5, 1.0))
        for path, safe in sorted(self._safe.items()):
            if path.is_file() and path.stat().st_size > safe and self._draw.random() < content:
                self._lose_bytes(path, safe)
        for operation in reversed(self._unsafe):
            if self._draw.random() < names:
                with suppress(OSError):  # what it stood on is lost too
                    operation.undo()
        shutil.rmtree(self._kept)

    def end(self) -> None:
        """Let the power fail after the last operation."""
        if self._kept.exists():
            self._own.is_at_work = True
            self.fail()

    def _lose_bytes(self, path: Path, safe: int) -> None:
        """Leave a part of the bytes, alone or with zeros in place of the others."""
        size = path.stat().st_size
        half = (safe + size) // 2
        kept, length = self._draw.choice(((safe, safe), (safe, size), (half, half), (half, size)))
        os.truncate(path, kept)
        os.truncate(path, length)


def _path(argument: Any) -> Path:
    """Return the path of an operation; descriptors are of no file that is looked for."""
    return Path() if isinstance(argument, int) else Path.cwd() / os.fsdecode(argument)


def _moved(path: Path, old: Path, new: Path) -> Path:
    """Return where a file is after a file or folder was renamed."""
    return new / path.relative_to(old) if old == path or old in path.parents else path
