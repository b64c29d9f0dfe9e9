"""One engine for every verb that writes: map a stage over shards, with resume, progress, retries, failures and a journal.

A stage is a picklable object whose ``run_shard(task)`` reads files, runs kernels, publishes files and returns small records. Texts never
come back. The journal decides before any cluster is started which units are left; a failing shard never stops the others; all
failures are raised together at the end, each with its shard. Results are bounded in flight, so a million shards are no large graph.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from dolma_dask import clusters
from dolma_dask.errors import (
    BadRecordBudgetError,
    DolmaDaskError,
    Failure,
    InterruptedStageError,
    StageError,
    UsageError,
)
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.publish import sweep
from dolma_dask.io.records import InputRecord
from dolma_dask.journal import Journal, Record, is_same_file
from dolma_dask.progress import make_progress
from dolma_dask.settings import DEFAULT_SCHEDULER
from dolma_dask.summary import Summary

if TYPE_CHECKING:
    from distributed import Client

BATCH_BYTES = 32_000_000
"""Stored bytes of small shards that share one Dask task."""

IN_FLIGHT_PER_THREAD = 3
"""Tasks that a cluster holds per thread: enough to never run dry, few enough to keep the scheduler light."""

RETRIES = 2
RETRY_SECONDS = 0.5

_TRANSIENT = {
    "EndpointConnectionError",
    "ClientPayloadError",
    "ConnectionClosedError",
    "ReadTimeoutError",
    "IncompleteRead",
}
_PERMANENT = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError, FileExistsError)


@dataclass(frozen=True)
class Unit:
    """What is finished or not: named by its main output, known under a key.

    Attributes
    ----------
    name : str
        Path of the main output relative to the output root.
    key : str
        `dolma_dask.journal.work_key` of all that decides the output besides the input bytes.
    """

    name: str
    key: str


@dataclass(frozen=True)
class Input:
    """An input file of a task: where it is now, and what the listing said."""

    url: str
    info: FileInfo


@dataclass(frozen=True)
class Task:
    """One shard's work.

    Attributes
    ----------
    shard : str
        Path relative to ``documents/``.
    units : tuple of Unit
        What it makes; only those that are left reach ``run_shard``.
    inputs : tuple of Input
        What it reads.
    work : object
        What only the stage knows; must pickle.
    """

    shard: str
    units: tuple[Unit, ...]
    inputs: tuple[Input, ...]
    work: Any = None

    @property
    def bytes(self) -> int:
        """Stored bytes of all inputs."""
        return sum(item.info.bytes for item in self.inputs)


class Stage(Protocol):
    """What the engine maps over tasks; goes to workers by pickle."""

    @property
    def verb(self) -> str: ...

    def run_shard(self, task: Task) -> list[Record]:
        """Do one task's units and return a record for each; raise to fail the shard."""
        ...


@dataclass(frozen=True)
class RunOptions:
    """How a stage is run; none of this changes a byte of the output.

    Attributes
    ----------
    overwrite : bool
        Do everything again, and replace files that this tool did not make.
    dry_run : bool
        Only tell what would be done.
    scheduler : str, optional
        ``synchronous``, ``threads``, ``processes``, ``cluster`` (a LocalCluster) or the address of a scheduler. Default: the active
        distributed client, else what Dask is configured for, else `dolma_dask.settings.DEFAULT_SCHEDULER`.
    workers : int, optional
        Processes or threads; default: one per processor.
    progress : bool
        Show a bar.
    """

    overwrite: bool = False
    dry_run: bool = False
    scheduler: str | None = None
    workers: int | None = None
    progress: bool = True


@dataclass(frozen=True)
class Plan:
    """A run as the verb wants it.

    Attributes
    ----------
    stage : Stage
        The work.
    root : str
        Output root; its journal is used.
    tasks : Sequence[Task]
        All tasks that were asked for.
    params : Mapping
        What the user asked, for the journal and the report.
    writes : tuple of str
        Folders or file prefixes, relative to `root`, that the run may fill.
    all_units : frozenset of str or None
        Units of the whole listing, if outputs that no longer belong to it must not stay; None: others may stay.
    max_bad_fraction : float
        Budget for quarantined rows over the whole run.
    bad_is_loss : bool
        Rows with an error make the exit status 1 (verbs that keep the row).
    """

    stage: Stage
    root: str
    tasks: Sequence[Task]
    params: Mapping[str, Any]
    writes: tuple[str, ...]
    version: str = ""
    all_units: frozenset[str] | None = None
    max_bad_fraction: float = 0.0
    bad_is_loss: bool = False
    notes: tuple[str, ...] = ()


