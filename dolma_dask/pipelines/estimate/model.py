"""From trials on two samples to the whole pipeline: ``fixed + rate x bytes``.

Every stage reads its input a constant number of times, and exchanges, sorts by radix and union-find are linear too. Bytes are those that a stage reads, or that were read for what it
reads; files of the samples are as large as the real ones, so that the rate has what a file costs. A growth counts by how far it is above the noise, since the whole multiplies both
(`_above`). Not so:

- Files: one or some for each file that is read, if the samples agree on a whole number; those of `convert` as it plans them, those of HDF5 by rows. Else by bytes.
- Memory: the most that a worker held on a sample does not grow, since files are streamed; union-find of near duplicates does (`NEAR_BYTES`).
- Requests: a table that was measured, since trials run on a local disk.
- Wall time: each stage ends with its largest file or when all workers have done their share, whichever is later.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dolma_dask.errors import DolmaDaskError
from dolma_dask.io import files
from dolma_dask.io.stores import BLOCK_BYTES
from dolma_dask.pipelines.estimate.sample import LARGE, SMALL, PipelineInput
from dolma_dask.pipelines.estimate.trial import Trial, Trials
from dolma_dask.pipelines.stages import StagePlan
from dolma_dask.placement import PROCESS_FACTOR, PROCESS_START, PROCESSES_START, choose

WHOLE = "whole"
"""Beside the names of samples: all that the pipeline reads."""

NEAR_BYTES = 6
"""Bytes of memory for each document that near duplicates take in one worker: labels and matches, see `dolma_dask.verbs.dedupe.needs`."""

COMMAND_START = 1.2
"""CPU-seconds of `run` until its first stage: imports, with that of numba, and the check of the file."""

ROWS_PER_FILE = 50_000
"""Default of `hdf5`."""

PART_BYTES = 16 << 20
"""Bytes of a part of an upload, see `dolma_dask.io.publish`."""

REQUESTS = {
    "convert": (33, 6),
    "validate": (127, 8),
    "tag": (47, 6),
    "quantiles": (195, 8),
    "filter": (130, 7),
    "dedupe": (169, 12),
    "near": (340, 42),
    "mix": (85, 15),
    "ragged": (43, 10),
    "hdf5": (140, 7),
    "report": (410, 20),
}
"""Requests of a verb to a store, and more for each file of one block that it reads; `near` is `dedupe` of near duplicates. Measured on an S3 server with 10 and with 20 files:
``benchmarks/bench_estimate_requests.py``."""

OTHER_REQUESTS = (100, 10)
"""Taken for every other verb."""


@dataclass(frozen=True)
class StageExtent:
    """Amount that a stage reads in each sample and in all."""

    bytes: Mapping[str, float]  # of records
    files: Mapping[str, int]
    records: float = 0.0
    largest: float = 0.0  # bytes of the records of the largest file
    largest_name: str = ""
    sizes: Sequence[int] = field(default=(), repr=False)  # stored bytes of each file


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
    requests: int  # to object stores
    roots: tuple[str, ...]  # where its journal lies
    extent: StageExtent

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
        values = {name: value for name, value in vars(self).items() if name != "extent"}
        return {**values, "roots": list(self.roots)}


class LinearCost(NamedTuple):
    """``fixed + rate x bytes``."""

    fixed: float
    rate: float
    whole: float  # for all that there is
    spread: float  # what the noise can make of it, as a share


def line(extent: StageExtent, values: Mapping[str, float], noise: float = 0.0) -> LinearCost:
    """Return the line through a quantity on the two samples."""
    step = max(extent.bytes[LARGE] - extent.bytes[SMALL], 1.0)
    growth = values[LARGE] - values[SMALL]
    # what to believe of it: all that is far above the noise, half of what is 1.4 times as large, nothing below
    rate = growth * (1 - (noise / growth) ** 2) / step if growth > noise else 0.0
    fixed = max(values[LARGE] - rate * extent.bytes[LARGE], 0.0)
    whole = fixed + rate * extent.bytes[WHOLE]
    doubt = noise * max(extent.bytes[WHOLE] / step, 1.0)
    return LinearCost(fixed, rate, whole, min(doubt / whole, 1.0) if whole else 0.0)


def estimate_stages(
    stages: Sequence[StagePlan], entries: Sequence[PipelineInput], trials: Trials
) -> tuple[StageEstimate, ...]:
    """Return what each stage will take."""
    counts = {entry.number: {**entry.counts, WHOLE: len(entry.files)} for entry in entries}
    reached: dict[str, set[int]] = {}
    found = []
    for at, stage in enumerate(stages):
        own = [entry for entry in entries if stage.name in entry.stages]
        before = [reached[other.name] for other in stages[:at] if stage.needs(other)]
        reached[stage.name] = {entry.number for entry in own}.union(*before)
        mine = [entry for entry in entries if entry.number in reached[stage.name]]
        tried = {name: by_stage[stage.name] for name, by_stage in trials.items()}
        extent, planned = _extent(mine, counts), None
        if stage.verb == "convert" and own and not stage.arguments.get("attributes"):
            planned = _count_shards(
                stage, own
            )  # for all that come after it; counted for the first of its entries
            counts |= {entry.number: {SMALL: 0, LARGE: 0, WHOLE: 0} for entry in own}
            counts[own[0].number] = {SMALL: tried[SMALL].files, LARGE: tried[LARGE].files, WHOLE: planned}
        found.append(_estimate_stage(stage, extent, tried, planned))
    return tuple(found)


def _extent(entries: Sequence[PipelineInput], counts: Mapping[int, Mapping[str, int]]) -> StageExtent:
    """Return how much is read of some entries, with so many files of each."""
    infos = [info for entry in entries for info in entry.files]
    sampled = {name: float(sum(entry.sampled(name) for entry in entries)) for name in (SMALL, LARGE)}
    return StageExtent(
        {**sampled, WHOLE: sum(entry.bytes for entry in entries)},
        {name: sum(counts[entry.number][name] for entry in entries) for name in (SMALL, LARGE, WHOLE)},
        sum(entry.records for entry in entries),
        max((entry.largest for entry in entries), default=0.0),
        max(((info.bytes, info.path) for info in infos), default=(0, ""))[1],
        [info.bytes for info in infos],
    )


def _count_shards(stage: StagePlan, entries: Sequence[PipelineInput]) -> int:
    """Return the number of document files that a `convert` will make: its own plan says it, a function of the listing alone."""
    try:
        planned = stage.call(dry_run=True, progress=False)
    except (DolmaDaskError, OSError):  # what is in its way is said by the run
        return sum(len(entry.files) for entry in entries)
    count = len(planned.planned) + planned.skipped
    size = stage.arguments.get("shard_bytes")
    if size and not stage.arguments.get("combine"):  # large files are cut while they are read
        count = max(count, math.ceil(sum(entry.bytes for entry in entries) / size))
    return int(count)


def _estimate_stage(
    stage: StagePlan, extent: StageExtent, mine: Mapping[str, Trial], planned: int | None
) -> StageEstimate:
    def through(quantity: str, noise: float = 0.0) -> LinearCost:
        return line(extent, {name: getattr(mine[name], quantity) for name in mine}, noise)

    is_page = stage.entry.makes == "page"  # it shows a sample of bounded size
    cpu = through("cpu", mine[LARGE].noise)
    written = mine[LARGE].bytes if is_page else round(through("bytes").whole)
    count = _count_files(stage, extent, mine) if planned is None else planned
    # a journal lies below what is written, else beside what is looked at; a page has none of its own
    roots = () if is_page else tuple(dict.fromkeys(stage.writes)) or tuple(stage.reads[:1])
    near = round(NEAR_BYTES * extent.records) if is_near(stage) else 0
    return StageEstimate(
        name=stage.name,
        verb=stage.verb,
        cpu=cpu.whole,
        spread=cpu.spread,
        fixed=cpu.fixed,
        largest=cpu.rate * extent.largest,
        start=mine[SMALL].start,
        memory=max(trial.peak for trial in mine.values()) + near,
        scratch=round(through("scratch").whole),
        bytes=written,
        files=count,
        requests=_count_requests(stage, extent.sizes, count, written, roots),
        roots=roots,
        extent=extent,
    )


def is_near(stage: StagePlan) -> bool:
    """Tell whether a stage looks for near duplicates."""
    return stage.verb == "dedupe" and stage.arguments.get("how") == "fuzzy"


def _count_files(stage: StagePlan, extent: StageExtent, mine: Mapping[str, Trial]) -> int:
    if stage.verb == "hdf5":
        rows = line(extent, {name: mine[name].counts.get("rows", 0.0) for name in mine}).whole
        return 1 + max(1, math.ceil(rows / int(stage.arguments.get("max_rows_per_file") or ROWS_PER_FILE)))
    more, further = mine[LARGE].files - mine[SMALL].files, extent.files[LARGE] - extent.files[SMALL]
    if not more or (further and more % further == 0):
        rate = more // further if further else 0
        return mine[LARGE].files + rate * (extent.files[WHOLE] - extent.files[LARGE])
    return round(line(extent, {name: mine[name].files for name in mine}).whole)


def _count_requests(
    stage: StagePlan, sizes: Sequence[int], files_written: int, bytes_written: int, roots: Sequence[str]
) -> int:
    """Return the requests of a stage; 0 if it reads and writes on a local disk."""
    if all(map(files.is_local, [*stage.reads, *roots])):
        return 0
    fixed, per_file = REQUESTS.get("near" if is_near(stage) else stage.verb, OTHER_REQUESTS)
    blocks = sum(math.ceil(size / BLOCK_BYTES) - 1 for size in sizes if size)
    more = 2 * max(files_written - len(sizes), 0) if stage.verb == "tag" else 0  # files of further taggers
    size = bytes_written / max(files_written, 1)
    parts = files_written * (1 + math.ceil(size / PART_BYTES)) if size > PART_BYTES else 0
    return round(fixed + per_file * len(sizes) + blocks + more + parts)


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
        sizes = stage.extent.sizes
        place = choose(stage.verb, sizes, workers)
        many = 1 if place == "synchronous" else min(workers, len(sizes))
        has_processes |= place == "processes"
        wall += stage.wall(many)
        cpu += stage.cpu + stage.start + stage.growing * (PROCESS_FACTOR - 1 if many > 1 else 0)
    if has_processes:
        wall, cpu = wall + PROCESSES_START, cpu + PROCESSES_START + PROCESS_START * workers
    return Walls(workers, wall, cpu)
