"""estimate: what a pipeline will cost, before it runs.

Costs a reading of what the pipeline reads (at most `scan_bytes`), and its stages twice on a sample (`sample_bytes`) and twice on a few records.
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

from dolma_dask.clusters.workers import stopped_by_sigterm
from dolma_dask.errors import InterruptedStageError, UsageError
from dolma_dask.io.publish import is_running, writer_space
from dolma_dask.minhash.schemes import MinHash
from dolma_dask.options.base import WHAT, WHERE, Opt, Options
from dolma_dask.options.command import command
from dolma_dask.pipelines.estimate.answer import Estimate, fitting, notes_of
from dolma_dask.pipelines.estimate.sample import LARGE, SMALL, PipelineInput, draw, scan, write_sample
from dolma_dask.pipelines.estimate.trial import ORDER, Moved, estimate_stages, is_near, run_trials, walls
from dolma_dask.pipelines.pipeline_file import SET, check_stages, read_pipeline, variables_of
from dolma_dask.pipelines.stages import StagePlan, selected
from dolma_dask.progress import one_display, progress_of
from dolma_dask.questions.status.estimated import keep

SAMPLE_BYTES = 20_000_000
"""Bytes of records of the large sample: 10 to 30 seconds of a pipeline that makes tokens."""

SCAN_BYTES = 1_000_000_000
"""Stored bytes that are read to find copies: 10 to 30 CPU-seconds."""

_FOLDER = "dolma-dask-estimate-"

_MAX_DOUBLINGS = 8
"""Doublings of the number of workers that are looked at: up to 256."""


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
        pipelines = {name: Moved(tried, folder / name) for name in (SMALL, LARGE)}
        entries = list(pipelines[SMALL].entries.values())
        if not entries:
            raise UsageError(
                f"{path}: no stage reads anything that is there already; expected raw files or a dataset to draw a sample from."
            )
        try:
            _sample(entries, pipelines, _near(tried), options)
            with progress_of(
                "estimate-trials", 0, len(ORDER) * len(tried), options.progress is not False
            ) as shown:
                trials = run_trials(pipelines, lambda: shown.advance(0, 1))
        except KeyboardInterrupt:
            raise InterruptedStageError("estimate was stopped; nothing of it is left.") from None
    found = estimate_stages(tried, entries, trials)
    count = sum(len(entry.files) for entry in entries)
    doublings = [1 << power for power in range(_MAX_DOUBLINGS + 1) if power == 0 or 1 << power <= count]
    choices = [walls(found, number) for number in doublings]
    answer = Estimate(
        file=path,
        stages=found,
        walls=tuple(walls(found, number) for number in sorted({*options.workers})) or tuple(choices),
        request=fitting(choices, max(stage.memory for stage in found)),
        command=_command(path, variables),
        entry_files=count,
        entry_bytes=sum(entry.stored for entry in entries),
        seconds=time.monotonic() - begun,
        notes=notes_of(entries, found, left_out=len(active) - len(tried)),
    )
    keep(answer.kept())
    return answer


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


def _near(stages: Sequence[StagePlan]) -> MinHash | None:
    """Return how texts are compared, if the pipeline looks for near duplicates."""
    for stage in filter(is_near, stages):
        given = {name: stage.arguments[name] for name in ("ngram", "unit") if stage.arguments.get(name)}
        return MinHash(**given, num_perm=1)
    return None


def _sample(
    entries: Sequence[PipelineInput],
    pipelines: Mapping[str, Moved],
    near: MinHash | None,
    options: EstimateOptions,
) -> None:
    """Read the entries, draw the samples and write them."""
    total = min(sum(entry.stored for entry in entries), options.scan_bytes)
    with progress_of("estimate-reading", total, len(entries), options.progress is not False) as shown:
        scan(entries, near, options.seed, options.scan_bytes, lambda size: shown.advance(size, 0))
        draw(entries, options.sample_bytes)
        for entry in entries:
            for name, pipeline in pipelines.items():
                write_sample(entry, name, str(pipeline.folder / f"in/{entry.number}"))
            shown.advance(0, 1)


def _command(file: str, variables: Mapping[str, object]) -> str:
    """Return the real run as a line of a script, for workers on all processors of a job."""
    given = [f"{name}={value}" for name, value in variables.items()]
    return shlex.join(
        ["dolma-dask", "run", file, *(["--set", *given] if given else []), "--cluster", "allocation"]
    )
