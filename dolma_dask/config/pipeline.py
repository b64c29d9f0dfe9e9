"""run: the stages of a YAML file one after the other, with one cluster; each resumes, and the first that fails ends the run.

Nothing is started before the whole file is known to be right. What is finished is known to the journals of the verbs, so a pipeline needs
none of its own: the same command does only what is left.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from cyclopts import Parameter

from dolma_dask import clusters
from dolma_dask.config.checks import check_stages
from dolma_dask.config.pipeline_file import read_pipeline
from dolma_dask.config.pipeline_summary import PipelineSummary, StageOutcome, State
from dolma_dask.config.rehearsal import link_datasets, rehearsed
from dolma_dask.config.stages import StagePlan, chosen
from dolma_dask.config.variables import settings
from dolma_dask.display import counted
from dolma_dask.errors import DolmaDaskError, InterruptedStageError, StageError, UsageError
from dolma_dask.stages.options import Many, words_of


def run(
    path: str,
    /,
    *,
    variables: Annotated[
        Mapping[str, object] | Sequence[str],
        Parameter(name="--set", consume_multiple=True, negative="", show_default=False),
    ] = (),
    only: Annotated[Sequence[str], Many] = (),
    from_: str | None = None,
    prune: int | None = None,
    dry_run: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    overwrite: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    scheduler: str | None = None,
    workers: int | None = None,
    progress: bool | None = None,
) -> PipelineSummary:
    """Run the stages of a YAML file, one after the other, with one cluster; the same command goes on where they stopped.

    Example: dolma-dask run configs/wiki.yaml --set raw=dumps/wiki --dry-run

    Parameters
    ----------
    path : str
        The file: `stages:` is a list of verbs with their options, named as on the command line. See configs/ for examples.
    variables : list of NAME=VALUE, optional
        Values for ${NAME} in the file; in Python a map. They replace those of its `variables:`.
    only : list of str, optional
        Only these stages, by name, or by verb for all of its stages.
    from_ : str, optional
        Only this stage and those after it.
    prune : int, optional
        A rehearsal on the first N shards of what is read, in places of its own: what would go to corpus/v1 goes to corpus/v1-rehearsal-N.
    dry_run : bool, optional
        Tell for each stage what it would do and what is done, and do nothing.
    overwrite : bool, optional
        Do everything again, and replace files that this tool did not make.
    scheduler : str, optional
        For all stages: synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.
    workers : int, optional
        For all stages: processes or threads; by default one per processor.
    progress : bool, optional
        Show how far each stage is.

    Returns
    -------
    PipelineSummary
        A row per stage.

    Raises
    ------
    UsageError
        The file is wrong: every mistake with line and column. Nothing was run.
    StageError
        A stage failed; those before it are finished. The summary is in its details.

    Notes
    -----
    A stage that sets unreadable records aside goes on, and the exit status is 1; one that fails, or a validate that finds problems, ends
    the run.
    """
    only = words_of("only", only)
    read = read_pipeline(str(path), settings(variables))
    wanted = chosen(read.stages, only, from_, str(path))
    check_stages(str(path), wanted, read.stages)
    stages, notes = read.stages, tuple[str, ...]()
    if prune is not None:
        _check_rehearsal(prune, dry_run)
        plan = rehearsed(wanted, prune)
        wanted = plan.stages
        moved = {stage.name: stage for stage in wanted}
        stages = tuple(moved.get(stage.name, stage) for stage in stages)
        link_datasets(plan.datasets, prune)
        notes = plan.notes
    asked = {"scheduler": scheduler, "workers": workers, "progress": progress}
    more = {name: value for name, value in asked.items() if value is not None}
    more |= {"overwrite": True} if overwrite else {}
    going = _Run(str(path), stages, wanted, more, notes)
    return going.rehearse() if dry_run else going.work()


def _check_rehearsal(prune: int, dry_run: bool) -> None:
    if dry_run:
        raise UsageError(
            "--prune and --dry-run were both given; expected one: a rehearsal on some shards, or telling what would be done."
        )
    if prune < 1:
        raise UsageError(f"--prune {prune} leaves no shard; expected 1 or more.")


@dataclass
class _Run:
    """A run of some stages, and what they have come to so far."""

    file: str
    stages: Sequence[StagePlan]
    wanted: Sequence[StagePlan]
    options: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    outcomes: list[StageOutcome] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def work(self) -> PipelineSummary:
        """Run the stages until one fails."""
        with clusters.shared_cluster():
            for stage in self.stages:
                if stage in self.wanted:
                    self._work_on(stage)
                else:
                    self._add(stage, "left out")
        return self._summary()

    def _work_on(self, stage: StagePlan) -> None:
        try:
            summary = stage.call(**self.options)
        except InterruptedStageError as error:
            raise self._failure(stage, error, InterruptedStageError) from error
        except (DolmaDaskError, OSError) as error:
            raise self._failure(stage, error, StageError) from error
        if summary.exit_status and not getattr(summary, "lost", False):
            raise self._failure(stage, None, StageError, summary)
        self._add(stage, "done" if _has_worked(summary) else "done before", summary)

    def _failure(
        self, stage: StagePlan, error: Exception | None, kind: type[DolmaDaskError], summary: Any = None
    ) -> DolmaDaskError:
        details = error.details if isinstance(error, DolmaDaskError) else {}
        summary = details.get("summary") if summary is None else summary
        message = "it found what is told below" if error is None else f"{type(error).__name__}: {error}"
        self._add(stage, "failed", summary, message)
        for later in self.stages[len(self.outcomes) :]:
            self._add(later, "not reached" if later in self.wanted else "left out")
        more = {"failures": details["failures"]} if "failures" in details and kind is StageError else {}
        return kind(
            f"{self.file}: stage {stage.name!r} (line {stage.place.line}) failed: {message}",
            summary=self._summary(),
            **more,
        )

    def rehearse(self) -> PipelineSummary:
        """Ask each stage what it would do; one that reads what another has not made yet waits for it."""
        open_stages: list[StagePlan] = []
        for stage in self.stages:
            if stage not in self.wanted:
                self._add(stage, "left out")
                continue
            waits_for = [other.name for other in open_stages if stage.needs(other)]
            if self._look_at(stage, waits_for):
                open_stages.append(stage)
        return self._summary()

    def _look_at(self, stage: StagePlan, waits_for: Sequence[str]) -> bool:
        """Add what a stage would do; return whether it would do anything."""
        try:
            summary = stage.call(**{**self.options, "dry_run": True})
        except (DolmaDaskError, OSError) as error:
            if not waits_for:
                raise self._failure(stage, error, StageError) from error
            self._add(stage, "waits", None, f"cannot be told before {_listed(waits_for)}")
            return True
        if waits_for:
            what = (
                f"would work on {counted(len(summary.planned), 'shard')} or more, after {_listed(waits_for)}"
            )
            self._add(stage, "waits", summary, what)
        else:
            self._add(stage, "would run" if summary.planned else "nothing to do", summary)
        return bool(waits_for or summary.planned)

    def _add(self, stage: StagePlan, state: State, summary: Any = None, message: str = "") -> None:
        self.outcomes.append(StageOutcome(stage.name, stage.verb, state, stage.place.line, summary, message))

    def _summary(self) -> PipelineSummary:
        return PipelineSummary(self.file, tuple(self.outcomes), time.monotonic() - self.started, self.notes)


def _listed(names: Sequence[str]) -> str:
    """Return names as in a sentence."""
    return " and ".join([*filter(None, [", ".join(names[:-1])]), names[-1]])


def _has_worked(summary: Any) -> bool:
    """Tell whether a verb did anything; one that does not count shards always does."""
    others = (other for _, other in getattr(summary, "others", ()))  # token files of a mix
    return any(getattr(made, "done", 1) for made in (summary, *others))
