"""Run plans: look at what is there, do what is left, write the journal as results arrive, count.

Several plans over the same shards are one run: each shard is read once for all of them, and each plan keeps its own journal.
However a run ends, the records of finished shards are in the journal and temporary files of dead writers are gone.
"""

import dataclasses
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.engine import lease, refusals, resume
from dolma_dask.engine.attempts import Outcome
from dolma_dask.engine.indexes import remove_indexes, write_index
from dolma_dask.engine.mapping import mapping, stop_without_store
from dolma_dask.engine.outcome import (
    again_notes,
    check_budget,
    excess_of,
    of_different_shards,
    removal_notes,
    stage_error,
    totals,
    window_notes,
)
from dolma_dask.engine.plan import Plan, Stage, Task, outlines
from dolma_dask.engine.resume import RunState, Surplus
from dolma_dask.errors import Failure, InterruptedStageError
from dolma_dask.formats import layout
from dolma_dask.formats.segments import FOLDER
from dolma_dask.io import files, late
from dolma_dask.io.publish import sweep
from dolma_dask.io.records import RuleCount, merge_rules
from dolma_dask.journal import Chosen, InOrder, Journal, JournalWriter, Record
from dolma_dask.metering import CpuClock
from dolma_dask.options.groups import RunOptions
from dolma_dask.options.records import finding_notes
from dolma_dask.results.summary import Summary


class Ran(Struct, frozen=True):
    """Outcome of a plan."""

    summary: Summary  # counts over all units of the plan, finished now or before
    records: Mapping[str, Record]  # record of each finished unit, in the order of the plan


class Running(Struct, eq=False, dict=True):
    """A plan that was looked back on, and while it runs."""

    plan: Plan
    state: RunState
    surplus: Surplus  # what was left over is removed before the work, orphans after it
    summary: Summary
    records: Chosen  # by unit: finished before, or now
    done: int = 0
    failures: list[Failure] = []
    writer: JournalWriter | None = None

    @property
    def has_work(self) -> bool:
        """True if a shard is left, or something to write into the journal."""
        return bool(
            self.state.left
            or self.state.restamped
            or self.surplus.left_over
            or resume.is_open(self.plan, self.state)
        )

    @cached_property
    def units(self) -> frozenset[str]:
        """Names of all that is left: those of the plan if they are the same, since a million names take 0.2 GB."""
        every = self.plan.all_units
        if every and sum(1 for _ in self._names()) == len(every) and every.issuperset(self._names()):
            return every
        return frozenset(self._names())

    def _names(self) -> Iterator[str]:
        return (unit.name for task in outlines(self.state.left) for unit in task.units)

    def take(self, task: Task, outcome: Outcome) -> None:
        """Take the outcome of a shard, as far as it is this plan's."""
        if self.units.isdisjoint(unit.name for unit in task.units):
            return
        if isinstance(outcome, Failure):
            self.failures.append(outcome)
            return
        assert self.writer is not None
        records = [record for record in outcome if record.unit in self.units]
        late.check_shared(
            self.plan.root, [file.path for record in records for file in resume.outputs(record)]
        )
        kept = {file.path for record in records for file in record.files}
        for record in records:
            _remove_outdated(self.plan, self.state.journal, record.unit, kept)
            self.records.choose(self.writer.add(record))
        self.done += 1

    def ran(self, summary: Summary) -> Ran:
        """Return the outcome, with records in the order of the plan."""
        if not self.state.left:
            return Ran(summary, self.records)
        tasks = self.plan.tasks
        return Ran(
            summary, InOrder(self.records, lambda: (u.name for task in outlines(tasks) for u in task.units))
        )


_clock: ContextVar[CpuClock | None] = ContextVar("cpu_clock", default=None)


@contextmanager
def cpu_counted() -> Iterator[CpuClock]:
    """Count CPU from here on for the runs within the block; inside of such a block another one changes nothing."""
    outer = _clock.get()
    token = _clock.set(clock := outer or CpuClock())
    try:
        yield clock
    finally:
        _clock.reset(token)


