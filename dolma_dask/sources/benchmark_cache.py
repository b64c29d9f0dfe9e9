"""Benchmarks that were read once, in the user's cache folder.

The n-grams of all items are one file, named by a digest of what they were made of: made once on a machine, atomically, and mapped by all of its processes, which share the memory. Where
nothing can be written each process makes its own.
"""

import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash
from msgspec import Struct

from dolma_dask.errors import StoreError
from dolma_dask.io.publish import publish
from dolma_dask.io.user_cache import cache_folder, locked, remove_old
from dolma_dask.taggers.contamination import Benchmarks
from dolma_dask.text.ngram_table import NgramTable

STORED_VERSION = 2
"""Raised whenever the file has another form."""

_MAGIC = b"dolma_dask ngrams\n"
_ALIGNED = 64


def from_cache(digest: str, make: Callable[[], Benchmarks]) -> Benchmarks:
    """Return the benchmarks of this digest from the cache, where they are put if they are not there."""
    try:
        path = cache_folder("benchmarks") / f"{digest}.ngrams"
    except RuntimeError:  # nobody's home
        return make()
    if known := _mapped(path):
        return known
    with locked(path):
        if known := _mapped(path):  # another process has made it meanwhile
            return known
        made = make()
        with suppress(OSError, StoreError):  # a disk that is full, or not to be written to
            remove_old(path.parent)
            _write(path, made)
        return _mapped(path) or made


def _write(path: Path, made: Benchmarks) -> None:
    """Write magic and length of the head; the head, in JSON, with type and length of each array and a checksum of what follows; the arrays."""
    arrays = {**made.table.arrays(), "benchmark_of": made.benchmark_of, "rows": made.rows}
    body = b"".join(_padded(np.ascontiguousarray(array).tobytes()) for array in arrays.values())
    head = {
        "names": made.names,
        "totals": made.totals,
        "arrays": [(name, array.dtype.str, len(array)) for name, array in arrays.items()],
        "checksum": xxhash.xxh3_128_hexdigest(body),
    }
    encoded = msgspec.json.encode(head)
    with publish(str(path), synced=False) as file:
        file.write(_padded(_MAGIC + len(encoded).to_bytes(8, "little") + encoded))
        file.write(body)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % _ALIGNED)


class _Head(Struct, frozen=True):
    names: tuple[str, ...]
    totals: tuple[tuple[int, int, int], ...]
    arrays: tuple[tuple[str, str, int], ...]
    checksum: str


def _mapped(path: Path) -> Benchmarks | None:
    """Return what a file holds, mapped; None if there is none, or a damaged one."""
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return None
    first = len(_MAGIC) + 8
    size = int.from_bytes(data[first - 8 : first], "little")
    try:
        head = msgspec.json.decode(data[first : first + size], type=_Head)
    except msgspec.DecodeError:
        return None
    at = first + size + -(first + size) % _ALIGNED
    if data[: len(_MAGIC)] != _MAGIC or xxhash.xxh3_128_hexdigest(memoryview(data)[at:]) != head.checksum:
        return None
    arrays: dict[str, npt.NDArray[Any]] = {}
    for name, kind, length in head.arrays:
        arrays[name] = np.frombuffer(data, np.dtype(kind), length, at)
        at += arrays[name].nbytes + -arrays[name].nbytes % _ALIGNED
    with suppress(OSError):
        os.utime(path)  # used today
    return Benchmarks(
        head.names, NgramTable.mapped(arrays), arrays["benchmark_of"], arrays["rows"], head.totals
    )
