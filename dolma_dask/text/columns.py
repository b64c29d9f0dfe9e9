"""Columns of texts for kernels, as numpy arrays of bytes and offsets, and back, without a copy; their lengths, and texts joined by Arrow."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dolma_dask.text import compute as pc
from dolma_dask.text.bits import WINDOW, address_of, count_bits, low_bits, memcpy, range_bits
from dolma_dask.text.kernels import Bools, Bytes, Counts, kernel

MANY_BYTES = 1 << 18
"""Bytes of texts from which on loading the kernel that counts their code points pays."""

_FIRST_REST, _LAST_REST = np.uint8(0x80), np.uint8(0xBF)  # bytes of UTF-8 that begin no code point


def code_point_lengths(text: pa.LargeStringArray) -> Counts:
    """Count the code points of each text (n,), as ``len(str)`` does; no nulls. 20 GB per CPU-second in the cache, of few texts 4 to 6 by Arrow's own kernel."""
    offsets, data = string_parts(text)
    if offsets[-1] - offsets[0] < MANY_BYTES:
        return np.asarray(pc.utf8_length(text).to_numpy(zero_copy_only=False), np.int64)
    lengths = np.empty(len(text), np.int64)
    _count_code_points(data, for_kernel(offsets), lengths)
    return lengths


@kernel
def _count_code_points(data: Bytes, offsets: Counts, lengths: Counts) -> None:
    for text in range(lengths.size):
        at, end = offsets[text], offsets[text + 1]
        count = end - at
        while at < end:
            count -= count_bits(range_bits(data, at, _FIRST_REST, _LAST_REST) & low_bits(end - at))
            at += 64
        lengths[text] = count


def validity(column: pa.Array) -> Bools:
    """Tell which slots are not null (n,)."""
    if column.null_count == 0:
        return np.ones(len(column), np.bool_)
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)


_LARGE = (pa.large_string(), pa.large_binary())
"""Types of columns whose offsets are int64."""


def string_parts(strings: pa.Array) -> tuple[Counts, Bytes]:
    """View a column of strings, without copying when they are large: offsets (n + 1,), and the UTF-8 that they cut into texts.

    The first offset of a slice is not 0, and what follows the last text means nothing. The UTF-8 has at least `WINDOW` bytes, for which a
    shorter buffer is copied.
    """
    if strings.type not in _LARGE:
        strings = strings.cast(pa.large_string())
    _, offsets_buffer, data_buffer = strings.buffers()
    offsets, data = np.zeros(1, np.int64), np.zeros(WINDOW, np.uint8)
    if len(strings) > 0:
        offsets = np.frombuffer(offsets_buffer, np.int64, len(strings) + 1, 8 * strings.offset)
    if data_buffer is not None and data_buffer.size >= WINDOW:
        data = np.frombuffer(data_buffer, np.uint8)
    elif data_buffer is not None:
        data[: data_buffer.size] = np.frombuffer(data_buffer, np.uint8)
    return for_kernel(offsets), for_kernel(data)


def integers(values: npt.NDArray[np.integer[Any]]) -> pa.Array:
    """Return integers as an Arrow array of their type, without a copy; `pyarrow.array` looks for pandas first, which costs 6 ms once."""
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def for_kernel(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the array contiguous and read-only: numba compiles a kernel anew for each kind of array that it meets."""
    if array.flags.c_contiguous and array.flags.aligned and not array.flags.writeable:
        return array
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def bitmap(valid: Bools) -> pa.Buffer | None:
    """Return an Arrow validity bitmap, None if all are valid."""
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def large_strings(
    offsets: Counts, data: Bytes | pa.Buffer, valid: Bools | None = None
) -> pa.LargeStringArray:
    """Return an Arrow column over kernel output, null where `valid` is False; shares the memory."""
    room = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
    mask = None if valid is None else bitmap(valid)
    buffers = [mask, pa.py_buffer(offsets), room.slice(0, int(offsets[-1]))]
    return pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers)


def large_bytes(offsets: Counts, data: Bytes | pa.Buffer) -> pa.LargeBinaryArray:
    """Return the same as a column of bytes."""
    return large_strings(offsets, data).view(pa.large_binary())


@kernel
def copy_pieces(data: Bytes, starts: Counts, sizes: Counts, out: Bytes) -> None:
    """Write pieces of `data` one after another."""
    source, target = address_of(data), address_of(out)
    for i in range(sizes.size):
        memcpy(target, source + starts[i], sizes[i])
        target += sizes[i]


def join_texts(*pieces: pa.Array | str) -> pa.LargeStringArray:
    """Glue texts row by row; a null in any piece makes the row null."""
    parts = [pa.scalar(p, pa.large_string()) if isinstance(p, str) else p for p in pieces]
    return pc.binary_join_element_wise(*parts, pa.scalar("", pa.large_string()))


def not_utf8(texts: pa.Array, first: int = 0) -> list[int]:
    """Return the rows of texts that are no UTF-8, which Arrow does not look at by itself; counted from `first` on."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return [first]
        half = len(texts) // 2
        return [*not_utf8(texts.slice(0, half), first), *not_utf8(texts.slice(half), first + half)]
    return []
