"""The first two passes of an exchange through Dask's p2p shuffle: records go from worker to worker, and wait on the disks of the workers.

For clusters whose shared storage is slow. It costs several times the CPU of files (every record becomes a row of an Arrow table and is
sorted twice on its way), begins anew when a worker is lost, holds the records of a task and of a partition in memory several times, and
one key cannot be spread over partitions: skewed keys need memory. What it leaves in the folder is what the passes through files leave,
so that the rest, and a later call, go on from it.
"""

import time
import uuid
from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec

from dolma_dask import clusters
from dolma_dask.engine import Task, Unit, resume
from dolma_dask.engine.attempts import Quoted
from dolma_dask.errors import DolmaDaskError, Failure, InterruptedStageError, StageError, UsageError
from dolma_dask.exchange import folders
from dolma_dask.exchange.exchanged import Exchanged
from dolma_dask.exchange.p2p_work import RANGE, Job, emit_frame, frame_of, reduce_frame, told_file
from dolma_dask.exchange.phases import REDUCE, SCATTER, file_of
from dolma_dask.exchange.through_files import FilesNeededError, conclude
from dolma_dask.exchange.wanted import Wanted
from dolma_dask.io import files
from dolma_dask.journal import Journal, Record
from dolma_dask.progress import Progress, make_progress

if TYPE_CHECKING:
    from distributed import Client, Future

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
    state = resume.look_back_at(wanted.folder, wanted.pass_verb(phase), tasks, ("",))
    return None if state.left else [state.finished[unit.name] for task in tasks for unit in task.units]


def _scatter_tasks(wanted: Wanted) -> list[Task]:
    key = wanted.work_key(SCATTER, "p2p")
    return [
        Task(task.shard, (Unit(told_file(number), key),), task.inputs, task)
        for number, task in enumerate(wanted.tasks)
    ]


def _reduce_tasks(wanted: Wanted, key: str) -> list[Task]:
    return [
        Task(f"{REDUCE} {number}", (Unit(file_of(REDUCE, number), key),), ())
        for number in range(_count_partitions(wanted))
    ]


def _reduce_key(wanted: Wanted, scattered: Sequence[Record]) -> str:
    return wanted.work_key(REDUCE, "p2p", [record.info["checksum"] for record in scattered])


def _count_partitions(wanted: Wanted) -> int:
    least, most = PARTITIONS if wanted.tasks else (0, 0)
    return min(max(sum(task.bytes for task in wanted.tasks) // wanted.range_bytes, least), most)


def _shuffle(wanted: Wanted) -> _Found:
    """Do both passes on a cluster, and write their journals."""
    reduced = _compute(wanted) if wanted.tasks else []
    told = [
        files.read_bytes(files.join(wanted.folder, told_file(number))) for number in range(len(wanted.tasks))
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

    job = Quoted(Job.of(wanted, partitions))
    frame = from_map(
        partial(emit_frame, job),
        [Quoted((number, task)) for number, task in enumerate(wanted.tasks)],
        meta=frame_of([], wanted.words, job.value.range_shift),
        label=f"{wanted.verb}-{uuid.uuid4().hex[:8]}",  # or Dask might give back what an earlier call has shuffled
    )
    shuffled = frame.shuffle(RANGE, npartitions=partitions, shuffle_method="p2p", ignore_index=True)
    reduce = dask.delayed(reduce_frame, pure=False)
    parts = [reduce(job, part, number) for number, part in enumerate(shuffled.to_delayed())]
    return list(client.compute(parts))


def _gather(futures: Sequence["Future"], progress: Progress) -> list[Record]:
    """Return the records of all partitions in their order, or raise what stopped the first that failed."""
    from distributed import as_completed

    for future in as_completed(futures):
        future.result()
        progress.advance(0, 1)
    return [future.result() for future in futures]
