"""estimate: what a pipeline will cost, before it runs.

Costs a reading of what the pipeline reads (at most `scan_bytes`), and its stages twice on a sample (`sample_bytes`) and five times on a few records.
"""

import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from dolma_dask import clusters
from dolma_dask.clusters.sigterm import stopped_by_sigterm
from dolma_dask.errors import InterruptedStageError, TrialError, UsageError
from dolma_dask.io.publish import is_running, writer_space
from dolma_dask.options.base import WHAT, WHERE, Opt, Options
from dolma_dask.options.command import command
from dolma_dask.pipelines.estimate.answer import Estimate, notes_of
from dolma_dask.pipelines.estimate.entries import Moved, check_there, trace_entries
from dolma_dask.pipelines.estimate.model import CLIENT_BYTES, Extent, estimate_stage, is_near, walls
from dolma_dask.pipelines.estimate.records import TextKeys, near_keys
from dolma_dask.pipelines.estimate.sample import PARTS, check_records, choose, scan_entries, write_samples
from dolma_dask.pipelines.estimate.shards import shards_made
from dolma_dask.pipelines.estimate.slurm import fitting
from dolma_dask.pipelines.estimate.trials import TRIES, run_trials
from dolma_dask.pipelines.pipeline_file import SET, check_stages, read_pipeline, variables_of
from dolma_dask.pipelines.stages import StagePlan, selected
from dolma_dask.progress import one_display, progress_of
from dolma_dask.questions.status.estimated import keep

SAMPLE_BYTES = 20_000_000
"""Bytes of records of the large sample: 10 to 30 seconds of a pipeline that makes tokens."""

SCAN_BYTES = 1_000_000_000
"""Stored bytes that are read to find copies: 10 to 30 CPU-seconds."""

_FOLDER = "dolma-dask-estimate-"

_MOST_DOUBLINGS = 8
"""Of the workers that are looked at: 256."""


def _worker_counts(given: Sequence[int]) -> tuple[int, ...]:
    if wrong := [one for one in given if one < 1]:
        raise UsageError(f"workers={wrong[0]}; expected numbers of processes from 1 on.")
    return tuple(given)


_BYTES = f"a number of bytes from 1 on, such as {SAMPLE_BYTES}"


@dataclass(frozen=True, kw_only=True)
class EstimateOptions(Options):
    """Options of `estimate`."""

    variables: Annotated[
        Mapping[str, object] | Sequence[str],
        SET,
        Opt(
            "Values for ${NAME} in the file. In Python a map.",
            kind="list of NAME=VALUE",
            convert=variables_of,
        ),
    ] = ()
    only: Annotated[Sequence[str], Opt("Only these stages, by name or by verb.", group=WHAT)] = ()
    workers: Annotated[
        Sequence[int],
        Opt(
            "Numbers of workers to tell the wall time for; by default 1, 2, 4 and so on.",
            group=WHERE,
            convert=_worker_counts,
        ),
    ] = ()
    sample_bytes: Annotated[int, Opt("Bytes of records to try the stages on.", min=1, expected=_BYTES)] = (
        SAMPLE_BYTES
    )
    scan_bytes: Annotated[
        int,
        Opt(
            "Stored bytes to read at most, to learn how many documents are copies of others.",
            min=1,
            expected=_BYTES,
        ),
    ] = SCAN_BYTES
    seed: Annotated[int, Opt("Decides which records are drawn.")] = 0
    scratch: Annotated[
        str | None,
        Opt(
            "Folder for the sample and what is made of it, removed at the end; by default that of temporary files."
        ),
    ] = None
    progress: Annotated[bool | None, Opt("Show a progress bar.", group=WHERE)] = None


@command
def estimate(
    path: Annotated[str, Opt("The file of the pipeline, as `run` takes it.")],
    /,
    *,
    options: EstimateOptions,
) -> Estimate:
    """Tell what a pipeline will cost: CPU-hours, wall time, memory, disk, files and a request to SLURM, from a small sample.

    Example: dolma-dask estimate configs/wiki.yaml --set raw=dumps/wiki tokenizer=t5.json --workers 8 64

    Returns
    -------
    Estimate
        A row per stage and in all. It is kept in the journal folders of what the pipeline writes, so that `status` can compare.

    Raises
    ------
    UsageError
        The file is wrong, or there is nothing to draw a sample from.
    TrialError
        A stage failed on the sample, as it would in the real run.

    Notes
    -----
    It speaks of the whole pipeline, also of stages that are done already. Downloads are left out. `downsample` to a number of documents and `only` of a
    stage do not shrink with a sample; their stages cost less than it says.
    """
    begun = time.monotonic()
    variables = variables_of(options.variables)
    stages = read_pipeline(path, variables)
    active = selected(stages, options.only, None, path)
    check_stages(path, active, stages)
    tried = [stage for stage in active if stage.verb != "download"]
    with stopped_by_sigterm(), one_display("estimate"), _temporary(options.scratch) as folder:
        try:
            limits = options.sample_bytes, options.scan_bytes
            question = _Question(path, variables, tried, folder, options.seed, *limits)
            question.sample(options.progress)
            question.try_stages(options.progress)
        except KeyboardInterrupt:
            raise InterruptedStageError("estimate was stopped; nothing of it is left.") from None
        return question.answer(tuple(options.workers), begun, left_out=len(active) - len(tried))


