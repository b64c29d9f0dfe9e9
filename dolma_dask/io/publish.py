"""Files that appear whole or not at all.

Locally: a hidden temporary file beside the target, fsync, rename, fsync of the folder. On S3 and Google Cloud Storage: one object that
becomes visible when it is completed: a single request up to 16 MiB, else an upload in parts that is aborted if it fails. On other
stores: a hidden object that is moved to its final name. A killed local writer leaves only a hidden ``.tmp`` file, which `sweep` removes
once the process that made it is gone (if that was on another host: once it is known to be, as a worker is that a run has lost, else after a day). Cost: one fsync per file and
folder, for which tasks do not wait (`dolma_dask.io.waiting`); staging files, which are made again if the power fails, go without.
"""

import errno
import glob
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import xxhash

from dolma_dask.errors import DiskFullError, StoreAccessError, StoreError
from dolma_dask.io import files
from dolma_dask.io.files import is_local, local_path
from dolma_dask.io.stores import FULL, filesystem, patiently
from dolma_dask.io.uploads import begin_upload, rename
from dolma_dask.io.waiting import WrittenFile, let_appear, waiting_here, waits

_SUFFIX = ".tmp"
_TEMPORARY = re.compile(
    rf"\..*\.(?P<space>\w+_\d+)-(?P<pid>\d+)-[0-9a-f]{{8}}{re.escape(_SUFFIX)}", re.DOTALL | re.ASCII
)

EXPIRE_SECONDS = 86400.0
"""After so long without a byte a writer of another host counts as dead; slow functions of users fill a block of 8 MiB for hours."""

gone: set[str] = set()
"""Writers of other hosts that this process knows to be dead, by their `writer`."""

_AT_ONCE = 1 << 17
"""Bytes that are written at once: they stay in the cache for their digest, and the system finds room for so many at half the cost of 16 MiB."""

_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG}
"""Errors of folders in which no file can be made, now or later."""

_NO_FOLDER_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM, errno.EBADF}
"""Errors of file systems that cannot sync a folder; the rename is as durable there as they make it."""

_LATER = "later:"
"""Begins what stands in a record for the stamp of a file that has not appeared."""


class _Unfinished(WrittenFile, Protocol):
    """A file that is being written."""

    def write(self, view: memoryview) -> None: ...
    def finish(self) -> None: ...


class PublishedFile:
    """A file that will appear at `url`; sequential, ``bytes`` counts what was written."""

    def __init__(self, url: str, unfinished: _Unfinished) -> None:
        self.url = url
        self.bytes = 0
        self.unfinished = unfinished
        self._digest = xxhash.xxh3_128()

    def write(self, data: Any) -> None:
        """Append `data`, any object with the buffer protocol."""
        view = memoryview(data).cast("B")
        for at in range(0, len(view), _AT_ONCE):
            piece = view[at : at + _AT_ONCE]
            self.unfinished.write(piece)
            self._digest.update(piece)
        self.bytes += len(view)

    @property
    def checksum(self) -> str:
        """The xxh3-128 hex digest of what was written."""
        return self._digest.hexdigest()


@contextmanager
def publish(url: str, *, synced: bool = True) -> Iterator[PublishedFile]:
    """Write the file at a local path or fsspec URL so that readers see all of it or nothing; an older file there is replaced at the end,
    and nothing appears if the block raises. Folders are made.

    Without `synced`, a file that has just appeared may be empty after a power failure: for staging files whose readers check what they read.
    Most of them are removed before the disk has seen them.

    Raises `StoreAccessError`: no file can be made there.
    """
    with _written(url, synced) as out:
        yield out
        out.unfinished.finish()
        if synced:
            let_appear()
        out.unfinished.sync()
        out.unfinished.appear()
        out.unfinished.sync_name()


@contextmanager
def publish_later(url: str) -> Iterator[PublishedFile]:
    """Write a file as `publish` does, which appears when the task that writes it has ended; outside of tasks of the engine it does at once.

    Its writer must not look for it.
    """
    if (waiting := waiting_here()) is None:
        with publish(url) as out:
            yield out
    else:
        with _written(url) as out:
            yield out
            out.unfinished.finish()
            waiting.add(out.unfinished)


