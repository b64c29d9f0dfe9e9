"""What workers do for an exchange through Dask's p2p shuffle: records to frames, and frames to what the reducer gives out.

A frame has a column per word and one for the range of keys that a record belongs to, the top bits of its first word. Dask puts whole ranges
into partitions by a hash of its own, so that a partition holds several, in no order; each is reduced by itself.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import xxhash

from dolma_dask.engine import Task
from dolma_dask.engine.attempts import Quoted, failure
from dolma_dask.errors import StageError
from dolma_dask.exchange import buckets
from dolma_dask.exchange.bucket_file import BucketWriter
from dolma_dask.exchange.buckets import Bucketing
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
from dolma_dask.exchange.ordering import sort_parts
from dolma_dask.exchange.phases import (
    REDUCE,
    SCATTER,
    SEAL,
    file_of,
    full_disk_explained,
    reduce_into,
    refuse,
)
from dolma_dask.exchange.wanted import Wanted
from dolma_dask.io import files
from dolma_dask.io.publish import publish
from dolma_dask.io.records import FileRecord
from dolma_dask.journal import Record

if TYPE_CHECKING:
    import pandas as pd

RANGE = "range"
"""Column of a frame that says to which range of keys a record belongs."""


def told_file(number: int) -> str:
    """Return where a worker says what the emitter told of a task."""
    return f"{SCATTER}/{number:06d}.json"


@dataclass(frozen=True)
class Job:
    """What workers need to know."""

    emitter: Emitter
    reducer: Reducer
    dtype: np.dtype[Any]
    folder: str
    key: str
    range_shift: int
    places: Bucketing
    chunk: int
    segment: int

    @staticmethod
    def of(wanted: Wanted, partitions: int) -> "Job":
        """Return the job of an exchange; there are eight ranges or more per partition, or Dask's hash would leave some empty."""
        limits = wanted.limits(wanted.words)
        out = wanted.reducer.dtype
        return Job(
            wanted.emitter,
            wanted.reducer,
            wanted.emitter.dtype,
            wanted.folder,
            wanted.work_key(SCATTER, "p2p"),
            64 - (8 * partitions - 1).bit_length(),
            wanted.places,
            limits.chunk,
            wanted.limits(word_count(out)).segment if out is not None else 1,
        )


def emit_frame(quoted: Quoted, numbered: Quoted) -> "pd.DataFrame":
    """Return the records of a task as a frame, and write what the emitter tells."""
    number, task = numbered.value
    with _failing_as(task):
        return _emit(quoted.value, number, task)


def reduce_frame(quoted: Quoted, frame: "pd.DataFrame", number: int) -> Record:
    """Reduce the ranges that Dask has put into one partition, one by one."""
    with _failing_as(Task(f"{REDUCE} {number}", (), ())):
        return _reduce(quoted.value, frame, number)


@contextmanager
def _failing_as(task: Task) -> Iterator[None]:
    """Give an error the name of its task; what is raised here is not tried again."""
    try:
        yield
    except Exception as error:
        what = failure(task, error)
        raise StageError(f"{task.shard}: {what.error}: {what.message}", failures=(what,)) from error


def _emit(job: Job, number: int, task: Task) -> "pd.DataFrame":
    parts: list[Words] = []
    digest = xxhash.xxh3_128()

    def take(records: Records) -> None:
        words = to_words(records, job.dtype)
        digest.update(bytes_of(words))
        parts.append(words.copy())

    with full_disk_explained(job.folder):
        emitted = job.emitter.emit(task, take, job.folder)
        record = Record(
            told_file(number),
            task.shard,
            job.key,
            inputs=emitted.inputs,
            files=emitted.files,
            rows=emitted.rows,
            counts=emitted.counts,
            info={"emitted": emitted.info, "checksum": digest.hexdigest()},
            finished=time.time(),
        )
        with publish(files.join(job.folder, record.unit)) as out:
            out.write(msgspec.json.encode(record))
    return frame_of(parts, word_count(job.dtype), job.range_shift)


def frame_of(parts: list[Words], words: int, range_shift: int) -> "pd.DataFrame":
    """Return records as a frame with a column per word, and their ranges."""
    import pandas as pd

    rows = np.concatenate(parts) if parts else np.empty((0, words), np.uint64)
    columns = {f"word{word}": np.ascontiguousarray(rows[:, word]) for word in range(words)}
    ranges = (rows[:, 0] >> np.uint64(range_shift)).astype(np.uint16)
    return pd.DataFrame({**columns, RANGE: ranges}, copy=False)


def _reduce(job: Job, frame: "pd.DataFrame", number: int) -> Record:
    words = word_count(job.dtype)
    rows = np.empty((len(frame), words), np.uint64)
    for word in range(words):
        rows[:, word] = frame[f"word{word}"].to_numpy()
    pieces = _split(sort_parts([rows], job.chunk) if len(rows) else iter(()), job.range_shift)
    del rows, frame
    ranges = (
        (at, (to_records(piece, job.dtype) for _, piece in group))
        for at, group in groupby(pieces, itemgetter(0))
    )
    unit = file_of(REDUCE, number)
    with full_disk_explained(job.folder):
        if job.reducer.dtype is None:
            told = [(at, job.reducer.reduce(runs, refuse)) for at, runs in ranges]
            return Record(unit, f"{REDUCE} {number}", "", info={"reduced": told})
        with publish(files.join(job.folder, unit)) as out:
            writer = BucketWriter(out, word_count(job.reducer.dtype), job.places, job.segment)
            told = [(at, reduce_into(job.reducer, runs, writer)) for at, runs in ranges]
            writer.finish()
    file = FileRecord(unit, out.bytes, out.checksum, int(writer.histogram.sum()))
    info = {"reduced": told, "histogram": buckets.pack_histogram(writer.histogram), SEAL: writer.seal}
    return Record(unit, f"{REDUCE} {number}", "", files=(file,), info=info)


def _split(chunks: Iterator[Words], range_shift: int) -> Iterator[tuple[int, Words]]:
    """Yield sorted records cut where a range begins, each with its range."""
    for rows in chunks:
        ranges = rows[:, 0] >> np.uint64(range_shift)
        bounds = [0, *(np.flatnonzero(ranges[1:] != ranges[:-1]) + 1).tolist(), len(rows)]
        for begin, end in pairwise(bounds):
            yield int(ranges[begin]), rows[begin:end]
