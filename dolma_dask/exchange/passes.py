"""The passes of an exchange as steps of a job: scatter records by key, reduce ranges of keys, regroup what came out by shard.

`scatter` cuts the records of every task into buckets by the top bits of the key and writes one file per task. `reduce` reads ranges of
neighbouring buckets, chosen from the summed histogram to fit in memory, from all files, in order; a range that does not fit goes through sorted
runs on disk. What the reducer gives out can be reduced again by another key, or regrouped by shard (`by_shard`), so that each shard's writer
reads one slice. `exchange` is the three in a row. Files are freed as soon as the next pass is done: disk holds the records once (those of the
largest range twice while it is sorted) and what the reducer gives out once. A pass that was killed goes on with the tasks that are left.
"""

from bisect import bisect_right
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import msgspec
import numpy as np
import xxhash

from dolma_dask.engine import Free, Input, Pass, Step, Task, Unit, WorkDir, full_disk_explained
from dolma_dask.errors import DolmaDaskError, UsageError
from dolma_dask.exchange import buckets
from dolma_dask.exchange.bucket_file import ENTRY, BucketFile, BucketWriter, write_tail
from dolma_dask.exchange.buckets import Bucketing, BucketRange
from dolma_dask.exchange.contract import (
    Emitter,
    Records,
    Reducer,
    Words,
    bytes_of,
    check_locations,
    to_records,
    to_words,
    word_count,
)
from dolma_dask.exchange.ordering import sorted_chunks
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.publish import PublishedFile, publish
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.journal import Record, work_key

VERSION = 3
"""Raised when the staging files change for the same records."""

Shuffle = Literal["files", "dask"]


@dataclass(frozen=True)
class Limits:
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


@dataclass(frozen=True)
class BucketFiles:
    """The bucket files of one pass, for workers."""

    folder: str  # URL of the work folder
    name: str  # of the pass
    checksums: tuple[str, ...]  # of all files, in their order: another file is not read
    dtype: np.dtype[Any]
    bucketing: Bucketing

    def read(self, span: BucketRange) -> Iterator[Words]:
        """Yield the records of a range from all files, one array per segment."""
        for number, checksum in enumerate(self.checksums):
            url = files.join(self.folder, file_of(self.name, number))
            with BucketFile(url, word_count(self.dtype), self.bucketing.count, checksum) as opened:
                yield from opened.slices(span.first, span.last)

    def sorted(self, span: BucketRange, limits: Limits) -> Iterator[Words]:
        """Yield the records of a range in order of all words, a chunk at a time."""
        return sorted_chunks(
            self.read(span),
            span.records,
            limits.records(limits.range, self.dtype),
            limits.records(min(limits.chunk, limits.range), self.dtype),
            self.folder,
        )


@dataclass(frozen=True)
class Staged:
    """Result of a pass: its bucket files, and the record of each of its tasks in their order."""

    files: BucketFiles
    records: tuple[Record, ...]
    stage_verb: str

    @property
    def emitted(self) -> dict[str, Record]:
        """Records by task as the emitter described them: inputs, rows, counts, info and side files."""
        return {record.shard: _emitted(record) for record in self.records}

    def ranges(self, limits: Limits) -> tuple[BucketRange, ...]:
        """Return the ranges of neighbouring buckets that fit in memory."""
        histogram = buckets.sum_histograms(
            (record.info["histogram"] for record in self.records), self.files.bucketing.count
        )
        return buckets.choose_ranges(histogram, limits.records(limits.range, self.files.dtype))

    def free(self) -> Free:
        """Return the step that removes the files."""
        return Free(self.stage_verb, self.records)


def _emitted(record: Record) -> Record:
    side = tuple(file for file in record.files if file.path != record.unit)
    return msgspec.structs.replace(record, files=side, info=record.info["emitted"])


@dataclass(frozen=True)
class Reduced:
    """Results of the reducers for each range of keys, in their order, and the records that they gave out."""

    infos: tuple[dict[str, Any], ...]
    staged: Staged | None = None


@dataclass(frozen=True)
class ShardRecords:
    """The records that a reducer gave out, by shard; a few hundred bytes, for workers."""

    folder: str
    name: str
    dtype: np.dtype[Any]
    firsts: tuple[int, ...]  # first shard of each file
    counts: tuple[int, ...]  # number of its shards
    checksums: tuple[str, ...]

    def of_shard(self, number: int) -> Records:
        """Return the records of a shard, sorted by all fields.

        Raises
        ------
        CorruptFileError
            A file is gone or damaged.
        """
        group = bisect_right(self.firsts, number) - 1
        if group < 0 or number >= self.firsts[group] + self.counts[group]:
            return np.empty(0, self.dtype)
        bucket = number - self.firsts[group]
        url = files.join(self.folder, file_of(self.name, group))
        with BucketFile(url, word_count(self.dtype), self.counts[group], self.checksums[group]) as opened:
            slices = list(opened.slices(bucket, bucket + 1))
        return to_records(slices[0], self.dtype) if slices else np.empty(0, self.dtype)


