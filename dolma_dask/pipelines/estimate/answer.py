"""The answer of `estimate`: tables for people, JSON for programs, and what is kept for `status`."""

import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from dolma_dask import clusters
from dolma_dask.clusters.allocation import COMMAND_MIB
from dolma_dask.clusters.jobs import PARENT_MIB
from dolma_dask.display import byte_size, counted, percent, seconds
from dolma_dask.pipelines.estimate.sample import LARGE, SMALL, PipelineInput, kind_of
from dolma_dask.pipelines.estimate.trial import StageEstimate, Walls, walls
from dolma_dask.questions.status.estimated import Expected
from dolma_dask.results.answer import Answer
from dolma_dask.results.parts import Heading, Listing, Notes, Part
from dolma_dask.results.table import Column, Table

_LONG_SHARE = 0.25
"""A file is named as a task of its own if it takes this share of a stage."""

_LONG_SECONDS = 60.0
"""... and at least so long."""

_MIN_SPREAD = 0.1
"""Minimum of the stated uncertainty of CPU: what another load of the machine makes of it."""

WANTED_SECONDS = 2 * 3600
"""Workers are added until the pipeline ends within this time, or until more of them gain less than a tenth."""

MAX_CORES = 32
"""Cores of one job: what nearly all nodes have."""

DASK_BYTES = 60_000_000
"""Memory of a worker of Dask over that of a process that does the same."""

_PAUSE = 0.8
"""Share of its memory at which such a worker stops to take work."""

_GAIN = 0.9

SPARE = 1.25
"""Memory that is asked for over what was seen."""


class JobRequest(Struct, frozen=True):
    """Jobs, cores, memory and time."""

    jobs: int
    cores: int  # of each job; a worker each
    memory: int  # MB of each job
    seconds: int

    def lines(self) -> list[str]:
        """Return it as lines of a script for sbatch."""
        hours, minutes = divmod(math.ceil(self.seconds / 60), 60)
        return [
            f"#SBATCH --nodes={self.jobs}",
            "#SBATCH --ntasks-per-node=1",
            f"#SBATCH --cpus-per-task={self.cores}",
            f"#SBATCH --mem={self.memory}M",
            f"#SBATCH --time={hours:02}:{minutes:02}:00",
        ]


def fitting(choices: list[Walls], memory: int) -> JobRequest:
    """Return a request for workers of so much memory: the first of ascending choices that is fast enough, or beyond which little is gained.

    Time is asked for with a half more and ten minutes, since a job that is not done at its end has to wait in the queue again.
    """
    chosen = choices[0]
    for other in choices[1:]:
        if chosen.wall <= WANTED_SECONDS or other.wall > _GAIN * chosen.wall:
            break
        chosen = other
    jobs = math.ceil(chosen.workers / MAX_CORES)
    cores = math.ceil(chosen.workers / jobs)
    rounded = 300 * math.ceil((1.5 * chosen.wall + 600) / 300)
    worker = SPARE * (memory + DASK_BYTES) / _PAUSE
    mib = worker * cores / 2**20 + COMMAND_MIB + PARENT_MIB  # as `dolma_dask.clusters.allocation` divides it
    return JobRequest(jobs, cores, 256 * math.ceil(mib / 256), rounded)


