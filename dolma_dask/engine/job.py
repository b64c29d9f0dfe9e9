"""Jobs: verbs whose result depends on all shards. Several passes, one work folder, one lease, one dataset-wide record.

A job (`dolma_dask.engine.steps`) says what must exist (`Job.outputs`) and, as a generator, how it is made (`Job.passes`). `run_jobs` is the one place that knows when
nothing is left, who holds the lease, where staging files lie, how each pass goes on after a kill, when all begins anew because a staging file is
damaged or gone, and what is cleared away at the end. When the dataset-wide record is written is the decision of each job (`Announce`): it
tells readers which files belong together, so that a kill at any moment leaves nothing that could be taken for whole.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from dolma_dask import clusters
from dolma_dask.engine import resume
from dolma_dask.engine.mapping import gather
from dolma_dask.engine.plan import Plan, Stage, Task
from dolma_dask.engine.runs import Ran, cpu_counted, look_back, run, run_together
from dolma_dask.engine.steps import Announce, Free, Gather, Job, Pass, Passes, Step
from dolma_dask.engine.workdir import WorkDir
from dolma_dask.errors import BadRecordBudgetError, CorruptFileError, DolmaDaskError, StageError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.publish import sweep
from dolma_dask.journal import Journal, Record, Unit, work_key
from dolma_dask.options.groups import RunOptions
from dolma_dask.progress import one_display
from dolma_dask.results.summary import Summary

ATTEMPTS = 3
"""Times that the passes are driven while they find staging files damaged."""


def work_dir(job: Job[Summary]) -> WorkDir:
    """Return the work folder of a job: locations in staging files depend on the listing, so its key does too."""
    listing = [item.info.path for item in job.inputs]
    return WorkDir(job.root, job.verb, job.name, work_key(job.verb, 1, {"key": job.key, "listing": listing}))


S = TypeVar("S", bound=Summary)

Join = Callable[[Sequence[Plan]], tuple[Sequence[Plan], Stage]]
"""Makes one stage of those of several plans over the same shards."""


def run_job(job: Job[S], options: RunOptions) -> S:
    """Do what is left of one job; see `run_jobs`."""
    return run_jobs([job], options)[0]


def run_jobs(
    jobs: Sequence[Job[S]], options: RunOptions, join: Join | None = None, *, as_one: bool = False
) -> list[S]:
    """Do what is left of some jobs.

    Parameters
    ----------
    jobs : sequence of Job
        With different outputs.
    options : RunOptions
        How to run; a rehearsal starts nothing and takes no lease.
    join : callable, optional
        Lets the first passes of all jobs, which read the same shards, share one reading.
    as_one : bool
        The jobs, below roots of their own, have one result: if anything of it is missing nothing is believed, and the passes of the first yield the
        plans of all.

    Raises
    ------
    UsageError
        Another run works on the same outputs, or files that are not the job's are in the way.
    StageError, BadRecordBudgetError, InterruptedStageError
        See `dolma_dask.engine.run`.
    """
    started = time.monotonic()
    running = [_Running(job, options) for job in jobs]
    as_one = as_one and len(jobs) > 1
    _look_back(running, as_one)
    if options.dry_run:
        rans = [each.rehearse() for each in running]
    else:
        with cpu_counted():
            rans = _drive(running, options, join, as_one)
    seconds = time.monotonic() - started
    return [each.summarize(ran, seconds) for each, ran in zip(running, rans, strict=True)]


@dataclass
class _Running(Generic[S]):
    """A job while it runs."""

    job: Job[S]
    options: RunOptions
    known: Record | None = None
    plan: Plan | None = None
    is_made: bool = False  # all that must exist does
    settled: Ran | None = None  # and no run is open: the outcome, whatever another run does from now on
    is_foreign: bool = False  # the dataset-wide record is of another journal format
    rans: dict[str, Ran] = field(default_factory=dict)  # of the last plan below each root
    work: WorkDir = field(init=False)

    def __post_init__(self) -> None:
        self.work = work_dir(self.job)

    def look_back(self, *, believes: bool = True) -> None:
        """Find out what is there, and refuse what is in the way; a dataset-wide record may not be believed."""
        job, overwrite = self.job, self.options.overwrite
        for folder in (f"{layout.QUARANTINE}/{job.verb}", *self.work.folders):
            files.check_links(job.root, folder)
        self.known = self._valid_record() if believes and not overwrite else None
        self.settled = None
        self.plan = job.outputs(self.known, overwrite)
        if self.plan is None:
            return
        found = look_back(self.plan, self.options)
        has_record = self.known is not None or job.record is None
        self.is_made = has_record and not found.state.left
        is_closed = not resume.is_open(self.plan, found.state) and not found.surplus.orphans
        if self.is_made and is_closed and not self.options.dry_run:
            (self.settled,) = run_together([self.plan], self.plan.stage, self.options, [found])

    def _valid_record(self) -> Record | None:
        """Return the dataset-wide record if all inputs and its files are as it says."""
        job = self.job
        if job.record is None:
            return None
        task = Task(job.name, (Unit(job.record, job.key),), tuple(job.inputs))
        state = resume.look_back_at(job.root, job.verb, [task], job.writes)
        self.is_foreign = job.record in state.journal.foreign and job.record not in state.journal.records
        if not self.options.dry_run:
            state.journal.append(*state.restamped)
        return state.finished.get(job.record)

    def rehearse(self) -> Ran:
        """Say what would be done."""
        if self.plan is not None:
            return run(self.plan, self.options)
        return Ran(Summary(self.job.verb, self.job.root), {})

    def settle(self) -> Ran:
        """Return the outcome of a job with nothing left, and clear away what a run has left that was killed at its very end."""
        assert self.plan is not None
        ran = self.settled or run(self.plan, self.options)
        if self.job.name:
            self.work.remove_abandoned()
            self.sweep()
        return ran

    def sweep(self) -> None:
        """Remove temporary files that dead writers have left outside of runs."""
        folders = {f"{name}/{self.job.verb}" for name in (layout.JOURNAL, layout.QUARANTINE)}
        for folder in sorted(folders | {prefix.rpartition("/")[0] for prefix in self.job.writes}):
            sweep(files.join(self.job.root, folder))

    def summarize(self, ran: Ran, seconds: float) -> S:
        """Return the summary of the verb."""
        summary = replace(self.job.summarize(ran, self.known), seconds=seconds)
        if not self.is_foreign:
            return summary
        note = f"the record of {self.job.record} is of another journal format, never believed: made again"
        return replace(summary, notes=(*summary.notes, note))

    # the passes

    def prepare(self) -> None:
        """Clear away what other runs have left in the work folder."""
        self.work.clear_others()
        if self.options.overwrite:
            self.work.clear()

    def start(self) -> Passes:
        """Begin the passes, from what is known of earlier runs."""
        return self.job.passes(self.work, self.known)

    def finish(self, passes: Passes, step: Step | None, answer: Any = None) -> Ran:
        """Drive the passes from a step on to their end, and again from their beginning if staging files are damaged or gone."""
        for attempt in range(1, ATTEMPTS):
            try:
                return self._finish(passes, step, answer)
            except _FreedError:
                self.work.clear()
            except StageError as error:
                if not self._is_damage(error):
                    raise
                if attempt == ATTEMPTS - 1:  # more are damaged than those that were made again
                    self.work.clear()
            passes = self.start()
            step, answer = None, None
        return self._finish(passes, step, answer)

    def _finish(self, passes: Passes, step: Step | None, answer: Any) -> Ran:
        try:
            step = passes.send(answer) if step is None else step
            while True:
                try:
                    answer = self._do(step)
                except DolmaDaskError as error:
                    if isinstance(error, _FreedError):
                        raise
                    step = passes.throw(error)
                else:
                    step = passes.send(answer)
        except StopIteration as end:
            ran: Ran = end.value
            return ran

    def _do(self, step: Step) -> Any:
        inner = dataclasses.replace(self.options, overwrite=False)
        match step:
            case Plan():
                self.rans[step.root] = run(step, self.options)
                return self.rans[step.root]
            case Pass():
                return self._run_pass(step, inner)
            case Gather():
                return gather(step.stage, step.tasks, inner)
            case Announce():
                return self._announce(step)
            case Free():
                return self._free(step)
            case _:
                return step(inner)

    def _run_pass(self, step: Pass, options: RunOptions) -> Ran:
        plan = step.plan(self.work)
        if not all(map(_has_file, step.reads)) and resume.look_back(plan, False).left:
            raise _FreedError("staging files were removed after their pass, and are needed again")
        try:
            return run(plan, options)
        except (StageError, BadRecordBudgetError) as error:
            raise self._from_job(error, plan.verb) from error

    def _from_job(self, error: DolmaDaskError, verb: str) -> DolmaDaskError:
        """Return the error of a pass as the error of the job: bad records lie below its root."""
        summary = error.details.get("summary")
        if isinstance(summary, Summary):
            summary = replace(summary, verb=self.job.verb, target=self.job.root)
        message = str(error)
        if isinstance(error, BadRecordBudgetError):
            message = message.replace(self.work.url, self.job.root).replace(verb, self.job.verb)
        return type(error)(message, **{**error.details, "summary": summary})

    def _announce(self, step: Announce) -> None:
        record, root = step.record, step.root or self.job.root
        Journal(root, self.job.verb).append(record)
        if root == self.job.root and record.unit == self.job.record:
            self.known = None if record.stale else record

    def _free(self, step: Free) -> None:
        """Say in the journal of the pass that its files are needed no more, then remove them."""
        held = [record for record in step.records if _has_file(record)]
        Journal(self.work.url, step.stage_verb).append(
            *(replace(record, files=_side_files(record)) for record in held)
        )
        for record in step.records:
            files.remove(files.join(self.work.url, record.unit))

    def _is_damage(self, error: StageError) -> bool:
        """Tell whether all that failed was the reading of staging files: damaged ones, which that reader removed, or those that are gone since."""
        lost = CorruptFileError.__name__, FileNotFoundError.__name__
        return bool(error.failures) and all(
            failure.error in lost and self.work.path in failure.message for failure in error.failures
        )


class _FreedError(DolmaDaskError):
    """Work is left that needs staging files which were removed after their pass."""


def _has_file(record: Record) -> bool:
    return any(file.path == record.unit for file in record.files)


def _side_files(record: Record) -> tuple[Any, ...]:
    return tuple(file for file in record.files if file.path != record.unit)


def _look_back(running: Sequence[_Running[S]], as_one: bool) -> None:
    """Find out what is there of all jobs; where they have one result, of that as a whole."""
    for each in running:
        each.look_back()
    if as_one and not all(each.is_made for each in running):
        for each in running:
            each.look_back(believes=False)


def _drive(running: Sequence[_Running[S]], options: RunOptions, join: Join | None, as_one: bool) -> list[Ran]:
    """Run the jobs that are left, one after another; their first passes together if they can be joined."""
    with ExitStack() as stack:
        stack.enter_context(clusters.shared_cluster())
        stack.enter_context(one_display(running[0].job.verb))
        at_work = [each for each in running if each.job.name and each.settled is None]
        if as_one and at_work:
            at_work = list(running)
        for each in sorted(at_work, key=lambda each: each.work.parent):  # two runs never refuse each other
            stack.enter_context(each.work.leased())
            each.prepare()
        _look_back(at_work, as_one)  # another run may have ended meanwhile
        begun = _begin_together([each for each in running if not each.is_made], options, join)
        rans = []
        for each in running:
            if each.is_made:
                rans.append(each.settle())
            elif as_one and each is not running[0]:
                rans.append(running[0].rans[each.job.root])
            else:
                passes, step, answer = begun.get(id(each)) or (each.start(), None, None)
                rans.append(each.finish(passes, step, answer))
            if not each.is_made and each.job.name:
                each.work.remove()
                each.sweep()
        return rans


_Begun = tuple[Passes, Step | None, Any]


def _begin_together(
    running: Sequence[_Running[S]], options: RunOptions, join: Join | None
) -> Mapping[int, _Begun]:
    """Run the first passes of all jobs from one reading; return where each job goes on."""
    if join is None or len(running) < 2:
        return {}
    begun = {id(each): (each.start(),) for each in running}
    steps = {key: next(passes) for key, (passes,) in begun.items()}
    plans: dict[int, Plan] = {}
    for each in running:
        step = steps[id(each)]
        plan = step.plan(each.work) if isinstance(step, Pass) else step
        if isinstance(plan, Plan) and all(type(plan.stage) is type(one.stage) for one in plans.values()):
            plans[id(each)] = plan
    joined, stage = join(list(plans.values()))
    try:
        answers = dict(zip(plans, run_together(joined, stage, options), strict=True))
    except BadRecordBudgetError as error:
        failed = next((each for each in running if each.work.url in str(error)), None)
        raise failed._from_job(error, plans[id(failed)].verb) if failed else error from error
    return {
        key: (passes, None, answers[key]) if key in answers else (passes, steps[key], None)
        for key, (passes,) in begun.items()
    }