@dataclass
class _Tally:
    """What has come back so far."""

    records: dict[str, Record] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    failures: list[Failure] = field(default_factory=list)


def run(plan: Plan, options: RunOptions) -> Summary:
    """Do what is left of `plan`.

    Parameters
    ----------
    plan : Plan
        Tasks and what is known of them.
    options : RunOptions
        How to run.

    Returns
    -------
    Summary
        Counts over all units of the plan, finished now or before.

    Raises
    ------
    StageError
        Some shards failed; all others are finished.
    BadRecordBudgetError
        More rows are bad than `Plan.max_bad_fraction` allows.
    InterruptedStageError
        Ctrl-C.
    """
    started = time.monotonic()
    journal = Journal(plan.root, plan.stage.verb)
    existing = _existing(plan)
    finished = {} if options.overwrite else _finished_units(plan.tasks, journal, existing)
    left = [task for task in (_without(task, finished) for task in plan.tasks) if task.units]
    summary = Summary(plan.stage.verb, plan.root, skipped=len(plan.tasks) - len(left), notes=plan.notes)
    if options.dry_run:
        return replace(
            summary, planned=tuple(task.shard for task in left), seconds=time.monotonic() - started
        )
    _check_replaceable(left, journal, existing, options.overwrite)
    _check_strays(plan, journal, existing, options.overwrite)
    tally = _Tally(records=dict(finished))
    if left:
        _work(plan, left, journal, options, tally)
    return _conclude(plan, tally, replace(summary, done=len(tally.done), seconds=time.monotonic() - started))


def gather(stage: Any, tasks: Sequence[Task], options: RunOptions) -> list[Any]:
    """Map a stage that only reads over tasks, and return its results in the order of `tasks`; no journal.

    Parameters
    ----------
    stage : object with ``verb`` and ``run_shard(task)``
        Its results must be small and picklable.
    tasks : sequence of Task
        What to read.
    options : RunOptions
        How to run.

    Raises
    ------
    StageError
        Some shards failed.
    """
    results: dict[str, Any] = {}
    failures: list[Failure] = []
    progress = make_progress(stage.verb, sum(task.bytes for task in tasks), len(tasks), options.progress)

    def take(task: Task, result: Any) -> None:
        if isinstance(result, Failure):
            failures.append(result)
        else:
            results[task.shard] = result
        progress.advance(task.bytes, 1)

    try:
        _execute(stage, sorted(tasks, key=_big_first), options, take)
    finally:
        progress.close()
    if failures:
        raise _stage_error(stage.verb, failures, len(tasks))
    return [results[task.shard] for task in tasks]


def _big_first(task: Task) -> tuple[int, str]:
    return -task.bytes, task.shard


def _existing(plan: Plan) -> dict[str, int]:
    """Sizes of the files below the folders that the plan may fill."""
    found: dict[str, int] = {}
    for prefix in plan.writes:
        folder, _, start = prefix.rpartition("/")
        listed = files.list_files(files.join(plan.root, folder))
        base = f"{folder}/" if folder else ""
        found.update({base + info.path: info.bytes for info in listed if info.path.startswith(start)})
    return found


def _finished_units(
    tasks: Sequence[Task], journal: Journal, existing: Mapping[str, int]
) -> dict[str, Record]:
    return {
        unit.name: record
        for task in tasks
        for unit in task.units
        if (record := journal.records.get(unit.name)) and _is_finished(record, unit, task, existing)
    }


def _is_finished(record: Record, unit: Unit, task: Task, existing: Mapping[str, int]) -> bool:
    return (
        record.key == unit.key
        and all(
            existing.get(file.path) == file.bytes for file in record.files if not file.path.startswith("_")
        )
        and _same_inputs(record.inputs, task.inputs)
    )


def _same_inputs(recorded: Sequence[InputRecord], inputs: Sequence[Input]) -> bool:
    now = {item.info.path: item for item in inputs}
    return now.keys() == {item.path for item in recorded} and all(
        is_same_file(item, now[item.path].url, now[item.path].info) for item in recorded
    )


def _without(task: Task, finished: Mapping[str, Record]) -> Task:
    return replace(task, units=tuple(unit for unit in task.units if unit.name not in finished))


def _check_replaceable(
    left: Sequence[Task], journal: Journal, existing: Mapping[str, int], overwrite: bool
) -> None:
    foreign = [
        unit.name
        for task in left
        for unit in task.units
        if unit.name in existing and not journal.may_write(unit.name)
    ]
    if foreign and not overwrite:
        raise UsageError(
            f"{len(foreign)} output files exist and were not made by this command, first {foreign[0]} in {journal.root}; expected a "
            "free place. Choose another name or target, or replace them with --overwrite."
        )


