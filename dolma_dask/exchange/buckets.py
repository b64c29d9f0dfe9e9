"""How records are cut: into buckets by the top bits of their first word, and into ranges of neighbouring buckets by size.

Buckets are fixed before a record is seen, so that every task cuts alike; ranges follow from the sum of all histograms, so that they are
the same for any number of workers. A bucket that is too large by itself (one key, many times) is a range of its own.
"""

import base64
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dolma_dask.errors import UsageError

MOST_BUCKETS = 1024
"""Buckets of keys, and at most so many of shards."""

Histogram = npt.NDArray[np.int64]
"""Records by bucket, shape (n_buckets,)."""


@dataclass(frozen=True)
class Bucketing:
    """Bucket of a record = ``(its first word >> shift) - first``; there are `count` buckets."""

    shift: int
    count: int
    first: int = 0

    @property
    def low(self) -> np.uint64:
        """Least first word of the first bucket."""
        return np.uint64(self.first << self.shift)


@dataclass(frozen=True)
class BucketRange:
    """Neighbouring buckets ``first`` to ``last - 1`` and the number of records in them."""

    first: int
    last: int
    records: int


def of_keys(buckets: int) -> Bucketing:
    """Return equal ranges of the values of a first word.

    Raises `UsageError`: `buckets` is not a power of two from 2 to 65,536.
    """
    if buckets & (buckets - 1) or not 2 <= buckets <= 1 << 16:
        raise UsageError(f"buckets={buckets}; expected a power of two from 2 to 65,536.")
    return Bucketing(64 - (buckets.bit_length() - 1), buckets)


def of_shards(shards: int) -> Bucketing:
    """Return groups of neighbouring shards, of one shard each as long as there are no more than `MOST_BUCKETS`."""
    bits = 0
    while shards > MOST_BUCKETS << bits:
        bits += 1
    return Bucketing(32 + bits, max(-(-shards // (1 << bits)), 1))


def each_shard(span: BucketRange, cut: Bucketing) -> Bucketing:
    """Return a bucket for each of the shards in a range of the buckets of `of_shards`."""
    bits = cut.shift - 32
    return Bucketing(32, (span.last - span.first) << bits, span.first << bits)


def choose_ranges(histogram: Histogram, most_records: int) -> tuple[BucketRange, ...]:
    """Join neighbouring buckets to ranges of at most `most_records`, unless a single bucket holds more.

    No range is empty, and all buckets with records are covered.
    """
    ranges: list[BucketRange] = []
    first, size = 0, 0
    for bucket, count in enumerate(histogram.tolist()):
        if size and size + count > most_records:
            ranges.append(BucketRange(first, bucket, size))
            first, size = bucket, 0
        size += count
    if size:
        ranges.append(BucketRange(first, len(histogram), size))
    return tuple(ranges)


def pack_histogram(histogram: Histogram) -> str:
    """Return a histogram as a short string for the journal."""
    return base64.b85encode(zlib.compress(histogram.astype("<u8").tobytes(), 1)).decode()


def sum_histograms(packed: Iterable[str], buckets: int) -> Histogram:
    """Return the sum of what `pack_histogram` has packed."""
    total = np.zeros(buckets, np.int64)
    for text in packed:
        total += np.frombuffer(zlib.decompress(base64.b85decode(text)), "<i8")
    return total
