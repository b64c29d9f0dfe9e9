"""The user's cache folder: what is made once on a machine. Files are named by what they were made of, and appear whole or not at all."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

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
    """Keep other processes of this machine from making the same file; where locks do not work each makes it."""
    with path.with_suffix(".lock").open("a") as lock:
        with suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def remove_old(folder: Path) -> None:
    """Remove the files of a folder that were not used for `KEPT_DAYS`."""
    for path in folder.iterdir():
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - KEPT_DAYS * 86_400:
                path.unlink()
