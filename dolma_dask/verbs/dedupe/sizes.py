"""Counts of the sizes of clusters in bins of half an octave (2, 3, 4 to 5, 6 to 7, 8 to 11 ...): a few numbers for any number of clusters."""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

SIZE_EDGES = np.array([part << octave for octave in range(48) for part in (2, 3)])
"""Smallest sizes of the bins; each ends before the next."""


def count_sizes(sizes: npt.NDArray[np.integer[Any]]) -> list[int]:
    """Return how many of the sizes (n,) of clusters are in each bin of `SIZE_EDGES`, up to the last that has some."""
    bins = np.searchsorted(SIZE_EDGES, sizes.astype(np.int64), "right") - 1
    counts: list[int] = np.bincount(bins).tolist()
    return counts


def add_sizes(counts: Iterable[Sequence[int]]) -> list[int]:
    """Return the sums of what `count_sizes` has returned for parts."""
    return [sum(bins) for bins in zip_longest(*counts, fillvalue=0)]


def size_words(number: int) -> str:
    """Return the sizes of a bin in words: ``2``, ``4 to 5``."""
    first, last = int(SIZE_EDGES[number]), int(SIZE_EDGES[number + 1]) - 1
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"
