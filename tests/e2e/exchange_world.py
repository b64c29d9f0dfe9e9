"""An exchange to run in a process of its own: seeded records with one frequent key, a reducer in NumPy, and a digest of all that came out.

``python exchange_world.py ROOT SHUFFLE SCHEDULER WORKERS`` writes ``ROOT/result.json`` and leaves nothing else.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dolma_dask.engine import Task
from dolma_dask.errors import DataError
from dolma_dask.exchange import Emitted, Exchanged, Limits
from dolma_dask.options.groups import RunOptions
from dolma_dask.testing.exchange import ExchangeJob, run_exchange

SHARDS = 12
ROWS = 3000
FREQUENT = 500
"""Records of each shard that have one key."""

KEYED = np.dtype([("hi", "<u8"), ("lo", "<u8"), ("location", "<u8")])
RANKED = np.dtype([("location", "<u8"), ("size", "<u8"), ("first", "<u8")])
LIMITS = {"range": 24 * 3500, "segment": 24 * 1000}
"""A dozen ranges; that of the frequent key goes through disk."""


def keys_of(shard: int) -> np.ndarray:
    """Return the keys of a shard before they are spread."""
    keys = np.random.default_rng(shard).integers(0, SHARDS * ROWS // 3, ROWS, np.uint64)
    keys[:FREQUENT] = 7
    return keys


@dataclass(frozen=True)
class Keys:
    """Emits the keys of a shard; one shard may be broken."""

    dtype: np.dtype = KEYED
    broken: int = -1

    def emit(self, task: Task, out: Callable[[np.ndarray], None], folder: str) -> Emitted:
        if task.work == self.broken:
            raise DataError(f"{task.work} is broken")
        records = np.empty(ROWS, KEYED)
        records["hi"] = keys_of(task.work) * np.uint64(0x9E3779B97F4A7C15)
        records["lo"] = records["hi"] >> np.uint64(3)
        records["location"] = (task.work << 32) + np.arange(ROWS, dtype=np.uint64)
        for start in range(0, ROWS, 700):
            out(records[start : start + 700])
        return Emitted((), ROWS, {"documents_in": ROWS}, {"shard": task.work})


@dataclass(frozen=True)
class Groups:
    """Gives each place the size of its group, and the first place of it; or only counts; or is broken."""

    dtype: np.dtype | None = RANKED
    is_broken: bool = False

    def reduce(self, runs: Iterable[np.ndarray], out: Callable[[np.ndarray], None]) -> dict[str, Any]:
        records = np.concatenate(list(runs))
        if self.is_broken:
            raise DataError("the reducer is broken")
        starts = np.flatnonzero(np.r_[True, records["hi"][1:] != records["hi"][:-1]])
        sizes = np.diff(np.r_[starts, len(records)])
        ranked = np.empty(len(records), RANKED)
        ranked["location"] = records["location"]
        ranked["size"] = np.repeat(sizes, sizes)
        ranked["first"] = np.repeat(records["location"][starts], sizes)
        if self.dtype is not None:
            out(ranked)
        return {"keys": len(starts), "records": len(records), "first": int(records["hi"][0])}


def run(
    root: str, shuffle: str, options: RunOptions, *parts: Keys | Groups, shards: int = SHARDS, collect=None
) -> Any:
    """Run the exchange below `root`, with another emitter and reducer if they are given; return what is collected."""
    tasks = [Task(f"shard {number}", (), (), number) for number in range(shards)]
    emitter, reducer = parts or (Keys(), Groups())
    limits = Limits(**LIMITS)
    job = ExchangeJob(root, emitter, tasks, reducer, SHARDS, collect or outcome, shuffle, limits)
    return run_exchange(job, options)


def outcome(done: Exchanged) -> dict[str, Any]:
    """Return all that must be the same for any way of running."""
    found = [done.by_shard.of_shard(number) for number in range(SHARDS)]
    assert all((records["location"] >> np.uint64(32) == number).all() for number, records in enumerate(found))
    firsts = [info["first"] for info in done.infos]
    assert firsts == sorted(firsts)
    return {
        "records": [hashlib.sha256(records.tobytes()).hexdigest() for records in found],
        "keys": sum(info["keys"] for info in done.infos),
        "all": sum(info["records"] for info in done.infos),
        "told": {name: [record.rows, record.counts, record.info] for name, record in done.emitted.items()},
    }


def expected() -> dict[str, Any]:
    """Return the same from a dict of groups."""
    groups: dict[int, list[int]] = {}
    for shard in range(SHARDS):
        for row, key in enumerate(keys_of(shard).tolist()):
            groups.setdefault(key, []).append(shard << 32 | row)
    ranked = sorted((place, len(places), places[0]) for places in groups.values() for place in places)
    by_shard = [[one for one in ranked if one[0] >> 32 == shard] for shard in range(SHARDS)]
    return {
        "records": [hashlib.sha256(np.array(rows, RANKED).tobytes()).hexdigest() for rows in by_shard],
        "keys": len(groups),
        "all": SHARDS * ROWS,
        "told": {
            f"shard {number}": [ROWS, {"documents_in": ROWS}, {"shard": number}] for number in range(SHARDS)
        },
    }


def main(root: str, shuffle: str, scheduler: str, workers: str) -> None:
    """Run, keep the outcome, and remove the rest."""
    result = run(root, shuffle, RunOptions(scheduler=scheduler, workers=int(workers), progress=False))
    Path(root, "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