@contextmanager
def _written(url: str, synced: bool = True) -> Iterator[PublishedFile]:
    """Yield a file that is being written, of which nothing is left if the block raises."""
    temporary = _temporary_name(url.rpartition("/")[2])
    with _explained(url, names=False):  # an error in the block may be of another file
        unfinished = _LocalFile(url, temporary, synced) if is_local(url) else begin_upload(url, temporary)
        try:
            unfinished.begin()
            yield PublishedFile(url, unfinished)
        except BaseException:
            unfinished.discard()
            raise


class _LocalFile:
    """A hidden file beside the target, whose place it takes."""

    def __init__(self, url: str, temporary: str, synced: bool) -> None:
        self.url = url
        self.bytes = 0
        self._target = local_path(url)
        self._temporary = self._target.with_name(temporary)
        self._synced = synced

    def begin(self) -> None:
        """Make the hidden file."""
        self._handle = open_new(self._temporary)

    def write(self, view: memoryview) -> None:
        """Append bytes."""
        self._handle.write(view)
        self.bytes += len(view)

    def finish(self) -> None:
        """Give all bytes to the system."""
        self._handle.flush()

    def sync(self) -> None:
        """Wait until the bytes are on disk, and close the file."""
        with self._handle, _explained(self.url):
            if self._synced:
                os.fsync(self._handle.fileno())

    def appear(self) -> None:
        """Take the place of the target."""
        with _explained(self.url):
            self._temporary.replace(self._target)

    @property
    def folder(self) -> str:
        """Folder of the target."""
        return self.url.rpartition("/")[0]

    def sync_name(self) -> None:
        """Wait until the name of the target is on disk."""
        with _explained(self.url):
            if self._synced:
                sync_names(self._target.parent)

    def discard(self) -> None:
        """Remove the hidden file."""
        with suppress(OSError, AttributeError):
            self._handle.close()
        # a file system that became read-only says so, whether the file is there or not
        with suppress(OSError):
            self._temporary.unlink()


def open_new(path: Path) -> BinaryIO:
    """Open a new file, its folders made.

    Raises `StoreAccessError`: no file can be made there.
    """
    try:
        _make_folders(path.parent)
        return path.open("wb", buffering=1 << 16)
    except FileNotFoundError:  # somebody removes the folders meanwhile
        raise
    except OSError as error:
        found = [
            f"{folder} is a file"
            for folder in path.parents
            if os.path.lexists(folder) and not folder.is_dir()
        ]
        if not found and error.errno not in _REFUSED:
            raise
        raise StoreAccessError(
            f"{path.parent} cannot be written: {', '.join([*found, str(error.strerror)])}; expected a folder in which files can be made. Choose another "
            "target or change its permissions, then run the same command again: it does only what is left.",
            url=str(path.parent),
        ) from error


_made: set[Path] = set()
"""Folders that this process has made and whose names may not be on disk."""


def _make_folders(folder: Path) -> None:
    """Make a folder and those above it."""
    if not folder.is_dir():
        _make_folders(folder.parent)
        folder.mkdir(exist_ok=True)
        _made.add(folder)


def sync_names(folder: Path) -> None:
    """Wait until the names in a folder are on disk, and that of the folder, if this process has made it."""
    fsync_folder(folder)
    if folder in _made:
        sync_names(folder.parent)
        _made.discard(folder)


@contextmanager
def _explained(url: str, *, names: bool = True) -> Iterator[None]:
    """Raise what the system says of a local file with its place and what to do; `names`: with its place at least."""
    try:
        yield
    except OSError as error:
        if is_local(url):
            if explanation := explained(local_path(url), error):
                raise explanation from error
            if names:  # what is done with an open file has no name
                error.filename = error.filename or str(local_path(url))
        raise


