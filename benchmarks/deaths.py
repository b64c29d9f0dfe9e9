"""Deaths of real processes while a command runs: in every pass of a job its workers, and then the command itself, get SIGKILL at moments that a seed chooses.

The pass at work is the one whose newest run has not ended, as the journals say. A command that was killed is run again at once, while its workers may still be ending. What
it costs is sampled: the CPU of every process that was seen, the largest of them, the bytes below the root.
"""

import random
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.bench_exchange import named_bytes
from dolma_dask.formats import layout
from dolma_dask.journal import Journal
from dolma_dask.testing.commands import Command

LOOK_S = 0.1
"""Seconds between two looks at the journals."""

SAMPLE_S = 0.25
"""Seconds between two samples of processes and the disk."""

STARTED_S = 0.5
"""Seconds that a worker has to have a port before it may be killed: a cluster is not there before its first workers have answered."""

PAUSE_S = 0.5
"""Longest time from one death to the next, besides what a worker needs to start."""


GAP_S = 0.5
"""Seconds without a pass at work after which something else is at work."""


@dataclass
class Seen:
    """Events of a pass."""

    name: str
    began: float
    left: list[str]  # deaths to come, the next one last
    at: float  # when it may
    seconds: float = 0.0
    workers: int = 0  # killed
    commands: int = 0
    after: "Seen | None" = None  # the time until the next pass

    @property
    def is_deadly(self) -> bool:
        """True if anything was killed."""
        return self.workers + self.commands > 0

    @classmethod
    def begun(cls, name: str, deaths: int, draw: random.Random) -> "Seen":
        """Return a pass that begins now, with the deaths to come."""
        now = time.monotonic()
        left = ["worker"] * deaths + ["command"] * (deaths > 0)
        draw.shuffle(left)
        return cls(name, now, left, now + draw.uniform(0, PAUSE_S))


@dataclass
class Observed:
    """Outcome of a command, with all runs of it that were killed on the way."""

    passes: list[Seen] = field(default_factory=list)
    wall: float = 0.0
    output: str = ""
    disk: int = 0  # most bytes below the root
    peak: float = 0.0  # MB of the largest process
    ports: dict[int, float] = field(default_factory=dict)  # since when workers have had one, by process
    _cpu: dict[int, float] = field(default_factory=dict)  # by process

    @property
    def cpu(self) -> float:
        """CPU-seconds of all processes."""
        return sum(self._cpu.values())

    @property
    def all(self) -> list[Seen]:
        """All passes, and the times between them in which there were deaths."""
        between = ([each.after] if each.after and each.after.is_deadly else [] for each in self.passes)
        return [one for each, after in zip(self.passes, between, strict=True) for one in (each, *after)]

    @property
    def commands(self) -> int:
        """Number of times that the command was killed."""
        return sum(each.commands for each in self.all)

    def at_work(self, name: str, deaths: int, draw: random.Random) -> Seen | None:
        """Return the pass of this name, or without one the time after the last pass, if it is long enough for work without a journal."""
        now = time.monotonic()
        last = self.passes[-1] if self.passes else None
        if name:
            if last is None or last.name != name:
                last = Seen.begun(name, deaths, draw)
                self.passes.append(last)
            last.seconds = now - last.began
            return last
        if last is None or now - last.began - last.seconds < GAP_S:
            return None
        last.after = last.after or Seen.begun(f"after {last.name}", deaths, draw)
        return last.after

    def sample(self, command: Command, root: Path) -> None:
        """Note what processes and files are there."""
        for process in command.family():
            with suppress(psutil.Error, OSError, StopIteration):
                self._cpu[process.pid] = sum(process.cpu_times()[:2])
                status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
                line = next(line for line in status if line.startswith("VmHWM"))
                self.peak = max(self.peak, int(line.split()[1]) * 1024 / 1e6)
        self.disk = max(self.disk, named_bytes(root))

    def rows(self) -> list[str]:
        """Return the lines of a table of passes, and of what all of them cost."""
        passes = [
            f"| {each.name} | {each.seconds:.1f} | {each.workers} | {each.commands} |" for each in self.all
        ]
        workers, commands = sum(each.workers for each in self.all), self.commands
        return [
            "| pass | s | workers killed | commands killed |\n|---|---|---|---|",
            *passes,
            f"components are those of the world; {workers} workers and {commands} commands were killed; {self.wall:.0f} s, {self.cpu:.0f} CPU-s, the "
            f"largest process {self.peak:.0f} MB, {self.disk / 1e6:,.0f} MB of disk",
        ]


def observe(
    words: Sequence[str], root: Path, deaths: int, seed: int, environment: Mapping[str, str], logs: Path
) -> Observed:
    """Run a command until it has ended by itself, with `deaths` of workers and one of its own in every pass of its job below `root`.

    Raises `RuntimeError`: it failed.
    """
    draw, found, started = random.Random(seed), Observed(), time.monotonic()
    logs.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        while True:
            log = logs / f"{found.commands}.log"
            command = stack.enter_context(Command(words, log, **environment))
            if not _killed(command, root, deaths, draw, found):
                break
    found.wall, found.output = time.monotonic() - started, command.output
    if command.wait():
        raise RuntimeError(
            f"{words} ended with {command.wait()} after {found.rows()}:\n{command.output[-3000:]}"
        )
    return found


def _killed(command: Command, root: Path, deaths: int, draw: random.Random, found: Observed) -> bool:
    """Watch a command; return True once it was killed, False when it has ended."""
    sampled = 0.0
    while command.running():
        now = time.monotonic()
        if now - sampled > SAMPLE_S:
            found.sample(command, root)
            sampled = now
        is_working = any(root.glob(f"{layout.WORK}/*/*"))  # a job that has ended leaves nothing
        seen = found.at_work(pass_at_work(root), deaths, draw) if is_working else None
        if seen and seen.left and time.monotonic() > seen.at and _kill(command, seen, found.ports, draw):
            return True
        time.sleep(LOOK_S)
    return False


def _kill(command: Command, seen: Seen, ports: dict[int, float], draw: random.Random) -> bool:
    """Kill one worker, all of them, or the command; return True if it was the command. Workers that begin are left alone."""
    workers = [worker for worker in command.workers() if _has_started(worker, ports)]
    if not workers:
        return False
    victim = seen.left.pop()
    seen.at = time.monotonic() + draw.uniform(0, PAUSE_S)
    if victim == "command":
        seen.commands += 1
        command.kill(False)
        return True
    for worker in workers if draw.random() < 0.3 else [draw.choice(workers)]:
        worker.kill()
        seen.workers += 1
    return False


def _has_started(worker: psutil.Process, ports: dict[int, float]) -> bool:
    """Tell whether a worker has had a port for some time; `ports` knows since when, by process."""
    with suppress(psutil.Error):
        if any(one.status == psutil.CONN_LISTEN for one in worker.net_connections("tcp")):
            return time.monotonic() - ports.setdefault(worker.pid, time.monotonic()) > STARTED_S
    return False


def pass_at_work(root: Path) -> str:
    """Return the verb whose newest run below a root has not ended; empty between passes."""
    journals = [*root.glob(f"{layout.JOURNAL}/*"), *root.glob(f"{layout.WORK}/*/*/{layout.JOURNAL}/*")]
    for folder in sorted(journals, key=_changed, reverse=True):
        with suppress(OSError):
            runs = Journal(str(folder.parent.parent), folder.name, runs_only=True).runs
            if runs and not runs[-1].finished:
                return folder.name
    return ""


def _changed(folder: Path) -> int:
    with suppress(OSError):
        return folder.stat().st_mtime_ns
    return 0
