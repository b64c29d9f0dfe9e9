"""Files that the passes of an exchange leave in the work folder: bucket files, and records by shard, for those who read them.

Cost: a range is one array into which the slices of all files are copied, and which is sorted in its place.
"""

import zlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.engine import Free
from dolma_dask.errors import CorruptFileError
from dolma_dask.exchange import buckets
from dolma_dask.exchange.buckets import (
    BucketFile,
    Bucketing,
    BucketRange,
    FileFacts,
    Slice,
    gather,
    read_buckets,
)
from dolma_dask.exchange.contract import Records, Words, to_records, word_count
from dolma_dask.exchange.ordering import chunks_of, joined, sort_grouped, sort_spilled, without_lone
from dolma_dask.io import files
from dolma_dask.journal import Record


class Limits(Struct, frozen=True):
    """Bounds of memory, in bytes of records."""

    range: int = (
        32 << 20
    )  # sorted in memory by a task, which needs about twice as much; larger ranges go through disk
    segment: int = 16 << 20  # collected by a task before they are written; it needs about three times as much
    chunk: int = 2 << 20  # given to a reducer at once
    buckets: int = 1024  # of keys, the least that a range can be; a power of two

    def records(self, size: int, dtype: np.dtype[Any]) -> int:
        """Return how many records of a type make so many bytes, one at least."""
        return max(size // dtype.itemsize, 1)


DEFAULT = Limits()


class Staged(Struct, frozen=True):
    """Bucket files that a pass leaves."""

    folder: str  # URL of the work folder
    name: str  # of the pass
    stage_verb: str
    dtype: np.dtype[Any]
    bucketing: Bucketing
    files: tuple[FileFacts, ...]  # in their order: another file is not read
    records: tuple[Record, ...]  # of the tasks, in their order; not for workers
    others: tuple[
        "Staged", ...
    ] = ()  # what other passes have left that is read with it, of the same type and buckets
    only_shared: bool = False  # see `shared`

    @property
    def parts(self) -> tuple["Staged", ...]:
        """Files of each pass by themselves."""
        return (replace(self, others=()), *self.others)

    @property
    def shared(self) -> "Staged":
        """The same for a reducer to which records whose first word no other has make no difference: most of them are left out, unsorted."""
        return replace(self, only_shared=True)

    @property
    def without_records(self) -> "Staged":
        """The files alone, for workers."""
        others = tuple(replace(other, records=()) for other in self.others)
        return replace(self, records=(), others=others)

    @property
    def content(self) -> list[str]:
        """Checksums of all files, for keys of what is made of them."""
        return [info["content"] for part in self.parts for info in part.infos]

    @property
    def infos(self) -> Sequence[Mapping[str, Any]]:
        """What the records of the tasks tell of the files of this pass alone."""
        return [record.info for record in self.records]

    def read(self, span: BucketRange) -> Iterator[Words]:
        """Yield the records of a range from all files, one array per segment; it is overwritten when the next is asked for."""
        return (part.rows for part in self._slices(span))

    def _slices(self, span: BucketRange) -> Iterator[Slice]:
        sources = [file for part in self.parts for file in part.sources(span)]
        return read_buckets(sources, span.first, span.last)

    def sources(self, span: BucketRange) -> Iterator[BucketFile]:
        """Yield the files of this pass alone that may have records of a range."""
        words, count = word_count(self.dtype), self.bucketing.count
        for number, facts in enumerate(self.files):
            url = files.join(self.folder, file_of(self.name, number))
            yield BucketFile(url, words, count, facts)

    def sorted(self, span: BucketRange, limits: Limits) -> Iterator[Words]:
        """Yield the records of a range in order of all words, a chunk at a time."""
        words, limit = word_count(self.dtype), limits.records(limits.range, self.dtype)
        chunk = limits.records(min(limits.chunk, limits.range), self.dtype)
        if span.records > limit:
            yield from sort_spilled(self.read(span), limit, chunk, words, self.folder)
            return
        rows = gather(self._slices(span), span.counts, words)
        if rows is None:
            raise CorruptFileError(
                f"{self.folder}: the journal of {self.stage_verb} tells of {span.records} records in buckets {span.first} to {span.last - 1}, and the "
                "files of others; expected it as it was written. Remove the folder and run the same command again."
            )
        ends = np.cumsum(span.counts)
        if self.only_shared:
            rows = without_lone(rows, ends)
        sort_grouped(rows, ends.tolist())
        yield from chunks_of(rows, chunk)

    @property
    def emitted(self) -> dict[str, Record]:
        """Records by task as the emitter described them: inputs, rows, counts, info and side files."""
        return {record.shard: _emitted(record) for record in self.records}

    def ranges(self, limits: Limits) -> tuple[BucketRange, ...]:
        """Return the ranges of neighbouring buckets that fit in memory."""
        return buckets.choose_ranges(self._histogram, limits.records(limits.range, self.dtype))

    @property
    def all(self) -> BucketRange:
        """All buckets."""
        return BucketRange(0, self.bucketing.count, tuple(self._histogram.tolist()))

    @property
    def _histogram(self) -> buckets.Histogram:
        try:
            histograms = [info["histogram"] for part in self.parts for info in part.infos]
            return buckets.sum_histograms(histograms, self.bucketing.count)
        except (LookupError, ValueError, zlib.error) as error:
            raise CorruptFileError(
                f"{self.folder}: the journal of {self.stage_verb} is damaged ({error}); expected it as it was written. Remove the folder and run the "
                "same command again."
            ) from error

    def free(self) -> Free:
        """Return the step that removes the files."""
        return Free(self.stage_verb, self.records)


def _emitted(record: Record) -> Record:
    side = tuple(file for file in record.files if file.path != record.unit)
    return replace(record, files=side, info=record.info["emitted"])


class Reduced(Struct, frozen=True):
    """Results of the reducers for each range of keys, in their order, and the records that they gave out."""

    infos: tuple[dict[str, Any], ...]
    staged: Staged | None = None
    beside: Staged | None = None  # the second stream of a `ForkingReducer`; stays until the job has ended


class ShardRecords(Struct, frozen=True):
    """The records that a reducer gave out, by shard; a few hundred bytes, for workers."""

    folder: str
    name: str
    dtype: np.dtype[Any]
    cuts: tuple[Bucketing, ...]  # of each file, with a bucket per shard
    files: tuple[FileFacts, ...]

    def of_shard(self, number: int) -> Records:
        """Return the records of a shard, sorted by all fields; raise `CorruptFileError` if a file is gone or damaged."""
        slices = [part.rows.copy() for part in self._slices(number)]
        return to_records(joined(slices), self.dtype) if slices else np.empty(0, self.dtype)

    def chunks_of_shard(self, number: int, chunk: int = DEFAULT.chunk) -> Iterator[Records]:
        """Yield the same, none empty, in pieces of at most `chunk` bytes (one record at least); one segment of a file is in memory."""
        most = DEFAULT.records(chunk, self.dtype)
        for part in self._slices(
            number
        ):  # segments of a shard are in order, since sorted records were cut into them
            for rows in chunks_of(part.rows, most):
                yield to_records(rows.copy(), self.dtype)

    def _slices(self, number: int) -> Iterator[Slice]:
        at = bisect_right(self.cuts, number, key=lambda cut: cut.first) - 1
        if at < 0 or number >= self.cuts[at].first + self.cuts[at].count:
            return iter(())
        cut, url = self.cuts[at], files.join(self.folder, file_of(self.name, at))
        file = BucketFile(url, word_count(self.dtype), cut.count, self.files[at])
        return read_buckets([file], number - cut.first, number - cut.first + 1)


def file_of(name: str, number: int) -> str:
    """Return the path of a task's file, relative to the work folder."""
    return f"{name}/{number:06d}.bin"
