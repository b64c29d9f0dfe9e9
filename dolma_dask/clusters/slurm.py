"""Workers in SLURM jobs: submitted through dask-jobqueue, replaced when they end (`refill`), cancelled with the command.

This is the only module that imports dask-jobqueue, which costs half a second and puts a ``jobqueue.yaml`` into the user's Dask configuration.
A job runs `processes` workers of one thread. They leave some minutes before the end of its walltime and hand over what they hold.
"""

import asyncio
import itertools
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dolma_dask.clusters.jobs import Refusal, SlurmJob, job_of, without_job_of_ours
from dolma_dask.clusters.local import check_has_threads
from dolma_dask.clusters.profiles import Profile
from dolma_dask.clusters.refill import Refill
from dolma_dask.clusters.workers import (
    SILENT,
    client_of,
    hold_settings,
    of_client,
    setting_of_user,
    stopped_by_sigterm,
    tunnel,
)
from dolma_dask.display import counted
from dolma_dask.errors import ClusterError, UsageError
from dolma_dask.extras import require
from dolma_dask.processes import interrupts_held_back

if TYPE_CHECKING:
    from distributed import Client

ADDRESS = "tcp://ADDRESS-OF-THE-SCHEDULER"
"""Stands for what is known when the scheduler runs, in a job script that is only shown."""

WAIT_SECONDS = 0.1
"""Seconds between two looks for the first worker."""

ANSWER_SECONDS, LAST_SECONDS = 120.0, 5.0
"""Seconds that a program of SLURM may take to answer, and seconds when the command ends."""


def job_script(profile: Profile) -> str:
    """Return the script that would be submitted for each job, but for the address of the scheduler and the name of the job."""
    _, job = _resolved(profile)
    made = _job_class()(ADDRESS, name="JOB", **_arguments(job))
    return str(made.job_script())


@contextmanager
def slurm_client(profile: Profile, *, dashboard: bool = False) -> Iterator["Client"]:
    """Hold the jobs of a profile and yield a client once the first worker is there.

    Raises
    ------
    UsageError
        The profile cannot work: no sbatch, SLURM refuses it, or no such network interface.
    ClusterError
        Jobs end at once, again and again.
    """
    check_has_threads()
    profile, job = _checked(profile)
    with ExitStack() as stack:
        with interrupts_held_back():
            client, refill = _start(profile, job, stack, dashboard)
        with stopped_by_sigterm():
            try:
                _wait_for_first(client, refill, profile)
                yield client
            finally:
                with interrupts_held_back():
                    stack.close()


def _start(profile: Profile, job: SlurmJob, stack: ExitStack, dashboard: bool) -> tuple["Client", Refill]:
    """Start a scheduler here and ask for the jobs; what ends them is put on `stack`."""
    # `refill` alone says that a job is dead
    hold_settings(stack, {"distributed.deploy.lost-worker-timeout": "30d"})
    refill = Refill(profile, job)
    if job.log_folder:
        Path(job.log_folder).mkdir(parents=True, exist_ok=True)
    cluster = _cluster_class()(
        **_arguments(job, refill),
        silence_logs=SILENT,
        name="dolma-dask",
        scheduler_options=job.scheduler_options,
    )
    client = client_of(cluster, stack, setting_of_user(), dashboard=dashboard)
    stack.callback(refill.cancel_jobs)
    of_client[client] = refill
    refill.watch(cluster, client)
    stack.callback(refill.end)
    sys.stderr.write(f"{_started(profile, job, client)}\n")
    return client, refill


def _started(profile: Profile, job: SlurmJob, client: "Client") -> str:
    jobs = f"{counted(profile.jobs, 'job')} of {counted(job.processes, 'worker')}"
    return f"cluster {profile.name}: {jobs}, scheduler {client.scheduler.address}; dashboard: {tunnel(client.dashboard_link)}"


def _wait_for_first(client: "Client", refill: Refill, profile: Profile) -> None:
    """Wait for a worker, however long the queue is, and say what it waits for."""
    said = ""
    while not client.nthreads():
        refill.check()
        state = refill.describe_queue()
        if state and state != said:
            said = state
            sys.stderr.write(f"cluster {profile.name}: waiting for the first worker: {state}\n")
        time.sleep(WAIT_SECONDS)


# ------------------------------------------------------------------------------------------------ dask-jobqueue


def _checked(profile: Profile) -> tuple[Profile, SlurmJob]:
    """Return a profile and its job, on a machine that can submit it."""
    if shutil.which("sbatch") is None:
        raise UsageError(
            f"profile {profile.name}: there is no program sbatch here; expected a login node of a SLURM cluster. Load its module, or take `kind: local`."
        )
    profile, job = _resolved(profile)
    _check_interface(profile, job.scheduler_options.get("interface", job.interface))
    return profile, job


def _check_interface(profile: Profile, interface: str | None) -> None:
    known = {name for _, name in socket.if_nameindex()}
    if interface is not None and interface not in known:
        raise UsageError(
            f"{profile.place_of('interface')}: this machine has no network interface {interface!r}; expected one of {', '.join(sorted(known))}. Where only compute nodes "
            "have it, name that of this machine in `scheduler-options: {interface: ...}`."
        )


