"""From order statistics to quantiles, and the JSON object that holds them.

``{signal: {group: {"n":, "nulls":, "min":, "max":, "q": {"0.1": ...}}}}``: a quantile lies between two order statistics and is linear
in between, as NumPy's default is (Hyndman and Fan 1996, definition 7).
"""

import math
from collections.abc import Mapping, Sequence
from typing import TypedDict

import numpy as np
import numpy.typing as npt

from dolma_dask.errors import UsageError

PROBABILITIES = (0.01, 0.05, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 0.95, 0.99)
"""Those that every level of thresholds needs, and more to look at."""

MOST_PROBABILITIES = 1000


class Entry(TypedDict):
    """The quantiles of one signal in one group; ``min``, ``max`` and quantiles are null without values."""

    n: int
    nulls: int
    min: float | None
    max: float | None
    q: dict[str, float | None]


QuantileTable = Mapping[str, Mapping[str, Entry]]
"""Signal to group to entry."""


def check_probabilities(probabilities: Sequence[float] | None) -> tuple[float, ...]:
    """Return probabilities in ascending order, each once; None stands for `PROBABILITIES`.

    Raises `UsageError`: one lies outside of 0 to 1, or there are none or too many.
    """
    if probabilities is None:
        return PROBABILITIES
    requested = list(probabilities) if isinstance(probabilities, Sequence) else [probabilities]
    for item in requested:
        if isinstance(item, bool) or not isinstance(item, int | float) or not 0 <= item <= 1:
            raise UsageError(
                f"probabilities={item!r}; expected numbers from 0 to 1, such as 0.1 for the tenth percentile."
            )
    if not 0 < len(requested) <= MOST_PROBABILITIES:
        raise UsageError(
            f"{len(requested):,} probabilities were given; expected 1 to {MOST_PROBABILITIES:,}, such as 0.1 0.5 0.9."
        )
    return tuple(sorted({float(item) + 0.0 for item in requested}))


def probability_name(probability: float) -> str:
    """Return the key of a probability: 0.1 is "0.1", 1.0 is "1"."""
    return repr(float(probability)).removesuffix(".0")


def ranks_of(count: int, probabilities: Sequence[float]) -> npt.NDArray[np.int64]:
    """Return the ranks, from 0 and ascending, of the order statistics that the quantiles of `count` values need."""
    if count == 0:
        return np.zeros(0, np.int64)
    low = [_position(count, probability)[0] for probability in probabilities]
    return np.unique(np.array([rank for at in low for rank in (at, min(at + 1, count - 1))], np.int64))


def _position(count: int, probability: float) -> tuple[int, float]:
    """Return the rank below a quantile, and how far it lies on the way to the next."""
    position = (count - 1) * probability
    rank = min(int(position), count - 1)
    return rank, position - rank


def interpolated(
    count: int,
    probabilities: Sequence[float],
    ranks: npt.NDArray[np.int64],
    values: npt.NDArray[np.float64],
) -> list[float | None]:
    """Return the quantiles of `count` values at probabilities, given the values at `ranks_of` these; None without values."""
    if count == 0:
        return [None] * len(probabilities)
    known = dict(zip(ranks.tolist(), values.tolist(), strict=True))
    quantiles: list[float | None] = []
    for probability in probabilities:
        rank, share = _position(count, probability)
        quantiles.append(_between(known[rank], known[min(rank + 1, count - 1)], share))
    return quantiles


def _between(low: float, high: float, share: float) -> float:
    """Return the value at a share of the way, by the formula of NumPy so that the last bit agrees."""
    distance = high - low
    if math.isinf(distance):
        return low * (1 - share) + high * share
    value = low + distance * share if share < 0.5 else high - distance * (1 - share)
    return value + 0.0  # no -0.0


def entry(
    count: int,
    nulls: int,
    bounds: tuple[float, float] | None,
    probabilities: Sequence[float],
    quantiles: Sequence[float | None],
) -> Entry:
    """Return the entry of a signal in a group."""
    least, greatest = bounds or (None, None)
    names = [probability_name(item) for item in probabilities]
    return Entry(n=count, nulls=nulls, min=least, max=greatest, q=dict(zip(names, quantiles, strict=True)))
