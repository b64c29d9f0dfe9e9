"""Facts about files that a process remembers, such as that one still holds the bytes of a record."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.records import InputRecord
from dolma_dask.journal import is_same_file

REMEMBERED = 4096
"""Facts that are kept."""


def is_still(record: InputRecord, url: str) -> bool:
    """Tell whether the file at `url` still holds the bytes of a record; what was found out by hashing is remembered."""
    info = files.stat(url)
    return info is not None and remembered(_is_same_file, info)(record, url, info)


_is_same_file = lru_cache(maxsize=REMEMBERED)(is_same_file)


def remembered(known: Callable[..., Any], *infos: FileInfo) -> Callable[..., Any]:
    """Return a cached function, or the function itself where a file has no stamp that would tell its versions apart."""
    return known if all(info.stamp for info in infos) else known.__wrapped__  # type: ignore[attr-defined]
