"""Files mapped into memory without a file descriptor each: thousands stay open where a usual ``ulimit -n`` allows 1,024 files.

`mmap.mmap` of Python keeps a descriptor until 3.13; the system's own call needs it for a moment only.
"""

import ctypes
import os
import weakref
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_READ, _SHARED = 1, 1  # PROT_READ, MAP_SHARED
_FAILED = ctypes.c_void_p(-1).value


def mapped(path: Path, dtype: np.dtype[Any], count: int, offset: int = 0) -> NDArray[Any]:
    """Return `count` items of a local file from byte `offset` on, read-only; the file stays mapped as long as an array of it lives."""
    if not count:
        return np.empty(0, dtype)
    size = offset + count * dtype.itemsize
    descriptor = os.open(path, os.O_RDONLY)
    try:
        address = _libc().mmap(None, size, _READ, _SHARED, descriptor, 0)
    finally:
        os.close(descriptor)
    if address == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))
    owner = (ctypes.c_char * size).from_address(address)
    weakref.finalize(owner, _libc().munmap, address, size).atexit = False
    items: NDArray[Any] = np.frombuffer(memoryview(owner), dtype, count, offset)
    items.flags.writeable = False
    return items


@cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    number = ctypes.c_int
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, number, number, number, ctypes.c_longlong)
    libc.mmap.restype = ctypes.c_void_p
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    return libc
