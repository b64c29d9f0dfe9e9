"""From trials on samples to the whole pipeline.

Every stage reads its input a constant number of times, and exchanges, sorts by radix and union-find are linear too, so a quantity is
``fixed + rate x bytes``: the tiny sample tells what is fixed, the other two the rate, and how far they lie apart is the stated uncertainty. Bytes are
those of the records that a stage reads, or that were read for what it reads. Not so:

- Files: one or some for each file that is read, if the samples agree on a whole number; files of HDF5 follow from rows. Else by bytes.
- Memory: the most that a worker held on a sample does not grow, since files are streamed; union-find of near duplicates does (`NEAR_BYTES`).
- Wall time: each stage ends with its largest file or when all workers have done their share, whichever is later.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dolma_dask.config.estimate.sample import PARTS, Sample, Scan
from dolma_dask.config.estimate.trials import COLD, Trial
from dolma_dask.config.stages import StagePlan
from dolma_dask.io import files
from dolma_dask.io.stores import BLOCK_BYTES
from dolma_dask.placement import PROCESS_FACTOR, PROCESS_START, PROCESSES_START, choose

NEAR_BYTES = 6
"""Bytes of memory for each document that near duplicates take in one worker: labels and matches, see `dolma_dask.verbs.dedupe.needs`."""

CLIENT_BYTES = 3_000
"""Bytes of memory of the process that holds the plan, for each file and stage: a task and its record, 1 kB each as JSON."""

SPARE = 1.25
"""Memory that is asked for over what was seen."""

PART_BYTES = 16 << 20
"""Bytes of a part of an upload, see `dolma_dask.io.publish`."""

ROWS_PER_FILE = 50_000
"""Default of `hdf5`."""


@dataclass(frozen=True)
class StageEstimate:
    """What one stage is expected to take."""

    name: str
    verb: str
    cpu: float  # CPU-seconds
    spread: float  # of the CPU: the rates of two samples lie so far to either side of their mean, as a share
    fixed: float  # CPU-seconds of it that do not grow
    largest: float  # CPU-seconds of its largest file
    start: float  # CPU-seconds for a process to load what it needs
    memory: int  # bytes of a worker
    scratch: int  # bytes in work folders
    bytes: int  # stored bytes of what it writes
    files: int
    requests: int  # to object stores
    roots: tuple[str, ...] = ()  # where its journal lies

    def wall(self, workers: int) -> float:
        """Return seconds for so many workers."""
        grows = max(self.cpu - self.fixed, 0.0)
        factor = PROCESS_FACTOR if workers > 1 else 1.0
        return self.fixed + max(self.largest, factor * grows / workers) + self.start

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON-able values."""
        return {**vars(self), "roots": list(self.roots)}


@dataclass(frozen=True)
class Extent:
    """How much a stage reads in each sample and in all."""

    sampled: Mapping[str, float]  # bytes of records, by sample
    files_sampled: Mapping[str, int]
    bytes: float
    files: int
    records: float
    largest: float  # bytes of the records of the largest file
    stored: int
    sizes: Sequence[int] = field(default=(), repr=False)  # stored bytes of each file

    @classmethod
    def of(cls, scans: Sequence[Scan], samples: Mapping[int, Sequence[Sample]]) -> "Extent":
        """Return that of some entries."""
        mine = [samples[one.entry.number] for one in scans]
        return cls(
            {name: float(sum(each[at].bytes for each in mine)) for at, name in enumerate(PARTS)},
            {name: sum(each[at].files for each in mine) for at, name in enumerate(PARTS)},
            sum(one.bytes for one in scans),
            sum(len(one.entry.files) for one in scans),
            sum(one.records for one in scans),
            max((one.largest for one in scans), default=0.0),
            sum(one.entry.bytes for one in scans),
            [info.bytes for one in scans for info in one.entry.files],
        )


@dataclass(frozen=True)
class Line:
    """``fixed + rate x bytes``."""

    fixed: float
    rate: float
    spread: float

    @classmethod
    def through(cls, extent: Extent, values: Mapping[str, float]) -> "Line":
        """Return the line through a quantity on the three samples."""
        tiny, small, large = (extent.sampled[name] for name in PARTS)
        base, one, other = (values[name] for name in PARTS)
        step, wide = max(small - tiny, 1.0), max(large - tiny, 1.0)
        rate = max((one - base + other - base) / (step + wide), 0.0)
        rates = max((one - base) / step, 0.0), max((other - base) / wide, 0.0)
        spread = abs(rates[0] - rates[1]) / 2 / rate if rate else 0.0
        return cls(max(base - rate * tiny, 0.0), rate, spread)

    def at(self, size: float) -> float:
        """Return the quantity at so many bytes."""
        return self.fixed + self.rate * size