def run(plan: Plan, options: RunOptions) -> Ran:
    """Do what is left of `plan`.

    Raises `StageError`: some shards failed; all others are finished. Raises `BadRecordBudgetError`: more rows are bad than
    `Plan.max_bad_fraction` allows. Raises `InterruptedStageError`: ctrl-C. Raises `UsageError`: files that this run did not make are in its
    way.

    Parameters
    ----------
    plan : Plan
        Tasks and what is known of them.
    options : RunOptions
        How to run.
    """
    if plan.is_small:
        options = dataclasses.replace(
            options, scheduler="synchronous", workers=None, cluster=None, progress=False
        )
    (ran,) = run_together([plan], plan.stage, options)
    return ran


def run_together(
    plans: Sequence[Plan], stage: Stage, options: RunOptions, looked: Sequence[Running] = ()
) -> list[Ran]:
    """Do what is left of several plans over the same shards, each shard once for all of them.

    Raises `StageError, BadRecordBudgetError, InterruptedStageError, UsageError`: see `run`.

    Parameters
    ----------
    plans : sequence of Plan
        With different units, and the same `Task.work` for the same shard.
    stage : Stage
        Gets a shard with the units that any plan has left of it, and returns the records of all of them.
    options : RunOptions
        How to run.
    looked : sequence of Running
        The plans as they were looked back on just now; by default they are looked at here.
    """
    started = time.monotonic()
    running = [*looked] or [look_back(plan, options) for plan in plans]
    if options.dry_run:
        return [_rehearsed(each, started) for each in running]
    with ExitStack() as stack:
        stack.enter_context(cpu_counted())
        running = _held(running, options, stack)
        for each in running:
            _make_room(each)
        if working := [each for each in running if each.has_work]:
            _work(working, stage, options)
            for each in working:
                _wait_for_outputs(each)
        for each in running:
            _tidy_up(each)
    return [each.ran(_conclude(each, stage.verb, time.monotonic() - started)) for each in running]


def look_back(plan: Plan, options: RunOptions) -> Running:
    """Return a plan with what is finished of it; refuse what is in its way.

    Raises `UsageError`: files that no run of the plan has made are.
    """
    if not plan.is_staging:
        refusals.check_place(plan)
    state = resume.look_back(plan, options.overwrite)
    surplus = resume.surplus(plan, state, options.overwrite)
    refusals.check_links(plan, state, surplus, options.overwrite)
    for _, folder in _lease_folders(plan):
        files.check_links(plan.root, f"{folder}/{lease.LEASES}")
    if not options.overwrite and not plan.is_staging:
        refusals.check_replaceable(plan, state)
    refusals.check_orphans(plan, state, surplus, options.overwrite)
    notes = (*plan.notes, *again_notes(state, options))
    summary = Summary(plan.verb, plan.root, skipped=len(plan.tasks) - len(state.left), notes=notes)
    return Running(plan, state, surplus, summary, state.finished.copy() if state.left else state.finished)


def _held(running: Sequence[Running], options: RunOptions, stack: ExitStack) -> list[Running]:
    """Hold the leases of plans that have work; return all plans as they are then, since another run may have been here meanwhile."""
    working = [each for each in running if each.has_work]
    for each in working:
        stack.enter_context(_leased(each.plan))
    return [
        each if not working or each.state.journal.is_current() else look_back(each.plan, options)
        for each in running
    ]


@contextmanager
def _leased(plan: Plan) -> Iterator[None]:
    """Keep runs with other options from the outputs of a plan."""
    with ExitStack() as stack:
        for prefix, folder in _lease_folders(plan):
            url = files.join(plan.root, folder)
            key = _lease_key(plan, prefix)
            stack.enter_context(lease.leased(url, plan.verb, key, files.join(plan.root, prefix)))
        yield


def _lease_key(plan: Plan, prefix: str) -> str:
    """Return what runs must have in common to share the outputs below a prefix; none: they share nothing."""
    units = [unit for task in outlines(plan.tasks) for unit in task.units]
    keys = {unit.key for unit in units if unit.name.startswith(prefix)}
    # an index, or what is of shards that were left out, has no unit here
    keys = keys or {unit.key for unit in units}
    key = plan.options_key or (keys.pop() if len(keys) == 1 else "")
    # another format is other files, which must not stay side by side
    return key and f"{key} {plan.file_format or ''}"


