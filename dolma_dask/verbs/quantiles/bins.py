"""Ranges of keys that the first pass of `order_statistics` counts: narrow where a sample has many different keys, wide elsewhere.

Bins of equal width would be wasted on numbers that nobody has: half of all keys are those of numbers below 1. The range of all keys is cut
into equal *steps*; a step gets a power of two of bins, or shares one with its neighbours. What is found does not depend on the sample.
"""

from typing import NamedTuple

import numpy as np

from dolma_dask.text.kernels import Bytes, Int, Positions, Words, kernel

MAX_STEPS = 1 << 16

_EVEN = 0.25
"""Share of the bins that all steps have alike, for keys unlike those of the sample."""


class Bins(NamedTuple):
    """Map from keys to bins."""

    low: np.uint64  # least key
    span: np.uint64  # the greatest minus the least
    shift: np.uint64  # bits of a key that its step forgets
    first: Positions  # (steps,) first bin of each step
    forgotten: Bytes  # (steps,) bits of a key that its bin forgets


def shift_of(span: int, bins: int) -> int:
    """Return how many bits of a key its bins forget, so that there are at most `bins`, a power of two."""
    return max(0, span.bit_length() - (bins.bit_length() - 1))


def make_bins(low: np.uint64, high: np.uint64, sample: Words, max_bins: int) -> tuple[Bins, Words]:
    """Return at most `max_bins` bins (4 at least) from the least to the greatest key, and the least key of each."""
    span = high - low
    shift = shift_of(int(span), MAX_STEPS)
    keys = np.sort(sample[sample - low <= span] - low)
    keys = keys[
        np.append(True, keys[1:] > keys[:-1])[: len(keys)]
    ]  # each once; numpy.unique takes a hundred times as long
    steps = np.bincount((keys >> np.uint64(shift)).astype(np.int64), minlength=(int(span) >> shift) + 1)
    # bins for each step; powers of two and the beginnings of shared ones make up to three times as many
    share = max_bins / 4 * ((1 - _EVEN) * steps / max(len(keys), 1) + _EVEN / len(steps))
    bits = np.minimum(np.log2(np.maximum(share, 1)).astype(np.int64), shift)
    is_shared = bits == 0
    number = (share.cumsum() - share).astype(np.int64)
    is_next = is_shared & np.append(False, is_shared[:-1] & (np.diff(number) == 0))
    count = np.where(is_next, 0, 1 << bits)
    first = count.cumsum() - (1 << bits)
    start = np.flatnonzero(count)
    inside = np.arange(count.sum()) - np.repeat(first[start], count[start])
    least = (np.repeat(start, count[start]) << shift) + (
        inside << np.repeat(shift - bits[start], count[start])
    )
    bins = Bins(low, span, np.uint64(shift), first.astype(np.int32), (shift - bits).astype(np.uint8))
    return bins, low + least.astype(np.uint64)


@kernel
def bin_of(key: np.uint64, bins: Bins) -> Int:
    """Return the bin of a key, -1 for one that lies outside."""
    offset = key - bins.low
    if offset > bins.span:
        return -1
    step = np.int64(offset >> bins.shift)
    inside = offset & ((np.uint64(1) << bins.shift) - np.uint64(1))
    return np.int64(bins.first[step]) + np.int64(inside >> np.uint64(bins.forgotten[step]))
