"""Orders of rows as functions of a number, so that nothing is stored and any place can be looked up: permutations, and schedules of several sources.

A permutation of ``count`` numbers is a Feistel network over the bits that they need: each step changes one half of the bits by a hash of the
other half and the key, which can be undone whatever the hash is, so that no two numbers get one place. A result that is not below ``count`` is permuted again
(fewer than two rounds on average). Cost: 0.1 us per number.

A schedule deals places of one sequence to sources by fixed shares. Of the first ``k`` places source 0 has ``floor(k * share / total)``, source 1 the
same of what is left, and so on: each is within a few places of its share at any time, and exact after ``total`` places.
"""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from dolma_dask.text.kernels import kernel

Int64s = NDArray[np.int64]

_ROUNDS = 4
_GOLDEN, _MIX1, _MIX2 = (
    np.uint64(factor) for factor in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
_ZERO, _ONE = np.uint64(0), np.uint64(1)
_S27, _S30, _S31 = np.uint64(27), np.uint64(30), np.uint64(31)


@kernel
def _mixed(word):  # type: ignore[no-untyped-def]
    """Return the bits of a word, mixed as splitmix64 does."""
    word = (word ^ (word >> _S30)) * _MIX1
    word = (word ^ (word >> _S27)) * _MIX2
    return word ^ (word >> _S31)


@kernel
def _permuted(number, count, key):  # type: ignore[no-untyped-def]
    bits = _ZERO
    while (count - _ONE) >> bits:
        bits += _ONE
    low_bits = (bits + _ONE) >> _ONE
    low_mask, high_mask = (_ONE << low_bits) - _ONE, (_ONE << (bits - low_bits)) - _ONE
    while True:
        low, high, round_key = number & low_mask, number >> low_bits, key
        for _ in range(_ROUNDS):
            round_key += _GOLDEN
            high ^= _mixed(low + _mixed(round_key)) & high_mask
            round_key += _GOLDEN
            low ^= _mixed(high + _mixed(round_key)) & low_mask
        number = (high << low_bits) | low
        if number < count:
            return number


@kernel
def _permute(numbers, count, key, found):  # type: ignore[no-untyped-def]
    for at in range(len(numbers)):
        found[at] = np.int64(_permuted(np.uint64(numbers[at]), count, key))


@kernel
def _permute_in_blocks(numbers, count, size, key, found):  # type: ignore[no-untyped-def]
    blocks = count // size
    shift = _mixed(key + _MIX2) % count
    for at in range(len(numbers)):
        number = np.uint64(numbers[at])
        block, rest = number // size, number % size
        width = size
        if block < blocks:
            block = _permuted(block, blocks, key)
        else:
            width = count - block * size
        rest = _permuted(rest, width, key ^ _mixed(block + _GOLDEN))
        found[at] = np.int64((block * size + rest + shift) % count)


def permuted(numbers: Int64s, count: int, key: int) -> Int64s:
    """Return where a permutation of ``range(count)``, drawn by the 64 bits of `key`, puts some numbers."""
    found = np.empty(len(numbers), np.int64)
    _permute(numbers, np.uint64(count), np.uint64(key), found)
    return found


def permuted_in_blocks(numbers: Int64s, count: int, size: int, key: int) -> Int64s:
    """Do as `permuted` for blocks of `size` neighbouring numbers, and within each block, so that what is read at a time lies together.

    Blocks begin at a place drawn by the key, and go on at 0 behind the end; what is less than a block comes last.
    """
    found = np.empty(len(numbers), np.int64)
    _permute_in_blocks(numbers, np.uint64(count), np.uint64(size), np.uint64(key), found)
    return found


SHARES = 1 << 30
"""Sum of all shares of a schedule."""


class Schedule(Struct, frozen=True):
    """Sources of the places of a sequence."""

    shares: Int64s  # (n_sources,) of `SHARES` places, 1 or more each

    @classmethod
    def of(cls, weights: Sequence[float]) -> "Schedule":
        """Return the schedule of weights above 0; none gets less than one place in a billion."""
        parts = np.asarray(weights, np.float64) / max(weights)  # no sum is infinite
        wanted = np.cumsum(parts / sum(parts)) * (SHARES - len(weights))
        ends = np.round(wanted).astype(np.int64) + np.arange(1, len(weights) + 1)
        ends[-1] = SHARES
        return cls(np.diff(ends, prepend=0))

    def places(self, numbers: Int64s) -> tuple[Int64s, Int64s]:
        """Return for places of the sequence their source, and how many places before each are of the same source."""
        sources, places = np.empty(len(numbers), np.int64), np.empty(len(numbers), np.int64)
        _deal(self.shares, numbers, sources, places)
        return sources, places

    def counts(self, number: int) -> list[int]:
        """Return how many of the first places each source has."""
        periods, left = divmod(number, SHARES)
        found, total = [], SHARES
        for share in self.shares.tolist():
            count = left * share // total
            found.append(periods * share + count)
            left, total = left - count, total - share
        return found

    def longest(self, limits: Sequence[int]) -> int:
        """Return after how many places a source would have more than its limit."""

        def is_over(number: int) -> bool:
            return any(count > limit for count, limit in zip(self.counts(number + 1), limits, strict=True))

        return bisect_left(range(sum(limits) + 1), True, key=is_over)


@kernel
def _deal(shares, numbers, sources, places):  # type: ignore[no-untyped-def]
    for at in range(len(numbers)):
        total = np.int64(SHARES)
        periods, left = numbers[at] // total, numbers[at] % total
        for source in range(len(shares)):
            share = shares[source]
            count = left * share // total
            if (left + 1) * share // total > count:
                sources[at], places[at] = source, periods * share + count
                break
            left, total = left - count, total - share
