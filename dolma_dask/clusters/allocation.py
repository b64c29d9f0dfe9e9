"""Workers on all nodes of the SLURM job in which this command runs: `srun` starts them beside it, and nothing waits in a queue.

dask-jobqueue's SLURMRunner would need ``srun`` before the command, so that every task of the job runs the whole program and two of them do no work.
With srun from inside, an ordinary line of a batch script is enough, and the same line works anywhere else with another profile. The scheduler
lives in this process, on the first node. A node that is lost takes its own workers with it where the job may go on without it (``--no-kill``). When srun ends before
the command does, it is started again on the nodes that are left.
"""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.clusters.jobs import MIN_WORKER_MIB, PARENT_MIB, exports
from dolma_dask.clusters.local import check_has_threads
from dolma_dask.clusters.profiles import Profile
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
from dolma_dask.processes import interrupts_held_back

if TYPE_CHECKING:
    from distributed import Client

COMMAND_MIB = 300
"""Memory of this process, with the scheduler in it, on the first node."""

STARTS = 3
"""So many times in a row srun may end before a worker has come."""


class Allocation(Struct, frozen=True):
    """Resources that SLURM has given to the job of this process."""

    nodes: int
    processes: int  # workers of each node
    memory_mib: int | None  # of each node; None: not limited by the job

    @classmethod
    def of(cls, environment: Mapping[str, str], workers: int | None) -> "Allocation":
        """Read the variables that SLURM sets for a batch script.

        Raises `UsageError`: this process is in no job.
        """
        if "SLURM_JOB_ID" not in environment:
            raise UsageError(
                "cluster 'allocation': this process runs in no SLURM job (SLURM_JOB_ID is not set); expected a line of a script that was submitted with sbatch, or a "
                "shell of salloc. Elsewhere take the profile 'slurm', which submits jobs itself."
            )
        cpus = int(environment.get("SLURM_CPUS_ON_NODE") or 1)
        per_cpu = int(environment.get("SLURM_MEM_PER_CPU") or 0) * cpus
        memory = int(environment.get("SLURM_MEM_PER_NODE") or 0) or per_cpu
        return cls(int(environment.get("SLURM_JOB_NUM_NODES") or 1), workers or cpus, memory or None)

    @property
    def worker_memory(self) -> str:
        """Limit of a worker as Dask takes it: its share of what the job has, less what this process and srun's need."""
        if self.memory_mib is None:
            return "auto"
        return f"{max((self.memory_mib - COMMAND_MIB - PARENT_MIB) // self.processes, MIN_WORKER_MIB)}MiB"

    def command(self, address: str, options: Mapping[str, str | None]) -> list[str]:
        """Return the call of srun that starts the workers of all nodes."""
        scratch = options.get("local_directory") or "${TMPDIR:-/tmp}"
        interface = options.get("interface")
        worker = [
            f"{sys.executable} -m distributed.cli.dask_worker {address} --nthreads 1 --nworkers {self.processes} --memory-limit {self.worker_memory} --no-dashboard",
            f'--name "dolma-dask-$SLURM_NODEID-$$" --nanny --death-timeout 60 --local-directory "{scratch}"',
            *([f"--interface {interface}"] if interface else []),
        ]
        nodes = str(self.nodes)
        return [
            *("srun", "--overlap", "--nodes", nodes, "--ntasks", nodes, "--ntasks-per-node", "1"),
            *(
                "--no-kill",
                "--kill-on-bad-exit=0",
                "--wait=0",
                "bash",
                "-c",
                "\n".join(
                    [*exports(), "export DASK_LOGGING__DISTRIBUTED=warning", "exec " + " ".join(worker)]
                ),
            ),
        ]


@contextmanager
def allocation_client(profile: Profile, *, dashboard: bool = False) -> Iterator["Client"]:
    """Start a worker for each CPU of the job of this process, and yield a client once the first is there."""
    check_has_threads()
    if shutil.which("srun") is None:
        raise UsageError(
            "cluster 'allocation': there is no program srun here; expected a node of a SLURM cluster."
        )
    allocation = Allocation.of(os.environ, profile.workers)
    with ExitStack() as stack:
        with interrupts_held_back():
            client, steps = _start(profile, allocation, stack, dashboard)
        with stopped_by_sigterm():
            try:
                while not client.nthreads():
                    steps.check()
                    time.sleep(0.1)
                yield client
            finally:
                with interrupts_held_back():
                    stack.close()


