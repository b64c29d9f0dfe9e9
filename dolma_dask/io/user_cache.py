"""The user's cache folder (``XDG_CACHE_HOME``, by default ``~/.cache``): what is made once on a machine, and can be made again. Files are named by what they were made of, and appear whole or not at all."""

import io
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from dolma_dask.errors import StoreError
from dolma_dask.io.mapped import mapped
from dolma_dask.io.publish import publish

KEPT_DAYS = 30
"""A file that nobody has used for so long is removed when another one is made."""


def cache_folder(name: str) -> Path:
    """Return a folder of this package in the user's cache; it may not be there yet.

    Raises `RuntimeError`: nobody's home is known.
    """
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(base) / "dolma_dask" / name


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes of this machine from making the same file; where locks do not work, or nothing can be written, each makes it."""
    with ExitStack() as stack:
        with suppress(ImportError, OSError):
            import fcntl

            path.parent.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(path.with_suffix(".lock").open("a"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def remove_old(folder: Path) -> None:
    """Remove the files of a folder that were not used for `KEPT_DAYS`."""
    for path in folder.iterdir():
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - KEPT_DAYS * 86_400:
                path.unlink()


_DIGEST_BYTES = 32
"""Behind the content of a file of `cached`: its xxh3-128, hex."""

_PROVED_BYTES = 1 << 26
"""Content of at most so many bytes is read and compared with its digest whenever it is opened; of larger files the end must look like one."""


def cached(kind: str, name: str, write: Callable[[Any], None], *, is_kept: bool = True) -> NDArray[np.uint8]:
    """Return the bytes of a file in the folder `kind` of the cache, mapped; `write` makes it if it is not there.

    A damaged file is made again. In memory where nothing can be written, or if it is not to be kept.
    """
    if is_kept:
        # nobody's home, or one that is full or cannot be written; an error of `write` comes again below
        with suppress(OSError, RuntimeError, StoreError):
            return _found_or_made(cache_folder(kind) / name, write)
    content = io.BytesIO()
    write(content)
    return np.frombuffer(content.getvalue(), np.uint8)


def _found_or_made(path: Path, write: Callable[[Any], None]) -> NDArray[np.uint8]:
    content = _found(path)
    if content is None:
        with locked(path):
            content = _found(path)  # another process may have made it meanwhile
            if content is None:
                with publish(str(path)) as out:
                    write(out)
                    out.write(out.checksum.encode())
                remove_old(path.parent)
                content = mapped(path, np.dtype(np.uint8), path.stat().st_size)[:-_DIGEST_BYTES]
    with suppress(OSError):
        os.utime(path)  # used today
    return content


def _found(path: Path) -> NDArray[np.uint8] | None:
    """Return the content of a file, mapped; None if it is not there or damaged."""
    if not path.is_file() or (size := path.stat().st_size) < _DIGEST_BYTES:
        return None
    stored = mapped(path, np.dtype(np.uint8), size)
    content, digest = stored[:-_DIGEST_BYTES], stored[-_DIGEST_BYTES:].tobytes()
    if len(content) <= _PROVED_BYTES:
        return content if digest == xxhash.xxh3_128_hexdigest(content.data).encode() else None
    return content if set(digest) <= set(b"0123456789abcdef") else None