def _check_strays(plan: Plan, journal: Journal, existing: Mapping[str, int], overwrite: bool) -> None:
    """Refuse to leave files in place that belong to no unit: later stages would read them."""
    if plan.all_units is None:
        return
    strays = sorted(path for path in existing if layout.unit_of(path) not in plan.all_units)
    if strays and not overwrite:
        raise UsageError(
            f"{journal.root} holds {len(strays)} files that this run does not make, first {strays[0]!r}; expected only its own "
            "outputs, since later stages read all of them. Choose another target, or remove them with --overwrite."
        )
    for path in strays:
        files.remove(files.join(plan.root, path))


def _work(plan: Plan, left: list[Task], journal: Journal, options: RunOptions, tally: _Tally) -> None:
    """Run the tasks that are left; every result reaches the journal at once."""
    writer = journal.start(plan.params, plan.writes, plan.version)
    sweep(plan.root)
    progress = make_progress(plan.stage.verb, sum(task.bytes for task in left), len(left), options.progress)

    def take(task: Task, result: list[Record] | Failure) -> None:
        if isinstance(result, Failure):
            tally.failures.append(result)
        else:
            for record in result:
                _remove_outdated(plan.root, journal.records.get(record.unit), record)
                writer.add(record)
                tally.records[record.unit] = record
            tally.done.add(task.shard)
        progress.advance(task.bytes, 1)

    try:
        _execute(plan.stage, sorted(left, key=_big_first), options, take)
    except KeyboardInterrupt:
        raise InterruptedStageError(
            f"{plan.stage.verb} was stopped: {len(tally.done):,} of {len(left):,} shards are finished and kept. "
            "Run the same command again to go on."
        ) from None
    finally:
        progress.close()
        writer.close()
        sweep(plan.root)


def _remove_outdated(root: str, old: Record | None, new: Record) -> None:
    """Delete files of an earlier record of the unit that the new one no longer has."""
    for file in old.files if old else ():
        if file.path not in {item.path for item in new.files}:
            files.remove(files.join(root, file.path))


def _conclude(plan: Plan, tally: _Tally, summary: Summary) -> Summary:
    counts: Counter[str] = Counter()
    for record in tally.records.values():
        counts.update(record.counts)
    summary = replace(
        summary,
        counts=dict(counts),
        failed=len(tally.failures),
        failures=tuple(tally.failures),
        lost=plan.bad_is_loss and counts["bad_records"] > 0,
    )
    _check_budget(plan, counts)
    if tally.failures:
        raise _stage_error(plan.stage.verb, tally.failures, len(plan.tasks), summary)
    return summary


def _stage_error(
    verb: str, failures: Sequence[Failure], shards: int, summary: Summary | None = None
) -> StageError:
    first = failures[0]
    return StageError(
        f"{verb}: {len(failures)} of {shards} shards failed; the others are finished. "
        f"First: {first.shard}: {first.error}: {first.message}",
        failures=failures,
        summary=summary,
    )


def _check_budget(plan: Plan, counts: Mapping[str, float]) -> None:
    bad, rows = counts.get("bad_records", 0), counts.get("documents_in", 0)
    if not plan.bad_is_loss and bad > plan.max_bad_fraction * rows:
        raise BadRecordBudgetError(
            f"{plan.stage.verb}: {bad:,.0f} of {rows:,.0f} rows are bad ({bad / max(rows, 1):.3%}); allowed are "
            f"{plan.max_bad_fraction:.3%} (max_bad_fraction). Look at {plan.root}/_quarantine/{plan.stage.verb}/, mend the input or "
            "allow more.",
            bad=bad,
            rows=rows,
        )


Take = Callable[[Task, "list[Record] | Failure"], None]
_Results = list[tuple[Task, "list[Record] | Failure"]]


def _execute(stage: Stage, tasks: Sequence[Task], options: RunOptions, take: Take) -> None:
    """Choose where to run, and run."""
    name = options.scheduler and clusters.check_scheduler(options.scheduler)
    client = None if name else clusters.active_client()
    name = name or clusters.configured_scheduler() or DEFAULT_SCHEDULER.get()
    workers = options.workers or clusters.cpu_count()
    with ExitStack() as stack:
        if client is None and "://" in name:
            client = stack.enter_context(clusters.remote_client(name))
        if client is None and name == "cluster":
            client = stack.enter_context(clusters.local_client(min(workers, len(tasks))))
        if client is not None:
            _on_client(client, stage, tasks, take)
        else:
            _on_dask(name, stage, tasks, workers, take)


