"""Definition and measurement of benchmarks: each runs in a fresh process, in CPU-seconds of that process and its children.

CPU-seconds say what a job costs and hardly depend on what else the machine does; wall-seconds do. Each benchmark is run several times,
and the run with the median of CPU-seconds is told. What stands before ``with job.measured(...)`` is start-up (imports, compiled
kernels, first use) and is not counted; a benchmark of a command counts everything, and is called so.

Compiled kernels are kept in a folder named by the sources: numba itself would not notice all changes.
"""

import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from benchmarks.corpus import BUILD, ROOT, Corpus
from dolma_dask.metering import peak_bytes

KERNEL = re.compile(rb"\bnjit\b|@kernel\b|@operation\b")
"""Marks of a source with compiled functions."""

NO_FIGURE = 3
"""Exit status of a benchmark that has nothing to measure here."""

ERROR_LINES = 12
"""Lines that are shown of the output of a benchmark that failed."""


class BenchmarkError(Exception):
    """A benchmark did not run to its end."""


@dataclass(frozen=True)
class Result:
    """One run: MB (10**6 bytes) of what is processed, CPU- and wall-seconds, and the largest process in MB."""

    megabytes: float
    cpu: float
    wall: float
    peak: float
    note: str = ""

    @property
    def speed(self) -> float:
        """MB per CPU-second."""
        return self.megabytes / self.cpu


@dataclass(frozen=True)
class Goal:
    """A limit: least MB per CPU-second, most CPU-seconds, or most CPU-seconds per MB as a multiple of the benchmark beside."""

    quantity: Literal["speed", "cpu", "ratio"]
    limit: float

    def __str__(self) -> str:
        return {"speed": ">= {:g}", "cpu": "<= {:g} s", "ratio": "<= {:g} x CPU"}[self.quantity].format(
            self.limit
        )

    def is_met(self, result: Result, beside: Result | None) -> bool:
        """Tell whether `result` keeps the goal; a ratio to nothing does."""
        if self.quantity == "speed":
            return result.speed >= self.limit
        if self.quantity == "cpu":
            return result.cpu <= self.limit
        return beside is None or beside.speed / result.speed <= self.limit


class Job:
    """Means of a benchmark: the corpus, a scratch folder, and the stopwatch."""

    def __init__(self, corpus: Corpus, quick: bool, scratch: Path) -> None:
        self.corpus = corpus
        self.quick = quick
        self.scratch = scratch
        self.result: Result | None = None

    @contextmanager
    def measured(self, megabytes: float) -> Iterator[None]:
        """Measure what is inside; `megabytes` is what it works on."""
        cpu, wall = cpu_seconds(), time.perf_counter()
        yield
        self.result = Result(megabytes, cpu_seconds() - cpu, time.perf_counter() - wall, peak_megabytes())


@dataclass(frozen=True)
class Benchmark:
    """A named function over a `Job`; `unit` says of what the MB are, `beside` names the benchmark to compare with."""

    name: str
    run: Callable[[Job], None]
    goal: Goal | None = None
    beside: str | None = None
    unit: str = "text"
    about: str = ""


BENCHMARKS: dict[str, Benchmark] = {}


def benchmark(name: str, **fields: object) -> Callable[[Callable[[Job], None]], Callable[[Job], None]]:
    """Register the decorated function; its docstring is what ``--list`` shows."""

    def register(run: Callable[[Job], None]) -> Callable[[Job], None]:
        fields.setdefault("about", (run.__doc__ or "").split("\n")[0])
        BENCHMARKS[name] = Benchmark(name, run, **fields)  # type: ignore[arg-type]
        return run

    return register


def cpu_seconds() -> float:
    """User and system time of this process and of all children it has waited for."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def peak_megabytes() -> float:
    """Largest resident memory so far of this process, or of one child if that was larger."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6
    return max(peak_bytes() / 1e6, children)


