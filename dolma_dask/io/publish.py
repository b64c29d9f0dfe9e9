"""Files that appear whole or not at all.

Locally: a hidden temporary file beside the target, fsync, rename, fsync of the folder. On an object store: one upload
that becomes visible when it is completed. A killed writer leaves only a hidden ``.tmp`` file, which `sweep` removes once the
process that made it is gone. Cost: one fsync per file.
"""

import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import xxhash

from dolma_dask.io.files import filesystem, is_local, local_path

_SUFFIX = ".tmp"


class PublishedFile:
    """A file being written; sequential.

    Attributes
    ----------
    url : str
        Where it will appear.
    bytes : int
        Bytes written so far.
    """

    def __init__(self, url: str, handle: BinaryIO) -> None:
        self.url = url
        self.bytes = 0
        self._handle = handle
        self._digest = xxhash.xxh3_128()

    def write(self, data: Any) -> None:
        """Append `data`, any object with the buffer protocol."""
        view = memoryview(data).cast("B")
        self._handle.write(view)
        self._digest.update(view)
        self.bytes += len(view)

    @property
    def checksum(self) -> str:
        """The xxh3-128 hex digest of what was written."""
        return self._digest.hexdigest()


@contextmanager
def publish(url: str) -> Iterator[PublishedFile]:
    """Write the file at `url` so that readers see all of it or nothing.

    Parameters
    ----------
    url : str
        Local path or fsspec URL; folders are made. An older file there is replaced at the end.

    Yields
    ------
    PublishedFile
        Its ``write`` appends; if the block raises, nothing becomes visible.
    """
    opened = _publish_local(local_path(url)) if is_local(url) else _publish_remote(url)
    with opened as handle:
        yield PublishedFile(url, handle)


@contextmanager
def _publish_local(target: Path) -> Iterator[BinaryIO]:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(_temporary_name(target.name))
    try:
        with temporary.open("wb", buffering=1 << 20) as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        temporary.replace(target)
        _fsync_folder(target.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _publish_remote(url: str) -> Iterator[BinaryIO]:
    fs, path = filesystem(url)
    handle = fs.open(path, "wb", autocommit=False)
    try:
        yield handle
        handle.close()
        handle.commit()
    except BaseException:
        handle.discard()
        raise


def _temporary_name(name: str) -> str:
    return f".{name[:150]}.{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}{_SUFFIX}"


def sweep(root: str) -> int:
    """Remove temporary files below a local `root` whose writers on this host are gone; return their number."""
    if not is_local(root):
        return 0  # an upload that was not completed is not visible
    left = [path for path in local_path(root).rglob(f".*{_SUFFIX}") if _is_orphan(path)]
    for path in left:
        path.unlink(missing_ok=True)
    return len(left)


def _is_orphan(path: Path) -> bool:
    owner = path.name.removesuffix(_SUFFIX).rsplit(".", 1)[-1].rsplit("-", 2)
    if len(owner) != 3 or not owner[1].isdigit():
        return False
    host, pid, _ = owner
    return socket.gethostname().endswith(host) and not _is_alive(int(pid))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
