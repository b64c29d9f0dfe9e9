"""Short rows: some are cut at random, so that a model also sees such."""

import random
from collections.abc import Callable
from itertools import count, islice

import numpy as np
import xxhash
from msgspec.structs import replace
from numpy.typing import NDArray

from dolma_dask.errors import UsageError
from dolma_dask.formats.ragged import check_lengths
from dolma_dask.tokens.encoding import Tokens
from dolma_dask.tokens.packing import Int64s

MIN_SHORT = 2
"""Tokens of the shortest window that `short_seq_prob` leaves: one to see and one to predict."""

_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_STEP = 0x9E3779B97F4A7C15


Sizes = Callable[[int], Int64s]
"""Returns the largest number of tokens of each of the next rows."""


def short_sizes(first_row: int, probability: float, seed: int, length: int) -> Sizes:
    """Draw 2 to `length` - 1 tokens for a share of the rows from `first_row` on, and `length` + 1 for the others.

    Chance depends on the seed and the number of the row among all, not on files or workers.
    """
    numbers = count(first_row)

    def sizes(rows: int) -> Int64s:
        return _drawn_sizes(np.fromiter(islice(numbers, rows), np.uint64, rows), probability, seed, length)

    return sizes


def _drawn_sizes(numbers: NDArray[np.uint64], probability: float, seed: int, length: int) -> Int64s:
    chance, size = _draw(numbers, 2 * seed), _draw(numbers, 2 * seed + 1)
    kept = MIN_SHORT + np.floor(size * (length - MIN_SHORT)).astype(np.int64)
    return np.where(chance < probability, kept, length + 1)


def _draw(numbers: NDArray[np.uint64], seed: int) -> NDArray[np.float64]:
    """Return a number from 0 to 1 for each of `numbers`."""
    return (hashed(numbers, seed) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def hashed(numbers: NDArray[np.uint64], seed: int) -> NDArray[np.uint64]:
    """Return a random word for each of `numbers`: the finalizer of splitmix64 (Steele, Lea, Flood 2014)."""
    mixed = numbers * np.uint64(_STEP) + np.uint64((seed * _MIX[1] + _STEP) % 2**64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(_MIX[0])
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(_MIX[1])
    return mixed ^ (mixed >> np.uint64(31))


def short_sizes_like_modelzoo(first_row: int, probability: float, seed: int, length: int) -> Sizes:
    """Do as `short_sizes`, with the chances of ModelZoo 2.2 run with one process: Python's generator, drawn from the first row on.

    Cost: 0.1 us for each row before `first_row`, which must be drawn too.
    """
    drawn = random.Random(seed)

    def sizes(rows: int) -> Int64s:
        short = (
            drawn.randint(MIN_SHORT, length - 1) if drawn.random() < probability else length + 1
            for _ in range(rows)
        )
        return np.fromiter(short, np.int64, rows)

    sizes(first_row)
    return sizes


def short_documents(tokens: Tokens, probability: float, seed: int, length: int) -> Tokens:
    """Cut a share of documents to 2 to `length` - 1 tokens; chance depends on the seed and their tokens, wherever they stand."""
    if not probability:
        return tokens
    ends = np.cumsum(tokens.lengths, dtype=np.int64)
    starts = ends - tokens.lengths
    digests = [xxhash.xxh3_64_intdigest(tokens.ids[a:b].tobytes()) for a, b in zip(starts, ends, strict=True)]
    kept = _drawn_sizes(np.array(digests, np.uint64), probability, seed, length)
    kept = np.where(kept > length, tokens.lengths, np.minimum(kept, tokens.lengths))
    places = np.arange(tokens.ids.size) - np.repeat(starts, tokens.lengths)
    left = places < np.repeat(kept, tokens.lengths)
    return replace(tokens, ids=tokens.ids[left], lengths=check_lengths(kept))


def check_short(probability: float, length: int) -> None:
    """Refuse (`UsageError`) to cut rows that are too short for it."""
    if probability and length <= MIN_SHORT:
        raise UsageError(
            f"short_seq_prob={probability} with max_seq_length={length}; expected rows of more than {MIN_SHORT} tokens."
        )
