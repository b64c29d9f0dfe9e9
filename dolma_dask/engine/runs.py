"""A run from its plan to its summary: check what is there, do what is left, write the journal as results arrive, count.

Whatever stops a run, the records of finished shards are in the journal and temporary files of dead writers are gone.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

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


@dataclass
class _Tally:
    """What is known so far: records by unit, shards done now, shards failed."""

    records: dict[str, Record]
    done: int = 0
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
    UsageError
        Files that this run did not make are in its way.
    """
    started = time.monotonic()
    state = resume.look_back(plan, options.overwrite)
    if not options.overwrite:
        resume.check_replaceable(plan, state)
    resume.check_strays(plan, state, options.overwrite)
    strays = resume.strays(plan, state)
    notes = (*plan.notes, *_notes(state, strays, options))
    summary = Summary(plan.stage.verb, plan.root, skipped=len(plan.tasks) - len(state.left), notes=notes)
    if options.dry_run:
        planned = tuple(task.shard for task in state.left)
        return replace(summary, planned=planned, seconds=time.monotonic() - started)
    tally = _Tally(dict(state.finished))
    if state.left or state.renewed or resume.is_open(plan, state):
        _work(plan, state, options, tally)
    else:
        sweep(
            state.journal.folder
        )  # of a run that was killed while it merged the segments, which was its last act
    if not tally.failures:
        for path in strays:
            files.remove(files.join(plan.root, path))
    return _conclude(plan, tally, replace(summary, done=tally.done, seconds=time.monotonic() - started))


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


def _work(plan: Plan, state: Progressed, options: RunOptions, tally: _Tally) -> None:
    """Run the tasks that are left; every result reaches the journal at once."""

    def take(task: Task, outcome: Outcome) -> None:
        if isinstance(outcome, Failure):
            _stop_without_store(outcome)
            tally.failures.append(outcome)
            return
        kept = {file.path for record in outcome for file in record.files}
        for record in outcome:
            _remove_outdated(plan.root, state.journal.records.get(record.unit), kept)
            writer.add(record)
            tally.records[record.unit] = record
        tally.done += 1

    try:
        # in this order: no journal without a cluster; the journal is closed before one waits for workers; the sweep comes last
        with (
            _swept(plan),
            _mapping(plan.stage, state.left, options) as go,
            _journal_of(plan, state, tally) as writer,
        ):
            go(take)
    except KeyboardInterrupt:
        raise InterruptedStageError(
            f"{plan.stage.verb} was stopped: {tally.done:,} of {len(state.left):,} shards are finished and kept. "
            "Run the same command again to go on."
        ) from None


@contextmanager
def _journal_of(plan: Plan, state: Progressed, tally: _Tally) -> Iterator[JournalWriter]:
    writer = state.journal.start(plan.params, plan.writes, plan.version, resume.origin_of(plan))
    try:
        for record in state.renewed:
            writer.add(record)
        yield writer
        writer.finish(_missing(plan, state, tally))
    finally:
        writer.close()


@contextmanager
def _swept(plan: Plan) -> Iterator[None]:
    """Remove temporary files of dead writers before and after, in the folders that the run may fill."""
    folders = {prefix.rpartition("/")[0] for prefix in plan.writes}
    folders |= {f"{name}/{plan.stage.verb}" for name in (layout.JOURNAL, layout.QUARANTINE)}
    urls = [files.join(plan.root, folder) for folder in sorted(folders)]
    try:
        for url in urls:
            sweep(url)
        yield
    finally:
        for url in urls:
            sweep(url)


def _missing(plan: Plan, state: Progressed, tally: _Tally) -> int:
    """Count what the whole listing should have and has not."""
    if plan.all_units is None:
        return len(tally.failures)
    return len(plan.all_units - state.journal.records.keys())


def _remove_outdated(root: str, old: Record | None, kept: Set[str]) -> None:
    """Delete files of an earlier record of a unit that the task has not written again."""
    for file in old.files if old else ():
        if file.path not in kept:
            files.remove(files.join(root, file.path))


def _conclude(plan: Plan, tally: _Tally, summary: Summary) -> Summary:
    counts = _totals(tally.records.values())
    summary = replace(
        summary,
        counts=counts,
        failed=len(tally.failures),
        failures=tuple(tally.failures),
        lost=plan.bad_is_loss and counts.get("bad_records", 0) > 0,
    )
    if tally.failures:
        raise _stage_error(plan.stage.verb, tally.failures, len(plan.tasks), summary)
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
            f"{plan.stage.verb}: {bad:,.0f} of {rows:,.0f} rows are bad ({bad / max(rows, 1):.3%}); allowed are "
            f"{plan.max_bad_fraction:.3%} (max_bad_fraction). Look at {plan.root}/_quarantine/{plan.stage.verb}/, mend the input or "
            "allow more.",
            bad=bad,
            rows=rows,
            summary=summary,
        )