def environment() -> dict[str, str]:
    """Variables of measured processes: one thread for each library, byte code and compiled kernels kept."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    threads = {"OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    return {**kept, **threads, "NUMBA_CACHE_DIR": str(kernel_cache()), "PYTHONPATH": str(ROOT)}


def kernel_cache() -> Path:
    """Return the folder of compiled kernels, which exists once one is compiled; those of other sources are removed."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "dolma_dask").rglob("*.py")):
        if KERNEL.search(source := path.read_bytes()):
            digest.update(source)
    cache = BUILD / "kernels" / digest.hexdigest()[:16]
    for old in cache.parent.glob("*"):
        if old != cache:
            shutil.rmtree(old, ignore_errors=True)
    return cache


def run(item: Benchmark, corpus: Corpus, *, quick: bool, repeats: int) -> Result | None:
    """Run a benchmark in fresh processes and return the run with median CPU-seconds; None if it says it cannot run here."""
    results = []
    for _ in range(1 if quick else repeats):
        command = [sys.executable, "-m", "benchmarks", "--child", item.name, "--corpus", corpus.origin]
        done = subprocess.run(
            command + ["--quick"] * quick, cwd=ROOT, env=environment(), capture_output=True, text=True
        )
        if done.returncode == NO_FIGURE:
            return None
        if done.returncode:
            last = "\n  ".join((done.stdout + done.stderr).splitlines()[-ERROR_LINES:])
            raise BenchmarkError(f"{item.name} failed:\n  {last}")
        results.append(Result(**json.loads(done.stdout.splitlines()[-1])))
    return sorted(results, key=lambda result: result.cpu)[(len(results) - 1) // 2]


def run_here(item: Benchmark, corpus: Corpus, quick: bool) -> int:
    """Run a benchmark in this process, print its result as JSON, and return the exit status."""
    scratch = BUILD / "scratch" / item.name
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    job = Job(corpus, quick, scratch)
    item.run(job)
    shutil.rmtree(scratch, ignore_errors=True)
    if job.result is None:
        return NO_FIGURE
    print(json.dumps(asdict(job.result)))
    return 0


HEADERS = ("", "MB", "of", "CPU s", "MB/CPU-s", "MB/wall-s", "peak MB", "goal", "beside")


def rows(items: Sequence[Benchmark], results: Mapping[str, Result | None]) -> list[tuple[str, ...]]:
    """Return the cells of the table, a row per benchmark that was run."""
    return [_row(item, results[item.name], results) for item in items if item.name in results]


def _row(item: Benchmark, result: Result | None, results: Mapping[str, Result | None]) -> tuple[str, ...]:
    if result is None:
        return (item.name, *["-"] * 6, "", "")
    other = results.get(item.beside or "")
    size, unit, speed, pace = "", "", "", ""
    if result.megabytes:
        size, unit = f"{result.megabytes:.1f}", item.unit
        speed, pace = f"{result.speed:.1f}", f"{result.megabytes / result.wall:.1f}"
    goal = item.goal and f"{item.goal} {'met' if item.goal.is_met(result, other) else 'MISSED'}"
    told = [result.note, item.beside and f"{item.beside}: {_beside(item, result, other)}"]
    cells = (item.name, size, unit, f"{result.cpu:.2f}", speed, pace, f"{result.peak:.0f}", goal or "")
    return (*cells, "; ".join(filter(None, told)))


def _beside(item: Benchmark, result: Result, other: Result | None) -> str:
    if other is None:
        return "-"
    if not other.megabytes:
        return f"{other.cpu:.2f} s"
    if item.goal and item.goal.quantity == "ratio":
        return f"{other.speed:.1f}, {other.speed / result.speed:.2f} x its CPU"
    return f"{other.speed:.1f}, {result.speed / other.speed:.2f} x"


def table(cells: Sequence[tuple[str, ...]]) -> str:
    """Return rows below `HEADERS` as text."""
    lines = [HEADERS, *cells]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADERS))]
    left = {0, 2, 7, 8}
    return "\n".join(
        "  ".join(
            f"{cell:<{width}}" if at in left else f"{cell:>{width}}"
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
