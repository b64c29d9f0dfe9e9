"""A call of ``dolma-dask run`` in a process of its own, measured stage by stage: seconds, CPU-seconds and memory of the whole process tree."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.corpus import ROOT
from benchmarks.harness import cpu_seconds, environment


@dataclass(frozen=True)
class Cost:
    """Cost of a stage, or of a whole call.

    Attributes
    ----------
    megabytes : float
        Text that it worked on; 0 if nothing says.
    wall, cpu : float
        Seconds; CPU-seconds of all processes.
    peak : float
        Largest resident memory of all processes together, in MB.
    """

    megabytes: float
    wall: float
    cpu: float
    peak: float

    def cells(self) -> tuple[str, ...]:
        """Return wall and CPU-seconds, MB per CPU-second and peak memory."""
        speed = f"{self.megabytes / self.cpu:.1f}" if self.megabytes and self.cpu else ""
        return f"{self.wall:.1f}", f"{self.cpu:.1f}", speed, f"{self.peak:,.0f}"


@dataclass(frozen=True)
class Call:
    """A call of the pipeline: the costs of all stages, of the rest and of the whole, and what it said of each stage."""

    costs: dict[str, Cost]
    states: dict[str, str]

    @property
    def whole(self) -> Cost:
        """Cost of the whole call."""
        return self.costs["whole"]


class Memory:
    """Samples what is resident in a process and its descendants, in MB, every 50 ms."""

    def __init__(self, pid: int) -> None:
        self.samples: list[tuple[float, float]] = []
        self._root = psutil.Process(pid)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "Memory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ends.wait(0.05):
            self.samples.append((time.monotonic(), self._resident()))

    def _resident(self) -> float:
        total = 0
        try:
            for process in (self._root, *self._root.children(recursive=True)):
                total += process.memory_info().rss
        except psutil.NoSuchProcess:
            pass  # it ended just now
        return total / 1e6

    def peak(self, begin: float, end: float) -> float:
        """Return the largest sample of a time."""
        return max((size for at, size in self.samples if begin <= at <= end), default=0.0)


def call_pipeline(words: Sequence[str], scratch: Path, variables: dict[str, str], megabytes: float) -> Call:
    """Run the pipeline in a process of its own and measure it.

    Raises
    ------
    SystemExit
        It failed; with what it said.
    """
    clock, said = scratch / "clock.jsonl", scratch / "said"
    clock.unlink(missing_ok=True)
    command = [
        sys.executable,
        "-m",
        "benchmarks.stage_clock",
        str(clock),
        "run",
        *words,
        "--json",
        "--no-progress",
    ]
    begin, before = time.monotonic(), cpu_seconds()
    with said.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**measured_environment(), **variables},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        with Memory(process.pid) as memory:
            status = process.wait()
    wall, cpu = time.monotonic() - begin, cpu_seconds() - before
    if status:
        raise SystemExit(f"dolma-dask run {' '.join(words)}: status {status}\n{said.read_text()[-4000:]}")
    stages = json.loads(said.read_text())["stages"]
    costs = {stage["name"]: _cost(stage, clock, memory, megabytes) for stage in stages}
    rest_wall, rest_cpu = (sum(getattr(cost, name) for cost in costs.values()) for name in ("wall", "cpu"))
    costs["besides"] = Cost(0, wall - rest_wall, cpu - rest_cpu, 0)
    costs["whole"] = Cost(megabytes, wall, cpu, memory.peak(begin, begin + wall))
    return Call(costs, {stage["name"]: stage["state"] for stage in stages})


def measured_environment() -> dict[str, str]:
    """Return what measured processes have; tests name their own folder of compiled kernels."""
    kernels = {name: os.environ[name] for name in ("NUMBA_CACHE_DIR",) if name in os.environ}
    return {
        name: value
        for name, value in {**environment(), **kernels}.items()
        if not name.startswith(("AWS_", "FSSPEC_"))
    }


def _cost(stage: dict[str, Any], clock: Path, memory: Memory, megabytes: float) -> Cost:
    begin, end = (
        line for line in map(json.loads, clock.read_text().splitlines()) if line["stage"] == stage["name"]
    )
    counts = (stage["summary"] or {}).get("counts", {})
    text = counts.get("text_bytes_in", counts.get("text_bytes", megabytes * 1e6)) / 1e6
    return Cost(
        0 if stage["verb"] == "report" else text,
        end["at"] - begin["at"],
        end["cpu"] - begin["cpu"],
        memory.peak(begin["at"], end["at"]),
    )
