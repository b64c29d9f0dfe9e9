"""Jobs that end are replaced: dead, cancelled, preempted and timed out ones, and those whose workers have left before the walltime.

Dask's own ways do not do that: a job of ``scale()`` that dies is never submitted again, and ``adapt()`` gives jobs back between two steps. So one
thread looks at squeue, at once after a worker was lost and else every half minute, and submits what is missing. Jobs that wait in the queue are
alive, and a squeue that does not answer changes nothing. When jobs end again and again before a worker of theirs has come, or sbatch takes none, and
no other job is left to work, it gives up and says what stands in the log of the last, or what sbatch says.
"""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dolma_dask.clusters.jobs import (
    MAX_PAUSE_SECONDS,
    SOON_SECONDS,
    Refusal,
    SlurmJob,
    SlurmJobs,
    is_of,
    without_job_of_ours,
)
from dolma_dask.clusters.profiles import Profile
from dolma_dask.clusters.workers import LIFETIMES, own_tasks
from dolma_dask.display import counted
from dolma_dask.errors import ClusterError, DolmaDaskError, UsageError

if TYPE_CHECKING:
    from distributed import Client

LOOK_SECONDS = 30.0
"""Seconds between two calls of squeue while nothing happens: jobs may wait in the queue for hours."""

PATIENCE_SECONDS = 600.0
"""So long sbatch may take no job, for a reason that may pass, while there is no other: SLURM is started again, or a limit is reached."""

CANCEL_SECONDS = 30.0
"""Seconds that scancel may take to answer."""

LOG_LINES = 20
"""Last lines of a job's log that an error shows."""

LOG_TRIES, LOG_SECONDS, LOG_CHARACTERS = 6, 0.5, 20_000
"""Looks at the log of a job for the reason of its end, which SLURM writes a moment after it: their number, seconds between two, and characters."""

_BY_MEMORY = re.compile(r"exceeded memory limit|oom[-_ ]?kill|out of memory", re.IGNORECASE)