def explained(target: Path, error: OSError) -> StoreError | None:
    """Return what the system says of a file that cannot be finished, with its place and what to do."""
    if error.errno in FULL and error.filename is None:
        return DiskFullError(
            f"{target.parent}: {error.strerror}; expected room for {target.name}. Make room and run the same command again: what is finished is "
            "kept.",
            url=str(target),
        )
    if error.errno == errno.EFBIG and error.filename is None:
        return StoreAccessError(
            f"{target}: {error.strerror}; expected that files of this size are allowed. Raise the limit (ulimit -f), or write to another file "
            "system, and run the same command again: what is finished is kept.",
            url=str(target),
        )
    if isinstance(error, IsADirectoryError):
        return StoreAccessError(
            f"{target} is a folder; expected a file of that name, or nothing. Move it away and run the same command again, or choose another "
            "target.",
            url=str(target),
        )
    return None


def fsync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise


def move(url: str, target: str) -> None:
    """Let a published file appear under another name of the same root, whole, in place of an older one; folders are made.

    Raises `FileNotFoundError`: there is no such file. Raises `StoreAccessError`: no file can be made there.
    """
    let_appear()
    if not is_local(url):
        fs, path = filesystem(url)
        patiently(target, lambda: rename(fs, path, filesystem(target)[1]))
        return
    source, place = local_path(url), local_path(target)
    with _explained(target):
        _make_folders(place.parent)
        source.replace(place)
        sync_names(place.parent)


def remove_for_good(url: str) -> None:
    """Delete a folder with its content, so that no power failure brings it back."""
    files.remove_tree(url)
    if is_local(url):
        with suppress(FileNotFoundError):
            fsync_folder(local_path(url).parent)


def stamp_of(url: str) -> str:
    """Return the stamp of a file that was published, for its record; of one that waits, what `settled_stamp` replaces."""
    if waits(url):
        return _LATER + url
    info = files.stat(url)
    return info.stamp if info else ""


def settled_stamp(stamp: str) -> str:
    """Return what a stamp by `stamp_of` is when the file has appeared."""
    return stamp_of(stamp.removeprefix(_LATER)) if stamp.startswith(_LATER) else stamp


def _temporary_name(name: str) -> str:
    """Return a name that names the writing process; file systems allow 255 bytes."""
    short = os.fsencode(name)[:100].decode(errors="ignore")
    return f".{short}.{writer()}-{os.urandom(4).hex()}{_SUFFIX}"


def process_space() -> tuple[str, int]:
    """Return where process numbers of this process mean what they say: its host and, in containers, its space of process numbers."""
    return socket.gethostname(), _number_space(os.getpid())


@lru_cache(maxsize=1)
def _number_space(pid: int) -> int:
    """Return the space of process numbers of this process, which never moves to another."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def writer_space() -> str:
    """Return `process_space` as a part of file names."""
    host, space = process_space()
    return f"{re.sub(r'[^A-Za-z0-9]', '_', host)}_{space}"


def writer() -> str:
    """Return the name of this process among all that may write to shared folders, as temporary files have it."""
    return f"{writer_space()}-{os.getpid()}"


def sweep(root: str, name: str | None = None) -> int:
    """Remove temporary files below a local `root`, or of one file in it, whose writers are gone; return their number.

    Those of other hosts count as gone when they are in `gone`, or nothing was written for `EXPIRE_SECONDS`.
    """
    if not is_local(root):
        return 0  # an upload that was not completed is not visible
    names = f"**/.*{_SUFFIX}" if name is None else f".{glob.escape(name)}.*{_SUFFIX}"
    left = [path for path in local_path(root).glob(names) if _is_orphan(path)]
    for path in left:
        path.unlink(missing_ok=True)
    return len(left)


def _is_orphan(path: Path) -> bool:
    match = _TEMPORARY.fullmatch(path.name)
    if match is None:
        return False
    if match["space"] == writer_space():
        return not is_running(int(match["pid"]))
    if f"{match['space']}-{match['pid']}" in gone:
        return True
    try:
        return time.time() - path.stat().st_mtime > EXPIRE_SECONDS
    except OSError:
        return False  # gone, or published


def is_running(pid: int) -> bool:
    """Tell whether a process runs; one that is dead and waits for its parent does not."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return process_state(pid)[:1] != ["Z"]


def process_state(pid: int) -> list[str]:
    """Return what Linux tells of a process behind its name, the state first; nothing elsewhere."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return stat.rpartition(")")[2].split()  # the name in parentheses may hold anything