@contextmanager
def _temporary(scratch: str | None) -> Iterator[Path]:
    """Yield a folder that is gone afterwards, and remove those of estimates that were killed."""
    parent = Path(scratch or tempfile.gettempdir())
    parent.mkdir(parents=True, exist_ok=True)
    mine = f"{_FOLDER}{writer_space()}-"  # the folder may be shared with other machines
    for old in parent.glob(f"{mine}*"):
        writer = old.name.removeprefix(mine).partition("-")[0]
        if writer.isdecimal() and not is_running(int(writer)):
            shutil.rmtree(old, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{mine}{os.getpid()}-", dir=parent)).resolve()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Question:
    """A pipeline, samples of what it reads, and trials of its stages."""

    def __init__(
        self,
        file: str,
        variables: Mapping[str, object],
        stages: Sequence[StagePlan],
        folder: Path,
        seed: int,
        sample_bytes: int,
        scan_bytes: int,
    ) -> None:
        self.file, self.stages, self.seed = file, stages, seed
        self._variables = variables
        self._sample_bytes, self._scan_bytes = sample_bytes, scan_bytes
        self._folders = {name: folder / name for name in PARTS}
        self._moved = {name: Moved(stages, str(folder / name)) for name in PARTS}
        self.entries = self._moved[PARTS[0]].entries
        check_there(self.entries, file)

    def sample(self, progress: bool | None) -> None:
        """Read the entries, draw the samples and write them."""
        entries = list(self.entries.values())
        total = min(sum(entry.bytes for entry in entries), self._scan_bytes)
        with progress_of("estimate-reading", total, len(entries), _shown(progress)) as shown:
            self.scans = scan_entries(
                entries, self._keys(), self.seed, self._scan_bytes, lambda size: shown.advance(size, 0)
            )
            check_records(self.scans)
            choose(self.scans, self._sample_bytes, self.seed)
            self.samples = {}
            for one in self.scans:
                number = one.entry.number
                places = [str(self._folders[name] / f"in/{number}") for name in PARTS]
                self.samples[number] = write_samples(one, places)
                shown.advance(0, 1)

    def _command(self) -> str:
        """Return the real run as a line of a script, for workers on all processors of a job."""
        given = [f"{name}={value}" for name, value in self._variables.items()]
        more = ["--set", *given] if given else []
        return shlex.join(["dolma-dask", "run", self.file, *more, "--cluster", "allocation"])

    def _keys(self) -> TextKeys:
        """Return numbers of texts that near duplicates share, if the pipeline looks for them."""
        near = [stage for stage in self.stages if is_near(stage)]
        if not near:
            return TextKeys()
        return near_keys(near[0].arguments.get("ngram") or 5, near[0].arguments.get("unit") or "word")

    def try_stages(self, progress: bool | None) -> None:
        """Run the stages on the samples."""
        moved = {name: one.stages for name, one in self._moved.items()}
        total = TRIES * len(self.stages)
        with progress_of("estimate-trials", 0, total, _shown(progress)) as shown:
            try:
                self.trials = run_trials(moved, self._folders, lambda: shown.advance(0, 1))
            except TrialError as failed:
                raise TrialError(self._in_real_words(str(failed))) from None

    def _in_real_words(self, message: str) -> str:
        """Return a message with the real places instead of those of the sample, which is gone when a person reads it."""
        for name, folder in self._folders.items():
            for entry in self.entries.values():
                message = message.replace(f"{folder}/in/{entry.number}", f"{entry.url} (rows of the sample)")
            for real, moved in self._moved[name].moved.items():
                message = message.replace(moved, real)
        return message

    def answer(self, workers: tuple[int, ...], begun: float, left_out: int) -> Estimate:
        """Return what the trials say of the whole, and keep it beside the journals."""
        reached = trace_entries(self.stages, self.entries)
        scans = {one.entry.number: one for one in self.scans}
        made = shards_made(self.stages, self.entries, scans, self.trials)
        planned: dict[str, int] = {}
        extents: dict[str, Extent] = {}
        for stage in self.stages:
            mine = [scans[entry.number] for entry in reached[stage.name]]
            converts = stage.verb == "convert" and any(one.entry.number in made for one in mine)
            extents[stage.name] = Extent.of(mine, self.samples, {} if converts else made)
            if converts:
                planned[stage.name] = sum(made[one.entry.number].files for one in mine)
        found = tuple(
            estimate_stage(stage, extents[stage.name], self.trials, planned.get(stage.name))
            for stage in self.stages
        )
        count = sum(len(one.entry.files) for one in self.scans)
        doublings = [1 << power for power in range(_MOST_DOUBLINGS + 1) if power == 0 or 1 << power <= count]
        choices = [walls(found, extents, number) for number in doublings]
        answer = Estimate(
            file=self.file,
            stages=found,
            here=walls(found, extents, clusters.cpu_count()),
            walls=tuple(walls(found, extents, number) for number in sorted({*workers}) or doublings),
            request=fitting(choices, max(stage.memory for stage in found)),
            command=self._command(),
            client_memory=CLIENT_BYTES * count * len(found),
            journal_files=sum(trial.journal_files for trial in self.trials[PARTS[-1]].values()),
            entry_files=count,
            entry_bytes=sum(one.entry.bytes for one in self.scans),
            seconds=time.monotonic() - begun,
            notes=notes_of(self.scans, self.samples, extents, found, left_out),
        )
        keep(answer.kept())
        return answer


def _shown(progress: bool | None) -> bool:
    return progress is not False
