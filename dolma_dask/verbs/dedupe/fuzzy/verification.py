"""Verification of pairs: documents that share a band are joined only if their signatures agree in enough values.

Each bucket sends its pairs: its first document with each of the others, and neighbours with each other, at most ``2 (m - 1)`` of m documents in place of all
``m (m - 1) / 2``. Those of all bands meet once and become unique, in the order of their first document, whose signatures are then read from front to back and sent on
to the second; in its order the second ones are read and compared. So nothing is read at random, and chains of weak links make no large cluster. A
signature travels once for each pair: 512 bytes at 128 values.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.exchange.contract import Records, to_records, to_words
from dolma_dask.exchange.ordering import chunks_of
from dolma_dask.minhash.bands import similarity
from dolma_dask.minhash.edges import STATE, star_edges
from dolma_dask.text.columns import for_kernel
from dolma_dask.text.kernels import Words
from dolma_dask.verbs.dedupe.fuzzy.edges import VERIFIED
from dolma_dask.verbs.dedupe.fuzzy.signatures import SignatureReader, SignedShard, holding

PAIRS = np.dtype([("low", "<u8"), ("high", "<u8")])
"""Two documents; the first word is shifted up (`shift_of`), so that the exchange can share out its work by it."""

BATCH = 4096
"""Pairs that are compared at once: 2 MB of signatures on either side."""


def shift_of(documents: int) -> int:
    """Return how far docnos are shifted so that their highest bit is the 64th."""
    return 64 - max(documents - 1, 1).bit_length()


def signed_dtype(num_perm: int) -> np.dtype[Any]:
    """Return the type of pairs that bring the signature of their first document to the second: ``high``, shifted, ``low``, values by two."""
    values = [(f"values{number}", "<u8") for number in range(-(-num_perm // 2))]
    return np.dtype([("high", "<u8"), ("low", "<u8"), *values])


class PairReducer(Struct, frozen=True):
    """Turns keys in order into pairs; see `dolma_dask.exchange.Reducer`."""

    shift: int
    dtype: np.dtype[Any] = PAIRS

    def reduce(self, runs: Iterable[Records], out: Callable[[Records], None]) -> dict[str, Any]:
        """Give out the pairs of a range; returns the documents of the largest bucket."""
        state = np.zeros(STATE, np.uint64)
        largest = 0
        for run in runs:
            pairs = np.empty((2 * len(run), 2), np.uint64)
            count, longest = star_edges(for_kernel(to_words(run, run.dtype)), state, pairs, True)
            pairs[:count, 0] <<= np.uint64(self.shift)
            largest = max(largest, int(longest))
            out(to_records(pairs[:count], PAIRS))
        return {"largest": largest}


class _WithSignatures(Struct, frozen=True):
    """Reader of the signatures of the documents in the first word of pairs."""

    shards: Sequence[SignedShard]
    num_perm: int
    shift: int

    def part(self, first: int, last: int) -> Self:
        """Return what pairs need whose first words lie from `first` to ``last - 1``; see `dolma_dask.exchange.passes.reduce`."""
        return replace(self, shards=self.shards[holding(self.shards, first, last, self.shift)])


class SignReducer(_WithSignatures, frozen=True):
    """Gives each pair the signature of its first document; pairs of several bands once."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the records that it gives out."""
        return signed_dtype(self.num_perm)

    def reduce(self, runs: Iterable[Records], out: Callable[[Records], None]) -> dict[str, Any]:
        """Give out the pairs of a range with signatures; returns how many they are."""
        reader = SignatureReader(self.shards, self.num_perm)
        last: Words = np.empty((0, 2), np.uint64)
        count = 0
        for words in _batches(runs):
            is_new = np.ones(len(words), np.bool_)
            is_new[1:] = (words[1:] != words[:-1]).any(axis=1)
            is_new[0] = not len(last) or bool((words[0] != last[0]).any())
            last = words[-1:].copy()
            pairs = words[is_new]
            low = pairs[:, 0] >> np.uint64(self.shift)
            signed = np.zeros((len(pairs), 2 + -(-self.num_perm // 2)), np.uint64)
            signed[:, 0] = pairs[:, 1] << np.uint64(self.shift)
            signed[:, 1] = low
            signed[:, 2:].view(np.uint32)[:, : self.num_perm] = reader.take(low)
            out(to_records(signed, self.dtype))
            count += len(pairs)
        return {"pairs": count}


class CompareReducer(_WithSignatures, frozen=True):
    """Gives out the pairs whose signatures agree in `least_matches` values or more, as edges with these matches."""

    least_matches: int
    is_last: bool = True  # else the first word is shifted up, for another exchange
    dtype: np.dtype[Any] = VERIFIED

    def reduce(self, runs: Iterable[Records], out: Callable[[Records], None]) -> dict[str, Any]:
        """Give out the accepted pairs of a range; returns how many they are."""
        reader = SignatureReader(self.shards, self.num_perm)
        count = 0
        for words in _batches(runs):
            high = words[:, 0] >> np.uint64(self.shift)
            left = np.ascontiguousarray(words[:, 2:]).view(np.uint32)[:, : self.num_perm]
            matches = similarity(np.ascontiguousarray(left), reader.take(high))
            accepted = matches >= self.least_matches
            low = words[accepted, 1] << np.uint64(0 if self.is_last else self.shift)
            columns = low, high[accepted], matches[accepted].astype(np.uint64)
            edges = np.stack(columns, axis=1)
            out(to_records(edges, VERIFIED))
            count += len(edges)
        return {"accepted": count}


def _batches(runs: Iterable[Records]) -> Iterator[Words]:
    for run in runs:
        yield from chunks_of(to_words(run, run.dtype), BATCH)
