"""Files that are made once and found again, in the user's cache (``XDG_CACHE_HOME``, by default ``~/.cache``); whatever is in it can be made again."""

import io
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dolma_dask.errors import StoreError
from dolma_dask.io.mapped import mapped
from dolma_dask.io.publish import publish

KEPT_DAYS = 30
"""Days after which a file goes that nobody has opened."""


def cached(kind: str, name: str, write: Callable[[Any], None], *, is_kept: bool = True) -> NDArray[np.uint8]:
    """Return the bytes of a file in the folder `kind` of the cache, mapped; `write` makes it if it is not there.

    In memory where nothing can be written, or if it is not to be kept.
    """
    if is_kept:
        # nobody's home, or one that is full or cannot be written; an error of `write` comes again below
        with suppress(OSError, RuntimeError, StoreError):
            base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
            return _found_or_made(Path(base) / "dolma_dask" / kind / name, write)
    content = io.BytesIO()
    write(content)
    return np.frombuffer(content.getvalue(), np.uint8)


def _found_or_made(path: Path, write: Callable[[Any], None]) -> NDArray[np.uint8]:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file():
        with _locked(path):
            if not path.is_file():  # another process may have made it meanwhile
                with publish(str(path)) as out:
                    write(out)
                _remove_old(path.parent)
    with suppress(OSError):
        os.utime(path)  # used today
    return mapped(path, np.dtype(np.uint8), path.stat().st_size)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other processes of this machine from making the same file; where locks do not work each makes it."""
    with path.with_name(f"{path.name}.lock").open("ab") as lock:
        with suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _remove_old(folder: Path) -> None:
    for path in folder.iterdir():
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - KEPT_DAYS * 86_400:
                path.unlink()
