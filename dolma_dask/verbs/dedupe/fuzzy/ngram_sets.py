"""Verification by the texts themselves: the Jaccard similarity of the sets of n-grams of both documents, without estimate.

Only pairs whose signatures come near are looked at. The n-grams of the first document travel to the second as 64-bit hashes, some in each record; the texts of
either side are read from front to back, so that this costs two more readings of the shards that have such pairs.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.exchange.contract import Records, to_records, to_words
from dolma_dask.io import files
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.minhash.schemes import MinHash
from dolma_dask.minhash.sets import count_common
from dolma_dask.reading.reader import AlignedShard
from dolma_dask.text import compute as pc
from dolma_dask.text.kernels import Words
from dolma_dask.verbs.dedupe.fuzzy.choices import written_since
from dolma_dask.verbs.dedupe.fuzzy.comparison import SHARE
from dolma_dask.verbs.dedupe.fuzzy.edges import VERIFIED
from dolma_dask.verbs.dedupe.fuzzy.signatures import SignedShard, holding

HASHES = 28
"""N-grams of a record."""

SETS = np.dtype(
    [(name, "<u8") for name in ("high", "low", "part", "size", *(f"hash{n}" for n in range(HASHES)))]
)
"""Some n-grams of the first document of a pair, for the second: docnos (``high`` shifted), number of the part, n-grams in all."""


class Texts(Struct, frozen=True):
    """Texts of all documents, and how pairs of them come."""

    works: Sequence[AlignedShard]  # whose column is the text
    shards: Sequence[SignedShard]
    minhash: MinHash
    policy: RecordPolicy
    shift: int  # of the first word of a pair

    def part(self, first: int, last: int) -> Self:
        """Return the texts of pairs whose first words lie from `first` to ``last - 1``."""
        held = holding(self.shards, first, last, self.shift)
        return replace(self, works=self.works[held], shards=self.shards[held])


class NgramReader:
    """Sets of n-grams of documents in the order of their docnos, over all shards."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._starts = [shard.first for shard in texts.shards]
        self._blocks: Iterator[tuple[int, pa.LargeStringArray]] = iter(())
        self._end = 0  # docno after the shard that is open
        self._held = 0, pa.array([], pa.large_string())  # docno of the first, and texts, of a block
        self._last = -1, np.empty(0, np.uint64)

    def set_of(self, docno: int) -> Words:
        """Return the n-grams of a document, hashed, sorted and unique; no document before that of the last call."""
        if docno != self._last[0]:
            text = self._text(docno)
            _, hashes = self._texts.minhash.shingles(text)
            hashes.sort()
            is_new = np.diff(hashes, prepend=~hashes[:1]) != 0
            self._last = docno, hashes[is_new]
        return self._last[1]

    def _text(self, docno: int) -> pa.LargeStringArray:
        if docno >= self._end:
            number = bisect_right(self._starts, docno) - 1
            shard = self._texts.shards[number]
            self._blocks, self._end = self._read(number), shard.first + shard.rows
        while not self._held[0] <= docno < self._held[0] + len(self._held[1]):
            self._held = next(self._blocks)
        first, texts = self._held
        return texts.slice(docno - first, 1)

    def _read(self, number: int) -> Iterator[tuple[int, pa.LargeStringArray]]:
        docno, policy, work = self._starts[number], self._texts.policy, self._texts.works[number]
        listed, now = work.shard, files.stat(work.url)
        if now is not None and (now.bytes, now.stamp) != (listed.bytes, listed.stamp):
            raise written_since(work.url)
        reader = work.open(max_record_bytes=policy.max_record_bytes, quarantine=Quarantine(policy))
        for block in reader:
            yield docno, pc.fill_null(block.batch.column("text"), "")
            docno += block.num_rows


class NgramReducer(Struct, frozen=True):
    """Sends the n-grams of the first document of each pair to the second; see `dolma_dask.exchange.Reducer`."""

    texts: Texts
    dtype: np.dtype[Any] = SETS

    def part(self, first: int, last: int) -> Self:
        """See `dolma_dask.exchange.passes.reduce`."""
        return replace(self, texts=self.texts.part(first, last))

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


class JaccardReducer(Struct, frozen=True):
    """Gives out the pairs whose sets are as similar as they should be, with their similarity; see `dolma_dask.exchange.Reducer`."""

    texts: Texts
    similarity: float
    dtype: np.dtype[Any] = VERIFIED

    def part(self, first: int, last: int) -> Self:
        """See `dolma_dask.exchange.passes.reduce`."""
        return replace(self, texts=self.texts.part(first, last))

    def reduce(self, runs: Iterable[Records], out: Callable[[Records], None]) -> dict[str, Any]:
        """Give out the accepted pairs of a range; returns how many they are."""
        reader = NgramReader(self.texts)
        accepted = 0
        held = np.empty((0, _COMMON + 1), np.uint64)  # the last pair may go on in the next run
        for run in runs:
            pairs = _by_pair(np.concatenate([held, self._counted(to_words(run, run.dtype), reader)]))
            held = pairs[-1:]
            accepted += self._give(pairs[:-1], out)
        return {"accepted": accepted + self._give(held, out)}

    def _counted(self, words: Words, reader: NgramReader) -> Words:
        """Return the documents of each record, the n-grams of both, and how many of those in the record the second has."""
        high = words[:, 0] >> np.uint64(self.texts.shift)
        counted = np.stack([words[:, 1], high, words[:, 3], np.zeros_like(high)], axis=1)
        sizes = np.minimum(words[:, 3] - words[:, 2] * np.uint64(HASHES), HASHES).astype(np.int64)
        common = np.empty(len(words), np.int64)
        bounds = [*np.flatnonzero(np.diff(high, prepend=~high[:1])).tolist(), len(words)]
        for first, last in pairwise(bounds):
            own = reader.set_of(int(high[first]))
            count_common(words[first:last], 4, sizes[first:last], own, common[first:last])
            counted[first:last, _BOTH] += np.uint64(len(own))
        counted[:, _COMMON] = common
        return counted

    def _give(self, pairs: Words, out: Callable[[Records], None]) -> int:
        common = pairs[:, _COMMON]
        union = np.maximum(pairs[:, _BOTH] - common, 1)
        kept = common / union >= self.similarity
        shares = (
            common * np.uint64(SHARE) + union - np.uint64(1)
        ) // union  # rounded up: none below the bound
        columns = *pairs[kept, :_BOTH].T, shares[kept]
        out(to_records(np.stack(columns, axis=1), VERIFIED))
        return int(kept.sum())


_BOTH, _COMMON = 2, 3
"""Columns of pairs that are counted, behind their documents: n-grams of the one and of the other, and those that both have."""


def _by_pair(counted: Words) -> Words:
    """Return the sums of neighbouring rows about the same pair."""
    changes = (counted[1:, :_BOTH] != counted[:-1, :_BOTH]).any(axis=1)
    starts = np.flatnonzero(np.concatenate([np.ones(min(len(counted), 1), np.bool_), changes]))
    pairs = counted[starts]
    if len(starts):
        pairs[:, _COMMON] = np.add.reduceat(counted[:, _COMMON], starts)
    return pairs