def _batches(tasks: Sequence[Task], workers: int) -> Iterator[list[Task]]:
    """Group small tasks, so that a task's overhead of a millisecond vanishes; large ones stay alone."""
    limit = min(BATCH_BYTES, sum(task.bytes for task in tasks) // (4 * max(workers, 1)))
    batch: list[Task] = []
    size = 0
    for task in tasks:
        if batch and size + task.bytes > limit:
            yield batch
            batch, size = [], 0
        batch.append(task)
        size += task.bytes
    if batch:
        yield batch


def _on_dask(name: str, stage: Stage, tasks: Sequence[Task], workers: int, take: Take) -> None:
    """Run under one of Dask's own schedulers; results are taken as each task ends."""
    import dask
    from dask.callbacks import Callback

    class _OnResult(Callback):  # type: ignore[misc]
        def _posttask(self, key: Any, result: Any, *_: Any) -> None:
            for task, outcome in result if isinstance(result, list) else ():
                take(task, outcome)

    graph = [
        dask.delayed(run_batch, pure=False)(
            _Quoted(stage), _Quoted(batch), dask_key_name=f"{stage.verb}-{index:08d}"
        )
        for index, batch in enumerate(_batches(tasks, workers))
    ]
    with _OnResult():
        dask.compute(*graph, scheduler=name, num_workers=workers, optimize_graph=False, chunksize=1)


@dataclass(frozen=True)
class _Quoted:
    """Hides a value from Dask, which would walk into lists and dataclasses."""

    value: Any

    def __dask_tokenize__(self) -> int:
        return id(self.value)


def _on_client(client: "Client", stage: Stage, tasks: Sequence[Task], take: Take) -> None:
    """Run on a distributed cluster with a bounded number of tasks in flight."""
    from distributed import as_completed

    threads = max(sum(client.nthreads().values()), 1)
    batches = _batches(tasks, threads)
    running: dict[Any, list[Task]] = {}
    completed = as_completed(loop=client.loop)

    def submit() -> None:
        if batch := next(batches, None):
            future = client.submit(run_batch, _Quoted(stage), _Quoted(batch), pure=False)
            running[future] = batch
            completed.add(future)

    for _ in range(threads * IN_FLIGHT_PER_THREAD):
        submit()
    try:
        for future in completed:
            batch = running.pop(future)
            for task, outcome in _outcomes(future, batch):
                take(task, outcome)
            submit()
    except KeyboardInterrupt:
        client.cancel(list(running), force=True)
        raise


def _outcomes(future: Any, batch: list[Task]) -> _Results:
    if future.status == "finished":
        results: _Results = future.result()
        return results
    error = future.exception() if future.status == "error" else None
    message = (
        f"the worker died again and again on this task ({error or future.status}); expected it to fit in a worker's memory. Give the "
        "workers more memory, or look at their logs."
    )
    return [(task, Failure(task.shard, type(error).__name__, message)) for task in batch]


def run_batch(stage: _Quoted, batch: _Quoted) -> _Results:
    """Do some tasks one after another in a worker; a failing one does not stop the next."""
    return [(task, _attempt(stage.value, task)) for task in batch.value]


def _attempt(stage: Stage, task: Task) -> list[Record] | Failure:
    for attempt in range(RETRIES + 1):
        try:
            return _timed(stage, task)
        except DolmaDaskError as error:
            return Failure(task.shard, type(error).__name__, str(error))
        except Exception as error:  # noqa: BLE001  every failure is reported with its shard at the end
            if attempt == RETRIES or not _is_transient(error):
                return Failure(task.shard, type(error).__name__, str(error) or repr(error))
            time.sleep(RETRY_SECONDS * 2**attempt)
    raise AssertionError("the last attempt returns")


def _is_transient(error: BaseException) -> bool:
    """Tell whether trying again may help: a connection, not a missing file."""
    names = {cls.__name__ for cls in type(error).__mro__}
    return bool(names & _TRANSIENT) or (isinstance(error, OSError) and not isinstance(error, _PERMANENT))


def _timed(stage: Stage, task: Task) -> list[Record]:
    started = time.perf_counter()
    records = stage.run_shard(task)
    if not isinstance(records, list) or not all(isinstance(record, Record) for record in records):
        return records  # a stage that only reads
    seconds = round(time.perf_counter() - started, 4)
    now = time.time()
    return [_with_times(record, seconds / len(records), now) for record in records]


def _with_times(record: Record, seconds: float, now: float) -> Record:
    import msgspec

    return msgspec.structs.replace(record, seconds=seconds, finished=now)


def inputs_of(root: str, infos: Iterable[FileInfo]) -> tuple[Input, ...]:
    """Return inputs for files whose paths are relative to `root`."""
    return tuple(Input(files.join(root, info.path), info) for info in infos)
