"""Pairs of 16 bytes (key, document) through the exchange: CPU per phase, memory, and what many small tasks cost.

Run ``python -m benchmarks.bench_pairs`` (a minute; ``--quick``: a million records each). A kernel makes the records (5 ns each), of which every fifth has the key
of an earlier one; another makes an edge of each of these (3 ns per record). Both are in the figures. Each line is that of a fresh process without
workers, warmed up by 0.3 M records.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from benchmarks.bench_exchange import spent, warm
from benchmarks.corpus import BUILD
from benchmarks.harness import environment
from dolma_dask.engine import Passes, Ran, Task, WorkDir, run_job
from dolma_dask.exchange import Emitted
from dolma_dask.exchange.buckets import of_shards
from dolma_dask.exchange.contract import to_records, to_words
from dolma_dask.exchange.passes import by_shard, reduce, scatter
from dolma_dask.journal import Record
from dolma_dask.options.groups import RunOptions
from dolma_dask.testing.exchange import Collected, ExchangeJob
from dolma_dask.text.bits import mix
from dolma_dask.text.columns import for_kernel
from dolma_dask.text.kernels import Int, Words, kernel

PAIRS = np.dtype([("key", "<u8"), ("docno", "<u8")])
EDGES = np.dtype([("location", "<u8"), ("other", "<u8")])
BLOCK = 1 << 16
MILLION = 1_000_000

CASES = ((16, 16), (64, 64), (64, 2000), (256, 64))
"""Million records, tasks."""


@kernel
def fill(first: Int, rows: Words) -> None:
    """Write (key, docno) of documents from `first` on."""
    for row in range(rows.shape[0]):
        docno = np.uint64(first + row)
        is_copy = docno > 2000 and mix(docno) % np.uint64(5) == 0
        rows[row, 0] = mix(docno - np.uint64(1000) if is_copy else docno)
        rows[row, 1] = docno


@kernel
def edges(rows: Words, state: Words, out: Words) -> Int:
    """Write an edge for each of the sorted rows whose key the one before has; `state` (3,) is what the last chunk has left."""
    count = 0
    for row in range(rows.shape[0]):
        if state[2] and rows[row, 0] == state[0]:
            out[count, 0] = rows[row, 1]
            out[count, 1] = state[1]
            count += 1
        else:
            state[0] = rows[row, 0]
            state[1] = rows[row, 1]
            state[2] = np.uint64(1)
    return count


@dataclass(frozen=True)
class Pairs:
    """Emits the records of a task, which is (first, count)."""

    dtype: np.dtype = PAIRS

    def emit(self, task: Task, out: Callable[[np.ndarray], None], folder: str) -> Emitted:
        first, count = task.work
        rows = np.empty((BLOCK, 2), np.uint64)
        for at in range(first, first + count, BLOCK):
            block = rows[: min(BLOCK, first + count - at)]
            fill(at, block)
            out(to_records(block, PAIRS))
        return Emitted((), count)


@dataclass(frozen=True)
class Edges:
    """Gives out an edge for each record but the first of a key."""

    dtype: np.dtype = EDGES

    def reduce(self, runs: Iterable[np.ndarray], out: Callable[[np.ndarray], None]) -> dict[str, Any]:
        state, total = np.zeros(3, np.uint64), 0
        for run in runs:
            found = np.empty((len(run), 2), np.uint64)
            count = edges(for_kernel(to_words(run, PAIRS)), state, found)
            out(to_records(found[:count], EDGES))
            total += int(count)
        return {"edges": total}


class PairsJob(ExchangeJob, frozen=True):
    """Scatter, reduce and regroup by shard; notes the cost of each."""

    log: list[tuple[str, float, float, float]] = msgspec.field(default_factory=list)

    def passes(self, work: WorkDir, known: Record | None) -> Passes:
        staged = yield from self._timed("scatter", scatter(work, self.emitter, self.tasks))
        reduced = yield from self._timed("reduce", reduce(work, self.reducer, staged, cut=of_shards(1)))
        yield from self._timed("by_shard", by_shard(work, reduced.staged))
        count = sum(info["edges"] for info in reduced.infos)
        return Ran(Collected(self.verb, self.root, value=count), {})

    def _timed(self, name: str, steps: Any) -> Any:
        before, started = warm(), time.perf_counter()
        answer = yield from steps
        self.log.append((name, *spent(before), time.perf_counter() - started))
        return answer


def run(root: str, records: int, count: int) -> tuple[int, list[tuple[str, float, float, float]]]:
    """Exchange so many records from so many tasks; return the number of edges, and (phase, CPU, MB above, wall) of each phase."""
    size = -(-records // count)
    works = [(first, min(size, records - first)) for first in range(0, records, size)]
    tasks = [Task(f"task {first}", (), (), (first, size)) for first, size in works]
    job = PairsJob(root, Pairs(), tasks, Edges(), 1, int, name="pairs")
    found = run_job(job, RunOptions(scheduler="synchronous", progress=False)).value
    return found, job.log


def child(records: int, tasks: int) -> None:
    """Measure one case in this process."""
    root = str(BUILD / "scratch" / "pairs")
    shutil.rmtree(root, ignore_errors=True)
    run(root, 300_000, 3)
    print(json.dumps(run(root, records, tasks)))


def main() -> None:
    """Print a table of all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--child", nargs=2, type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(*given.child)
        return
    print("M records  tasks  edges       phase      CPU s  wall s  M/CPU-s  above MB")
    for millions, tasks in CASES:
        records = MILLION if given.quick else millions * MILLION
        words = [sys.executable, "-m", "benchmarks.bench_pairs", "--child", str(records), str(tasks)]
        done = subprocess.run(
            words, cwd=BUILD.parent.parent, env=environment(), capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(done.stderr)
        found, log = json.loads(done.stdout)
        log.append(
            ("all", sum(one[1] for one in log), max(one[2] for one in log), sum(one[3] for one in log))
        )
        for phase, cpu, above, wall in log:
            rate = records / MILLION / cpu
            print(
                f"{records / MILLION:9.0f} {tasks:6} {found:10}  {phase:9} {cpu:6.2f} {wall:7.2f} {rate:8.1f} {above:9.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
