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
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from dolma_dask import clusters
from dolma_dask.clusters.workers import stopped_by_sigterm
from dolma_dask.errors import InterruptedStageError, UsageError
from dolma_dask.io.publish import is_running, writer_space
from dolma_dask.minhash.schemes import MinHash
from dolma_dask.options.shared import Many, words_of
from dolma_dask.pipelines.estimate.answer import Estimate, fitting, notes_of
from dolma_dask.pipelines.estimate.model import estimate_stages, is_near, walls
from dolma_dask.pipelines.estimate.sample import LARGE, SMALL, Entry, draw, scan_entries, write_sample
from dolma_dask.pipelines.estimate.trial import ORDER, Moved, run_trials
from dolma_dask.pipelines.pipeline_file import check_stages, read_pipeline, variables_of
from dolma_dask.pipelines.stages import StagePlan, selected
from dolma_dask.progress import one_display, progress_of
from dolma_dask.questions.status.estimated import keep

SAMPLE_BYTES = 20_000_000
"""Bytes of records of the large sample: 10 to 30 seconds of a pipeline that makes tokens."""

SCAN_BYTES = 1_000_000_000
"""Stored bytes that are read to find copies: 10 to 30 CPU-seconds."""

CLIENT_BYTES = 3_000
"""Bytes of memory of the process that holds the plan, for each file and stage: a task and its record, 1 kB each as JSON."""

_FOLDER = "dolma-dask-estimate-"

_MAX_DOUBLINGS = 8
"""Of the workers that are looked at: 256."""


def estimate(
    path: str,
    /,
    *,
    variables: Annotated[
        Mapping[str, object] | Sequence[str],
        Parameter(name="--set", consume_multiple=True, negative="", show_default=False),
    ] = (),
    only: Annotated[Sequence[str], Many] = (),
    workers: Annotated[Sequence[int], Parameter(consume_multiple=True, negative="", show_default=False)] = (),
    sample_bytes: int = SAMPLE_BYTES,
    scan_bytes: int = SCAN_BYTES,
    seed: int = 0,
    scratch: str | None = None,
    progress: bool | None = None,
) -> Estimate:
    """Tell what a pipeline will cost: CPU-hours, wall time, memory, disk, files and a request to SLURM, from a small sample.

    Example: dolma-dask estimate configs/wiki.yaml --set raw=dumps/wiki tokenizer=t5.json --workers 8 64

    Parameters
    ----------
    path : str
        The file of the pipeline, as `run` takes it.
    variables : list of NAME=VALUE, optional
        Values for ${NAME} in the file. In Python a map.
    only : list of str, optional
        Only these stages, by name or by verb.
    workers : list of int, optional
        Numbers of workers to tell the wall time for; by default 1, 2, 4 and so on.
    sample_bytes : int, optional
        Bytes of records to try the stages on.
    scan_bytes : int, optional
        Stored bytes to read at most, to learn how many documents are copies of others.
    seed : int, optional
        Decides which records are drawn.
    scratch : str, optional
        Folder for the sample and what is made of it, removed at the end; by default that of temporary files.
    progress : bool, optional
        Show a progress bar.

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
    stages = read_pipeline(file := str(path), variables_of(variables))
    active = selected(stages, words_of("only", only), None, file)
    check_stages(file, active, stages)
    _check_numbers(workers, sample_bytes, scan_bytes)
    tried = [stage for stage in active if stage.verb != "download"]
    with stopped_by_sigterm(), one_display("estimate"), _temporary(scratch) as folder:
        pipelines = {name: Moved(tried, folder / name) for name in (SMALL, LARGE)}
        entries = list(pipelines[SMALL].entries.values())
        _check_there(entries, file)
        try:
            _sample(entries, pipelines, _near(tried), (seed, sample_bytes, scan_bytes), progress)
            with progress_of("estimate-trials", 0, len(ORDER) * len(tried), progress is not False) as shown:
                trials = run_trials(pipelines, lambda: shown.advance(0, 1))
        except KeyboardInterrupt:
            raise InterruptedStageError("estimate was stopped; nothing of it is left.") from None
    found = estimate_stages(tried, entries, trials)
    count = sum(len(entry.files) for entry in entries)
    doublings = [1 << power for power in range(_MAX_DOUBLINGS + 1) if power == 0 or 1 << power <= count]
    choices = [walls(found, number) for number in doublings]
    answer = Estimate(
        file=file,
        stages=found,
        here=walls(found, clusters.cpu_count()),
        walls=tuple(walls(found, number) for number in sorted({*workers})) or tuple(choices),
        request=fitting(choices, max(stage.memory for stage in found)),
        command=_command(file, variables_of(variables)),
        client_memory=CLIENT_BYTES * count * len(found),
        entry_files=count,
        entry_bytes=sum(entry.stored for entry in entries),
        seconds=time.monotonic() - begun,
        notes=notes_of(entries, found, left_out=len(active) - len(tried)),
    )
    keep(answer.kept())
    return answer


def _check_numbers(workers: Sequence[int], sample_bytes: int, scan_bytes: int) -> None:
    for name, value in (("sample_bytes", sample_bytes), ("scan_bytes", scan_bytes)):
        if value < 1:
            raise UsageError(f"{name}={value}; expected a number of bytes from 1 on, such as {SAMPLE_BYTES}.")
    if wrong := [one for one in workers if one < 1]:
        raise UsageError(f"workers={wrong[0]}; expected numbers of processes from 1 on.")


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


def _check_there(entries: Sequence[Entry], file: str) -> None:
    """Refuse a pipeline with nothing to sample.

    Raises `UsageError`: it reads nothing from outside, or something holds no files.
    """
    if not entries:
        raise UsageError(
            f"{file}: no stage reads anything that is there already; expected raw files or a dataset to draw a sample from."
        )
    for entry in entries:
        if not entry.stored:
            raise UsageError(f"{entry.url} holds no bytes; expected documents to draw a sample from.")


def _near(stages: Sequence[StagePlan]) -> MinHash | None:
    """Return how texts are compared, if the pipeline looks for near duplicates."""
    for stage in filter(is_near, stages):
        given = {name: stage.arguments[name] for name in ("ngram", "unit") if stage.arguments.get(name)}
        return MinHash(**given, num_perm=1)
    return None


def _sample(
    entries: Sequence[Entry],
    pipelines: Mapping[str, Moved],
    near: MinHash | None,
    numbers: tuple[int, int, int],
    progress: bool | None,
) -> None:
    """Read the entries, draw the samples and write them."""
    seed, sample_bytes, scan_bytes = numbers
    total = min(sum(entry.stored for entry in entries), scan_bytes)
    with progress_of("estimate-reading", total, len(entries), progress is not False) as shown:
        scan_entries(entries, near, seed, scan_bytes, lambda size: shown.advance(size, 0))
        draw(entries, sample_bytes, seed)
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
