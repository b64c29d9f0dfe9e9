"""Approximate quantiles in one pass: KLL sketches, one per signal and group, merged over shards.

Karnin, Lang and Liberty, Optimal Quantile Approximation in Streams, FOCS 2016, in the implementation of Apache DataSketches. A sketch
throws coins, so two runs differ by up to its error, which it states itself. Memory: 90 kB per signal and group of more than 4,000 values;
fewer values are kept as they are. Cost: 50 ns per value.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

SKETCH_K = 4000
"""Size of a sketch: a rank is off by less than 0.07 % of the values (in 99 of 100 sketches)."""

Floats = npt.NDArray[np.float64]


def rank_error() -> float:
    """Return how far the rank of a quantile may be off, as a share of all values, by the sketch's own account."""
    return float(_sketch_class().get_normalized_rank_error(SKETCH_K, False))


def _sketch_class() -> Any:
    from datasketches import kll_doubles_sketch

    return kll_doubles_sketch


class Sketch:
    """A sketch of finite values.

    Parameters
    ----------
    data : bytes, optional
        What `to_bytes` gave; default: a sketch of no values.
    """

    def __init__(self, data: bytes | None = None) -> None:
        make = _sketch_class()
        self._sketch = make(SKETCH_K) if data is None else make.deserialize(data)

    @property
    def count(self) -> int:
        """Number of values."""
        return int(self._sketch.n)

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Least and greatest value, exact; None without values."""
        if not self.count:
            return None
        return float(self._sketch.get_min_value()) + 0.0, float(self._sketch.get_max_value()) + 0.0

    def add(self, values: Floats) -> None:
        """Add values, (n,)."""
        self._sketch.update(np.ascontiguousarray(values))

    def merge(self, other: "Sketch") -> None:
        """Add the values of another sketch."""
        self._sketch.merge(other._sketch)

    def quantiles(self, probabilities: Sequence[float]) -> list[float | None]:
        """Return a value of the sketch for each probability, not interpolated; None without values."""
        if not self.count:
            return [None] * len(probabilities)
        return [float(value) + 0.0 for value in self._sketch.get_quantiles(list(probabilities), True)]

    def to_bytes(self) -> bytes:
        """Return the sketch as bytes."""
        return bytes(self._sketch.serialize())
