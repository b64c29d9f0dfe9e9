"""Files that appear whole or not at all.

Locally: a hidden temporary file beside the target, fsync, rename, fsync of the folder. On S3 and Google Cloud Storage: one object that
becomes visible when it is completed: a single request up to 16 MiB, else an upload in parts that is aborted if it fails. On other
stores: a hidden object that is moved to its final name. A killed local writer leaves only a hidden ``.tmp`` file, which `sweep` removes
once the process that made it is gone (if that was on another host: once it is known to be, as a worker is that a run has lost, else after a day). Cost: one fsync per file; staging files, which are made again if the power fails, go without.
"""

import errno
import glob
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import xxhash

from dolma_dask.errors import DiskFullError, StoreAccessError, StoreError
from dolma_dask.io.files import is_local, local_path, remove
from dolma_dask.io.stores import FULL, filesystem, patiently

_SUFFIX = ".tmp"
_TEMPORARY = re.compile(
    rf"\..*\.(?P<space>\w+_\d+)-(?P<pid>\d+)-[0-9a-f]{{8}}{re.escape(_SUFFIX)}", re.DOTALL | re.ASCII
)

EXPIRE_SECONDS = 86400.0
"""After so long without a byte a writer of another host counts as dead; slow functions of users fill a block of 8 MiB for hours."""

gone: set[str] = set()
"""Writers of other hosts that this process knows to be dead, by their `writer`."""

_COMPLETES_UPLOADS = {"s3", "s3a", "gs", "gcs"}
"""Stores whose files stay invisible until ``commit``."""

_PART_BYTES = 16 << 20
"""Bytes of one part of an upload, held in memory; stores allow 10,000 parts."""

_AT_ONCE = 1 << 17
"""Bytes that are written at once: they stay in the cache for their digest, and the system finds room for so many at half the cost of 16 MiB."""

_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG}
"""Errors of folders in which no file can be made, now or later."""

_NO_FOLDER_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM, errno.EBADF}
"""Errors of file systems that cannot sync a folder; the rename is as durable there as they make it."""


class PublishedFile:
    """A file that will appear at `url`; sequential, ``bytes`` counts what was written."""

    def __init__(self, url: str, handle: BinaryIO) -> None:
        self.url = url
        self.bytes = 0
        self.handle = handle
        self._digest = xxhash.xxh3_128()

    def write(self, data: Any) -> None:
        """Append `data`, any object with the buffer protocol."""
        view = memoryview(data).cast("B")
        for at in range(0, len(view), _AT_ONCE):
            piece = view[at : at + _AT_ONCE]
            self.handle.write(piece)
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
    opened = _publish_local(local_path(url), synced) if is_local(url) else _publish_remote(url)
    with opened as handle:
        yield PublishedFile(url, handle)


@contextmanager
def _publish_local(target: Path, synced: bool) -> Iterator[BinaryIO]:
    temporary = target.with_name(_temporary_name(target.name))
    try:
        with open_new(temporary) as handle:
            yield handle
            handle.flush()
            if synced:
                os.fsync(handle.fileno())
        temporary.replace(target)
    except BaseException as error:
        # a file system that became read-only says so, whether the file is there or not
        with suppress(OSError):
            remove(str(temporary))
        if isinstance(error, OSError) and (explanation := explained(target, error)):
            raise explanation from error
        raise
    if synced:
        fsync_folder(target.parent)


