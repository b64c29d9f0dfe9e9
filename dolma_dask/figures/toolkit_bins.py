"""Bins of the Dolma toolkit's ``stat``: values are counted in a hundred thousandths of a power of two, which become bins of equal width.

The toolkit does this for each file, and again for the lower edges of the bins of all files: so do we, since its reports are read by other programs. Where no
series of a file has more different values than there are bins, nothing is lost.
"""

from typing import Self

import msgspec
import numpy as np
from msgspec import Struct

from dolma_dask.figures.histogram import Floats, Ints, sum_by_key

STEPS = 100_000
"""Bins of a power of two."""

_SPAN = 1 << 18
"""Room of the numbers of steps in a code, from -`STEPS` to `STEPS`."""


class ToolkitBins(Struct, frozen=True, eq=False):
    """Values by their fine bins; sums are those of all values."""

    # (n,) ascending: the power of two, and the step below it
    codes: Ints = msgspec.field(default_factory=lambda: np.empty(0, np.int64))
    counts: Ints = msgspec.field(default_factory=lambda: np.empty(0, np.int64))

    @classmethod
    def of(cls, values: Floats, counts: Ints | None = None) -> Self:
        """Count finite values (n,), each once or as often as told."""
        mantissas, powers = np.frexp(values)
        steps = np.floor(mantissas * STEPS).astype(np.int64)
        return cls(*sum_by_key(powers.astype(np.int64) * _SPAN + steps + _SPAN // 2, counts))

    def __add__(self, other: Self) -> Self:
        codes, counts = ((self.codes, other.codes), (self.counts, other.counts))
        return type(self)(*sum_by_key(np.concatenate(codes), np.concatenate(counts)))

    def summarized(self, bins: int) -> tuple[Floats, Ints]:
        """Return edges (m + 1,) and counts (m,): the fine bins if there are no more than `bins`, else so many of equal width, by the lower edges of these."""
        powers, steps = np.divmod(self.codes, _SPAN)
        steps = steps - _SPAN // 2
        lower = np.ldexp(steps / STEPS, powers)
        order = np.argsort(lower, kind="stable")
        lower, counts = lower[order], self.counts[order]
        if lower.size > bins:
            sums, edges = np.histogram(lower, bins, weights=counts)
            return edges, sums.astype(np.int64)
        end = np.ldexp((steps[order][-1:] + 1) / STEPS, powers[order][-1:])
        return np.concatenate([lower, end]), counts

    def of_one_file(self, bins: int) -> Self:
        """Return what the toolkit keeps of a file: the lower edges of its bins."""
        edges, counts = self.summarized(bins)
        return self.of(edges[: counts.size], counts)
