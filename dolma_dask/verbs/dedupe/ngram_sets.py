"""Verification by the texts themselves: the Jaccard similarity of the sets of n-grams of both documents, without estimate.

Only pairs whose signatures come near are looked at. The n-grams of the first document travel to the second as 64-bit hashes, some in each record; the texts of
either side are read from front to back, so that this costs two more readings of the shards that have such pairs.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.exchange.contract import Records, to_records, to_words
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.minhash.schemes import MinHash
from dolma_dask.reading import AlignedShard
from dolma_dask.text.kernels import Words
from dolma_dask.verbs.dedupe.bands import SignedShard
from dolma_dask.verbs.dedupe.edges import VERIFIED

SHARE = (1 << 16) - 1
"""A similarity is kept as a multiple of 1 / `SHARE`."""

HASHES = 28
"""N-grams of a record."""

SETS = np.dtype(
    [(name, "<u8") for name in ("high", "low", "part", "size", *(f"hash{n}" for n in range(HASHES)))]
)
"""Some n-grams of the first document of a pair, for the second: docnos (``high`` shifted), number of the part, n-grams in all."""


def slack(similarity: float, num_perm: int) -> float:
    """Return the estimated similarity from which pairs are looked at: three standard errors below."""
    return max(similarity - 3 * math.sqrt(similarity * (1 - similarity) / num_perm), 0)


@dataclass(frozen=True)
class Texts:
    """Texts of all documents, and how pairs of them come."""

    works: Sequence[AlignedShard]  # whose column is the text
    shards: Sequence[SignedShard]
    minhash: MinHash
    policy: RecordPolicy
    shift: int  # of the first word of a pair


class NgramReader:
    """Sets of n-grams of documents in the order of their docnos, over all shards."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._firsts = [shard.first for shard in texts.shards]
        self._blocks: Iterator[tuple[int, pa.LargeStringArray]] = iter(())
        self._end = 0  # docno after the shard that is open
        self._held = 0, pa.array([], pa.large_string())  # docno of the first, and texts, of a block
        self._last = -1, np.empty(0, np.uint64)

    def set_of(self, docno: int) -> Words:
        """Return the n-grams of a document, hashed, sorted and unique; no document before that of the last call."""
        if docno != self._last[0]:
            text = self._text(docno)
            _, hashes = self._texts.minhash.shingles(text)
            self._last = docno, np.unique(hashes)
        return self._last[1]

    def _text(self, docno: int) -> pa.LargeStringArray:
        if docno >= self._end:
            number = bisect_right(self._firsts, docno) - 1
            shard = self._texts.shards[number]
            self._blocks, self._end = self._read(number), shard.first + shard.rows
        while not self._held[0] <= docno < self._held[0] + len(self._held[1]):
            self._held = next(self._blocks)
        first, texts = self._held
        return pc.fill_null(texts.slice(docno - first, 1), "")

    def _read(self, number: int) -> Iterator[tuple[int, pa.LargeStringArray]]:
        docno, policy = self._firsts[number], self._texts.policy
        reader = self._texts.works[number].open(
            max_record_bytes=policy.max_record_bytes, quarantine=Quarantine(policy)
        )
        for block in reader:
            yield docno, block.batch.column("text")
            docno += block.num_rows


@dataclass(frozen=True)
class NgramReducer:
    """Sends the n-grams of the first document of each pair to the second; see `dolma_dask.exchange.Reducer`."""

    texts: Texts
    dtype: np.dtype[Any] = SETS

    def reduce(self, runs: Iterable[Records], out: Callable[[Records], None]) -> dict[str, Any]:
        """Give out the n-grams of a range of pairs."""
        reader = NgramReader(self.texts)
        for run in runs:
            for low, high in to_words(run, run.dtype)[:, :2].tolist():
                found = reader.set_of(low >> self.texts.shift)
                out(self._records(low >> self.texts.shift, high, found))
        return {}

    def _records(self, low: int, high: int, hashes: Words) -> Records:
        parts = max(-(-len(hashes) // HASHES), 1)
        words = np.zeros((parts, 4 + HASHES), np.uint64)
        words[:, 0], words[:, 1], words[:, 3] = high << self.texts.shift, low, len(hashes)
        words[:, 2] = np.arange(parts)
        padded = np.zeros(parts * HASHES, np.uint64)
        padded[: len(hashes)] = hashes
        words[:, 4:] = padded.reshape(parts, HASHES)
        return to_records(words, SETS)


@dataclass(frozen=True)
class JaccardReducer:
    """Gives out the pairs whose sets are as similar as they should be, with their similarity; see `dolma_dask.exchange.Reducer`."""

    texts: Texts
    similarity: float
    dtype: np.dtype[Any] = VERIFIED

    def reduce(self, runs: Iterable[Records], out: Callable[[Records], None]) -> dict[str, Any]:
        """Give out the accepted pairs of a range; returns how many they are."""
        reader = NgramReader(self.texts)
        accepted = 0
        for low, high, size, common in self._pairs(runs, reader):
            union = size + len(reader.set_of(high)) - common
            share = common / union if union else 0.0
            if share >= self.similarity:
                out(np.array([(low, high, int(share * SHARE))], VERIFIED))
                accepted += 1
        return {"accepted": accepted}

    def _pairs(self, runs: Iterable[Records], reader: NgramReader) -> Iterator[tuple[int, int, int, int]]:
        """Yield each pair with the n-grams of the first document, and how many of them the second has."""
        pair, size, common = (-1, -1), 0, 0
        for run in runs:
            words = to_words(run, run.dtype)
            for (high, low, part, count), hashes in zip(words[:, :4].tolist(), words[:, 4:], strict=True):
                now = low, high >> self.texts.shift
                if now != pair and pair[0] >= 0:
                    yield *pair, size, common
                if now != pair:
                    pair, size, common = now, count, 0
                own = hashes[: min(HASHES, count - part * HASHES)]
                common += int(np.isin(own, reader.set_of(now[1]), assume_unique=True).sum())
        if pair[0] >= 0:
            yield *pair, size, common
