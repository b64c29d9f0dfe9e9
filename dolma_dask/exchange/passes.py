"""The passes of an exchange as steps of a job: scatter records by key, reduce ranges of keys, regroup what came out by shard.

`scatter` cuts the records of every task into buckets by the top bits of the key and writes one file per task. `reduce` reads ranges of
neighbouring buckets, cut from the summed histogram to fit in memory, from all files, in order; a range that does not fit goes through sorted
runs on disk. What the reducer gives out can be reduced again by another key, or regrouped by shard (`by_shard`), so that each shard's writer
reads one slice. `exchange` is the three in a row. Files are freed as soon as the next pass is done: disk holds the records once (those of the
largest range twice while it is sorted) and what the reducer gives out once. A pass that was killed goes on with the tasks that are left.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar, cast

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from dolma_dask.engine import Input, Pass, Step, Task, Unit, WorkDir
from dolma_dask.errors import DolmaDaskError, UsageError
from dolma_dask.exchange import buckets
from dolma_dask.exchange.buckets import (
    Bucketing,
    BucketRange,
    BucketWriter,
    FileFacts,
    Rooms,
)
from dolma_dask.exchange.contract import (
    Emitter,
    ForkingReducer,
    Records,
    Reducer,
    check_locations,
    to_records,
    to_words,
    word_count,
)
from dolma_dask.exchange.staged import DEFAULT, Limits, Reduced, ShardRecords, Staged, file_of
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.publish import publish
from dolma_dask.io.records import FileRecord
from dolma_dask.journal import Record, work_key

VERSION = 7
"""Raised when the staging files change for the same records."""

Shuffle = Literal["files", "dask"]

Out = Callable[[Records], None]

Part = Callable[[int, int], Reducer]
"""Returns the reducer of records whose first words begin at the one number and end before the other."""

Result = TypeVar("Result")


class Exchanged(Struct, frozen=True):
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
    transport = _transport(check_shuffle(shuffle), work, limits)
    if reducer.dtype is not None:
        check_locations(reducer.dtype)
    sent = yield from transport.write(emitter, tasks)
    emitted, reduced = yield from transport.read(sent, reducer, buckets.of_shards(shards))
    if reduced.staged is None:
        return Exchanged(reduced.infos, emitted)
    return Exchanged(reduced.infos, emitted, (yield from by_shard(work, reduced.staged, limits=limits)))


def check_shuffle(shuffle: Any) -> Shuffle:
    """Return a way to regroup records; refuse one that is unknown, or of an earlier release."""
    if shuffle not in ("files", "dask"):
        renamed = "; 'p2p' is called 'dask' now" if shuffle == "p2p" else ""
        raise UsageError(f"shuffle={shuffle!r}; expected 'files' or 'dask'{renamed}.")
    return cast(Shuffle, shuffle)


class Transport(Protocol):
    """Way of records from their emitter to the reducer of their key."""

    def write(self, emitter: Emitter, tasks: Sequence[Task]) -> Generator[Step, Any, Any]:
        """Take the records of all tasks; return what `read` needs to find them."""
        ...

    def read(
        self, sent: Any, reducer: Reducer, cut: Bucketing
    ) -> Generator[Step, Any, tuple[Mapping[str, Record], Reduced]]:
        """Give them to a reducer, range by range; return the records of the tasks as the emitter described them, and what the reducer gives out, `cut`."""
        ...


class FileTransport(Struct, frozen=True):
    """Transport through staging files."""

    work: WorkDir
    limits: Limits

    def write(self, emitter: Emitter, tasks: Sequence[Task]) -> Generator[Step, Any, Staged]:
        """See `Transport`."""
        return scatter(self.work, emitter, tasks, limits=self.limits)

    def read(
        self, sent: Staged, reducer: Reducer, cut: Bucketing
    ) -> Generator[Step, Any, tuple[Mapping[str, Record], Reduced]]:
        """See `Transport`."""
        reduced = yield from reduce(self.work, reducer, sent, cut=cut, limits=self.limits)
        return sent.emitted, reduced


def _transport(shuffle: Shuffle, work: WorkDir, limits: Limits) -> Transport:
    if shuffle == "files":
        return FileTransport(work, limits)
    from dolma_dask.exchange.dask_shuffle import DaskTransport

    return DaskTransport(work, limits)


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
    units = [
        Task(task.shard, (Unit(file_of(name, number), key),), task.inputs, task, task.staged_bytes)
        for number, task in enumerate(tasks)
    ]
    ran = yield Pass(_Scatter(f"{work.verb}-{name}", emitter, work.url, cut, limits), units)
    return staged_files(work, name, emitter.dtype, cut, tuple(ran.records.values()))


def reduce(
    work: WorkDir,
    reducer: Reducer | ForkingReducer,
    staged: Staged,
    *,
    name: str = "reduce",
    cut: Bucketing | None = None,
    part: Part | None = None,
    limits: Limits = DEFAULT,
) -> Generator[Step, Any, Reduced]:
    """Give each range of keys in order to a reducer, and free the files that were read.

    Parameters
    ----------
    work, name, limits
        See `exchange`; passes of one job have different names.
    reducer : Reducer or ForkingReducer
        Gets the records of a range.
    staged : Staged
        What an earlier pass has left.
    cut : Bucketing, optional
        How the records that it gives out are cut: `buckets.of_keys` (the default) to be reduced again, `buckets.of_shards` for `by_shard`.
    part : callable, optional
        Returns what a range needs of a reducer that grows with the dataset: that goes to workers, not the whole with each batch of tasks.
    """
    cut = cut or buckets.of_keys(limits.buckets)
    staged = staged.shared if getattr(reducer, "only_shared", False) else staged
    records = yield from _reduced(work, reducer, staged, name, cut, limits, part)
    infos = tuple(record.info["reduced"] for record in records)
    out, fork = reducer.dtype, getattr(reducer, "beside", None)
    beside = None
    if fork is not None:
        forked = tuple(replace(record, info=record.info["beside"]) for record in records)
        beside = staged_files(work, _beside(name), fork, buckets.of_keys(limits.buckets), forked)
    return Reduced(infos, None if out is None else staged_files(work, name, out, cut, records), beside)


def by_shard(
    work: WorkDir, staged: Staged, *, name: str = "shards", limits: Limits = DEFAULT
) -> Generator[Step, Any, ShardRecords]:
    """Regroup records whose first field is their location by shard, and free the files that were read."""
    dtype = staged.dtype
    check_locations(dtype)
    records = yield from _reduced(work, PassOn(dtype), staged, name, None, limits)
    cuts = tuple(buckets.each_shard(span, staged.bucketing) for span in staged.ranges(limits))
    return ShardRecords(work.url, name, dtype, cuts, _facts(records))


def _beside(name: str) -> str:
    """Return the name of the second stream of a pass, or of a file of it."""
    folder, _, file = name.partition("/")
    return f"{folder}-beside/{file}".rstrip("/")


def _reduced(
    work: WorkDir,
    reducer: Reducer | ForkingReducer,
    staged: Staged,
    name: str,
    cut: Bucketing | None,
    limits: Limits,
    part: Part | None = None,
) -> Generator[Step, Any, tuple[Record, ...]]:
    """Return the records of a pass over the ranges of an earlier one, whose files are freed."""
    # a changed input makes all of it again
    key = _key(name, reducer.dtype, limits, staged.content)
    shared = None if part else reducer
    stage = _Reduce(f"{work.verb}-{name}", reducer.dtype, shared, staged.without_records, cut, limits)
    read = [record for one in staged.parts for record in one.records]
    ran = yield Pass(stage, range_tasks(name, staged, limits, key, part), reads=read)
    for one in staged.parts:
        if one.records:  # files that stay have none
            yield one.free()
    return tuple(ran.records.values())


def staged_files(
    work: WorkDir, name: str, dtype: np.dtype[Any], cut: Bucketing, records: tuple[Record, ...]
) -> Staged:
    """Return the bucket files of a pass, from the records of its tasks."""
    return Staged(work.url, name, f"{work.verb}-{name}", dtype, cut, _facts(records), records)


def _facts(records: Sequence[Record]) -> tuple[FileFacts, ...]:
    return tuple(FileFacts(*record.info["file"]) for record in records)


def _key(name: str, dtype: np.dtype[Any] | None, limits: Limits, *more: Any) -> str:
    described = None if dtype is None else str(dtype.descr)
    return work_key(name, VERSION, {"dtype": described, "limits": asdict(limits), "more": more})


@dataclass(frozen=True)
class _Scatter:
    """Writes the records of one task."""

    verb: str
    emitter: Emitter
    folder: str
    cut: Bucketing
    limits: Limits
    rooms: Rooms = field(default_factory=Rooms, compare=False)

    @property
    def cost(self) -> str:
        """Name of what it costs, for `dolma_dask.placement`."""
        return str(getattr(self.emitter, "cost", self.verb))

    def run_shard(self, task: Task) -> list[Record]:
        emitted, written, info = write_records(
            self.folder,
            task.unit.name,
            self.emitter.dtype,
            self.cut,
            self.limits,
            lambda out: self.emitter.emit(task.work, out, self.folder),
            self.rooms,
        )
        made, info = (*written, *emitted.files), {"emitted": emitted.info, **info}
        return [task.record(made, emitted.inputs, emitted.rows, counts=emitted.counts, info=info)]


class _Range(Struct, frozen=True):
    """Work of `_Reduce`."""

    span: BucketRange
    reducer: Reducer | None = None  # of this range alone


@dataclass(frozen=True)
class _Reduce:
    """Gives the sorted records of one range to the reducer."""

    verb: str
    dtype: np.dtype[Any] | None  # of what it gives out
    reducer: Reducer | ForkingReducer | None  # of all ranges; None: each brings its own
    staged: Staged
    cut: Bucketing | None  # of what it gives out; None: a bucket for each shard of a range
    limits: Limits
    rooms: Rooms = field(default_factory=Rooms, compare=False)

    def run_shard(self, task: Task) -> list[Record]:
        work: _Range = task.work
        reducer = work.reducer or self.reducer
        assert reducer is not None
        cut = self.cut or buckets.each_shard(work.span, self.staged.bucketing)
        chunks = self.staged.sorted(work.span, self.limits)
        runs = (to_records(chunk, self.staged.dtype) for chunk in chunks)
        written, info = self._written(task.unit.name, reducer, runs, cut)
        return [task.record(written, task.listed, info=info)]

    def _written(
        self, path: str, reducer: Reducer | ForkingReducer, runs: Iterable[Records], cut: Bucketing
    ) -> tuple[tuple[FileRecord, ...], dict[str, Any]]:
        """Return the files of what a reducer gives out, and what later passes need to know of them."""
        folder, limits = self.staged.folder, self.limits

        def write(give: Callable[[Out], Any]) -> tuple[Any, tuple[FileRecord, ...], dict[str, Any]]:
            return write_records(folder, path, self.dtype, cut, limits, give, self.rooms)

        fork: Any = getattr(reducer, "beside", None)
        if fork is None:
            plain = cast(Reducer, reducer)
            reduced, written, info = write(lambda out: plain.reduce(runs, out))
            return written, {"reduced": reduced, **info}
        forking, keys = cast(ForkingReducer, reducer), buckets.of_keys(limits.buckets)
        (reduced, written, info), forked, more = write_records(
            folder,
            _beside(path),
            fork,
            keys,
            limits,
            lambda beside: write(lambda out: forking.reduce(runs, out, beside)),
            self.rooms,
        )
        return (*written, *forked), {"reduced": reduced, **info, "beside": more}


class PassOn(Struct, frozen=True):
    """Gives out the records of a range as they are."""

    dtype: np.dtype[Any]

    def reduce(self, runs: Iterable[Records], out: Out) -> dict[str, Any]:
        """See `Reducer`."""
        for run in runs:
            out(run)
        return {}


def write_records(
    folder: str,
    path: str,
    dtype: np.dtype[Any] | None,
    cut: Bucketing,
    limits: Limits,
    give: Callable[[Out], Result],
    rooms: Rooms | None = None,
    *,
    synced: bool = False,
) -> tuple[Result, tuple[FileRecord, ...], dict[str, Any]]:
    """Call `give` with a function that takes records for a bucket file, or refuses them if they have no type.

    Returns its result, the file, and what later passes need to know: ``file`` holds `FileFacts`, ``content`` makes their keys.
    """
    if dtype is None:
        return give(_refuse), (), {}
    with publish(files.join(folder, path), synced=synced) as out:
        writer = BucketWriter(out, word_count(dtype), cut, limits.records(limits.segment, dtype), rooms)
        result = give(lambda records: writer.add(to_words(records, dtype)))
        writer.finish()
    histogram = buckets.pack_histogram(writer.histogram)
    rows = int(writer.histogram.sum())
    facts = FileFacts(out.bytes, rows, writer.checksum)
    info = {"histogram": histogram, "content": out.checksum, "file": list(facts)}
    return result, (FileRecord(path, out.bytes, out.checksum, rows),), info


def _refuse(records: Records) -> None:
    raise DolmaDaskError(
        f"a reducer gave out {len(records)} records but announces none; expected a `dtype` of what it gives out."
    )


def range_tasks(name: str, staged: Staged, limits: Limits, key: str, part: Part | None = None) -> list[Task]:
    """Return a task per range; the size of what it reads tells the engine which are large.

    Its slices are one input; the key, made from the checksums of all files, is their stamp.
    """
    tasks, shift = [], staged.bucketing.shift
    for number, span in enumerate(staged.ranges(limits)):
        size = span.records * staged.dtype.itemsize
        slices = FileInfo(f"buckets {span.first} to {span.last - 1}", size, key)
        unit = Unit(file_of(name, number), key)
        work = _Range(span, part(span.first << shift, span.last << shift) if part else None)
        tasks.append(Task(f"{name} {number}", (unit,), (Input(slices.path, slices),), work))
    return tasks
