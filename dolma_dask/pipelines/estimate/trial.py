"""Trials: the stages of a pipeline on samples of what it reads, one after another in a process of their own, so that its clock tells the cost of the work."""

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dolma_dask.clusters import process_pool
from dolma_dask.errors import DolmaDaskError, TrialError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.metering import compiled_kernels, peak_bytes
from dolma_dask.pipelines.estimate.sample import LARGE, SMALL, PipelineInput
from dolma_dask.pipelines.rehearsal import Rehearsal
from dolma_dask.pipelines.stages import StagePlan, absolute

_SAMPLED = ("dataset", "others", "inputs", "against")
"""Options whose datasets and raw files are sampled; others (tables, artifacts, tokens) are read as they are."""

ORDER = (SMALL, LARGE, SMALL, LARGE)
"""Samples that are tried; the first loads what is needed. Each twice, since what others do on the machine makes more CPU-seconds of the same work."""

_LOOK_SECONDS = 0.05
"""Seconds between two looks at the scratch of a stage."""


class Moved(Rehearsal):
    """A pipeline that reads ``<folder>/in/<number>`` in place of each entry, and writes below ``<folder>/out``."""

    def __init__(self, stages: Sequence[StagePlan], folder: Path) -> None:
        self.folder = folder
        self.entries: dict[str, PipelineInput] = {}
        super().__init__(stages, 1)

    def _stage(self, stage: StagePlan) -> StagePlan:
        self._now = stage.name
        return super()._stage(stage)

    def place(self, url: str) -> str:
        """Return a folder or file below ``out``, named as the real one; the same for all stages that write there."""
        name = re.sub(r"[^\w.-]+", "_", url.rstrip("/").rpartition("/")[2]) or "out"
        return self.moved.get(absolute(url)) or f"{self.folder}/out/{len(self.moved):03d}/{name}"

    def outside(self, url: str, name: str, values: dict[str, Any]) -> str:
        """Return the sample of an entry."""
        if name not in _SAMPLED:
            return url
        is_dataset = name != "inputs" or bool(values.get("attributes"))
        here = absolute(url) if is_dataset else files.normalize(url)
        mapping = str(values.get("mapping", "dolma"))
        new = PipelineInput(here if is_dataset else url, len(self.entries), is_dataset, mapping)
        entry = self.entries.setdefault(here, new)
        entry.stages.append(self._now)
        return f"{self.folder}/in/{entry.number}"

    def in_real_words(self, message: str) -> str:
        """Return a message with the real places, since those of the sample are gone when a person reads it."""
        for entry in self.entries.values():
            message = message.replace(f"{self.folder}/in/{entry.number}", f"{entry.url} (rows of the sample)")
        for real, moved in self.moved.items():
            message = message.replace(moved, real)
        return message


@dataclass(frozen=True)
class Trial:
    """A stage on one sample."""

    cpu: float  # seconds
    peak: int  # bytes of resident memory
    # what it wrote, but for journals
    files: int
    bytes: int
    counts: Mapping[str, float]
    compiled: int  # kernels, in its time
    scratch: int = 0  # most bytes in work folders
    # of several trials
    start: float = 0.0  # CPU-seconds that the first took more
    noise: float = 0.0  # CPU-seconds that another took more


Trials = Mapping[str, Mapping[str, Trial]]
"""By sample and stage."""


def run_trials(pipelines: Mapping[str, Moved], advance: Callable[[], None]) -> Trials:
    """Run the stages on the samples; once more in another process if kernels were compiled, which takes longer than they do.

    Raises `TrialError`: a stage failed on its sample.
    """
    found = _run(pipelines, advance)
    if any(trial.compiled for trials in found for trial in trials.values()):
        found = _run(pipelines, lambda: None)
    cold, large, warm, again = found
    small = {name: replace(one, start=max(cold[name].cpu - one.cpu, 0.0)) for name, one in warm.items()}
    return {SMALL: small, LARGE: {name: _less(one, again[name]) for name, one in large.items()}}


def _less(one: Trial, other: Trial) -> Trial:
    return replace(min(one, other, key=lambda trial: trial.cpu), noise=abs(one.cpu - other.cpu))


def _run(pipelines: Mapping[str, Moved], advance: Callable[[], None]) -> list[dict[str, Trial]]:
    found: list[dict[str, Trial]] = []
    with process_pool(1) as pool:
        for name in ORDER:
            pipeline = pipelines[name]
            shutil.rmtree(pipeline.folder / "out", ignore_errors=True)
            found.append({})
            for stage in pipeline.stages:
                plain = replace(stage, at=None, nodes={})
                found[-1][stage.name] = _result(pool.submit(_try, plain, pipeline.folder), stage, pipeline)
                advance()
    return found


def _result(trial: "Future[Trial]", stage: StagePlan, pipeline: Moved) -> Trial:
    """Return the trial of a stage when it has ended, with the most bytes that were in work folders until then."""
    scratch = 0
    while wait([trial], _LOOK_SECONDS).not_done:
        now = sum(size for path, size, _ in _walk(pipeline.folder / "out") if f"/{layout.WORK}/" in path)
        scratch = max(scratch, now)
    try:
        return replace(trial.result(), scratch=scratch)
    except TrialError as failed:
        raise TrialError(pipeline.in_real_words(str(failed))) from None
    except BrokenProcessPool:
        raise TrialError(
            f"the process of the trials ended in stage {stage.name!r}; expected it to live. Is there enough memory?"
        ) from None


def _try(stage: StagePlan, folder: Path) -> Trial:
    """Run a stage and return what it took and wrote.

    Raises `TrialError`: it failed.
    """
    before, compiled = _listing(folder), compiled_kernels()
    with suppress(OSError):  # lets the peak of memory begin anew, where the system can
        Path("/proc/self/clear_refs").write_text("5")
    cpu = time.process_time()
    summary = _call(stage)
    cpu = time.process_time() - cpu
    after = _listing(folder)
    written = [size for path, (size, stamp) in after.items() if before.get(path) != (size, stamp)]
    return Trial(
        cpu=cpu,
        peak=peak_bytes(),
        files=len(written),
        bytes=sum(written),
        counts={**getattr(summary, "counts", {})},
        compiled=compiled_kernels() - compiled,
    )


def _call(stage: StagePlan) -> Any:
    try:
        # a dataset that was sampled may have attributes that this stage makes
        summary = stage.call(scheduler="synchronous", progress=False, overwrite=True)
    except (DolmaDaskError, OSError) as failed:
        raise _failure(stage, f"{type(failed).__name__}: {failed}") from None
    if summary.exit_status and not getattr(summary, "lost", False):
        raise _failure(stage, f"it found problems:\n{summary}")
    return summary


def _failure(stage: StagePlan, error: str) -> TrialError:
    return TrialError(f"stage {stage.name!r} failed on the sample, as it would in the real run: {error}")


def _listing(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of all files below a folder but those of runs."""
    return {
        path: (size, stamp)
        for path, size, stamp in _walk(folder)
        if not any(f"/{part}" in path for part in layout.OF_RUNS)
    }


def _walk(folder: Path) -> Iterator[tuple[str, int, int]]:
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                status = (path := Path(place, name)).stat()
                yield str(path), status.st_size, status.st_mtime_ns
