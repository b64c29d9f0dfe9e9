"""From order statistics to quantiles, and the JSON object that holds them.

``{signal: {group: {"n":, "nulls":, "min":, "max":, "q": {"0.1": ...}}}}``: a quantile lies between two order statistics and is linear
in between, as NumPy's default is (Hyndman and Fan 1996, definition 7).
"""

from collections.abc import Mapping, Sequence
from typing import TypedDict

import numpy as np
import numpy.typing as npt

from dolma_dask.errors import UsageError

Floats = npt.NDArray[np.float64]

PROBABILITIES = (0.01, 0.05, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 0.95, 0.99)
"""Those that every level of thresholds needs, and more to look at."""

MAX_PROBABILITIES = 1000


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
    if not 0 < len(requested) <= MAX_PROBABILITIES:
        raise UsageError(
            f"{len(requested):,} probabilities were given; expected 1 to {MAX_PROBABILITIES:,}, such as 0.1 0.5 0.9."
        )
    return tuple(sorted({float(item) + 0.0 for item in requested}))


def probability_name(probability: float) -> str:
    """Return the key of a probability: 0.1 is "0.1", 1.0 is "1"."""
    return repr(float(probability)).removesuffix(".0")


def ranks_of(
    counts: npt.NDArray[np.int64], probabilities: Sequence[float]
) -> tuple[npt.NDArray[np.int64], Floats]:
    """Return the ranks, from 0, of the two order statistics around each quantile of `counts` values (n,), and how far it lies between them.

    The ranks are (n, 2 p), first those below the p quantiles and then those above; the shares (n, p).
    """
    last = np.maximum(counts - 1, 0)[:, None]
    positions = last * np.array(probabilities)
    below = np.minimum(positions.astype(np.int64), last)
    return np.hstack([below, np.minimum(below + 1, last)]), positions - below


def interpolated(values: Floats, shares: Floats) -> Floats:
    """Return quantiles (n, p), given the values at `ranks_of` and the shares, by the formula of NumPy so that the last bit agrees."""
    low, high = np.hsplit(values, 2)
    with np.errstate(over="ignore", invalid="ignore"):
        distance = high - low
        found = np.where(shares < 0.5, low + distance * shares, high - distance * (1 - shares))
    found = np.where(np.isinf(distance), low * (1 - shares) + high * shares, found)
    return found + 0.0  # no -0.0


def entries_of(
    counts: npt.NDArray[np.int64], bounds: Floats, probabilities: Sequence[float], quantiles: Floats
) -> list[Entry]:
    """Return the entries of a signal in some groups, given values and nulls (n, 2 or more), least and greatest (n, 2) and quantiles (n, p)."""
    names = [probability_name(item) for item in probabilities]
    rows = zip(counts[:, :2].tolist(), bounds.tolist(), quantiles.tolist(), strict=True)
    return [_entry(names, *row) for row in rows]


def _entry(
    names: Sequence[str], counts: Sequence[int], bounds: Sequence[float], found: Sequence[float]
) -> Entry:
    count, nulls = counts
    if not count:
        return Entry(n=0, nulls=nulls, min=None, max=None, q=dict.fromkeys(names))
    return Entry(n=count, nulls=nulls, min=bounds[0], max=bounds[1], q=dict(zip(names, found, strict=True)))
