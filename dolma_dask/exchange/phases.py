"""The three passes of an exchange as stages of the engine: scatter records, reduce ranges of keys, collate what came out by shard.

Each task writes one file whose name follows from its number, so that tasks of later passes need not be told of files. The journal of each
pass lies in the folder of the exchange; a pass that was stopped goes on with the tasks that are left.
"""

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import xxhash

from dolma_dask.engine import Input, Task, Unit
from dolma_dask.errors import DolmaDaskError
from dolma_dask.exchange import buckets
from dolma_dask.exchange.bucket_file import ENTRY, BucketFile, BucketWriter, write_tail
from dolma_dask.exchange.buckets import Bucketing, BucketRange
from dolma_dask.exchange.contract import (
    Emitter,
    Records,
    Reducer,
    Words,
    bytes_of,
    to_records,
    to_words,
    word_count,
)
from dolma_dask.exchange.ordering import sorted_chunks
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.publish import PublishedFile, publish
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.journal import Record

SCATTER, REDUCE, COLLATE = "scatter", "reduce", "shards"
"""Folders of the three passes."""

SEAL = "seal"
"""What a record calls the seal of the bucket file that it is about."""

_FULL = {errno.ENOSPC, errno.EDQUOT}


@dataclass(frozen=True)
class Limits:
    """What bounds memory, in records of one kind.

    Attributes
    ----------
    segment : int
        Records held by a task before they are written.
    range : int
        Records of a range that are sorted in memory.
    chunk : int
        Records that a reducer gets at once, at most.
    """

    segment: int
    range: int
    chunk: int


def file_of(phase: str, number: int) -> str:
    """Return the path of a task's file, relative to the folder of the exchange."""
    return f"{phase}/{number:06d}.bin"


@contextmanager
def full_disk_explained(folder: str) -> Iterator[None]:
    """Turn what the system says of a full disk into what to do about it."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise DolmaDaskError(
            f"no space is left for the exchange in {folder} ({error.strerror}); expected room for all records, and for those of the largest "
            "key once more. Make room and run the same command again: what is finished is kept.",
            folder=folder,
        ) from error


@dataclass(frozen=True)
class Scatter:
    """First pass: the records of each of the caller's tasks, cut into buckets of keys."""

    verb: str
    emitter: Emitter
    folder: str
    bucketing: Bucketing
    limits: Limits

    def run_shard(self, task: Task) -> list[Record]:
        """Write the records of one task; its record tells what the emitter told."""
        (unit,) = task.units
        dtype = self.emitter.dtype
        with full_disk_explained(self.folder), publish(files.join(self.folder, unit.name)) as out:
            writer = BucketWriter(out, word_count(dtype), self.bucketing, self.limits.segment)
            emitted = self.emitter.emit(
                task.work, lambda records: writer.add(to_words(records, dtype)), self.folder
            )
            writer.finish()
        file = FileRecord(unit.name, out.bytes, out.checksum, int(writer.histogram.sum()))
        return [
            Record(
                unit.name,
                task.shard,
                unit.key,
                inputs=emitted.inputs,
                files=(file, *emitted.files),
                rows=emitted.rows,
                counts=emitted.counts,
                info={
                    "emitted": emitted.info,
                    "histogram": buckets.pack_histogram(writer.histogram),
                    "checksum": out.checksum,
                    SEAL: writer.seal,
                },
            )
        ]


@dataclass(frozen=True)
class Slices:
    """Files of buckets of one pass, and how to read a range of them.

    Attributes
    ----------
    folder : str
        Of the exchange.
    phase : str
        Which pass wrote them.
    seals : tuple of str
        Of all files, in their order.
    words, buckets : int
        What they hold.
    """

    folder: str
    phase: str
    seals: tuple[str, ...]
    words: int
    buckets: int

    def read(self, wanted: BucketRange) -> Iterator[Words]:
        """Yield the records of a range from all files, one array per segment."""
        for number, seal in enumerate(self.seals):
            url = files.join(self.folder, file_of(self.phase, number))
            with BucketFile(url, self.words, self.buckets, seal) as opened:
                yield from opened.slices(wanted.first, wanted.last)