def _lease_folders(plan: Plan) -> list[tuple[str, str]]:
    """Return the prefixes of the outputs, each with the folder whose lease stands for it; in one order for all, or two runs would refuse each other."""
    if plan.is_staging:
        return []
    # segments go with their token files
    prefixes = [prefix for prefix in sorted(plan.writes) if not prefix.startswith(f"{FOLDER}/")]
    names = [(prefix, prefix.strip("/").replace("/", "+")) for prefix in prefixes]
    return [(prefix, f"{layout.WORK}/{name}") for prefix, name in names]


def _make_room(each: Running) -> None:
    """Remove what must not be there while a plan runs."""
    plan = each.plan
    if not each.has_work:
        _clear_away(each)
    remove_indexes(plan, each.state.journal, each.surplus.left_over)
    for path in each.surplus.left_over:
        files.remove(files.join(plan.root, path))
    if plan.index and each.state.left:
        files.remove(files.join(plan.root, plan.index.path))


def _clear_away(each: Running) -> None:
    """Remove what a run has left that was killed in its last act, the merging of segments."""
    sweep(each.state.journal.folder)
    for _, folder in _lease_folders(each.plan):
        lease.remove_dead(files.join(each.plan.root, folder))


def _tidy_up(each: Running) -> None:
    """Remove what a plan that is done does not make, and write its index."""
    plan = each.plan
    if each.failures:
        return
    if each.surplus.orphans:
        _remove_orphans(each)
    if plan.index and plan.tasks and not _over_budget(each):
        note = write_index(plan, plan.index)
        each.summary = replace(each.summary, notes=(*each.summary.notes, *filter(None, [note])))


def _rehearsed(running: Running, started: float) -> Ran:
    planned = tuple(task.shard for task in outlines(running.state.left))
    notes = (*running.summary.notes, *removal_notes(running.surplus, "would be removed", "would be removed"))
    summary = replace(running.summary, planned=planned, notes=notes, seconds=time.monotonic() - started)
    return running.ran(summary)


def _work(running: Sequence[Running], stage: Stage, options: RunOptions) -> None:
    """Run the tasks that are left; every result reaches its journal at once."""
    tasks = _joined(running)

    def take(task: Task, outcome: Outcome) -> None:
        if isinstance(outcome, Failure):
            stop_without_store(outcome)
        for each in running:
            each.take(task, outcome)

    try:
        # in this order: no journal without a cluster; journals are closed before one waits for workers; the sweep comes last
        with ExitStack() as stack:
            for each in running:
                stack.enter_context(_swept(each.plan))
            isolate = any(resume.has_died(each.plan, each.state) for each in running)
            go = stack.enter_context(
                mapping(stage, tasks, options, [each.plan.root for each in running], isolate)
            )
            for each in running:
                stack.enter_context(_journal_of(each))
            go(take)
    except KeyboardInterrupt:
        done = max(each.done for each in running)
        raise InterruptedStageError(
            f"{stage.verb} was stopped: {done:,} of {len(tasks):,} shards are finished and kept. Run the same command again to go on."
        ) from None


def _joined(running: Sequence[Running]) -> Sequence[Task]:
    """Return what is left of all plans, one task for each shard."""
    if len(running) == 1:
        return running[0].state.left
    tasks: dict[str, Task] = {}
    for task in (task for each in running for task in each.state.left):
        known = tasks.get(task.shard)
        tasks[task.shard] = task if known is None else replace(known, units=(*known.units, *task.units))
    return list(tasks.values())


@contextmanager
def _journal_of(each: Running) -> Iterator[None]:
    plan, state = each.plan, each.state
    origin = resume.origin_of(plan.root, plan.origin)
    each.writer = state.journal.start(plan.params, plan.writes, plan.version, origin)
    try:
        for record in state.restamped:
            each.writer.add(record)
        _mark_stale(each, each.writer)
        yield
        with cpu_counted() as clock:  # a pass of a job leaves its time to the last one, whose journal stays
            each.writer.finish(_missing(each), _over_budget(each), 0.0 if plan.is_staging else clock.take())
    finally:
        each.writer.close()


