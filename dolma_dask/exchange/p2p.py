"""The first two passes of an exchange through Dask's p2p shuffle: records go from worker to worker, and wait on the disks of the workers.

For clusters whose shared storage is slow. It costs several times the CPU of files (every record becomes a row of an Arrow table and is
sorted twice on its way), begins anew when a worker is lost, holds the records of a task and of a partition in memory several times, and
one key cannot be spread over partitions: skewed keys need memory. What it leaves in the folder is what the passes through files leave,
so that the rest, and a later call, go on from it.
"""

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import xxhash

from dolma_dask import clusters
from dolma_dask.engine import Plan, Task, Unit, resume
from dolma_dask.engine.attempts import Quoted, failure
from dolma_dask.errors import DolmaDaskError, Failure, InterruptedStageError, StageError, UsageError
from dolma_dask.exchange import buckets, folders
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
from dolma_dask.exchange.exchanged import Exchanged
from dolma_dask.exchange.ordering import sort_parts
from dolma_dask.exchange.phases import REDUCE, SCATTER, file_of, full_disk_explained, reduce_into, refuse
from dolma_dask.exchange.through_files import FilesNeededError, conclude
from dolma_dask.exchange.wanted import Wanted
from dolma_dask.io import files
from dolma_dask.io.publish import publish
from dolma_dask.io.records import FileRecord
from dolma_dask.journal import Journal, Record
from dolma_dask.progress import Progress, make_progress

if TYPE_CHECKING:
    import pandas as pd
    from distributed import Client, Future

RANGE = "range"
"""Column of a frame that says to which range of keys a record belongs."""

PARTITIONS = (8, 256)
"""Least and most partitions; between them as many as the inputs have multiples of the bytes of a range."""


SHUFFLES = 3
"""How often a shuffle is begun; Dask begins anew by itself when a worker is lost, yet not always with success."""


def run(wanted: Wanted) -> Exchanged:
    """Do what is left of an exchange; the shuffle is left as a whole or not at all."""
    try:
        return _run(wanted)
    except FilesNeededError:
        folders.remove_tree(wanted.folder)
        return _run(wanted)


def _run(wanted: Wanted) -> Exchanged:
    found = _find(wanted)
    if found is None:
        folders.remove_tree(wanted.folder)
        found = _shuffle(wanted)
    scattered, reduced, key = found
    told = sorted((pair for record in reduced for pair in record.info["reduced"]), key=itemgetter(0))
    return conclude(wanted, scattered, reduced, [info for _, info in told], key)


@dataclass(frozen=True)
class _Name:
    """What a plan needs of a stage that the engine does not run."""

    verb: str

    def run_shard(self, task: Task) -> list[Record]:
        raise NotImplementedError


_Found = tuple[list[Record], list[Record], str]
"""Records of both passes, and the key of the second."""


def _find(wanted: Wanted) -> _Found | None:
    """Return what both passes have left, if they are finished."""
    scattered = _finished(wanted, SCATTER, _scatter_tasks(wanted))
    if scattered is None:
        return None
    key = _reduce_key(wanted, scattered)
    reduced = _finished(wanted, REDUCE, _reduce_tasks(wanted, key))
    return None if reduced is None else (scattered, reduced, key)


def _finished(wanted: Wanted, phase: str, tasks: Sequence[Task]) -> list[Record] | None:
    plan = Plan(_Name(wanted.pass_verb(phase)), wanted.folder, tasks, {"key": wanted.key}, ("",))
    state = resume.look_back(plan, False)
    return None if state.left else [state.finished[unit.name] for task in tasks for unit in task.units]


def _scatter_tasks(wanted: Wanted) -> list[Task]:
    key = wanted.work_key(SCATTER, "p2p")
    return [
        Task(task.shard, (Unit(_told_file(number), key),), task.inputs, task)
        for number, task in enumerate(wanted.tasks)
    ]


def _reduce_tasks(wanted: Wanted, key: str) -> list[Task]:
    return [
        Task(f"{REDUCE} {number}", (Unit(file_of(REDUCE, number), key),), ())
        for number in range(_count_partitions(wanted))
    ]


def _reduce_key(wanted: Wanted, scattered: Sequence[Record]) -> str:
    return wanted.work_key(REDUCE, "p2p", [record.info["checksum"] for record in scattered])


def _told_file(number: int) -> str:
    """Return where a worker says what the emitter told of a task."""
    return f"{SCATTER}/{number:06d}.json"


