"""The jobs that are held: which of them are dead, and what sbatch means when it takes none. Pure values; nothing is called."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

SOON_SECONDS = 3.0
"""How often squeue is asked while workers are missing; the least time between two submissions after a failure."""

LOST_SECONDS = 300.0
"""A job that has had workers, and has had none for so long, is dead whatever squeue says, or if it says nothing."""

UNSEEN_SECONDS = 60.0
"""So long squeue may not know a job that was just submitted: sites hold its answers back, and one that was asked for before does not have it."""

MOST_PAUSE_SECONDS = 60.0
"""The most time between two submissions after failures."""

ENDED = frozenset(
    [
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    ]
)
"""States of jobs that run no more."""

_MAY_PASS = re.compile(
    r"timed out|unable to contact|temporarily|try again|connection refused|submit.*limit|too many",
    re.IGNORECASE,
)

_CONCERNS = {
    "queue": r"partition",
    "account": r"account",
    "memory": r"memory specification|memory required|--mem",
    "cores": r"cpu count|node configuration|more processors",
    "walltime": r"time limit|timelimit",
    "job_extra_directives": r"qos|invalid option|unrecognized option|invalid feature|gres",
}
"""Options that messages of sbatch are about."""


class Refusal(NamedTuple):
    """A submission that failed."""

    message: str  # of sbatch
    may_pass: bool  # trying again may help

    @classmethod
    def of(cls, error: str) -> "Refusal":
        """Read what dask-jobqueue says of a failed command."""
        _, _, said = error.partition("stderr:")
        message = " ".join((said or error).split())
        return cls(message, bool(_MAY_PASS.search(message)))

    def concerns(self) -> list[str]:
        """Return the options of the profile that the message is about."""
        return [
            option for option, words in _CONCERNS.items() if re.search(words, self.message, re.IGNORECASE)
        ]


@dataclass
class Jobs:
    """What is known of the jobs that are held, and what follows from a look at them. It does nothing by itself."""

    ids: dict[str, str] = field(default_factory=dict)  # of each job by its name in Dask, once it is submitted
    listed: set[str] = field(default_factory=set)  # jobs that squeue has known
    unseen_since: dict[str, float] = field(default_factory=dict)  # jobs that it has not known yet
    arrived: set[str] = field(default_factory=set)  # jobs that have had a worker
    alone_since: dict[str, float] = field(default_factory=dict)  # jobs without workers that have had some
    stillborn: int = 0  # rounds in a row in which jobs ended without a worker
    last: str = ""  # job that ended so last

    def connect(self, workers: Collection[str], now: float) -> None:
        """Note the workers that are connected, by name."""
        for name in self.ids:
            if any(is_of(worker, name) for worker in workers):
                if name not in self.arrived:
                    self.arrived.add(name)
                    self.stillborn = 0
                self.alone_since.pop(name, None)
            elif name in self.arrived:
                self.alone_since.setdefault(name, now)

    @property
    def at_work(self) -> int:
        """Number of jobs that have workers."""
        return len(self._working)

    @property
    def held(self) -> list[str]:
        """Numbers of the jobs that SLURM has taken."""
        return [job_id for job_id in self.ids.values() if job_id]

    @property
    def _working(self) -> set[str]:
        return self.arrived - self.alone_since.keys()

    def dead(self, listed: Mapping[str, str] | None, now: float) -> list[str]:
        """Return the names of jobs that will have no more workers, and forget them.

        `listed` is the state of each job that squeue knows, those that have just ended too, by number, and why it waits; None if it did not answer.
        """
        gone = [
            name
            for name, job_id in self.ids.items()
            if self._has_ended(name, job_id, listed, now)
            or now - self.alone_since.get(name, now) > LOST_SECONDS
        ]
        early = [name for name in gone if name not in self.arrived and self.ids[name]]
        if early:
            self.stillborn += 1
            self.last = self.ids[early[-1]]
        for name in gone:
            del self.ids[name]
            self.alone_since.pop(name, None)
            self.unseen_since.pop(name, None)
            self.arrived.discard(name)
            self.listed.discard(name)
        return gone

    def _has_ended(self, name: str, job_id: str, listed: Mapping[str, str] | None, now: float) -> bool:
        if not job_id:
            return True  # it was never taken
        if listed is None:
            return False
        if job_id in listed:
            self.listed.add(name)
            return listed[job_id].split()[0] in ENDED
        if name in self._working:
            return False  # whatever squeue says
        return name in self.listed or now - self.unseen_since.setdefault(name, now) > UNSEEN_SECONDS

    def pause(self) -> float:
        """Return how long to wait before new jobs are submitted: longer each time that jobs have ended at once."""
        return 0.0 if self.stillborn == 0 else min(SOON_SECONDS * 2**self.stillborn, MOST_PAUSE_SECONDS)


def is_of(worker: str, job: str) -> bool:
    """Tell whether a worker is of a job: Dask appends the number of the process."""
    return worker == job or worker.startswith(f"{job}-")
