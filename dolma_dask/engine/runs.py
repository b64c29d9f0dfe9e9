"""A run from its plan to its summary: check what is there, do what is left, write the journal as results arrive, count.

Several plans over the same shards are one run: each shard is read once for all of them, and each plan keeps its own journal.
Whatever stops a run, the records of finished shards are in the journal and temporary files of dead writers are gone.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import msgspec

from dolma_dask import clusters
from dolma_dask.display import counted
from dolma_dask.engine import resume
from dolma_dask.engine.attempts import Outcome, Take
from dolma_dask.engine.plan import Plan, RunOptions, Stage, Task
from dolma_dask.engine.resume import Progressed
from dolma_dask.errors import (
    BadRecordBudgetError,
    Failure,
    InterruptedStageError,
    StageError,
    StoreUnreachableError,
)
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.publish import sweep
from dolma_dask.journal import JournalWriter, Record
from dolma_dask.progress import make_progress
from dolma_dask.summary import Summary


@dataclass(eq=False)
class _Course:
    """A plan on its way: where it stood, and what is known since: records by unit, shards done now, shards failed."""

    plan: Plan
    state: Progressed
    strays: list[str]
    summary: Summary
    records: dict[str, Record]
    done: int = 0
    failures: list[Failure] = field(default_factory=list)
    writer: JournalWriter | None = None

    @property
    def has_work(self) -> bool:
        """Whether a shard is left, or the journal."""
        return bool(self.state.left or self.state.renewed or resume.is_open(self.plan, self.state))

    @cached_property
    def units(self) -> frozenset[str]:
        """Names of all that is left."""
        return frozenset(unit.name for task in self.state.left for unit in task.units)

    def take(self, task: Task, outcome: Outcome) -> None:
        """Note what became of a shard, as far as it is this plan's."""
        if self.units.isdisjoint(unit.name for unit in task.units):
            return
        if isinstance(outcome, Failure):
            self.failures.append(outcome)
            return
        assert self.writer is not None
        records = [record for record in outcome if record.unit in self.units]
        kept = {file.path for record in records for file in record.files}
        for record in records:
            _remove_outdated(self.plan.root, self.state.journal.records.get(record.unit), kept)
            self.writer.add(record)
            self.records[record.unit] = record
        self.done += 1


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
    UsageError
        Files that this run did not make are in its way.
    """
    (summary,) = run_together([plan], plan.stage, options)
    return summary


def run_together(plans: Sequence[Plan], stage: Stage, options: RunOptions) -> list[Summary]:
    """Do what is left of several plans over the same shards, each shard once for all of them.

    Parameters
    ----------
    plans : sequence of Plan
        With different units, and the same `Task.work` for the same shard.
    stage : Stage
        Gets a shard with the units that any plan has left of it, and returns the records of all of them.
    options : RunOptions
        How to run.

    Returns
    -------
    list of Summary
        One for each plan.

    Raises
    ------
    StageError, BadRecordBudgetError, InterruptedStageError, UsageError
        See `run`.
    """
    started = time.monotonic()
    courses = [_look_back(plan, options) for plan in plans]
    if options.dry_run:
        return [_rehearsed(course, started) for course in courses]
    working = [course for course in courses if course.has_work]
    for course in courses:
        # a run may have been killed while it merged the segments, its last act
        if not course.has_work:
            sweep(course.state.journal.folder)
    if working:
        _work(working, stage, options)
    for course in courses:
        for path in [] if course.failures else course.strays:
            files.remove(files.join(course.plan.root, path))
    return [_conclude(course, stage.verb, time.monotonic() - started) for course in courses]


def _look_back(plan: Plan, options: RunOptions) -> _Course:
    """Return a plan with what is finished of it; refuse what is in its way."""
    state = resume.look_back(plan, options.overwrite)
    if not options.overwrite:
        resume.check_replaceable(plan, state)
    resume.check_strays(plan, state, options.overwrite)
    strays = resume.strays(plan, state)
    notes = (*plan.notes, *_notes(state, strays, options))
    summary = Summary(plan.verb, plan.root, skipped=len(plan.tasks) - len(state.left), notes=notes)
    return _Course(plan, state, strays, summary, dict(state.finished))


def _rehearsed(course: _Course, started: float) -> Summary:
    planned = tuple(task.shard for task in course.state.left)
    return replace(course.summary, planned=planned, seconds=time.monotonic() - started)


def _notes(state: Progressed, strays: Sequence[str], options: RunOptions) -> Iterator[str]:
    """Say what is replaced or removed that an earlier run had made."""
    known = {
        unit.name: unit.key
        for task in state.left
        for unit in task.units
        if unit.name in state.journal.records
    }
    other = [name for name, key in known.items() if state.journal.records[name].key != key]
    if other and not options.overwrite:
        yield f"{counted(len(other), 'file')} made before with other options or inputs, made again now; first {other[0]}"
    if strays:
        yield f"{counted(len(strays), 'file')} of an earlier run, which belong to no input, removed; first {strays[0]}"


def gather(stage: Any, tasks: Sequence[Task], options: RunOptions) -> list[Any]:
    """Map a stage that only reads over tasks, and return its results in the order of `tasks`; no journal.

    Parameters
    ----------
    stage : object with ``verb`` and ``run_shard(task)``
        Its results must be small and picklable.
    tasks : sequence of Task
        What to read; each with its own `Task.shard`.
    options : RunOptions
        How to run.

    Raises
    ------
    StageError
        Some shards failed.
    InterruptedStageError
        Ctrl-C.
    """
    results: dict[str, Any] = {}
    failures: list[Failure] = []

    def take(task: Task, result: Outcome) -> None:
        if isinstance(result, Failure):
            _stop_without_store(result)
            failures.append(result)
        else:
            results[task.shard] = result

    try:
        with _mapping(stage, tasks, options) as go:
            go(take)
    except KeyboardInterrupt:
        raise InterruptedStageError(f"{stage.verb} was stopped. Run the same command again.") from None
    if failures:
        raise _stage_error(stage.verb, failures, len(tasks))
    return [results[task.shard] for task in tasks]


def _stop_without_store(failure: Failure) -> None:
    """Stop the run if a store is away: each further shard would wait for it in vain."""
    if failure.error == StoreUnreachableError.__name__:
        raise StoreUnreachableError(failure.message, shard=failure.shard)


@contextmanager
def _mapping(stage: Stage, tasks: Sequence[Task], options: RunOptions) -> Iterator[Callable[[Take], None]]:
    """Yield what runs the tasks, where the options say and under a progress display; nothing is started for no tasks."""
    if not tasks:
        yield lambda take: None
        return
    # here, because it loads Dask, which a run with nothing to do can spare
    from dolma_dask.engine.execution import check_sendable, execute

    stored_bytes = sum(task.bytes for task in tasks)
    with (
        make_progress(stage.verb, stored_bytes, len(tasks), options.progress) as progress,
        clusters.open_place(options.scheduler, options.workers, len(tasks)) as place,
    ):
        check_sendable(stage, place)

        def go(take: Take) -> None:
            def taken(task: Task, outcome: Outcome) -> None:
                take(task, outcome)
                progress.advance(task.bytes, 1)

            execute(stage, tasks, place, taken)

        yield go


def _work(courses: Sequence[_Course], stage: Stage, options: RunOptions) -> None:
    """Run the tasks that are left; every result reaches its journal at once."""
    tasks = _joined(courses)

    def take(task: Task, outcome: Outcome) -> None:
        if isinstance(outcome, Failure):
            _stop_without_store(outcome)
        for course in courses:
            course.take(task, outcome)

    try:
        # in this order: no journal without a cluster; journals are closed before one waits for workers; the sweep comes last
        with ExitStack() as stack:
            for course in courses:
                stack.enter_context(_swept(course.plan))
            go = stack.enter_context(_mapping(stage, tasks, options))
            for course in courses:
                stack.enter_context(_journal_of(course))
            go(take)
    except KeyboardInterrupt:
        done = max(course.done for course in courses)
        raise InterruptedStageError(
            f"{stage.verb} was stopped: {done:,} of {len(tasks):,} shards are finished and kept. Run the same command again to go on."
        ) from None


def _joined(courses: Sequence[_Course]) -> list[Task]:
    """Return what is left of all plans, one task for each shard."""
    if len(courses) == 1:
        return courses[0].state.left
    tasks: dict[str, Task] = {}
    for task in (task for course in courses for task in course.state.left):
        known = tasks.get(task.shard)
        tasks[task.shard] = task if known is None else replace(known, units=(*known.units, *task.units))
    return list(tasks.values())


@contextmanager
def _journal_of(course: _Course) -> Iterator[None]:
    plan, state = course.plan, course.state
    origin = resume.origin_of(plan.root, plan.origin)
    course.writer = state.journal.start(plan.params, plan.writes, plan.version, origin)
    try:
        for record in state.renewed:
            course.writer.add(record)
        _doubt(course, course.writer)
        yield
        course.writer.finish(_missing(course))
    finally:
        course.writer.close()


def _doubt(course: _Course, writer: JournalWriter) -> None:
    """Note which outputs are made again, before any is: a run that is stopped may leave others, of the same size, in their place."""
    known = course.state.journal.records
    for name in sorted(course.units & known.keys()):
        if known[name].files:
            writer.add(msgspec.structs.replace(known[name], doubtful=True))
    writer.flush()


@contextmanager
def _swept(plan: Plan) -> Iterator[None]:
    """Remove temporary files of dead writers before and after, in the folders that the run may fill."""
    folders = {prefix.rpartition("/")[0] for prefix in plan.writes}
    folders |= {f"{name}/{plan.verb}" for name in (layout.JOURNAL, layout.QUARANTINE)}
    urls = [files.join(plan.root, folder) for folder in sorted(folders)]
    try:
        for url in urls:
            sweep(url)
        yield
    finally:
        for url in urls:
            sweep(url)


def _missing(course: _Course) -> int:
    """Count what the whole listing should have and has not."""
    if course.plan.all_units is None:
        return len(course.failures)
    known = course.state.journal.records
    return sum(name not in known or known[name].doubtful for name in course.plan.all_units)


def _remove_outdated(root: str, old: Record | None, kept: Set[str]) -> None:
    """Delete files of an earlier record of a unit that the task has not written again."""
    for file in old.files if old else ():
        if file.path not in kept:
            files.remove(files.join(root, file.path))


def _conclude(course: _Course, verb: str, seconds: float) -> Summary:
    """Return the summary of a plan; an error speaks of the verb that was called."""
    plan, failures = course.plan, tuple(course.failures)
    counts = _totals(course.records.values())
    summary = replace(
        course.summary,
        done=course.done,
        seconds=seconds,
        counts=counts,
        failed=len(failures),
        failures=failures,
        lost=plan.bad_is_loss and counts.get("bad_records", 0) > 0,
    )
    if failures:
        raise _stage_error(verb, failures, len(plan.tasks), replace(summary, verb=verb))
    _check_budget(plan, counts, summary)
    return summary


def _totals(records: Iterable[Record]) -> dict[str, float]:
    """Sum the counts over shards; units of one shard speak of the same rows, so the largest stands for all of them."""
    by_shard: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for record in records:
        known = by_shard[record.shard]
        known.update({name: max(count, known.get(name, count)) for name, count in record.counts.items()})
    totals: dict[str, float] = {}
    for counts in by_shard.values():
        for name, count in counts.items():
            totals[name] = totals.get(name, 0) + count
    return totals


def _stage_error(
    verb: str, failures: Sequence[Failure], shards: int, summary: Summary | None = None
) -> StageError:
    first = failures[0]
    return StageError(
        f"{verb}: {len(failures):,} of {counted(shards, 'shard')} failed; the others are finished. "
        f"First: {first.shard}: {first.error}: {first.message}",
        failures=failures,
        summary=summary,
    )


def _check_budget(plan: Plan, counts: Mapping[str, float], summary: Summary) -> None:
    bad, rows = counts.get("bad_records", 0), counts.get("documents_in", 0)
    if not plan.bad_is_loss and bad > plan.max_bad_fraction * rows:
        raise BadRecordBudgetError(
            f"{plan.verb}: {bad:,.0f} of {rows:,.0f} rows are bad ({bad / max(rows, 1):.3%}); allowed are "
            f"{plan.max_bad_fraction:.3%} (max_bad_fraction). Look at {plan.root}/_quarantine/{plan.verb}/, mend the input or "
            "allow more.",
            bad=bad,
            rows=rows,
            summary=summary,
        )
