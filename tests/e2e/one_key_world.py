"""Many records of one key through an exchange, in a process of its own, which tells what came out and how much memory that took.

``python one_key_world.py ROOT RECORDS``
"""

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dolma_dask.engine import Task
from dolma_dask.exchange import Emitted, Exchanged
from dolma_dask.metering import peak_bytes
from dolma_dask.options.groups import RunOptions
from dolma_dask.testing.exchange import ExchangeJob, run_exchange

TASKS = 5
BLOCK = 100_000
KEY = (7 * 0x9E3779B97F4A7C15 % 2**64, 42)
STEP = 1000
"""Records of which one is given out."""

KEYED = np.dtype([("hi", "<u8"), ("lo", "<u8"), ("location", "<u8")])
RANKED = np.dtype([("location", "<u8"), ("rank", "<u8")])


@dataclass(frozen=True)
class OneKey:
    """Emits places in blocks, the last first, all with one key."""

    rows: int
    dtype: np.dtype = KEYED

    def emit(self, task: Task, out: Callable[[np.ndarray], None], folder: str) -> Emitted:
        for start in reversed(range(0, self.rows, BLOCK)):
            places = np.arange(start, min(start + BLOCK, self.rows), dtype=np.uint64)
            records = np.empty(len(places), KEYED)
            records["hi"], records["lo"] = KEY
            records["location"] = (task.work << 32) + places
            out(records[::-1])
        return Emitted((), self.rows)


@dataclass(frozen=True)
class Ranks:
    """Tells how many records came, in how many chunks, and whether they were in order."""

    dtype: np.dtype = RANKED

    def reduce(self, runs: Iterable[np.ndarray], out: Callable[[np.ndarray], None]) -> dict[str, Any]:
        count = chunks = largest = 0
        last, is_sorted = -1, True
        for run in runs:
            places = run["location"]
            is_sorted &= last < int(places[0]) and bool((places[1:] > places[:-1]).all())
            last = int(places[-1])
            ranks = np.arange(count, count + len(run), dtype=np.uint64)
            chosen = ranks % STEP == 0
            ranked = np.empty(int(chosen.sum()), RANKED)
            ranked["location"], ranked["rank"] = places[chosen], ranks[chosen]
            out(ranked)
            count, chunks, largest = count + len(run), chunks + 1, max(largest, len(run))
        return {"count": count, "chunks": chunks, "largest": largest, "sorted": is_sorted}


def run(root: str, name: str, records: int, collect: Callable[[Exchanged], Any]) -> Any:
    """Exchange so many records."""
    tasks = [Task(f"task {number}", (), (), number) for number in range(TASKS)]
    job = ExchangeJob(root, OneKey(records // TASKS), tasks, Ranks(), TASKS, collect, name=name)
    return run_exchange(job, RunOptions(scheduler="synchronous", progress=False))


def main(root: str, records: int) -> None:
    """Run it small, so that everything is compiled and loaded, then large."""
    run(root, "warm", 50 * STEP, lambda exchanged: None)
    warm = peak_bytes()
    rows = records // TASKS
    expected = [
        [(number << 32 | row, number * rows + row) for row in range(0, rows, STEP)] for number in range(TASKS)
    ]

    def collect(done: Exchanged) -> tuple[Any, bool]:
        found = [[tuple(one) for one in done.by_shard.of_shard(number).tolist()] for number in range(TASKS)]
        return done.infos, found == expected

    infos, same = run(root, "key", records, collect)
    print(json.dumps({"infos": infos, "same": same, "above_mb": (peak_bytes() - warm) / 1e6}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