@dataclass(frozen=True)
class Exchanged:
    """The outcome of an exchange.

    Attributes
    ----------
    infos : tuple of dict
        Results of the reducer, one per range of keys, in the order of keys; ranges without records are left out.
    emitted : Mapping[str, Record]
        Records of the tasks as the emitter described them, by `Task.shard`: inputs, rows, counts, info and side files.
    by_shard : ShardRecords or None
        For workers; None if the reducer gives out no records.
    """

    infos: tuple[dict[str, Any], ...]
    emitted: Mapping[str, Record]
    by_shard: ShardRecords | None = None


def exchange(
    work: WorkDir,
    emitter: Emitter,
    tasks: Sequence[Task],
    reducer: Reducer,
    *,
    shards: int,
    shuffle: Shuffle = "files",
    limits: Limits = DEFAULT,
) -> Generator[Step, Any, Exchanged]:
    """Regroup fixed-width records of all tasks by key, reduce them range by range, and regroup what comes out by shard.

    Parameters
    ----------
    work : WorkDir
        Of the job.
    emitter : Emitter
        Makes the records of a task.
    tasks : sequence of Task
        What is read: a shard or a group of small ones each, with different names. Their units are not looked at.
    reducer : Reducer
        Gets the sorted records of each range of keys once.
    shards : int
        Number of shards; the locations that the reducer gives out lie in them.
    shuffle : {"files", "dask"}
        Records reach the reducers through staging files: restartable, in bounded memory. Or through Dask's dataframe shuffle, for slow
        shared storage (`dolma_dask.exchange.dask_shuffle`). The records of each shard are the same.
    limits : Limits
        Bounds of memory.

    Raises
    ------
    UsageError
        Records of a wrong type, tasks with the same name, an unknown shuffle.
    """
    check_shuffle(shuffle)
    if reducer.dtype is not None:
        check_locations(reducer.dtype)
    cut = buckets.of_shards(shards)
    if shuffle == "dask":
        from dolma_dask.exchange.dask_shuffle import shuffled

        emitted, reduced = yield from shuffled(work, emitter, tasks, reducer, limits, cut)
    else:
        staged = yield from scatter(work, emitter, tasks, limits=limits)
        reduced = yield from reduce(work, reducer, staged, cut=cut, limits=limits)
        emitted = staged.emitted
    if reduced.staged is None:
        return Exchanged(reduced.infos, emitted)
    return Exchanged(reduced.infos, emitted, (yield from by_shard(work, reduced.staged, limits=limits)))


def check_shuffle(shuffle: str) -> None:
    """Refuse an unknown way to regroup records.

    Raises
    ------
    UsageError
        It is unknown, or of an earlier release.
    """
    if shuffle not in ("files", "dask"):
        renamed = "; 'p2p' is called 'dask' now" if shuffle == "p2p" else ""
        raise UsageError(f"shuffle={shuffle!r}; expected 'files' or 'dask'{renamed}.")


def scatter(
    work: WorkDir,
    emitter: Emitter,
    tasks: Sequence[Task],
    *,
    name: str = "scatter",
    limits: Limits = DEFAULT,
) -> Generator[Step, Any, Staged]:
    """Write the records of all tasks, cut into buckets by the top bits of their first word."""
    if len({task.shard for task in tasks}) < len(tasks):
        raise UsageError("two tasks of an exchange have the same name; expected names that differ.")
    word_count(emitter.dtype)
    cut = buckets.of_keys(limits.buckets)
    key = _key(name, emitter.dtype, limits)
    verb = f"{work.verb}-{name}"
    units = [
        Task(task.shard, (Unit(file_of(name, number), key),), task.inputs, task)
        for number, task in enumerate(tasks)
    ]
    ran = yield Pass(_Scatter(verb, emitter, work.url, cut, limits), units)
    return _staged(work, name, verb, emitter.dtype, cut, tuple(ran.records.values()))


