"""run: the stages of a YAML file one after the other, with one cluster; each resumes, and the first that fails ends the run.

Nothing is started before the whole file is known to be right. What is finished is known to the journals of the verbs, so a pipeline needs
none of its own: the same command does only what is left.
"""

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Struct

from dolma_dask import clusters
from dolma_dask.clusters import check_cluster, check_workers
from dolma_dask.display import counted, listed
from dolma_dask.errors import DolmaDaskError, InterruptedStageError, StageError, UsageError, message_of
from dolma_dask.options.base import OUTPUT, WHAT, WHERE, Opt, Options
from dolma_dask.options.command import command
from dolma_dask.pipelines.pipeline_file import SET, check_stages, read_pipeline, variables_of
from dolma_dask.pipelines.rehearsal import Rehearsal
from dolma_dask.pipelines.stages import StagePlan, selected
from dolma_dask.progress import one_page
from dolma_dask.results.answer import Answer
from dolma_dask.results.parts import Failures, Heading, Notes, Part
from dolma_dask.results.table import Column, Table

State = Literal[
    "done", "done before", "failed", "left out", "not reached", "would run", "waits", "nothing to do"
]

_COLUMNS = (
    Column("stage", "words"),
    Column("documents"),
    Column("text", "size"),
    Column("tokens"),
    Column("wall time", "seconds"),
    Column("state", "words"),
)
_DOCUMENTS = ("documents_out", "documents_in", "documents")
_TEXT = ("text_bytes_out", "text_bytes", "text_bytes_in")