def estimate_stage(
    stage: StagePlan, extent: Extent, trials: Mapping[str, Mapping[str, Trial]]
) -> StageEstimate:
    """Return what a stage will take."""
    mine = {name: by_stage[stage.name] for name, by_stage in trials.items()}

    def line(quantity: str) -> Line:
        return Line.through(extent, {name: float(getattr(mine[name], quantity)) for name in PARTS})

    cpu, written = line("cpu"), round(line("bytes").at(extent.bytes))
    count = _files(stage, extent, mine)
    return StageEstimate(
        name=stage.name,
        verb=stage.verb,
        cpu=cpu.at(extent.bytes),
        spread=cpu.spread,
        fixed=cpu.fixed,
        largest=cpu.rate * extent.largest,
        start=max(mine[COLD].cpu - mine[PARTS[1]].cpu, 0.0),
        memory=_memory(stage, extent, mine),
        scratch=round(line("scratch").at(extent.bytes)),
        bytes=written,
        files=count,
        requests=_requests(stage, extent, written, count),
        roots=roots_of(stage),
    )


def roots_of(stage: StagePlan) -> tuple[str, ...]:
    """Return where a stage keeps its journal: below what it writes, else beside what it looks at; a page has none of its own."""
    if stage.entry.makes == "page":
        return ()
    return tuple(dict.fromkeys(stage.writes)) or tuple(stage.reads[:1])


def _memory(stage: StagePlan, extent: Extent, mine: Mapping[str, Trial]) -> int:
    grows = NEAR_BYTES * extent.records if is_near(stage) else 0
    return round(max(mine[name].peak for name in PARTS) + grows)


def is_near(stage: StagePlan) -> bool:
    """Tell whether a stage looks for near duplicates."""
    return stage.verb == "dedupe" and stage.arguments.get("how") == "fuzzy"


def _files(stage: StagePlan, extent: Extent, mine: Mapping[str, Trial]) -> int:
    """Return the number of files that a stage will write."""
    counts = {name: mine[name].files for name in PARTS}
    if stage.verb == "hdf5":
        rows = Line.through(extent, {name: mine[name].counts.get("rows", 0.0) for name in PARTS}).at(
            extent.bytes
        )
        most = int(stage.arguments.get("max_rows_per_file") or ROWS_PER_FILE)
        return 1 + max(1, math.ceil(rows / most)) if rows else counts[PARTS[-1]]
    tiny, large = extent.files_sampled[PARTS[0]], extent.files_sampled[PARTS[-1]]
    if large > tiny:
        rate = (counts[PARTS[-1]] - counts[PARTS[0]]) / (large - tiny)
        fixed = counts[PARTS[0]] - rate * tiny
        if rate == round(rate) and fixed >= 0:
            return round(fixed + rate * extent.files)
    elif len(set(counts.values())) == 1:
        return counts[PARTS[-1]]
    return round(Line.through(extent, counts).at(extent.bytes))


def _requests(stage: StagePlan, extent: Extent, written: int, count: int) -> int:
    """Return requests to stores, by formula: a listing for 1,000 names, a look and a get for each file and for each block of it; a put for each
    file that is written, and two and its parts for a large one.
    """
    reads = sum(math.ceil(size / BLOCK_BYTES) + 1 for size in extent.sizes)
    listing = math.ceil(len(extent.sizes) / 1000)
    parts = 2 + math.ceil(written / max(count, 1) / PART_BYTES)
    puts = count * (1 if written / max(count, 1) <= PART_BYTES else parts)
    is_read = any(not files.is_local(url) for url in stage.reads)
    is_written = any(not files.is_local(url) for url in roots_of(stage))
    return (reads + listing) * is_read + puts * is_written


@dataclass(frozen=True)
class Walls:
    """The whole pipeline on so many workers."""

    workers: int
    wall: float  # seconds
    cpu: float  # CPU-seconds, with the start of the processes


def walls(
    stages: Sequence[StageEstimate], extents: Mapping[str, Extent], start: float, workers: int
) -> Walls:
    """Return wall time and CPU on so many workers; small stages stay in one process, as `dolma_dask.placement` decides."""
    wall, cpu, has_processes = start, start, False
    for stage in stages:
        sizes = extents[stage.name].sizes
        places = choose(stage.verb, sizes, workers)
        many = 1 if places == "synchronous" else min(workers, len(sizes))
        has_processes |= places == "processes"
        grows = max(stage.cpu - stage.fixed, 0.0) * (PROCESS_FACTOR - 1 if many > 1 else 0)
        wall += stage.wall(many)
        cpu += stage.cpu + stage.start + grows
    if has_processes:
        wall, cpu = wall + PROCESSES_START, cpu + PROCESSES_START + PROCESS_START * workers
    return Walls(workers, wall, cpu)
