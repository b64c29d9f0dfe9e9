"""SLURM jobs as values: CPUs, memory and walltime of a profile with the arguments that dask-jobqueue takes for them; which of those that are held
are dead; what sbatch means when it takes none. Nothing is called, and dask is not imported.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from dolma_dask.clusters.profiles import JOBQUEUE, Profile
from dolma_dask.clusters.workers import CONFIG
from dolma_dask.errors import UsageError
from dolma_dask.processes import WORKER_ENVIRONMENT

MIB = 1 << 20

PARENT_MIB = 100
"""Memory of the process that starts the workers of a job and watches them, with what Python starts for it (measured: 75)."""

MIN_WORKER_MIB = 256
"""Less than a worker has when nothing runs on it."""

MIN_MARGIN, MAX_MARGIN = 20, 300
"""Seconds before the end of the walltime at which workers leave: a tenth of it, within these."""

_MEMORY = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([KMGT])(i?B)?\s*", re.IGNORECASE)
_WALLTIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


class SlurmJob(Struct, frozen=True):
    """One job of a profile."""

    cores: int
    processes: int  # workers, of one thread each
    memory: int  # bytes, that SLURM holds for it
    seconds: int | None  # walltime
    interface: str | None
    local_directory: str | None
    log_folder: str | None
    scheduler_options: Mapping[str, Any]
    options: Mapping[str, Any] = {}  # of dask-jobqueue, as they were given

    @property
    def worker_mib(self) -> int:
        """Memory of one worker."""
        return (self.memory // MIB - PARENT_MIB) // self.processes

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of a job for dask-jobqueue."""
        known = (
            "name",
            "cores",
            "memory",
            "processes",
            "local_directory",
            "log_directory",
            "scheduler_options",
        )
        given = {
            name: value for name, value in self.options.items() if name not in known and value is not None
        }
        return {
            **given,
            "job_name": self.options.get("name") or "dask-worker",
            "cores": self.cores,
            "processes": self.processes,
            "memory": f"{self.memory}B",
            "job_mem": self.options.get("job_mem") or f"{-(-self.memory // MIB)}M",
            "local_directory": '"$SCRATCH"',
            "worker_extra_args": [
                *(self.options.get("worker_extra_args") or ()),
                "--no-dashboard",
                *self._lifetime(),
            ],
            "job_extra_directives": [
                "--no-requeue",  # of a lost node: SLURM would let it wait for minutes, while it counts as one that is held
                *(self.options.get("job_extra_directives") or ()),
                *self._logs(),
            ],
            "job_script_prologue": [*(self.options.get("job_script_prologue") or ()), *self._prologue()],
        }

    def log_of(self, job_id: str) -> str:
        """Return the path of the log of a job."""
        return f"{self.log_folder}/dolma-dask-{job_id}.log" if self.log_folder else f"slurm-{job_id}.out"

    def _logs(self) -> list[str]:
        return [f"-o {self.log_of('%j')}"] if self.log_folder else []

    @property
    def lifetime(self) -> int | None:
        """Seconds after which workers leave; None where they do not, or the user has said when."""
        if self.seconds is None or "--lifetime" in (self.options.get("worker_extra_args") or ()):
            return None
        return margins(self.seconds)[0]

    def _lifetime(self) -> list[str]:
        if self.seconds is None or self.lifetime is None:
            return []
        lifetime, stagger = margins(self.seconds)
        return ["--lifetime", f"{lifetime}s", "--lifetime-stagger", f"{stagger}s"]

    def _prologue(self) -> list[str]:
        """Return what the script does before workers start: a scratch folder that is there, settings of memory and threads."""
        wanted = self.local_directory or "${TMPDIR:-/tmp}"
        return [
            f'SCRATCH="{wanted}"',
            'if ! [ -d "$SCRATCH" -a -w "$SCRATCH" ]; then echo "no folder $SCRATCH on $(hostname); taking ${TMPDIR:-/tmp}" >&2; SCRATCH="${TMPDIR:-/tmp}"; fi',
            *(['export TMPDIR="$SCRATCH"'] if self.local_directory else []),
            *exports(),
        ]


def exports() -> list[str]:
    """Return the lines of a script that set memory and threads of workers, where the user has not."""
    threads = [f"export {name}=${{{name}:-{value}}}" for name, value in WORKER_ENVIRONMENT.items()]
    of_dask = [
        (f"DASK_{key.replace('.', '__').replace('-', '_').upper()}", value)
        for key, value in CONFIG.items()
        if ".scheduler." not in key
    ]
    return [*threads, *(f"export {name}={value}" for name, value in of_dask)]


