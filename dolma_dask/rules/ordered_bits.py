"""float64 values as unsigned integers in the same order, and their number, missing ones, least and greatest from the same reading.

Order statistics only compare, and integers can be cut into bins by their top bits. -0.0 and 0.0 are one key. Null, NaN and infinite
values (which JSON cannot hold) have the key `NULL`, which is greater than all others. Cost: 1.5 ns per value.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from dolma_dask.text.columns import for_kernel
from dolma_dask.text.kernels import Counts, Floats, Int, Words, kernel

NULL = 0xFFFF_FFFF_FFFF_FFFF
"""Key of a missing value."""

_SIGN = np.uint64(1 << 63)
_INFINITE = np.uint64(0x7FF0_0000_0000_0000)
_NULL = np.uint64(NULL)
_ZERO = np.uint64(0)

Codes = npt.NDArray[np.uint16]
Bytes = npt.NDArray[np.uint8]


def values_of(keys: Words) -> Floats:
    """Return the values of keys other than `NULL`, (n,) each."""
    keys = np.asarray(keys, np.uint64)
    return np.where(keys & _SIGN, keys ^ _SIGN, ~keys).view(np.float64)


class Extents(Struct, frozen=True, eq=False):
    """Counts and bounds of one column in each group of rows."""

    counts: Counts  # (n_groups, 3) values, missing ones (infinite ones are among them), infinite ones
    bounds: Words  # (n_groups, 2) least and greatest key; `NULL` and 0 without values

    @classmethod
    def empty(cls, groups: int) -> "Extents":
        """Return those of no rows."""
        bounds = np.zeros((groups, 2), np.uint64)
        bounds[:, 0] = _NULL
        return cls(np.zeros((groups, 3), np.int64), bounds)

    def add(self, other: "Extents", groups: npt.NDArray[np.int64]) -> None:
        """Add group ``i`` of another to group ``groups[i]``."""
        np.add.at(self.counts, groups, other.counts)
        np.minimum.at(self.bounds[:, 0], groups, other.bounds[:, 0])
        np.maximum.at(self.bounds[:, 1], groups, other.bounds[:, 1])

    def total(self) -> "Extents":
        """Return the extents of all groups as one."""
        bounds = np.array([[self.bounds[:, 0].min(), self.bounds[:, 1].max()]], np.uint64)
        return Extents(self.counts.sum(axis=0, keepdims=True), bounds)


def write_keys(column: pa.DoubleArray, codes: Codes, out: Words, extents: Extents) -> None:
    """Write the keys of a column (n,) to `out` (n,), and count them in `extents` by `codes` (n,), the group of each row."""
    count = len(column)
    if count == 0:
        return
    mask, data = column.buffers()
    bits = np.frombuffer(data, np.uint64, count, 8 * column.offset)
    valid = np.frombuffer(mask, np.uint8) if mask is not None and column.null_count else np.zeros(0, np.uint8)
    _write(
        for_kernel(bits),
        for_kernel(valid),
        column.offset,
        for_kernel(codes),
        out,
        extents.counts,
        extents.bounds,
    )


@kernel
def _write(
    bits: Words, valid: Bytes, first: Int, codes: Codes, out: Words, counts: Counts, bounds: Words
) -> None:
    """Fill `out`; `valid` is the validity bitmap from bit `first` on, empty if there are no nulls."""
    for i in range(bits.size):
        group = codes[i]
        word = bits[i]
        bit = first + i
        is_null = valid.size > 0 and (valid[bit >> 3] >> (bit & 7)) & 1 == 0
        magnitude = word & ~_SIGN
        if is_null or magnitude >= _INFINITE:
            out[i] = _NULL
            counts[group, 1] += 1
            if not is_null and magnitude == _INFINITE:
                counts[group, 2] += 1
            continue
        key = word | _SIGN
        if magnitude != _ZERO and word & _SIGN != _ZERO:
            key = ~word
        out[i] = key
        counts[group, 0] += 1
        if key < bounds[group, 0]:
            bounds[group, 0] = key
        if key > bounds[group, 1]:
            bounds[group, 1] = key