class Estimate(Answer, frozen=True):
    """Estimate of a pipeline's cost; prints as tables."""

    file: str  # the pipeline
    stages: tuple[StageEstimate, ...]
    walls: tuple[Walls, ...]  # for each asked number of workers
    request: JobRequest
    command: str  # that does it all in such a job
    # what is read from outside
    entry_files: int
    entry_bytes: int
    seconds: float = 0.0  # that the estimate took
    notes: tuple[str, ...] = ()  # how it was made, and its limits
    verb: str = "estimate"

    @property
    def cpu(self) -> float:
        """CPU-seconds of all stages, with the start of the processes, on this machine."""
        return walls(self.stages, clusters.cpu_count()).cpu

    @property
    def bytes(self) -> int:
        """Stored bytes of all that is written."""
        return sum(stage.bytes for stage in self.stages)

    @property
    def files(self) -> int:
        """Files that are written, but for journals."""
        return sum(stage.files for stage in self.stages)

    @property
    def memory(self) -> int:
        """Bytes of the largest worker."""
        return max(stage.memory for stage in self.stages)

    @property
    def scratch(self) -> int:
        """Bytes in work folders at once: stages follow each other."""
        return max(stage.scratch for stage in self.stages)

    @property
    def spread(self) -> float:
        """Uncertainty of the CPU, as a share."""
        doubt = sum(stage.spread * stage.cpu for stage in self.stages)
        return max(doubt / max(sum(stage.cpu for stage in self.stages), 1e-9), _MIN_SPREAD)

    def to_json(self) -> dict[str, Any]:
        """Return the answer as JSON-able values; seconds and bytes."""
        return {
            "verb": self.verb,
            "file": self.file,
            "stages": [stage.to_json() for stage in self.stages],
            "all": {
                "cpu": self.cpu,
                "cpu_hours": self.cpu / 3600,
                "spread": self.spread,
                "memory": self.memory,
                "scratch": self.scratch,
                "bytes": self.bytes,
                "files": self.files,
            },
            "workers": [vars(one) for one in self.walls],
            "slurm": {**asdict(self.request), "lines": self.request.lines(), "command": self.command},
            "input": {"files": self.entry_files, "bytes": self.entry_bytes},
            "seconds": round(self.seconds, 3),
            "notes": list(self.notes),
            "exit_status": self.exit_status,
        }

    def kept(self) -> dict[str, list[Expected]]:
        """Return what is expected of each verb, by the root of its journal."""
        found: dict[str, list[Expected]] = {}
        now = time.time()
        for stage in self.stages:
            for root in stage.roots[:1]:
                expected = Expected(
                    stage.verb, stage.cpu + stage.start, stage.bytes, stage.files, now, self.file
                )
                found.setdefault(root, []).append(expected)
        return found

    def parts(self) -> Iterator[Part]:
        head = f"{counted(self.entry_files, 'file')}, {byte_size(self.entry_bytes)} stored"
        yield Heading(f"estimate of {self.file}: {head}")
        yield Table("", _COLUMNS, [*map(_row, self.stages), self._total()])
        yield Table("by workers", _WALLS, [(one.workers, one.wall, one.cpu / 3600) for one in self.walls])
        yield Listing("a script for sbatch", self._script())
        yield Notes([*self.notes, f"the estimate itself took {seconds(self.seconds)}"])

    def _total(self) -> tuple[str | float, ...]:
        return ("in all", self.cpu, self.spread, self.memory, self.scratch, self.bytes, self.files)

    def _script(self) -> list[str]:
        return ["#!/bin/bash", *self.request.lines(), self.command]


_COLUMNS = (
    Column("stage", "words"),
    Column("CPU", "seconds"),
    Column("+-", "share"),
    Column("memory", "size"),
    Column("scratch", "size"),
    Column("output", "size"),
    Column("files"),
)
_WALLS = (Column("workers"), Column("wall time", "seconds"), Column("CPU-hours", "real"))


def _row(stage: StageEstimate) -> tuple[str | float, ...]:
    name = stage.name if stage.name == stage.verb else f"{stage.name} ({stage.verb})"
    spread = max(stage.spread, _MIN_SPREAD)
    sizes = (stage.memory, stage.scratch, stage.bytes)
    return (name, stage.cpu + stage.start, spread, *sizes, stage.files)


def notes_of(
    entries: Sequence[PipelineInput], stages: Sequence[StageEstimate], left_out: int
) -> tuple[str, ...]:
    """Return how an estimate was made, and what it cannot know."""
    return (*_read(entries), *_long(stages), *_left_out(left_out))


def _read(entries: Sequence[PipelineInput]) -> Iterator[str]:
    sizes = [byte_size(sum(entry.sampled(name) for entry in entries)) for name in (SMALL, LARGE)]
    total = byte_size(round(sum(entry.bytes for entry in entries)))
    yield f"tried on {' and '.join(sizes)} of {total} of records; copies were drawn together"
    read = sum(one.stored for entry in entries for one in entry.scanned)
    stored = sum(entry.stored for entry in entries)
    if read < stored:
        yield (
            f"{percent(read, stored)} of the stored bytes were read: copies beyond them are not known, so that less may be kept of duplicates than it "
            "says, and later stages cost less; --scan-bytes reads more"
        )
    for entry in entries:
        if any(kind_of(info.path) == "whole" for info in entry.files):
            yield f"{entry.url}: whole files were drawn, so that copies in others are not known, and less may be kept of duplicates than it says"


def _long(stages: Sequence[StageEstimate]) -> Iterator[str]:
    """Name the stages for which a single file decides the wall time."""
    for stage in stages:
        if stage.largest > max(_LONG_SHARE * stage.cpu, _LONG_SECONDS):
            size, path = max((info.bytes, info.path) for info in stage.inputs)
            yield (
                f"{stage.name}: {path} of {byte_size(size)} is one task: {seconds(stage.largest)}, however many workers "
                "there are; smaller files (convert --shard-bytes) would be done side by side"
            )


def _left_out(downloads: int) -> Iterator[str]:
    if downloads:
        yield f"{counted(downloads, 'download')} left out: its time is that of the network"