@dataclass(frozen=True)
class Reduce:
    """Second pass: the sorted records of each range of keys go through the reducer; what it gives out is cut by shard."""

    verb: str
    reducer: Reducer
    dtype: np.dtype[Any]
    slices: Slices
    places: Bucketing
    limits: Limits
    segment: int

    def run_shard(self, task: Task) -> list[Record]:
        """Reduce one range."""
        (unit,) = task.units
        wanted: BucketRange = task.work
        with full_disk_explained(self.slices.folder):
            chunks = sorted_chunks(
                self.slices.read(wanted),
                wanted.records,
                self.limits.range,
                self.limits.chunk,
                self.slices.folder,
            )
            runs = (to_records(chunk, self.dtype) for chunk in chunks)
            return [self._reduce(unit, task, runs)]

    def _reduce(self, unit: Unit, task: Task, runs: Iterator[Records]) -> Record:
        if self.reducer.dtype is None:
            info = self.reducer.reduce(runs, refuse)
            return Record(unit.name, task.shard, unit.key, inputs=read_of(task), info={"reduced": info})
        with publish(files.join(self.slices.folder, unit.name)) as out:
            writer = BucketWriter(out, word_count(self.reducer.dtype), self.places, self.segment)
            info = reduce_into(self.reducer, runs, writer)
            writer.finish()
        file = FileRecord(unit.name, out.bytes, out.checksum, int(writer.histogram.sum()))
        told = {
            "reduced": info,
            "histogram": buckets.pack_histogram(writer.histogram),
            SEAL: writer.seal,
        }
        return Record(unit.name, task.shard, unit.key, inputs=read_of(task), files=(file,), info=told)


def reduce_into(reducer: Reducer, runs: Iterator[Records], writer: BucketWriter) -> dict[str, Any]:
    """Run a reducer that gives out records, write them, and return what it tells."""
    dtype = reducer.dtype
    assert dtype is not None
    return reducer.reduce(runs, lambda records: writer.add(to_words(records, dtype)))


def refuse(records: Records) -> None:
    """Take the place of `out` for a reducer that announces no records."""
    raise DolmaDaskError(
        f"a reducer gave out {len(records)} records but announces none; expected a `dtype` of what it gives out."
    )


@dataclass(frozen=True)
class Collate:
    """Third pass: what the reducer gave out, in the order of places, one bucket per shard."""

    verb: str
    slices: Slices
    places: Bucketing
    limits: Limits

    def run_shard(self, task: Task) -> list[Record]:
        """Write the records of a group of neighbouring shards."""
        (unit,) = task.units
        wanted: BucketRange = task.work
        with (
            full_disk_explained(self.slices.folder),
            publish(files.join(self.slices.folder, unit.name)) as out,
        ):
            chunks = sorted_chunks(
                self.slices.read(wanted),
                wanted.records,
                self.limits.range,
                self.limits.chunk,
                self.slices.folder,
            )
            seal = write_shards(out, chunks, wanted, self.places, self.slices.words)
        file = FileRecord(unit.name, out.bytes, out.checksum, wanted.records)
        return [
            Record(unit.name, task.shard, unit.key, inputs=read_of(task), files=(file,), info={SEAL: seal})
        ]


def write_shards(
    out: PublishedFile, chunks: Iterator[Words], wanted: BucketRange, places: Bucketing, words: int
) -> str:
    """Write sorted records as a bucket file with a bucket per shard of the range, and return its seal."""
    first, count = shards_of(wanted, places)
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


def shards_of(wanted: BucketRange, places: Bucketing) -> tuple[int, int]:
    """Return the first shard of a range and the number of its shards."""
    bits = places.shift - 32
    return wanted.first << bits, (wanted.last - wanted.first) << bits


def range_tasks(phase: str, ranges: Sequence[BucketRange], record_bytes: int, key: str) -> list[Task]:
    """Return a task per range; the size of what it reads tells the engine which are large."""
    return [
        Task(
            f"{phase} {number}",
            (Unit(file_of(phase, number), key),),
            (_virtual(wanted, record_bytes, key),),
            wanted,
        )
        for number, wanted in enumerate(ranges)
    ]


def _virtual(wanted: BucketRange, record_bytes: int, key: str) -> Input:
    """Return the slices of a range as one input; the key, made from the checksums of all files, is its stamp."""
    info = FileInfo(f"buckets {wanted.first} to {wanted.last - 1}", wanted.records * record_bytes, key)
    return Input(info.path, info)


def read_of(task: Task) -> tuple[InputRecord, ...]:
    """Return the inputs of a task of `range_tasks` for the journal."""
    return tuple(InputRecord(item.info.path, item.info.bytes, item.info.stamp, "") for item in task.inputs)