def reduce(
    work: WorkDir,
    reducer: Reducer,
    staged: Staged,
    *,
    name: str = "reduce",
    cut: Bucketing | None = None,
    limits: Limits = DEFAULT,
) -> Generator[Step, Any, Reduced]:
    """Give each range of keys in order to a reducer, and free the files that were read.

    Parameters
    ----------
    work, name, limits
        See `exchange`; passes of one job have different names.
    reducer : Reducer
        Gets the records of a range.
    staged : Staged
        What an earlier pass has left.
    cut : Bucketing, optional
        How the records that it gives out are cut: `buckets.of_keys` (the default) to be reduced again, `buckets.of_shards` for `by_shard`.
    """
    out = reducer.dtype
    cut = cut or buckets.of_keys(limits.buckets)
    key = _key(name, out, limits, _checksums(staged))
    verb = f"{work.verb}-{name}"
    stage = _Reduce(verb, reducer, staged.files, cut, limits, name)
    ran = yield Pass(stage, _range_tasks(name, staged, limits, key), reads=staged.records)
    records = tuple(ran.records.values())
    yield staged.free()
    infos = tuple(record.info["reduced"] for record in records)
    return Reduced(infos, None if out is None else _staged(work, name, verb, out, cut, records))


def by_shard(
    work: WorkDir, staged: Staged, *, name: str = "shards", limits: Limits = DEFAULT
) -> Generator[Step, Any, ShardRecords]:
    """Regroup records whose first field is their location by shard, and free the files that were read."""
    check_locations(staged.files.dtype)
    verb = f"{work.verb}-{name}"
    tasks = _range_tasks(name, staged, limits, _key(name, staged.files.dtype, limits, _checksums(staged)))
    ran = yield Pass(_ByShard(verb, staged.files, limits), tasks, reads=staged.records)
    yield staged.free()
    bounds = [_shards_of(task.work, staged.files.bucketing) for task in tasks]
    return ShardRecords(
        work.url,
        name,
        staged.files.dtype,
        tuple(first for first, _ in bounds),
        tuple(count for _, count in bounds),
        tuple(record.info["checksum"] for record in ran.records.values()),
    )


def file_of(name: str, number: int) -> str:
    """Return the path of a task's file, relative to the work folder."""
    return f"{name}/{number:06d}.bin"


def _staged(
    work: WorkDir, name: str, verb: str, dtype: np.dtype[Any], cut: Bucketing, records: tuple[Record, ...]
) -> Staged:
    checksums = tuple(record.info["checksum"] for record in records)
    return Staged(BucketFiles(work.url, name, checksums, dtype, cut), records, verb)


def _key(name: str, dtype: np.dtype[Any] | None, limits: Limits, *more: Any) -> str:
    described = None if dtype is None else str(dtype.descr)
    return work_key(name, VERSION, {"dtype": described, "limits": vars(limits), "more": more})


def _checksums(staged: Staged) -> list[str]:
    """Return what makes the keys of a later pass: a changed input makes all of it again."""
    return [record.info["content"] for record in staged.records]


@dataclass(frozen=True)
class _Scatter:
    """Writes the records of one task."""

    verb: str
    emitter: Emitter
    folder: str
    cut: Bucketing
    limits: Limits

    def run_shard(self, task: Task) -> list[Record]:
        (unit,) = task.units
        dtype = self.emitter.dtype
        with full_disk_explained(self.folder), publish(files.join(self.folder, unit.name)) as out:
            segment = self.limits.records(self.limits.segment, dtype)
            writer = BucketWriter(out, word_count(dtype), self.cut, segment)
            emitted = self.emitter.emit(
                task.work, lambda records: writer.add(to_words(records, dtype)), self.folder
            )
            writer.finish()
        return [
            Record(
                unit.name,
                task.shard,
                unit.key,
                inputs=emitted.inputs,
                files=(_written(unit, out, writer), *emitted.files),
                rows=emitted.rows,
                counts=emitted.counts,
                info={"emitted": emitted.info, **_described(out, writer)},
            )
        ]


@dataclass(frozen=True)
class _Reduce:
    """Gives the sorted records of one range to the reducer."""

    verb: str
    reducer: Reducer
    files: BucketFiles
    cut: Bucketing
    limits: Limits
    name: str

    def run_shard(self, task: Task) -> list[Record]:
        (unit,) = task.units
        with full_disk_explained(self.files.folder):
            chunks = self.files.sorted(task.work, self.limits)
            runs = (to_records(chunk, self.files.dtype) for chunk in chunks)
            if self.reducer.dtype is None:
                info = {"reduced": self.reducer.reduce(runs, refuse)}
                return [Record(unit.name, task.shard, unit.key, inputs=_read(task), info=info)]
            url = files.join(self.files.folder, unit.name)
            file, info = reduce_into(url, unit, self.reducer, runs, self.cut, self.limits)
        return [Record(unit.name, task.shard, unit.key, inputs=_read(task), files=(file,), info=info)]


