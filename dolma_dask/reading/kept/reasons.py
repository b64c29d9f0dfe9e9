"""The conditions that drop the rows of a block, put together from the masks that are counted; only where an output takes dropped rows."""

import msgspec
import numpy as np
import pyarrow as pa

from dolma_dask.formats.documents import RAW
from dolma_dask.reading.kept.block import MixBlock
from dolma_dask.sinks.sink import DROPPED_LINES, DroppedRows
from dolma_dask.text.kernels import Bools


class Reasons:
    """Conditions that drop rows of one block after another, in the order in which they are looked at."""

    def __init__(self, columns: frozenset[str]) -> None:
        self._columns = ["id", "source", *([RAW] if DROPPED_LINES in columns else [])]
        self._found: list[tuple[str, Bools]] = []

    def add(self, name: str, mask: pa.BooleanArray | Bools) -> None:
        """Take the rows (n,) of the block that a condition drops."""
        rows = mask if isinstance(mask, np.ndarray) else mask.to_numpy(zero_copy_only=False)
        self._found.append((name, rows))

    def end_block(self, rows: MixBlock) -> DroppedRows:
        """Return the rows of the block that any condition drops; the next block begins."""
        names = [name for name, _ in self._found]
        drops = np.stack([mask for _, mask in self._found], axis=1)
        self._found = []
        at = np.flatnonzero(drops.any(axis=1))
        # each combination of conditions is spelled once
        combinations, which = np.unique(np.packbits(drops[at], axis=1), axis=0, return_inverse=True)
        lists = [
            [name for name, drops_it in zip(names, bits, strict=True) if drops_it]
            for bits in np.unpackbits(combinations, axis=1, count=len(names))
        ]
        spelled = pa.array([msgspec.json.encode(one).decode() for one in lists], pa.large_string())
        batch = rows.batch.select(self._columns).take(pa.array(at))
        return DroppedRows(batch, rows.numbers[at], spelled.take(pa.array(which.ravel())))