def _mark_stale(each: Running, writer: JournalWriter) -> None:
    """Note which outputs are made again, before any is: a run that is stopped may leave others, of the same size, in their place."""
    known = each.state.journal.records
    for name in sorted(each.units & known.keys()):
        if known[name].files:
            writer.add(replace(known[name], stale=True))
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


def _wait_for_outputs(each: Running) -> None:
    """Wait until this process lists what its workers have made; see `dolma_dask.io.late.wait_for_all`."""
    # names are looked for where anything may be late alone: a set of a million takes 0.1 GB
    late.wait_for_all(
        each.plan.root,
        lambda: sorted(
            resume.unseen(each.plan, (each.records[name] for name in each.units if name in each.records))
        ),
    )


def _missing(each: Running) -> int:
    """Count what the whole listing should have and has not."""
    if each.plan.all_units is None:
        return len(each.failures)
    known = each.state.journal.records
    return sum(name not in known or known[name].stale for name in each.plan.all_units)


def _remove_orphans(each: Running) -> None:
    """Remove files that the plan does not make; the journal forgets units whose files these are."""
    known = each.state.journal.by_file()
    remove_indexes(each.plan, each.state.journal, each.surplus.orphans)
    for path in each.surplus.orphans:
        files.remove(files.join(each.plan.root, path))
    gone = {known[path].unit: known[path] for path in each.surplus.orphans if path in known}
    each.state.journal.append(*(record.forgotten() for record in gone.values()))


def _remove_outdated(plan: Plan, journal: Journal, unit: str, kept: Set[str]) -> None:
    """Delete files of an earlier record of a unit that the task has not written again, as far as a run of this verb has announced them."""
    old = journal.records.get(unit)
    own = f"{layout.QUARANTINE}/"
    for file in old.files if old else ():
        is_ours = file.path.startswith((own, *plan.writes)) or journal.may_write(file.path)
        if is_ours and file.path not in kept:
            files.remove(files.join(plan.root, file.path))


def _conclude(each: Running, verb: str, seconds: float) -> Summary:
    """Return the summary of a plan; an error speaks of the verb that was called."""
    plan, failures, records = each.plan, tuple(each.failures), each.records.decoded()
    differ = of_different_shards(records)
    counts = totals(records, differ=differ)
    orphans_are = "kept until all shards are done" if failures else "removed"
    loss = excess_of(plan, counts) if plan.bad_is_loss else ""
    notes = (
        *each.summary.notes,
        *removal_notes(each.surplus, orphans_are, "removed"),
        *window_notes(records),
        *finding_notes(records),
    )
    summary = replace(
        each.summary,
        notes=(*notes, loss) if loss else notes,
        done=each.done,
        seconds=seconds,
        counts=counts,
        rules=merge_rules(_rules_of(records, differ=differ)),
        failed=len(failures),
        failures=failures,
        lost=bool(loss),
    )
    if failures:
        raise stage_error(verb, failures, len(plan.tasks), replace(summary, verb=verb))
    if not plan.bad_is_loss:
        check_budget(plan, records, summary)
    return summary


def _rules_of(records: Iterable[Record], *, differ: bool) -> Iterator[tuple[RuleCount, ...]]:
    """Yield what rules keep of each shard; units of one shard, unless all `differ`, speak of the same rows."""
    seen: set[str] = set()
    for record in records:
        if record.rules and record.shard not in seen:
            if not differ:
                seen.add(record.shard)
            yield record.rules


def _over_budget(each: Running) -> str:
    """Say that too many rows are bad, of this run or of all that is there; empty if they are not."""
    if each.plan.bad_is_loss:
        return ""
    excess, every = excess_of(each.plan, totals(each.records.values())), each.plan.all_units or frozenset()
    if excess or all(unit in each.records for unit in every):
        return excess
    known = each.state.journal.records
    return excess_of(each.plan, totals(Chosen(known, (unit for unit in every if unit in known)).values()))