def reduce_into(
    url: str, unit: Unit, reducer: Any, runs: Iterator[Any], cut: Bucketing, limits: Limits
) -> tuple[FileRecord, dict[str, Any]]:
    """Write what a reducer gives out as a bucket file; return the file and the info of its record."""
    dtype = reducer.dtype
    assert dtype is not None
    with publish(url) as out:
        writer = BucketWriter(out, word_count(dtype), cut, limits.records(limits.segment, dtype))
        reduced = reducer.reduce(runs, lambda records: writer.add(to_words(records, dtype)))
        writer.finish()
    return _written(unit, out, writer), {"reduced": reduced, **_described(out, writer)}


def _written(unit: Unit, out: PublishedFile, writer: BucketWriter) -> FileRecord:
    return FileRecord(unit.name, out.bytes, out.checksum, int(writer.histogram.sum()))


def _described(out: PublishedFile, writer: BucketWriter) -> dict[str, Any]:
    """Return what later passes need to know of a bucket file; `checksum` is that of its tail, which readers compare."""
    return {
        "histogram": buckets.pack_histogram(writer.histogram),
        "content": out.checksum,
        "checksum": writer.checksum,
    }


def refuse(records: Records) -> None:
    """Take the place of `out` for a reducer that announces no records."""
    raise DolmaDaskError(
        f"a reducer gave out {len(records)} records but announces none; expected a `dtype` of what it gives out."
    )


@dataclass(frozen=True)
class _ByShard:
    """Writes the records of a group of neighbouring shards, one bucket per shard."""

    verb: str
    files: BucketFiles
    limits: Limits

    def run_shard(self, task: Task) -> list[Record]:
        (unit,) = task.units
        span: BucketRange = task.work
        with (
            full_disk_explained(self.files.folder),
            publish(files.join(self.files.folder, unit.name)) as out,
        ):
            chunks = self.files.sorted(span, self.limits)
            checksum = write_shards(out, chunks, span, self.files.bucketing, word_count(self.files.dtype))
        file = FileRecord(unit.name, out.bytes, out.checksum, span.records)
        return [
            Record(
                unit.name,
                task.shard,
                unit.key,
                inputs=_read(task),
                files=(file,),
                info={"checksum": checksum},
            )
        ]


def write_shards(
    out: PublishedFile, chunks: Iterator[Words], span: BucketRange, cut: Bucketing, words: int
) -> str:
    """Write sorted records as a bucket file with a bucket per shard of the range, and return its checksum."""
    first, count = _shards_of(span, cut)
    digests = [xxhash.xxh3_64() for _ in range(count)]
    counts = np.zeros(count, np.int64)
    for rows in chunks:
        shards = (rows[:, 0] >> np.uint64(32)).astype(np.int64) - first
        bounds = [0, *(np.flatnonzero(np.diff(shards)) + 1).tolist(), len(rows)]
        for begin, end in pairwise(bounds):
            digests[shards[begin]].update(bytes_of(rows[begin:end]))
            counts[shards[begin]] += end - begin
        out.write(np.ascontiguousarray(rows))
    table = np.zeros(count + 1, ENTRY)
    table["start"][1:] = np.cumsum(counts)
    table["checksum"][:-1] = [digest.intdigest() for digest in digests]
    return write_tail(out, [table], count, words, int(counts.sum()))


def _shards_of(span: BucketRange, cut: Bucketing) -> tuple[int, int]:
    """Return the first shard of a range and the number of its shards."""
    bits = cut.shift - 32
    return span.first << bits, (span.last - span.first) << bits


def _range_tasks(name: str, staged: Staged, limits: Limits, key: str) -> list[Task]:
    """Return a task per range; the size of what it reads tells the engine which are large."""
    size = staged.files.dtype.itemsize
    return [
        Task(
            f"{name} {number}",
            (Unit(file_of(name, number), key),),
            (_slices(span, size, key),),
            span,
        )
        for number, span in enumerate(staged.ranges(limits))
    ]


def _slices(span: BucketRange, record_bytes: int, key: str) -> Input:
    """Return the slices of a range as one input; the key, made from the checksums of all files, is its stamp."""
    info = FileInfo(f"buckets {span.first} to {span.last - 1}", span.records * record_bytes, key)
    return Input(info.path, info)


def _read(task: Task) -> tuple[InputRecord, ...]:
    """Return the inputs of a task of `_range_tasks` for the journal."""
    return tuple(InputRecord(item.info.path, item.info.bytes, item.info.stamp, "") for item in task.inputs)
