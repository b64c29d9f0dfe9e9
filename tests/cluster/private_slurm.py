"""A SLURM of one's own: slurmctld, slurmd and munge in a folder, on free ports, as the current user; nothing of the machine is touched.

One node, this machine, or several (`nodes`), each with `CPUS` processors whatever it has. Jobs are killed when they outgrow their memory (looked at every second), and at their
walltime (looked at every half minute, so a limit of one minute ends after 60 to 90 seconds). No node is given up because it is slow to answer. Jobs have numbers that no other such SLURM of this machine
gives: `processes_of` finds them by these.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
from nodes import Node
from ports import held_ports

from dolma_dask.testing.commands import DEADLINE_S

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "sinfo", "squeue")
CPUS = 4
"""More than small machines have: a command in a job of its own has to run beside two jobs of workers."""

CONFIGURATION = """\
ClusterName=private
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/socket
SlurmctldPort={controller_port}
FirstJobId={controller_port}000
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/log/ended_jobs.log
MpiDefault=none
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
KillWait=2
MessageTimeout=60
TCPTimeout=30
BatchStartTimeout=600
SlurmdTimeout=3600
UnkillableStepTimeout=600
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=small Nodes=ALL Default=NO MaxTime=10 State=UP
"""

NODE = "NodeName={name} NodeHostname={name} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory={memory} State=UNKNOWN\n"


def program(name: str) -> str | None:
    """Return the path of a program; daemons lie where ordinary users do not look."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def missing_programs() -> list[str]:
    """Return the programs that are not installed."""
    return [name for name in PROGRAMS if program(name) is None]


def wait_for(condition, what, limit_s=DEADLINE_S):
    """Poll until `condition` holds; return what it gave."""
    deadline = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {limit_s:.0f} s for {what() if callable(what) else what}"
        time.sleep(0.05)
    return found