@dataclass(frozen=True)
class StageOutcome:
    """The outcome of one stage."""

    name: str
    verb: str
    line: int  # in the file
    state: State
    message: str = ""  # why it failed, or what it waits for
    summary: Any = None  # what the verb returned, if it came that far

    def row(self) -> tuple[str | float | None, ...]:
        """Return its row of the table."""
        every = _summaries(self.summary)
        name = self.name if self.name == self.verb else f"{self.name} ({self.verb})"
        documents, text = _first(every[:1], _DOCUMENTS), _first(every[:1], _TEXT)
        seconds = None if self.summary is None else self.summary.seconds
        return name, documents, text, _first(every, ("tokens",)), seconds, self.shown_state()

    def shown_state(self) -> str:
        """Return its state as the table has it."""
        if self.state == "would run" and self.summary is not None:
            return f"would work on {counted(len(self.summary.planned), 'shard')}, {self.summary.skipped:,} done before"
        if self.state == "waits":
            return self.message
        lost = ", rows lost" if getattr(self.summary, "lost", False) else ""
        return self.state.upper() if self.state == "failed" else f"{self.state}{lost}"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON-able values."""
        return {**vars(self), "summary": None if self.summary is None else self.summary.to_json()}


def _summaries(summary: Any) -> list[Any]:
    """Return the summary of a verb, and those of the token files that a mix makes too."""
    return [summary, *(other for _, other in getattr(summary, "others", ()))]


def _first(summaries: Sequence[Any], names: Sequence[str]) -> float | None:
    counts = [getattr(one, "counts", {}) for one in summaries]
    return next((known[name] for known in counts for name in names if name in known), None)


class PipelineSummary(Answer, frozen=True):
    """The outcome of a pipeline; prints as a table."""

    file: str  # the pipeline
    stages: tuple[StageOutcome, ...]  # all of them, in order
    seconds: float = 0.0  # wall time
    notes: tuple[str, ...] = ()  # what a person should know
    verb: str = "run"

    @property
    def exit_status(self) -> int:
        """0 if everything is done, 1 if a stage failed or rows were lost."""
        lost = any(getattr(stage.summary, "exit_status", 0) for stage in self.stages)
        return 1 if lost or self.failed else 0

    @property
    def failed(self) -> StageOutcome | None:
        """The stage that stopped it."""
        return next((stage for stage in self.stages if stage.state == "failed"), None)

    @property
    def fresh(self) -> bool:
        """True if anything was left to do."""
        return any(stage.state in ("done", "failed", "would run", "waits") for stage in self.stages)

    def to_json(self) -> dict[str, Any]:
        """Return the summary as JSON-able values."""
        return {
            "verb": self.verb,
            "file": self.file,
            "stages": [stage.to_json() for stage in self.stages],
            "seconds": round(self.seconds, 3),
            "notes": list(self.notes),
            "exit_status": self.exit_status,
        }

    def _remarks(self) -> list[str]:
        """Return what stands below the table: notes of the stages, each once, and of the pipeline."""
        stages_of: dict[str, list[str]] = {}
        for stage in self.stages:
            for note in (*getattr(stage.summary, "figures", ()), *getattr(stage.summary, "notes", ())):
                stages_of.setdefault(note, []).append(stage.name)
        return [*(f"{', '.join(names)}: {note}" for note, names in stages_of.items()), *self.notes]

    def parts(self) -> Iterator[Part]:
        failed = self.failed
        yield Heading(f"run {self.file}")
        yield Table("", _COLUMNS, [stage.row() for stage in self.stages])
        yield Notes(self._remarks())
        if failed is not None:
            yield Failures([(f"{failed.name} (line {failed.line})", "", failed.message)], "stage")
            if isinstance(failed.summary, Answer):
                yield from failed.summary.parts()


@dataclass(frozen=True, kw_only=True)
class PipelineOptions(Options):
    """Options of `run`."""

    variables: Annotated[
        Mapping[str, object] | Sequence[str],
        SET,
        Opt(
            "Values for ${NAME} in the file. They replace those of its `variables:`. In Python a map.",
            kind="list of NAME=VALUE",
            convert=variables_of,
        ),
    ] = ()
    only: Annotated[
        Sequence[str],
        Opt("Only these stages, by name, or by verb for all of its stages.", group=WHAT),
    ] = ()
    from_: Annotated[str | None, Opt("Only this stage and those after it.", group=WHAT)] = None
    prune: Annotated[
        int | None,
        Opt(
            "A rehearsal on the first N shards of what is read, which writes elsewhere: what would go to corpus/v1 goes to corpus/v1-rehearsal-N.",
            group=WHAT,
        ),
    ] = None
    dry_run: Annotated[
        bool,
        Opt(
            "Show for each stage what it would do and what is done, and do nothing.",
            group=OUTPUT,
            is_flag=True,
        ),
    ] = False
    overwrite: Annotated[
        bool,
        Opt(
            "Do everything again, and replace what is there: files of other options too, and those that this tool did not make.",
            group=OUTPUT,
            is_flag=True,
        ),
    ] = False
    scheduler: Annotated[
        str | None,
        Opt(
            "For all stages: auto, synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.",
            group=WHERE,
        ),
    ] = None
    workers: Annotated[
        int | None,
        Opt(
            "For all stages: processes or threads; by default one per processor.",
            group=WHERE,
            convert=check_workers,
        ),
    ] = None
    cluster: Annotated[
        str | None,
        Opt(
            "One cluster for all stages, started when the first has work: laptop, slurm, lumi, allocation, or a YAML file with a profile.",
            group=WHERE,
        ),
    ] = None
    progress: Annotated[bool | None, Opt("Show a progress bar for each stage.", group=WHERE)] = None

    def check(self) -> None:
        """Refuse a cluster that cannot be, and a rehearsal that does nothing."""
        super().check()
        check_cluster(self.cluster, self.scheduler, self.workers)
        if self.prune is not None and self.dry_run:
            raise UsageError(
                "--prune and --dry-run were both given; expected one: a rehearsal on some shards, or a list of what would be done."
            )
        if self.prune is not None and self.prune < 1:
            raise UsageError(f"--prune {self.prune} leaves no shard; expected 1 or more.")

    def of_stages(self) -> dict[str, Any]:
        """Return what counts before the options of each stage."""
        names = ("scheduler", "workers", "progress")
        given = {name: value for name, value in self.given().items() if name in names}
        if self.overwrite:
            given["overwrite"] = True
        if self.cluster is not None:  # it counts before what the file says of schedulers
            return given | {"cluster": self.cluster, "scheduler": None, "workers": None}
        return given if self.scheduler is None else given | {"cluster": None}


@command
def run(
    path: Annotated[
        str,
        Opt(
            "The file: `stages:` is a list of verbs with their options, named as on the command line. See configs/ for examples."
        ),
    ],
    /,
    *,
    options: PipelineOptions,
) -> PipelineSummary:
    """Run the stages of a YAML file, one after the other, with one cluster; the same command goes on where they stopped.

    Example: dolma-dask run configs/wiki.yaml --set raw=dumps/wiki tokenizer=t5.json --dry-run

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
    All mistakes in the file are named, with line and column, before anything runs. A stage whose bad records are as few as
    max_bad_fraction allows goes on, tells how many they are, and leaves the exit status 0. With more of them, one that keeps their rows with an error in
    them (tag, dedupe) goes on too, and the exit status is 1. One that fails, or a validate that finds problems, ends the run.
    """
    stages = read_pipeline(path, variables_of(options.variables))
    active = selected(stages, options.only, options.from_, path)
    check_stages(path, active, stages, options.of_stages())
    notes: tuple[str, ...] = ()
    if options.prune is not None:
        rehearsal = Rehearsal(active, options.prune)
        active = rehearsal.stages
        moved = {stage.name: stage for stage in active}
        stages = tuple(moved.get(stage.name, stage) for stage in stages)
        rehearsal.make_twins()
        folders = ", ".join(sorted(set(rehearsal.moved.values())))
        notes = (
            f"a rehearsal on {counted(options.prune, 'shard')} of what is read: it wrote to {folders}; remove them when you like",
        )
    going = _Run(path, stages, active, options.of_stages(), notes)
    return going.rehearse() if options.dry_run else going.work()


class _Run(Struct):
    """A run of the `active` ones of some stages, and their outcomes so far."""

    file: str
    stages: Sequence[StagePlan]
    active: Sequence[StagePlan]
    options: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    outcomes: list[StageOutcome] = []
    started: float = msgspec.field(default_factory=time.monotonic)

    def work(self) -> PipelineSummary:
        """Run the stages until one fails."""
        with clusters.shared_cluster(), one_page(f"run {self.file}"):
            for stage in self.stages:
                if stage in self.active:
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
            raise self._failure(stage, error) from error
        if summary.exit_status and not getattr(summary, "lost", False):
            raise self._failure(stage, None, summary=summary)
        # what counts no shards always works
        worked = any(getattr(made, "done", 1) for made in _summaries(summary))
        self._add(stage, "done" if worked else "done before", summary)

    def _failure(
        self,
        stage: StagePlan,
        error: Exception | None,
        kind: type[DolmaDaskError] = StageError,
        summary: Any = None,
    ) -> DolmaDaskError:
        details = error.details if isinstance(error, DolmaDaskError) else {}
        message = (
            "it found what is listed below"
            if error is None
            else f"{type(error).__name__}: {message_of(error)}"
        )
        if isinstance(error, UsageError) and "--overwrite" in message and "overwrite" not in self.options:
            message += f" For this stage alone: --only {shlex.quote(stage.name)} --overwrite."
        if error is None and self._is_before_attributes(stage):
            message += "; stages below it make attributes of this dataset, and `attributes: []` here checks the documents alone"
        self._add(stage, "failed", details.get("summary") if summary is None else summary, message)
        for later in self.stages[len(self.outcomes) :]:
            self._add(later, "not reached" if later in self.active else "left out")
        more = {"failures": details["failures"]} if "failures" in details and kind is StageError else {}
        return kind(
            f"{self.file}: stage {stage.name!r} (line {stage.line}) failed: {message}",
            summary=self._summary(),
            **more,
        )

    def _is_before_attributes(self, stage: StagePlan) -> bool:
        """Tell whether a check looks at attributes that later stages are to make again."""
        later = self.stages[len(self.outcomes) + 1 :]
        changed = {url for other in later for url in other.changes}
        return (
            "attributes" in stage.takes
            and "attributes" not in stage.arguments
            and not changed.isdisjoint(stage.reads)
        )

    def rehearse(self) -> PipelineSummary:
        """Ask each stage what it would do; one that reads what another has not made yet waits for it."""
        unfinished: list[StagePlan] = []
        for stage in self.stages:
            if stage not in self.active:
                self._add(stage, "left out")
            elif self._has_work(stage, [other.name for other in unfinished if stage.needs(other)]):
                unfinished.append(stage)
        return self._summary()

    def _has_work(self, stage: StagePlan, waits_for: Sequence[str]) -> bool:
        """Add what a stage would do; return whether it would do anything."""
        try:
            summary = stage.call(**{**self.options, "dry_run": True})
        except (DolmaDaskError, OSError) as error:
            if not waits_for:
                raise self._failure(stage, error) from error
            self._add(stage, "waits", None, f"not known before {listed(waits_for)}")
            return True
        if waits_for:
            work = (
                f"would work on {counted(len(summary.planned), 'shard')} or more"
                if summary.planned
                else "waits"
            )
            self._add(stage, "waits", summary, f"{work}, after {listed(waits_for)}")
        else:
            self._add(stage, "would run" if summary.planned else "nothing to do", summary)
        return bool(waits_for or summary.planned)

    def _add(self, stage: StagePlan, state: State, summary: Any = None, message: str = "") -> None:
        self.outcomes.append(StageOutcome(stage.name, stage.verb, stage.line, state, message, summary))

    def _summary(self) -> PipelineSummary:
        return PipelineSummary(self.file, tuple(self.outcomes), time.monotonic() - self.started, self.notes)