def open_new(path: Path) -> BinaryIO:
    """Open a new file, its folders made.

    Raises `StoreAccessError`: no file can be made there.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("wb", buffering=1 << 16)
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


def _publish_remote(url: str) -> AbstractContextManager[Any]:
    fs, path = filesystem(url)
    protocols = {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)
    return _upload(url, fs, path) if protocols & _COMPLETES_UPLOADS else _move_into_place(fs, path)


@contextmanager
def _upload(url: str, fs: Any, path: str) -> Iterator["_Upload"]:
    upload = _Upload(url, fs, path)
    try:
        yield upload
        upload.complete()
    except BaseException:
        upload.discard()
        raise


class _Upload:
    """An object that appears when it is complete: put at once if it is small, else in parts; each request is made again if it fails."""

    def __init__(self, url: str, fs: Any, path: str) -> None:
        self._url = url
        self._fs = fs
        self._path = path
        self._held = bytearray()
        self._parts: Any = None

    def write(self, view: memoryview) -> None:
        self._held += view
        while len(self._held) > _PART_BYTES:
            part = bytes(memoryview(self._held)[:_PART_BYTES])
            del self._held[:_PART_BYTES]
            self._send(part)

    def complete(self) -> None:
        """Send what is held, and make the object appear."""
        last = bytes(self._held)
        if self._parts is None:
            patiently(self._url, lambda: self._fs.pipe_file(self._path, last))
            return
        self._send(last, is_last=True)
        parts = self._parts
        patiently(self._url, parts.commit)
        self._parts = None
        parts.closed = True  # or its end would begin the upload again

    def discard(self) -> None:
        """Abort an upload in parts; if the store is away now, its parts stay invisible until the store clears them."""
        parts, self._parts = self._parts, None
        if parts is not None:
            with suppress(Exception):
                parts.discard()
            parts.closed = True

    def _send(self, part: bytes, is_last: bool = False) -> None:
        """Send a part; nothing is visible before all are committed."""
        given = False

        def once() -> None:
            nonlocal given
            if self._parts is None:
                self._begin(part)
            elif not given:
                given = True  # from here on the handle holds the part, also if it could not be sent
                self._parts.write(part)
            self._parts.forced = False
            self._parts.flush(force=is_last)

        patiently(self._url, once)

    def _begin(self, part: bytes) -> None:
        self._parts = self._fs.open(self._path, "wb", autocommit=False, block_size=_PART_BYTES)
        try:
            self._parts.write(part)
        except BaseException:
            self.discard()
            raise


@contextmanager
def _move_into_place(fs: Any, path: str) -> Iterator[BinaryIO]:
    folder, _, name = path.rpartition("/")
    temporary = f"{folder}/{_temporary_name(name)}"
    fs.makedirs(folder, exist_ok=True)
    try:
        with fs.open(temporary, "wb") as handle:
            yield handle
        _rename(fs, temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            fs.rm_file(temporary)
        raise


def _rename(fs: Any, old: str, new: str) -> None:
    from fsspec import AbstractFileSystem

    if type(fs).mv is not AbstractFileSystem.mv:
        fs.mv(old, new)
        return
    fs.cp_file(old, new)  # the general mv takes brackets in a name for a pattern
    fs.rm_file(old)


def move(url: str, target: str) -> None:
    """Let a published file appear under another name of the same root, whole, in place of an older one; folders are made.

    Raises `FileNotFoundError`: there is no such file. Raises `StoreAccessError`: no file can be made there.
    """
    if not is_local(url):
        fs, path = filesystem(url)
        patiently(target, lambda: _rename(fs, path, filesystem(target)[1]))
        return
    source, place = local_path(url), local_path(target)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        source.replace(place)
    except OSError as error:
        if explanation := None if isinstance(error, FileNotFoundError) else explained(place, error):
            raise explanation from error
        raise
    fsync_folder(place.parent)


def _temporary_name(name: str) -> str:
    """Return a name that names the writing process; file systems allow 255 bytes."""
    short = os.fsencode(name)[:100].decode(errors="ignore")
    return f".{short}.{writer()}-{os.urandom(4).hex()}{_SUFFIX}"


def process_space() -> tuple[str, int]:
    """Return where process numbers of this process mean what they say: its host and, in containers, its space of process numbers."""
    try:
        space = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        space = 0
    return socket.gethostname(), space


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