def job_of(profile: Profile, defaults: Mapping[str, Any]) -> SlurmJob:
    """Return the job of a profile (after `Profile.over`); `defaults` count where it says nothing.

    Raises `UsageError`: something is missing or cannot be; with its place.
    """
    options = {**defaults, **profile.over({}).jobqueue}
    cores = options.get("cores")
    if cores is None or options.get("memory") is None:
        missing = "cores" if cores is None else "memory"
        raise UsageError(
            f"profile {profile.name} has no `jobqueue.{missing}`; expected it, since a job without it takes what the site gives: often one CPU, or the memory of a whole node. "
            "Say for example `cores: 16` and `memory: 32GB`."
        )
    _check_texts(profile, options)
    processes = options.get("processes") or cores
    memory = _memory(profile, options["memory"])
    _check_counts(profile, cores, processes)
    job = SlurmJob(
        cores,
        processes,
        memory,
        _seconds(profile, options.get("walltime")),
        options.get("interface"),
        options.get("local_directory"),
        options.get("log_directory"),
        {"dashboard_address": ":0", **(options.get("scheduler_options") or {})},
        options,
    )
    if job.worker_mib < MIN_WORKER_MIB:
        raise UsageError(
            f"{profile.place_of('memory')}: memory: {options['memory']} leaves {max(job.worker_mib, 0)} MiB for each of {processes} workers; expected {MIN_WORKER_MIB} MiB or "
            "more, and 2 GB for most verbs. Ask for more memory, or for fewer `processes`."
        )
    return job


def _check_texts(profile: Profile, options: Mapping[str, Any]) -> None:
    """Refuse a text where lists belong, as a user's own jobqueue.yaml may have it: each letter would become a line of the script."""
    for option, kind in JOBQUEUE.items():
        value, expected = options.get(option), ""
        if kind == list[str] and isinstance(value, str):
            expected = f"a list: [{value!r}]"
        elif isinstance(value, str) and "\n" in value.strip():
            expected = "one line"
        if expected:
            raise UsageError(f"{profile.place_of(option)}: {option}: {value!r}; expected {expected}.")


def _check_counts(profile: Profile, cores: Any, processes: Any) -> None:
    for option, value in (("cores", cores), ("processes", processes)):
        if type(value) is not int or value < 1:
            raise UsageError(
                f"{profile.place_of(option)}: {option}: {value!r}; expected a whole number from 1 on."
            )
    if processes > cores:
        raise UsageError(
            f"{profile.place_of('processes')}: processes: {processes} with cores: {cores}; expected no more workers than CPUs, since each has one thread."
        )


def _memory(profile: Profile, text: Any) -> int:
    """Return bytes; units are those of Dask (GB is 10^9), those of SLURM (G is 2^30) count as SLURM counts them."""
    found = _MEMORY.fullmatch(str(text))
    if found is None:
        raise UsageError(
            f"{profile.place_of('memory')}: memory: {text!r}; expected a number with a unit, such as 4GB, 4GiB, or 4G as SLURM counts it (2^30 bytes)."
        )
    number, unit, ending = found.groups()
    base = 1000 if ending and len(ending) == 1 else 1024
    return int(float(number) * base ** ("KMGT".index(unit.upper()) + 1))


def _seconds(profile: Profile, text: Any) -> int | None:
    """Return a walltime in seconds, as SLURM reads it: M, M:S, H:M:S, D-H, D-H:M or D-H:M:S."""
    if text is None:
        return None
    found = _WALLTIME.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise UsageError(
            f'{profile.place_of("walltime")}: walltime: {text!r}; expected hours, minutes and seconds in quotes, such as "04:00:00", or "2-00:00:00" with days.'
        )
    if not text.strip("0:-"):
        raise UsageError(
            f"{profile.place_of('walltime')}: walltime: {text!r}; expected a minute or more, since workers leave before it ends."
        )
    days, *numbers = (int(part) if part else None for part in found.groups())
    first, second, third = numbers
    assert first is not None
    if days is not None:
        return days * 86400 + first * 3600 + (second or 0) * 60 + (third or 0)
    if third is not None:
        return first * 3600 + (second or 0) * 60 + third
    return first * 60 + (second or 0)


def margins(seconds: int) -> tuple[int, int]:
    """Return after how many seconds workers leave a job of a walltime, and by how much that varies, so that not all leave at once."""
    margin = min(max(seconds // 10, MIN_MARGIN), MAX_MARGIN)
    return max(seconds - margin, 1), margin // 2


def without_job_of_ours(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables of the SLURM job in which this process may run: sbatch would take them for options."""
    kept = ("SLURM_CONF", "SLURM_CLUSTERS")
    return {
        name: value for name, value in environment.items() if not name.startswith("SLURM_") or name in kept
    }


SOON_SECONDS = 3.0
"""Seconds between two calls of squeue while workers are missing; the least time between two submissions after a failure."""

LOST_SECONDS = 300.0
"""A job that has had workers, and has had none for so long, is dead whatever squeue says, or if it says nothing."""

UNSEEN_SECONDS = 60.0
"""So long squeue may not know a job that was just submitted: sites hold its answers back, and one that was asked for before does not have it."""

MAX_PAUSE_SECONDS = 60.0
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


class SlurmJobs(Struct):
    """Knowledge of the jobs that are held, and conclusions from a look at them. It does nothing by itself."""

    ids: dict[str, str] = {}  # of each job by its name in Dask, once it is submitted
    listed: set[str] = set()  # jobs that squeue has known
    unseen_since: dict[str, float] = {}  # jobs that it has not known yet
    arrived: set[str] = set()  # jobs that have had a worker
    alone_since: dict[str, float] = {}  # jobs without workers that have had some
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
        return 0.0 if self.stillborn == 0 else min(SOON_SECONDS * 2**self.stillborn, MAX_PAUSE_SECONDS)


def is_of(worker: str, job: str) -> bool:
    """Tell whether a worker is of a job: Dask appends the number of the process."""
    return worker == job or worker.startswith(f"{job}-")