def _defaults() -> dict[str, Any]:
    """Return what dask-jobqueue takes where nobody says anything."""
    import yaml

    text = Path(_dask_jobqueue().__file__).with_name("jobqueue.yaml").read_text()
    return _in_python(yaml.safe_load(text)["jobqueue"]["slurm"])


def _resolved(profile: Profile) -> tuple[Profile, SlurmJob]:
    """Return a profile over what the user's own configuration of Dask says of jobs, and its job."""
    import dask

    defaults = _defaults()  # the import makes the configuration known
    found = _in_python(dask.config.get("jobqueue.slurm"))
    own = {name: value for name, value in found.items() if value is not None and value != defaults.get(name)}
    profile = profile.over(own)
    return profile, job_of(profile, defaults)


def _in_python(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("-", "_"): value for name, value in options.items()}


def _dask_jobqueue() -> Any:
    """Import dask-jobqueue, which makes Ctrl-C and SIGTERM end a process with status 0: what the process did with them stays."""
    if "dask_jobqueue.slurm" in sys.modules:
        return sys.modules["dask_jobqueue"]
    require("dask_jobqueue", "a cluster of SLURM jobs")
    is_main = threading.current_thread() is threading.main_thread()
    set_signal = signal.signal
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    if not is_main:
        signal.signal = lambda *_: None  # other threads may not set handlers: the import would fail
    try:
        import dask_jobqueue
        import dask_jobqueue.slurm
    finally:
        signal.signal = set_signal
    for number, handler in handlers.items() if is_main else ():
        signal.signal(number, signal.SIG_DFL if handler is None else handler)
    return dask_jobqueue


def _arguments(job: SlurmJob, refill: Refill | None = None) -> dict[str, Any]:
    return {**job.arguments(), "described": job, "refill": refill}


def _job_class() -> Any:
    from distributed.core import Status

    base: Any = _dask_jobqueue().slurm.SLURMJob

    class WorkerJob(base):
        """A job with our memory and threads; says to `refill` what becomes of it."""

        job_id_regexp = r"(?:Submitted batch job |\A\s*)(?P<job_id>\d+)"  # a site's own sbatch may print more

        def __init__(
            self, *args: Any, described: SlurmJob, refill: Refill | None = None, **options: Any
        ) -> None:
            self._described, self._refill = described, refill
            super().__init__(*args, **options)

        @property
        def worker_process_threads(self) -> int:
            return 1

        @property
        def worker_process_memory(self) -> str:
            return f"{self._described.worker_mib}MiB"

        async def start(self) -> None:
            try:
                await super().start()
            except Exception as error:
                if self._refill is not None:
                    self._refill.refused(str(self.name), Refusal.of(str(error)))
                raise

        async def _submit_job(self, script_filename: str) -> str:
            words, environment = ["sbatch", script_filename], without_job_of_ours(os.environ)
            output = await _answer(
                words, lambda: self._refill is not None and self._refill.is_ending, environment
            )
            try:
                job_id = self._job_id_from_submit_output(output)
            except ValueError as error:
                raise ProgramError(
                    f"it names no job: {output.strip()[:200]!r} instead of 'Submitted batch job 17'; leave `--quiet` out"
                ) from error
            if self._refill is not None:
                self._refill.submitted(str(self.name), job_id)
            return output

        @staticmethod
        async def _call(words: list[str], **_: Any) -> str:
            return await _answer(words)

        async def close(self) -> None:
            if self._refill is None or not self._refill.is_ending:  # else all are cancelled at once
                await super().close()
            self.status = Status.closed

    return WorkerJob


class ProgramError(ClusterError, RuntimeError):
    """A program of SLURM has failed, or said nothing; dask-jobqueue knows such errors as RuntimeError."""


async def _answer(
    words: list[str],
    is_ending: Callable[[], bool] = lambda: False,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Return what a program of SLURM prints.

    Raises `ProgramError`: it fails, or does not answer in time.
    """
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=pipe, env=environment)
    answer = asyncio.ensure_future(process.communicate())
    deadline = time.monotonic() + ANSWER_SECONDS
    while not answer.done():
        await asyncio.wait([answer], timeout=WAIT_SECONDS)
        deadline = min(deadline, time.monotonic() + LAST_SECONDS) if is_ending() else deadline
        if time.monotonic() > deadline:
            process.kill()
            answer.cancel()
            raise ProgramError(f"{words[0]} timed out: no answer in {ANSWER_SECONDS:.0f} seconds")
    out, err = (part.decode(errors="replace") for part in await answer)
    if process.returncode != 0:
        raise ProgramError(f"stderr: {err.strip() or out.strip() or f'exit status {process.returncode}'}")
    return out


def _cluster_class() -> Any:
    base: Any = _dask_jobqueue().SLURMCluster

    class Jobs(base):
        """Gives each job a name that no job before had: a dying one may still hold its own."""

        job_cls = _job_class()
        _numbers = itertools.count()

        def _new_worker_name(self, worker_number: int) -> str:
            return f"{self._name}-{next(self._numbers)}"

    return Jobs
