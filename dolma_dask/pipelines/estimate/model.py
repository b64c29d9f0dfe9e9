"""From trials on samples to the whole pipeline.

Every stage reads its input a constant number of times, and exchanges, sorts by radix and union-find are linear too, so a quantity is
``fixed + per_file x files + rate x bytes``: a tiny sample in two files and in many tells the first two, a large one the rate. Every sample is tried twice; the least
CPU counts, and how far the two lie apart is the noise. A growth counts by how far it is above the noise, since the whole multiplies both (`_above`).
Bytes and files are those that a stage reads, or that were read for what it reads. Not so:

- Files: one or some for each file that is read, if the samples agree on a whole number; files of HDF5 follow from rows. Else by bytes.
- Memory: the most that a worker held on a sample does not grow, since files are streamed; union-find of near duplicates does (`NEAR_BYTES`).
- Wall time: each stage ends with its largest file or when all workers have done their share, whichever is later.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dolma_dask.pipelines.estimate.requests import count_requests
from dolma_dask.pipelines.estimate.sample import PARTS, Sample, Scan
from dolma_dask.pipelines.estimate.shards import Made
from dolma_dask.pipelines.estimate.trials import COLD, Trial
from dolma_dask.pipelines.stages import StagePlan
from dolma_dask.placement import PROCESS_FACTOR, PROCESS_START, PROCESSES_START, choose

NEAR_BYTES = 6
"""Bytes of memory for each document that near duplicates take in one worker: labels and matches, see `dolma_dask.verbs.dedupe.needs`."""

CLIENT_BYTES = 3_000
"""Bytes of memory of the process that holds the plan, for each file and stage: a task and its record, 1 kB each as JSON."""

COMMAND_START = 1.0
"""CPU-seconds of `run` until its first stage: imports, and the check of the file."""

SPARE = 1.25
"""Memory that is asked for over what was seen."""

ROWS_PER_FILE = 50_000
"""Default of `hdf5`."""


@dataclass(frozen=True)
class StageEstimate:
    """What one stage is expected to take."""

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
    largest_name: str
    sizes: Sequence[int] = field(default=(), repr=False)  # stored bytes of each file

    @classmethod
    def of(
        cls, scans: Sequence[Scan], samples: Mapping[int, Sequence[Sample]], made: Mapping[int, Made]
    ) -> "Extent":
        """Return that of some entries, as they are or with the files that are `made` of them."""
        mine = [samples[one.entry.number] for one in scans]
        given = [
            Made({name: samples[number][at].files for at, name in enumerate(PARTS)}, len(one.entry.files))
            for one in scans
            for number in [one.entry.number]
        ]
        files = [made.get(one.entry.number, itself) for one, itself in zip(scans, given, strict=True)]
        return cls(
            {name: float(sum(each[at].bytes for each in mine)) for at, name in enumerate(PARTS)},
            {name: sum(one.sampled[name] for one in files) for name in PARTS},
            sum(one.bytes for one in scans),
            sum(one.files for one in files),
            sum(one.records for one in scans),
            max((one.largest for one in scans), default=0.0),
            max(((info.bytes, info.path) for one in scans for info in one.entry.files), default=(0, ""))[1],
            [info.bytes for one in scans for info in one.entry.files],
        )


@dataclass(frozen=True)
class Line:
    """``fixed + per_file x files + rate x bytes``."""

    fixed: float
    per_file: float
    rate: float
    spread: float  # what the noise can make of the whole, as a share of it

    @classmethod
    def through(cls, extent: Extent, values: Mapping[str, float], noise: float = 0.0) -> "Line":
        """Return the line through a quantity on the samples: the first two have the same bytes in other numbers of files."""
        count, size = extent.files_sampled, extent.sampled
        further = count["many"] - count["tiny"]
        per_file = _above(values["many"] - values["tiny"], noise) / further if further else 0.0
        left = {name: values[name] - per_file * count[name] for name in PARTS}
        base = (left["tiny"] + left["many"]) / 2
        step = max(size["large"] - size["tiny"], 1.0)
        rate = _above(left["large"] - base, noise) / step
        fixed = max(base - rate * size["tiny"], 0.0)
        whole = fixed + per_file * extent.files + rate * extent.bytes
        doubt = noise * max(extent.bytes / step, 1.0)
        return cls(fixed, per_file, rate, min(doubt / whole, 1.0) if whole else 0.0)

    def of(self, extent: Extent) -> float:
        """Return the quantity for all that there is."""
        return self.fixed + self.per_file * extent.files + self.rate * extent.bytes


def _above(growth: float, noise: float) -> float:
    """Return what to believe of a growth: all that is far above the noise, half of what is 1.4 times as large, nothing below."""
    return growth * (1 - (noise / growth) ** 2) if growth > noise else 0.0


def estimate_stage(
    stage: StagePlan, extent: Extent, trials: Mapping[str, Mapping[str, Trial]], planned: int | None = None
) -> StageEstimate:
    """Return what a stage will take; `planned` is how many files it will write, where that is known."""
    mine = {name: by_stage[stage.name] for name, by_stage in trials.items()}

    def line(quantity: str, noise: float = 0.0) -> Line:
        return Line.through(extent, {name: float(getattr(mine[name], quantity)) for name in PARTS}, noise)

    noise = sum(mine[name].noise for name in PARTS) / len(PARTS)
    cpu, written = line("cpu", noise), round(line("bytes").of(extent))
    if stage.entry.makes == "page":  # it shows a sample of bounded size
        written = max(trial.bytes for trial in mine.values())
    count, roots = _files(stage, extent, mine) if planned is None else planned, roots_of(stage)
    return StageEstimate(
        name=stage.name,
        verb=stage.verb,
        cpu=cpu.of(extent),
        spread=cpu.spread,
        fixed=cpu.fixed,
        largest=cpu.per_file + cpu.rate * extent.largest,
        start=max(mine[COLD].cpu - mine["tiny"].cpu, 0.0),
        memory=_memory(stage, extent, mine),
        scratch=round(line("scratch").of(extent)),
        bytes=written,
        files=count,
        requests=count_requests(stage, is_near(stage), extent.sizes, count, written, roots),
        roots=roots,
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
    counts = {name: float(mine[name].files) for name in PARTS}
    if stage.verb == "hdf5":
        rows = Line.through(extent, {name: mine[name].counts.get("rows", 0.0) for name in PARTS}).of(extent)
        most = int(stage.arguments.get("max_rows_per_file") or ROWS_PER_FILE)
        return 1 + max(1, math.ceil(rows / most))
    further = extent.files_sampled["many"] - extent.files_sampled["tiny"]
    rate = (counts["many"] - counts["tiny"]) / further if further else 0.0
    fixed = counts["tiny"] - rate * extent.files_sampled["tiny"]
    is_exact = rate == round(rate) and counts["large"] == fixed + rate * extent.files_sampled["large"]
    return round(fixed + rate * extent.files if is_exact else Line.through(extent, counts).of(extent))


@dataclass(frozen=True)
class Walls:
    """The whole pipeline on so many workers."""

    workers: int
    wall: float  # seconds
    cpu: float  # CPU-seconds, with the start of the processes


def walls(stages: Sequence[StageEstimate], extents: Mapping[str, Extent], workers: int) -> Walls:
    """Return wall time and CPU on so many workers; small stages stay in one process, as `dolma_dask.placement` decides."""
    wall, cpu, has_processes = COMMAND_START, COMMAND_START, False
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