class Slurm:
    """Its daemons and jobs.

    Parameters
    ----------
    folder : Path
        Holds all of its files; short, since sockets lie in it.
    nodes : sequence of Node
        Its nodes; none: this machine is the only one.
    """

    def __init__(self, folder: Path, nodes: Sequence[Node] = ()) -> None:
        self.folder, self.nodes = folder, nodes
        self.configuration = folder / "slurm.conf"
        self.environment = {"SLURM_CONF": str(self.configuration)}
        self._earlier: set[int] = set()  # jobs of tests before

    def start(self) -> None:
        """Start the daemons and wait until the node takes jobs."""
        for name in ("munge", "state", "spool", "log"):
            (self.folder / name).mkdir(parents=True)
        self.folder.chmod(0o711)
        self._start_munge()
        self.configuration.write_text(self._configuration())
        self.call("slurmctld", "-c")
        for node in self.nodes:
            self.start_node(node)
        if not self.nodes:
            self.call("slurmd")
        self.wait_for_nodes()

    def start_node(self, node: Node) -> None:
        """Start a node, or start it again after it was stopped."""
        (self.folder / f"spool/{node.name}").mkdir(exist_ok=True)
        variables = (f"{name}={value}" for name, value in self.environment.items())
        node.start("env", *variables, program("slurmd") or "slurmd")

    def clear(self) -> None:
        """Stop all jobs, and start the nodes again that a test has stopped or frozen."""
        hurt = [node for node in self.nodes if node.is_hurt]
        for node in hurt:
            node.stop()
            self.down(node)
        self.cancel_all()
        for node in hurt:
            self.start_node(node)
        self.wait_for_nodes()

    def down(self, node: Node) -> None:
        """Say that a node does not answer any more, as SLURM finds out by itself after `SlurmdTimeout`."""
        self.call("scontrol", "update", f"nodename={node.name}", "state=down", "reason=stopped")

    def wait_for_nodes(self) -> None:
        """Wait until all nodes take jobs."""
        wait_for(
            lambda: set(self.call("sinfo", "-h", "-N", "-o", "%T", check=False).split()) == {"idle"},
            self.logs,
        )

    def _start_munge(self) -> None:
        place = self.folder / "munge"
        place.chmod(0o755)  # others would be refused the socket
        (place / "key").write_bytes(os.urandom(128))
        (place / "key").chmod(0o600)
        files = [f"--{name}-file={place}/{name}" for name in ("key", "pid", "log", "seed")]
        self.call("munged", "--force", f"--socket={place}/socket", "--num-threads=2", *files)

    def _configuration(self) -> str:
        (memory,) = re.findall(r"RealMemory=(\d+)", self.call("slurmd", "-C"))
        host = socket.gethostname().partition(".")[0]
        names = [node.name for node in self.nodes] or [host]
        controller_port, *ports = held_ports(1 + len(names))
        user, cpus, memory = psutil.Process().username(), CPUS, int(memory) - 1024
        text = CONFIGURATION.format(host=host, user=user, folder=self.folder, controller_port=controller_port)
        lines = [
            NODE.format(name=name, port=port, cpus=cpus, memory=memory)
            for name, port in zip(names, ports, strict=True)
        ]
        return text + "".join(lines)

    def stop(self) -> None:
        """Cancel all jobs and stop the daemons, those of this folder alone."""
        with suppress(AssertionError, subprocess.TimeoutExpired):  # it may not have started
            self.cancel_all()
        for node in self.nodes:
            node.stop()
        processes = [*self._daemons()]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
        for process in psutil.wait_procs(processes, timeout=10)[1]:
            process.kill()

    def _daemons(self) -> Iterator[psutil.Process]:
        """Yield the processes that files name, and that are of this SLURM: nodes that were stopped leave their numbers behind."""
        for file in [*self.folder.glob("slurm*.pid"), *self.folder.glob("munge/pid")]:
            with suppress(psutil.Error, ValueError):
                process = psutil.Process(int(file.read_text()))
                if process.environ().get("SLURM_CONF") == str(self.configuration):
                    yield process

    def call(self, name: str, *words: str, check: bool = True) -> str:
        """Run one of SLURM's programs and return what it prints."""
        command = [program(name) or name, *words]
        environment = {**os.environ, **self.environment}
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=DEADLINE_S, env=environment
        )
        assert not check or done.returncode == 0, f"{words}: {done.stdout}{done.stderr}{self.logs()}"
        return done.stdout.strip()

    def logs(self) -> str:
        """Return the last lines of the daemons' logs."""
        files = sorted(self.folder.glob("log/*.log"))
        return "".join(f"\n{file.name}:\n{file.read_text(errors='replace')[-1500:]}" for file in files)

    def jobs(self) -> list[int]:
        """Return the numbers of all jobs that wait, run or are just being stopped."""
        return sorted(map(int, self.call("squeue", "-h", "-r", "-o", "%A").split()))

    def running(self) -> list[int]:
        """Return the numbers of the jobs that run."""
        return sorted(map(int, self.call("squeue", "-h", "-r", "-t", "R", "-o", "%A").split()))

    def submit(self, *words: str) -> int:
        """Submit a job with options and script of sbatch, and return its number."""
        return int(self.call("sbatch", "--parsable", *words))

    def cancel(self, job: int | str, *words: str) -> None:
        """Stop a job as ``scancel`` does: SIGTERM, and SIGKILL two seconds later; `words` may name another signal."""
        self.call("scancel", *words, str(job))

    def cancel_all(self) -> None:
        """Stop all jobs, those too that are submitted meanwhile, and wait until none is left; SLURM lets a stopped process (SIGSTOP) go on for that."""
        with suppress(AssertionError):
            self._cancel_until_none(limit_s=20)
            return
        self._cancel_until_none("-s", "KILL", "-f")

    def _cancel_until_none(self, *words: str, limit_s: float = DEADLINE_S) -> None:
        told: set[int] = set()

        def none_is_left() -> bool:
            jobs = set(self.jobs())
            for job in jobs - told:
                self.call("scancel", *words, str(job), check=False)
            told.update(jobs)
            return not jobs

        wait_for(none_is_left, lambda: f"jobs to end: {self.call('squeue')}", limit_s)

    def wait_for_end(self, *jobs: int) -> None:
        """Wait until jobs have ended, or all where none is named."""
        wait_for(
            lambda: not (set(self.jobs()) & set(jobs) if jobs else self.jobs()),
            lambda: f"the end of jobs {jobs}: {self.call('squeue')}",
        )

    def begin(self) -> None:
        """Stop and forget the jobs of earlier tests."""
        self.cancel_all()
        self._earlier |= self.end_states().keys()

    def end_states(self) -> dict[int, str]:
        """Return how jobs of this test have ended, by number: COMPLETED, FAILED, CANCELLED, TIMEOUT."""
        return self._ended("JobState")

    def nodes_of_jobs(self) -> dict[int, str]:
        """Return the nodes of jobs of this test that have ended, by number."""
        return self._ended("NodeList")

    def _ended(self, what: str) -> dict[int, str]:
        log = self.folder / "log/ended_jobs.log"
        lines = log.read_text() if log.exists() else ""
        found = re.findall(rf"JobId=(\d+) .*?{what}=(\S+)", lines)
        return {int(job): value for job, value in found if int(job) not in self._earlier}


def job_of(process: psutil.Process) -> int:
    """Return the number of the job that a process belongs to."""
    return int(process.environ()["SLURM_JOB_ID"])


def processes_of(job: int) -> list[psutil.Process]:
    """Return the processes of a job on this machine, its script included."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            of_slurm = process.name() == "slurmstepd"  # watches the job
            if not of_slurm and process.environ().get("SLURM_JOB_ID") == str(job):
                found.append(process)
    return found


def kill_at_once(job: int) -> None:
    """Kill all processes of a job at one moment, as when its node loses power."""
    for process in processes_of(job):
        with suppress(psutil.Error):
            process.send_signal(signal.SIGKILL)
