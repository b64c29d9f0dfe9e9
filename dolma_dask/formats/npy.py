"""Head of an npy file that holds one dimension of integers: write it, read it.

Written here rather than with `numpy.save` because a stream needs the header apart from the items, and read here
because a damaged file must be named in the error. The bytes are those of `numpy.save` (version 1.0). A header of
a 1-D array is always 128 bytes: numpy pads the count to 21 characters and the whole to a multiple of 64.
"""

import ast
from dataclasses import dataclass
from typing import Any

import numpy as np

from dolma_dask.errors import CorruptFileError

HEADER_BYTES = 128
NPY_MAGIC = b"\x93NUMPY"


@dataclass(frozen=True)
class NpyHeader:
    """Description of a 1-D array in the head of an npy file."""

    dtype: np.dtype[Any]  # type of one item
    count: int  # number of items
    offset: int  # byte at which the items begin

    @property
    def file_bytes(self) -> int:
        """Size that the whole file must have."""
        return self.offset + self.count * self.dtype.itemsize


def npy_header(dtype: np.dtype[Any], count: int) -> bytes:
    """Return the header of a 1-D npy file, byte for byte that of `numpy.save`."""
    described = f"{{'descr': '{dtype.str}', 'fortran_order': False, 'shape': ({count},), }}"
    space = HEADER_BYTES - len(NPY_MAGIC) - 4
    text = described.ljust(space - 1).encode("ascii") + b"\n"
    return NPY_MAGIC + b"\x01\x00" + space.to_bytes(2, "little") + text


def parse_npy_header(head: bytes, url: str) -> NpyHeader:
    """Read the head of an npy file: its first 128 bytes, or all of it.

    Raises `CorruptFileError`: not an npy file, a damaged header, or not a 1-D array of integers.
    """
    if head[:6] != NPY_MAGIC:
        raise CorruptFileError(
            f"{url} begins with {head[:6]!r}, expected {NPY_MAGIC!r}: not an npy file. Files named .npy without a"
            " header (raw memmaps) must be converted first",
            url=url,
        )
    width = 2 if head[6:8] == b"\x01\x00" else 4  # bytes of the header's own length: 2 in version 1.0, then 4
    offset = 8 + width + int.from_bytes(head[8 : 8 + width], "little")
    try:
        fields = ast.literal_eval(head[8 + width : offset].decode("utf-8").strip())
        dtype, shape = np.dtype(fields["descr"]), tuple(fields["shape"])
    except (ValueError, TypeError, KeyError, SyntaxError) as error:
        raise CorruptFileError(
            f"{url}: the npy header (bytes 0 to {offset} of the file) cannot be read: {error}; write the file again",
            url=url,
        ) from error
    if len(shape) != 1 or dtype.kind not in "iu" or not isinstance(shape[0], int) or shape[0] < 0:
        raise CorruptFileError(
            f"{url} holds an array of shape {shape} and type {dtype}, expected one dimension of integers; it is not"
            " part of a ragged token shard",
            url=url,
        )
    return NpyHeader(dtype, shape[0], offset)