class Refill:
    """Watches the jobs of one cluster, replaces them, and cancels them at the end.

    Parameters
    ----------
    profile, job
        What was asked for.
    """

    def __init__(self, profile: Profile, job: SlurmJob) -> None:
        self._profile, self._job = profile, job
        self._jobs = SlurmJobs()
        self._lock = threading.Lock()  # of `_jobs`
        self._look_now, self._ended = threading.Event(), threading.Event()
        self._refusal, self._refusals, self._refused_since = "", 0, 0.0
        self._look_seconds = SOON_SECONDS
        self._has_warned = False
        self._lost: DolmaDaskError | None = None
        self._cluster: Any = None
        self._client: Client | None = None
        self._not_before = 0.0
        self._said: str = ""
        self._all_ids: dict[str, str] = {}  # of jobs that have ended too
        self._by_memory: dict[
            str, bool
        ] = {}  # jobs with a worker that was lost: did SLURM say that it was for memory?

    # -------------------------------------------------------------------------------------------- what jobs say

    def submitted(self, name: str, job_id: str) -> None:
        """Note a job that SLURM has taken."""
        with self._lock:
            self._jobs.ids[name] = self._all_ids[name] = job_id
            self._refusal, self._refusals = "", 0
        if self._ended.is_set():  # submitted while the end was near
            self.cancel_jobs()

    def refused(self, name: str, refusal: Refusal) -> None:
        """Note a job that SLURM has not taken."""
        with self._lock:
            now = time.monotonic()
            self._refused_since = self._refused_since if self._refusals else now
            self._refusal, self._refusals = refusal.message, self._refusals + 1
            self._jobs.ids[name] = ""  # as one that has ended
            is_patient = refusal.may_pass and now - self._refused_since < PATIENCE_SECONDS
            is_last = not self._jobs.held and not self._ended.is_set()
        if is_last and self._lost is None and not is_patient:
            self._give_up(
                ClusterError(self._away()) if refusal.may_pass else UsageError(self._refused(refusal))
            )
        self._look_now.set()

    def _away(self) -> str:
        return (
            f"profile {self._profile.name}: sbatch has taken no job for {PATIENCE_SECONDS / 60:.0f} minutes: {self._refusal}; expected SLURM to come back. "
            "Run the same command again later: it does only what is left."
        )

    def _refused(self, refusal: Refusal) -> str:
        places = [f"{option} ({self._profile.place_of(option)})" for option in refusal.concerns()]
        look = (
            f"Look at {', '.join(places)}"
            if places
            else "`dolma-dask cluster script` shows what was submitted"
        )
        return f"profile {self._profile.name}: sbatch takes no such job: {refusal.message}; expected one that this cluster can run. {look}."

    # -------------------------------------------------------------------------------------------- the thread

    def watch(self, cluster: Any, client: "Client") -> None:
        """Submit the jobs, and begin to watch them."""
        self._cluster, self._client = cluster, client
        cluster.scheduler.add_plugin(_losses(self._look_now), name="refill")
        client.register_plugin(own_tasks(self._job.lifetime, self._too_long()), name="own-tasks")
        cluster.scale(jobs=self._profile.jobs)
        threading.Thread(target=self._run, name="refill", daemon=True).start()

    def _too_long(self) -> str:
        return (
            f"its workers left before the end of their walltime again and again, and it was begun anew each time, longer than {LIFETIMES} workers live; expected it to end within one "
            f"job. Raise `walltime: {self._job.options.get('walltime')}` ({self._profile.place_of('walltime')}), or cut the file into smaller ones; the same command does only what is left."
        )

    def end(self) -> None:
        """Stop watching."""
        self._ended.set()
        self._look_now.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            with self._lock:
                whole = self._jobs.at_work >= self._profile.jobs
            self._look_now.wait(LOOK_SECONDS if whole and not self._not_before else self._look_seconds)
            self._look_seconds = min(2 * self._look_seconds, LOOK_SECONDS)
            if self._look_now.is_set():
                self._look_now.clear()
                self._look_seconds = SOON_SECONDS
                self._ended.wait(1.0)  # a job takes a moment to leave the queue after its workers
            if self._ended.is_set():
                return
            try:
                self._look()
            except Exception as error:  # noqa: BLE001  the next look may do better; the run goes on
                self._said = f"{type(error).__name__}: {error}"

    def _look(self) -> None:
        listed = _listed()
        now = time.monotonic()
        with self._lock:
            self._jobs.connect(self._worker_names(), now)
            gone = self._jobs.dead(listed, now)
        if gone:
            self._cluster.sync(_forget, self._cluster, gone)
            refused = min(SOON_SECONDS * self._refusals, MAX_PAUSE_SECONDS)
            self._not_before = now + max(self._jobs.pause(), refused)
            self._look_seconds = SOON_SECONDS
        if self._jobs.stillborn >= self._profile.tries:
            self._stillborn()
        if len(self._jobs.ids) < self._profile.jobs and now >= self._not_before and self._lost is None:
            self._not_before = 0.0
            self._look_seconds = SOON_SECONDS
            self._cluster.scale(jobs=self._profile.jobs)
        queue = _queue_of(self._jobs.ids.values(), listed)
        self._said = ", ".join(
            filter(None, [queue, self._refusal and f"sbatch takes no job now: {self._refusal}"])
        )

    def _worker_names(self) -> set[str]:
        return {str(state.name) for state in list(self._cluster.scheduler.workers.values())}

    def _stillborn(self) -> None:
        """Give up, unless other jobs do the work."""
        log = self._job.log_of(self._jobs.last)
        what = (
            f"profile {self._profile.name}: jobs of SLURM end before a worker comes, {counted(self._jobs.stillborn, 'time')} in a row (last: job {self._jobs.last}); expected them to stay. "
            f"{_log_tail(log)}`dolma-dask cluster script {self._profile.name}` prints what they run."
        )
        if not self._jobs.at_work:
            self._give_up(ClusterError(what, log=log))
        elif not self._has_warned:
            self._has_warned = True
            others = counted(self._jobs.at_work, "job")
            sys.stderr.write(f"cluster {what}\nGoing on with {others} that work, and trying again.\n")

    def _give_up(self, error: DolmaDaskError) -> None:
        """End the work that waits for workers; whoever waits for it finds `error`."""
        self._lost = error
        client = self._client
        if client is not None:
            with suppress(Exception):
                client.loop.add_callback(_cancel_all, client)

    # -------------------------------------------------------------------------------------------- what others ask

    def check(self) -> None:
        """Raise what was found when the jobs were given up."""
        if self._lost is not None:
            raise self._lost

    def describe_queue(self) -> str:
        """Return the states of the jobs, as squeue said last."""
        return self._said

    @property
    def job_ids(self) -> list[str]:
        """Numbers of the jobs that are held."""
        with self._lock:
            return self._jobs.held

    @property
    def is_ending(self) -> bool:
        """True if nothing more is submitted, and jobs are cancelled by `cancel_jobs`."""
        return self._ended.is_set()

    @property
    def memory_setting(self) -> str:
        """Setting to change when workers need more memory."""
        given = self._job.options.get("memory")
        return (
            f"`memory: {given}` of each job ({self._profile.place_of('memory')}), which is {self._job.worker_mib:,} MiB for each of {self._job.processes} workers; "
            "ask for more, or for fewer `processes`"
        )

    def died_of_memory(self, worker: Any) -> bool:
        """Tell whether Dask or SLURM killed a worker for its memory: Dask says it in an event, SLURM in the log of the job."""
        events = self._cluster.scheduler.get_events("worker-restart-memory")
        if any(event.get("worker") == worker.address for _, event in events):
            return True
        name = next((name for name in self._all_ids if is_of(str(worker.name), name)), "")
        if name not in self._by_memory:
            self._by_memory[name] = _says_memory(Path(self._job.log_of(self._all_ids.get(name, ""))))
        return self._by_memory[name]

    def cancel_jobs(self) -> None:
        """Cancel all jobs at once."""
        self._ended.set()
        ids = self.job_ids
        if not ids:
            return
        try:
            subprocess.run(
                ["scancel", *ids],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=CANCEL_SECONDS,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            said = " ".join((getattr(error, "stderr", None) or str(error)).split())
            sys.stderr.write(
                f"cluster {self._profile.name}: scancel has not cancelled jobs {', '.join(ids)} ({said}). Those that run end by themselves; look with squeue --me, and call: "
                f"scancel {' '.join(ids)}\n"
            )


def _losses(look_now: threading.Event) -> Any:
    """Return a plugin of the scheduler that asks for a look when a worker is lost."""
    from distributed.diagnostics.plugin import SchedulerPlugin

    class Losses(SchedulerPlugin):
        def add_worker(self, scheduler: Any, worker: str) -> None:
            look_now.set()

        def remove_worker(self, scheduler: Any, worker: str, **more: Any) -> None:
            look_now.set()

    return Losses()


async def _forget(cluster: Any, names: Collection[str]) -> None:
    """Let a cluster forget jobs, and the scheduler workers of theirs that it still takes for alive: nobody is to blame for them."""
    for name in names:
        job = cluster.workers.pop(name, None)
        cluster.worker_spec.pop(name, None)
        for address, state in list(cluster.scheduler.workers.items()):
            if is_of(str(state.name), name):
                await cluster.scheduler.remove_worker(address, stimulus_id="refill", expected=True)
        if job is not None:
            await job.close()


async def _cancel_all(client: "Client") -> None:
    from distributed import Future

    await client._cancel([Future(key, client) for key in list(client.futures)], force=True)


def _listed() -> dict[str, str] | None:
    """Return the state of each of the user's jobs by number, and why it waits; None if squeue does not answer."""
    try:
        done = subprocess.run(
            ["squeue", "--me", "-h", "-t", "all", "-o", "%A %T (%r)"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            check=True,
            env=without_job_of_ours(os.environ),
        )
    except (OSError, subprocess.SubprocessError):
        return None
    lines = (line.partition(" ") for line in done.stdout.splitlines())
    return {job_id: state for job_id, _, state in lines if state}


def _queue_of(ids: Collection[str], listed: Mapping[str, str] | None) -> str:
    if listed is None:
        return "squeue does not answer"
    states = {
        job_id: listed.get(job_id, "not known to squeue").removesuffix(" (None)") for job_id in ids if job_id
    }
    jobs = [f"job {job_id} {state}" for job_id, state in states.items()]
    return ", ".join(jobs) or "sbatch has taken no job yet"


def _says_memory(log: Path) -> bool:
    for _ in range(LOG_TRIES):
        with suppress(OSError):
            if _BY_MEMORY.search(log.read_text(errors="replace")[-LOG_CHARACTERS:]):
                return True
        time.sleep(LOG_SECONDS)
    return False


def _log_tail(path: str) -> str:
    """Return the last lines of a job's log, as a sentence."""
    try:
        lines = Path(path).read_text(errors="replace").splitlines()[-LOG_LINES:]
    except OSError:
        return f"It has left no log at {path}. "
    return "\n  ".join([f"Its log {path} ends:", *lines]) + "\n" if lines else f"Its log {path} is empty. "
