"""Trials: the stages of a pipeline on two samples of what it reads, and what these say of the whole: ``fixed + rate x bytes``.

Stages run one after another in a process of their own, so that its clock tells the cost of the work. Every stage reads its input a constant number of times, and exchanges, sorts by radix
and union-find are linear too. Bytes are those that a stage reads, or that were read for what it reads. A growth counts by how far it is above the noise, since the whole multiplies both
(`line`). Not so:

- Files: one or some for each file that is read, if the samples agree on a whole number; those of `convert` as it plans them, those of HDF5 by rows. Else by bytes.
- Memory: the most that a worker held on a sample does not grow, since files are streamed; union-find of near duplicates does (`NEAR_BYTES`).
- Wall time: each stage ends with its largest file or when all workers have done their share, whichever is later.
"""

import math
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.clusters import process_pool
from dolma_dask.engine.attempts import placed
from dolma_dask.errors import DolmaDaskError, TrialError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.metering import compiled_kernels, peak_bytes
from dolma_dask.pipelines.estimate.sample import LARGE, SMALL, WHOLE, PipelineInput
from dolma_dask.pipelines.rehearsal import Rehearsal
from dolma_dask.pipelines.stages import StagePlan, absolute
from dolma_dask.placement import PROCESS_FACTOR, PROCESS_START, PROCESSES_START, choose

ORDER = (SMALL, LARGE, SMALL, LARGE)
"""Samples that are tried; the first loads what is needed. Each twice, since what others do on the machine makes more CPU-seconds of the same work."""

NEAR_BYTES = 6
"""Bytes of memory for each document that near duplicates take in one worker: labels and matches, see `dolma_dask.verbs.dedupe.needs`."""

COMMAND_START = 0.25
"""CPU-seconds of `run` beside its stages: imports, which trials come too late for, and the check of the file. That of small pipelines less what is estimated for their stages, kernels being compiled."""

_ROWS_PER_FILE = 50_000
"""Default of `hdf5`."""

_SAMPLED = ("dataset", "others", "inputs", "against")
"""Options whose datasets and raw files are sampled; others (tables, artifacts, tokens) are read as they are."""

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


# ------------------------------------------------------------------------------------------------------------- trials


class Trial(Struct, frozen=True):
    """A stage on one sample."""

    cpu: float  # seconds
    peak: int  # bytes of resident memory
    # what it wrote, but for journals
    files: int
    bytes: int
    rows: float  # of HDF5
    compiled: int  # kernels, in its time
    scratch: int = 0  # most bytes in work folders


class StageTrials(NamedTuple):
    """A stage on both samples, each twice, in this order."""

    cold: Trial
    large: Trial
    small: Trial
    again: Trial

    def of(self, quantity: str) -> dict[str, float]:
        """Return a quantity by sample: the lesser of two of the large one."""
        large = min(getattr(self.large, quantity), getattr(self.again, quantity))
        return {SMALL: getattr(self.small, quantity), LARGE: large}


def run_trials(pipelines: Mapping[str, Moved], advance: Callable[[], None]) -> dict[str, StageTrials]:
    """Run the stages on the samples; once more in another process if kernels were compiled, which takes longer than they do.

    Raises `TrialError`: a stage failed on its sample.
    """
    found = _run(pipelines, advance)
    if any(trial.compiled for trials in found.values() for trial in trials):
        found = _run(pipelines, lambda: None)
    return found


def _run(pipelines: Mapping[str, Moved], advance: Callable[[], None]) -> dict[str, StageTrials]:
    found: dict[str, list[Trial]] = {}
    with process_pool(1) as pool:
        for name in ORDER:
            pipeline = pipelines[name]
            shutil.rmtree(pipeline.folder / "out", ignore_errors=True)
            for stage in pipeline.stages:
                trial = pool.submit(_try, replace(stage, at=None, nodes={}), pipeline.folder)
                found.setdefault(stage.name, []).append(_result(trial, stage, pipeline))
                advance()
    return {name: StageTrials(*trials) for name, trials in found.items()}


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
    """Run a stage and return what it took and wrote; raises `TrialError`: it failed."""
    before, compiled = set(_walk(folder)), compiled_kernels()
    with suppress(OSError):  # lets the peak of memory begin anew, where the system can
        Path("/proc/self/clear_refs").write_text("5")
    cpu = time.process_time()
    try:
        # a dataset that was sampled may have attributes that this stage makes
        with placed(stage.verb, "the sample"):
            summary = stage.call(scheduler="synchronous", progress=False, overwrite=True)
        error = (
            f"it found problems:\n{summary}"
            if summary.exit_status and not getattr(summary, "lost", False)
            else ""
        )
    except Exception as failed:  # noqa: BLE001  # a stage that nobody foresaw to fail so is no fault of the memory
        error = "; ".join([f"{type(failed).__name__}: {failed}", *getattr(failed, "__notes__", ())])
    if error:
        raise TrialError(f"stage {stage.name!r} failed on the sample, as it would in the real run: {error}")
    cpu = time.process_time() - cpu
    made = {*_walk(folder)} - before
    sizes = [size for path, size, _ in made if not any(f"/{part}" in path for part in layout.OF_RUNS)]
    rows = getattr(summary, "counts", {}).get("rows", 0.0)
    return Trial(cpu, peak_bytes(), len(sizes), sum(sizes), rows, compiled_kernels() - compiled)