def _count_partitions(wanted: Wanted) -> int:
    least, most = PARTITIONS
    return min(max(sum(task.bytes for task in wanted.tasks) // wanted.range_bytes, least), most)


def _shuffle(wanted: Wanted) -> _Found:
    """Do both passes on a cluster, and write their journals."""
    reduced = _compute(wanted) if wanted.tasks else []
    told = [
        files.read_bytes(files.join(wanted.folder, _told_file(number))) for number in range(len(wanted.tasks))
    ]
    scattered = [msgspec.json.decode(data, type=Record) for data in told]
    key = _reduce_key(wanted, scattered)
    reduced = [msgspec.structs.replace(record, key=key, finished=time.time()) for record in reduced]
    _write_journal(wanted, REDUCE, reduced)
    _write_journal(wanted, SCATTER, scattered)
    return scattered, reduced, key


def _write_journal(wanted: Wanted, phase: str, records: Sequence[Record]) -> None:
    writer = Journal(wanted.folder, wanted.pass_verb(phase)).start({"key": wanted.key}, ("",), "")
    for record in records:
        writer.add(record)
    writer.finish(0)
    writer.close()


def _compute(wanted: Wanted) -> list[Record]:
    """Run the shuffle where the options say; again if Dask lost it together with a worker."""
    options = wanted.options
    with clusters.open_place(options.scheduler, options.workers, len(wanted.tasks)) as place:
        if place.client is None:
            raise UsageError(
                "shuffle='p2p' needs a distributed cluster, and none is active; expected one whose workers can exchange records. Use "
                "scheduler='cluster', or call this inside dk.cluster(); shuffle='files' needs none."
            )
        return _compute_again(wanted, place.client)


def _compute_again(wanted: Wanted, client: "Client") -> list[Record]:
    for number in range(1, SHUFFLES + 1):
        try:
            return _compute_once(wanted, client)
        except DolmaDaskError:
            raise
        except Exception as error:
            if not _may_be_a_lost_worker(error):
                raise
            if number == SHUFFLES:
                raise _given_up(wanted, error) from error
    raise AssertionError("the last shuffle returns")


def _may_be_a_lost_worker(error: Exception) -> bool:
    return isinstance(error, RuntimeError | OSError) or type(error).__module__.startswith("distributed")


def _given_up(wanted: Wanted, error: Exception) -> StageError:
    name = type(error).__name__
    return StageError(
        f"{wanted.verb}: Dask's shuffle failed {SHUFFLES} times, last by {name}: {error}; expected workers that live long enough and have "
        "memory for the largest key. Give them more, or use shuffle='files', which needs neither.",
        failures=(Failure("shuffle", name, str(error)),),
    )


def _compute_once(wanted: Wanted, client: "Client") -> list[Record]:
    partitions = _count_partitions(wanted)
    with (
        client.as_current(),  # Dask looks for it when it makes the graph
        make_progress(f"{wanted.verb}-shuffle", 0, partitions, wanted.options.progress) as progress,
    ):
        futures = _submit(wanted, client, partitions)
        try:
            return _gather(futures, progress)
        except KeyboardInterrupt:
            raise InterruptedStageError(
                f"{wanted.verb} was stopped. Run the same command again: the shuffle begins anew."
            ) from None
        finally:
            client.cancel(futures, force=True)


def _submit(wanted: Wanted, client: "Client", partitions: int) -> list["Future"]:
    import dask
    from dask.dataframe import from_map

    job = Quoted(_Job.of(wanted, partitions))
    frame = from_map(
        partial(_emit_frame, job),
        [Quoted((number, task)) for number, task in enumerate(wanted.tasks)],
        meta=_frame_of([], wanted.words, job.value.range_shift),
        label=f"{wanted.verb}-{uuid.uuid4().hex[:8]}",  # or Dask might give back what an earlier call has shuffled
    )
    shuffled = frame.shuffle(RANGE, npartitions=partitions, shuffle_method="p2p", ignore_index=True)
    reduce = dask.delayed(_reduce_frame, pure=False)
    parts = [reduce(job, part, number) for number, part in enumerate(shuffled.to_delayed())]
    return list(client.compute(parts))


def _gather(futures: Sequence["Future"], progress: Progress) -> list[Record]:
    """Return the records of all partitions in their order, or raise what stopped the first that failed."""
    from distributed import as_completed

    for future in as_completed(futures):
        future.result()
        progress.advance(0, 1)
    return [future.result() for future in futures]


@dataclass(frozen=True)
class _Job:
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
    def of(wanted: Wanted, partitions: int) -> "_Job":
        """Return the job of an exchange; there are eight ranges or more per partition, or Dask's hash would leave some empty."""
        limits = wanted.limits(wanted.words)
        out = wanted.reducer.dtype
        return _Job(
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


def _emit_frame(quoted: Quoted, numbered: Quoted) -> "pd.DataFrame":
    """Return the records of a task as a frame, and write what the emitter tells."""
    number, task = numbered.value
    with _failing_as(task):
        return _emit(quoted.value, number, task)


def _reduce_frame(quoted: Quoted, frame: "pd.DataFrame", number: int) -> Record:
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


def _emit(job: _Job, number: int, task: Task) -> "pd.DataFrame":
    parts: list[Words] = []
    digest = xxhash.xxh3_128()

    def take(records: Records) -> None:
        words = to_words(records, job.dtype)
        digest.update(bytes_of(words))
        parts.append(words.copy())

    with full_disk_explained(job.folder):
        emitted = job.emitter.emit(task, take, job.folder)
        record = Record(
            _told_file(number),
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
    return _frame_of(parts, word_count(job.dtype), job.range_shift)


def _frame_of(parts: list[Words], words: int, range_shift: int) -> "pd.DataFrame":
    """Return records as a frame with a column per word, and their ranges."""
    import pandas as pd

    rows = np.concatenate(parts) if parts else np.empty((0, words), np.uint64)
    columns = {f"word{word}": np.ascontiguousarray(rows[:, word]) for word in range(words)}
    ranges = (rows[:, 0] >> np.uint64(range_shift)).astype(np.uint16)
    return pd.DataFrame({**columns, RANGE: ranges}, copy=False)


def _reduce(job: _Job, frame: "pd.DataFrame", number: int) -> Record:
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
    info = {"reduced": told, "histogram": buckets.pack_histogram(writer.histogram)}
    return Record(unit, f"{REDUCE} {number}", "", files=(file,), info=info)


def _split(chunks: Iterator[Words], range_shift: int) -> Iterator[tuple[int, Words]]:
    """Yield sorted records cut where a range begins, each with its range."""
    for rows in chunks:
        ranges = rows[:, 0] >> np.uint64(range_shift)
        bounds = [0, *(np.flatnonzero(ranges[1:] != ranges[:-1]) + 1).tolist(), len(rows)]
        for begin, end in pairwise(bounds):
            yield int(ranges[begin]), rows[begin:end]
