"""A request to SLURM that fits an estimate."""

import math
from dataclasses import dataclass

from dolma_dask.clusters.allocation import COMMAND_MIB
from dolma_dask.clusters.jobs import PARENT_MIB
from dolma_dask.pipelines.estimate.model import SPARE, Walls

WANTED_SECONDS = 2 * 3600
"""Workers are added until the pipeline ends within this time, or until more of them gain less than a tenth."""

MOST_CORES = 32
"""Cores of one job: what nearly all nodes have."""

DASK_BYTES = 60_000_000
"""Memory of a worker of Dask over that of a process that does the same."""

_PAUSE = 0.8
"""Share of its memory at which such a worker stops to take work."""

_GAIN = 0.9


@dataclass(frozen=True)
class Request:
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


def fitting(choices: list[Walls], memory: int) -> Request:
    """Return a request for workers of so much memory: the first of ascending choices that is fast enough, or beyond which little is gained.

    Time is asked for with a half more and ten minutes, since a job that is not done at its end has to wait in the queue again.
    """
    chosen = choices[0]
    for other in choices[1:]:
        if chosen.wall <= WANTED_SECONDS or other.wall > _GAIN * chosen.wall:
            break
        chosen = other
    jobs = math.ceil(chosen.workers / MOST_CORES)
    cores = math.ceil(chosen.workers / jobs)
    rounded = 300 * math.ceil((1.5 * chosen.wall + 600) / 300)
    worker = SPARE * (memory + DASK_BYTES) / _PAUSE
    mib = worker * cores / 2**20 + COMMAND_MIB + PARENT_MIB  # as `dolma_dask.clusters.allocation` divides it
    return Request(jobs, cores, 256 * math.ceil(mib / 256), rounded)