def _walk(folder: Path) -> Iterator[tuple[str, int, int]]:
    """Yield path, size and time of all files below a folder."""
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                status = (path := Path(place, name)).stat()
                yield str(path), status.st_size, status.st_mtime_ns


# ---------------------------------------------------------------------------------------------------------- the whole


@dataclass(frozen=True)
class StageEstimate:
    """Expected cost of one stage."""

    name: str
    verb: str
    cpu: float  # CPU-seconds
    spread: float  # of the CPU: what the noise of the trials can make of the whole, as a share
    fixed: float  # CPU-seconds of it that do not grow
    largest: float  # CPU-seconds of its largest file
    start: float  # CPU-seconds for a process to load what it needs
    memory: int  # bytes of a worker
    scratch: int  # bytes in work folders
    bytes: int  # stored bytes of what it writes
    files: int
    roots: tuple[str, ...]  # where its journal lies
    inputs: Sequence[FileInfo]  # of the pipeline, that it reads or what it reads is made of

    @property
    def growing(self) -> float:
        """CPU-seconds that grow with what it reads."""
        return max(self.cpu - self.fixed, 0.0)

    def wall(self, workers: int) -> float:
        """Return seconds for so many workers."""
        factor = PROCESS_FACTOR if workers > 1 else 1.0
        return self.fixed + max(self.largest, factor * self.growing / workers) + self.start

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON-able values."""
        values = {name: value for name, value in vars(self).items() if name != "inputs"}
        return {**values, "roots": list(self.roots)}


class LinearCost(NamedTuple):
    """``fixed + rate x bytes``."""

    fixed: float
    rate: float
    whole: float  # for all that there is
    spread: float  # what the noise can make of it, as a share


def line(read: Mapping[str, float], values: Mapping[str, float], noise: float = 0.0) -> LinearCost:
    """Return the line through a quantity on the two samples, of which so many bytes were read."""
    step = max(read[LARGE] - read[SMALL], 1.0)
    growth = values[LARGE] - values[SMALL]
    # what to believe of it: all that is far above the noise, half of what is 1.4 times as large, nothing below
    rate = growth * (1 - (noise / growth) ** 2) / step if growth > noise else 0.0
    fixed = max(values[LARGE] - rate * read[LARGE], 0.0)
    whole = fixed + rate * read[WHOLE]
    doubt = noise * max(read[WHOLE] / step, 1.0)
    return LinearCost(fixed, rate, whole, min(doubt / whole, 1.0) if whole else 0.0)


def estimate_stages(
    stages: Sequence[StagePlan], entries: Sequence[PipelineInput], trials: Mapping[str, StageTrials]
) -> tuple[StageEstimate, ...]:
    """Return what each stage will take."""
    reached: dict[str, set[int]] = {}
    found = []
    for at, stage in enumerate(stages):
        own = [entry for entry in entries if stage.name in entry.stages]
        before = [reached[other.name] for other in stages[:at] if stage.needs(other)]
        reached[stage.name] = {entry.number for entry in own}.union(*before)
        inputs = [entry for entry in entries if entry.number in reached[stage.name]]
        tried = trials[stage.name]
        made = _count_files(stage, inputs, tried)
        if stage.verb == "convert" and own and not stage.arguments.get("attributes"):
            made = _count_shards(stage, own)
            # stages after it read these, which count as files of the first of its entries
            shards = {SMALL: tried.small.files, LARGE: tried.large.files, WHOLE: made}
            for entry in own:
                entry.counts = shards if entry is own[0] else dict.fromkeys(shards, 0)
        found.append(_estimate_stage(stage, inputs, tried, made))
    return tuple(found)


def _bytes_of(inputs: Sequence[PipelineInput]) -> dict[str, float]:
    """Return the bytes of records, of the samples and of all."""
    sampled = {name: float(sum(entry.sampled(name) for entry in inputs)) for name in (SMALL, LARGE)}
    return {**sampled, WHOLE: sum(entry.bytes for entry in inputs)}


def _count_shards(stage: StagePlan, inputs: Sequence[PipelineInput]) -> int:
    """Return the number of document files that a `convert` will make: its own plan says it, a function of the listing alone."""
    try:
        planned = stage.call(dry_run=True, progress=False)
    except (DolmaDaskError, OSError):  # what is in its way is said by the run
        return sum(len(entry.files) for entry in inputs)
    count = len(planned.planned) + planned.skipped
    size = stage.arguments.get("shard_bytes")
    if size and not stage.arguments.get("combine"):  # large files are cut while they are read
        count = max(count, math.ceil(sum(entry.bytes for entry in inputs) / size))
    return int(count)


def _count_files(stage: StagePlan, inputs: Sequence[PipelineInput], tried: StageTrials) -> int:
    """Return the number of files that a stage will write: one or some for each that it reads, if the samples agree on a whole number."""
    read = {name: sum(entry.counts[name] for entry in inputs) for name in (SMALL, LARGE, WHOLE)}
    if stage.verb == "hdf5":
        rows = line(_bytes_of(inputs), tried.of("rows")).whole
        return 1 + max(1, math.ceil(rows / int(stage.arguments.get("max_rows_per_file") or _ROWS_PER_FILE)))
    more, further = tried.large.files - tried.small.files, read[LARGE] - read[SMALL]
    if not more or (further and more % further == 0):
        return tried.large.files + (more // further if further else 0) * (read[WHOLE] - read[LARGE])
    return round(line(_bytes_of(inputs), tried.of("files")).whole)


def _estimate_stage(
    stage: StagePlan, inputs: Sequence[PipelineInput], tried: StageTrials, made: int
) -> StageEstimate:
    read = _bytes_of(inputs)
    cpu = line(read, tried.of("cpu"), abs(tried.large.cpu - tried.again.cpu))
    infos = [info for entry in inputs for info in entry.files]
    largest = max((info.bytes for info in infos), default=0) / max(sum(info.bytes for info in infos), 1)
    near = round(NEAR_BYTES * sum(entry.records for entry in inputs)) if is_near(stage) else 0
    is_page = stage.entry.makes == "page"  # it shows a sample of bounded size
    return StageEstimate(
        name=stage.name,
        verb=stage.verb,
        cpu=cpu.whole,
        spread=cpu.spread,
        fixed=cpu.fixed,
        largest=cpu.rate * read[WHOLE] * largest,
        start=max(tried.cold.cpu - tried.small.cpu, 0.0),
        memory=max(one.peak for one in tried) + near,
        scratch=round(line(read, tried.of("scratch")).whole),
        bytes=tried.large.bytes if is_page else round(line(read, tried.of("bytes")).whole),
        files=made,
        # a journal lies below what is written, else beside what is looked at; a page has none of its own
        roots=() if is_page else tuple(dict.fromkeys(stage.writes)) or tuple(stage.reads[:1]),
        inputs=infos,
    )


def is_near(stage: StagePlan) -> bool:
    """Tell whether a stage looks for near duplicates."""
    return stage.verb == "dedupe" and stage.arguments.get("how") == "fuzzy"


@dataclass(frozen=True)
class Walls:
    """The whole pipeline on so many workers."""

    workers: int
    wall: float  # seconds
    cpu: float  # CPU-seconds, with the start of the processes


def walls(stages: Sequence[StageEstimate], workers: int) -> Walls:
    """Return wall time and CPU on so many workers; small stages stay in one process, as `dolma_dask.placement` decides."""
    wall, cpu, has_processes = COMMAND_START, COMMAND_START, False
    for stage in stages:
        sizes = [info.bytes for info in stage.inputs]
        place = choose(stage.verb, sizes, workers)
        many = 1 if place == "synchronous" else min(workers, len(sizes))
        has_processes |= place == "processes"
        wall += stage.wall(many)
        cpu += stage.cpu + stage.start + stage.growing * (PROCESS_FACTOR - 1 if many > 1 else 0)
    if has_processes:
        wall, cpu = wall + PROCESSES_START, cpu + PROCESSES_START + PROCESS_START * workers
    return Walls(workers, wall, cpu)