def nodes_left(job_id: str, otherwise: int) -> int:
    """Return the number of nodes that a job has now: fewer than at its start where one was lost; `otherwise` if SLURM does not tell."""
    words = ["squeue", "-h", "-j", job_id, "-o", "%D"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True)
        return int(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return otherwise


def _start(
    profile: Profile, allocation: Allocation, stack: ExitStack, dashboard: bool
) -> tuple["Client", "_Steps"]:
    from distributed import LocalCluster
    from distributed.utils import get_ip, get_ip_interface

    hold_settings(stack)
    interface = profile.over({}).jobqueue.get("interface")
    host = get_ip_interface(interface) if interface else get_ip()
    cluster = LocalCluster(n_workers=0, host=host, dashboard_address=":0", silence_logs=SILENT)
    client = client_of(cluster, stack, setting_of_user(), dashboard=dashboard)
    steps = _Steps(profile, allocation, cluster.scheduler.address, client)
    stack.callback(steps.end)
    of_client[client] = steps
    total = counted(allocation.nodes * allocation.processes, "worker")
    sys.stderr.write(
        f"cluster {profile.name}: {total} on {counted(allocation.nodes, 'node')} of job {os.environ['SLURM_JOB_ID']}; "
        f"dashboard: {tunnel(client.dashboard_link)}\n"
    )
    return client, steps


class _Steps:
    """Keeps srun running, and ends it."""

    def __init__(self, profile: Profile, allocation: Allocation, address: str, client: "Client") -> None:
        self._profile, self._allocation, self._address, self._client = profile, allocation, address, client
        self._ended = False
        self._lost = ""
        self._step = self._call(allocation)
        threading.Thread(target=self._keep, name="srun", daemon=True).start()

    def _call(self, allocation: Allocation) -> "subprocess.Popen[bytes]":
        command = allocation.command(self._address, self._profile.over({}).jobqueue)
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)

    def _left(self) -> Allocation:
        """Return the allocation without the nodes that were lost, for which srun would wait."""
        nodes = nodes_left(os.environ["SLURM_JOB_ID"], self._allocation.nodes)
        return replace(self._allocation, nodes=nodes)

    def _keep(self) -> None:
        failed = 0
        while not self._ended and failed < STARTS:
            begun = time.monotonic()
            while self._step.poll() is None and not self._ended:
                time.sleep(0.5)
            if self._ended:
                return
            failed = 0 if time.monotonic() - begun > 60 else failed + 1
            if failed < STARTS:
                time.sleep(2**failed)
                self._step = self._call(self._left())
        self._lost = f"srun ended {STARTS} times in a row with status {self._step.returncode}"

    def check(self) -> None:
        """Raise `ClusterError` if srun does not stay."""
        if self._lost:
            raise ClusterError(
                f"cluster {self._profile.name}: {self._lost}; expected it to run workers. What it says stands above, in the log of this job."
            )

    @property
    def memory_setting(self) -> str:
        """Setting to change when workers need more memory."""
        return f"`--mem` of the batch script, which gives {self._allocation.worker_memory} to each of {self._allocation.processes} workers of a node"

    def died_of_memory(self, worker: Any) -> bool:
        """Tell whether Dask killed a worker for its memory."""
        return any(
            event.get("worker") == worker.address
            for _, event in self._client.get_events("worker-restart-memory")
        )

    def end(self) -> None:
        """End the workers: by Dask, so that srun has nothing to kill, else by srun."""
        self._ended = True
        with suppress(Exception):
            self._client.retire_workers()
            self._step.wait(5)
        with suppress(OSError, subprocess.SubprocessError):
            self._step.terminate()
            self._step.wait(10)
        with suppress(OSError):
            self._step.kill()
