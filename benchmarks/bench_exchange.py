"""The exchange beside Dask's shuffle: records per CPU-second, memory and disk.

Run ``python -m benchmarks.bench_exchange`` (three minutes; ``--quick``: 0.4 M records each, which shows that it works). Records are keys of
16 bytes and a place, 24 bytes, in 16 files, of which 20 % have a key that another record has; in the skewed case 10 M records have one. Each
figure is that of a fresh process, warmed up by 0.1 M records. CPU-seconds are those of all processes; memory is the growth of the
largest process; disk is the most that lay below the scratch folder at one moment, files without a name included.

``count`` reads every group and gives out a number. ``mark`` gives out the places of all records of a key but the first, by shard, as
`dedupe` needs them. ``dd.shuffle`` is what one would write with Dask alone for ``count``: frames, ``shuffle`` on the key, and per
partition a sort of the key in NumPy.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dolma_dask as dk
from benchmarks.corpus import BUILD
from benchmarks.harness import cpu_seconds, environment
from dolma_dask.engine import Task
from dolma_dask.exchange import Emitted, Exchanged
from dolma_dask.options.groups import RunOptions
from dolma_dask.testing.exchange import ExchangeJob, run_exchange

FILES = 16
KEYED = np.dtype([("hi", "<u8"), ("lo", "<u8"), ("location", "<u8")])
PLACE = np.dtype([("location", "<u8")])
MILLION = 1_000_000
BLOCK = 50_000
"""Records that the emitter gives at once."""

CASES = (
    ("files", "count", "even", 4),
    ("files", "mark", "even", 4),
    ("dask", "count", "even", 4),
    ("dd.shuffle", "count", "even", 4),
    ("files", "count", "even", 20),
    ("files", "mark", "even", 20),
    ("dd.shuffle", "count", "even", 20),
    ("files", "count", "skew", 20),
    ("files", "mark", "skew", 20),
)
"""How, what, which keys, million records."""


def make(folder: Path, keys: str, records: int) -> None:
    """Write the records."""
    draw = np.random.default_rng(0)
    folder.mkdir(parents=True)
    for number in range(FILES):
        rows = np.empty(records // FILES, KEYED)
        rows["hi"] = draw.integers(0, records * 2, len(rows), np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        if keys == "skew":
            rows["hi"][::2] = 1 << 63
        rows["lo"] = rows["hi"] ^ np.uint64(12345)
        rows["location"] = (number << 32) + np.arange(len(rows), dtype=np.uint64)
        np.save(folder / f"{number:02d}.npy", rows)


@dataclass(frozen=True)
class FromNumpy:
    """Emits the records of one file."""

    dtype: np.dtype = KEYED

    def emit(self, task: Task, out: Callable[[np.ndarray], None], folder: str) -> Emitted:
        rows = np.load(task.work, mmap_mode="r")
        for start in range(0, len(rows), BLOCK):
            out(np.asarray(rows[start : start + BLOCK]))
        return Emitted((), len(rows))


def first_of_key(records: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Tell for sorted records whether they have another key than the one before; `before` is the last of the previous chunk, or empty."""
    first = np.ones(len(records), bool)
    first[1:] = (records["hi"][1:] != records["hi"][:-1]) | (records["lo"][1:] != records["lo"][:-1])
    if len(before):
        first[0] = (before["hi"] != records["hi"][:1])[0] or (before["lo"] != records["lo"][:1])[0]
    return first


@dataclass(frozen=True)
class Count:
    """Counts keys and records."""

    dtype: np.dtype | None = None

    def reduce(self, runs: Iterable[np.ndarray], out: Callable[[np.ndarray], None]) -> dict[str, Any]:
        before = np.empty(0, KEYED)
        keys = records = 0
        for run in runs:
            first = first_of_key(run, before)
            keys, records, before = keys + int(first.sum()), records + len(run), run[-1:].copy()
            if self.dtype is not None:
                out(np.ascontiguousarray(run["location"][~first]).view(PLACE))
        return {"keys": keys, "records": records}


@contextmanager
def most_on_disk(folder: Path) -> Iterator[list[int]]:
    """Look every 50 ms at what lies below a folder, and what this process has open without a name."""
    most, ended = [0], threading.Event()

    def look() -> None:
        while not ended.wait(0.05):
            most[0] = max(most[0], named_bytes(folder) + nameless_bytes())

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    yield most
    ended.set()
    thread.join()


def named_bytes(folder: Path) -> int:
    """Return the bytes of the files below a folder."""
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(where) / name).stat().st_size
            except FileNotFoundError:
                continue
    return total


def nameless_bytes() -> int:
    """Return the bytes of open files that have no name any more."""
    total = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found = entry.stat()
        except OSError:
            continue
        total += found.st_size if not found.st_nlink else 0
    return total


def memory(name: str) -> float:
    """Return VmRSS (now) or VmHWM (most) of this process in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024 / 1e6


def warm() -> tuple[float, float]:
    """Return CPU-seconds and MB of this process now, from which on `spent` counts."""
    Path("/proc/self/clear_refs").write_text("5")
    return cpu_seconds(), memory("VmRSS")


def spent(before: tuple[float, float]) -> tuple[float, float]:
    """Return the CPU-seconds of this process and its growth in MB since `warm`."""
    return cpu_seconds() - before[0], memory("VmHWM") - before[1]


def by_exchange(what: str, shuffle: str, data: Path, root: Path) -> tuple[int, int]:
    """Run an exchange; return the number of keys and of records given out."""
    tasks = [Task(path.name, (), (), str(path)) for path in sorted(data.iterdir())]

    def collect(done: Exchanged) -> tuple[int, int]:
        keys = sum(info["keys"] for info in done.infos)
        if done.by_shard is None:
            return keys, 0
        return keys, sum(len(done.by_shard.of_shard(number)) for number in range(FILES))

    reducer = Count(PLACE if what == "mark" else None)
    job = ExchangeJob(str(root), FromNumpy(), tasks, reducer, FILES, collect, shuffle, name=f"bench-{what}")
    options = RunOptions(scheduler="synchronous" if shuffle == "files" else None, progress=False)
    result: tuple[int, int] = run_exchange(job, options)
    return result


def load_frame(path: str) -> Any:
    """Return the records of one file as a frame."""
    import pandas as pd

    rows = np.load(path)
    return pd.DataFrame({name: np.ascontiguousarray(rows[name]) for name in KEYED.names})


def count_keys(frame: Any) -> Any:
    """Return a frame with the number of keys of a partition."""
    import pandas as pd

    high, low = frame["hi"].to_numpy(), frame["lo"].to_numpy()
    order = np.lexsort((low, high)) if len(frame) else np.empty(0, np.int64)
    high, low = high[order], low[order]
    keys = int(((high[1:] != high[:-1]) | (low[1:] != low[:-1])).sum()) + bool(len(frame))
    return pd.DataFrame({"keys": [keys]})


def by_dask(data: Path) -> tuple[int, int]:
    """Do the same as ``count`` with Dask's dataframes."""
    from dask.dataframe import from_map

    frame = from_map(load_frame, [str(path) for path in sorted(data.iterdir())])
    counted = frame.shuffle("hi", shuffle_method="p2p", ignore_index=True).map_partitions(
        count_keys, meta={"keys": "int64"}
    )
    return int(counted["keys"].sum().compute()), 0


def measure(how: str, what: str, data: Path, tiny: Path, root: Path) -> dict[str, Any]:
    """Warm up, run once, and return what it took."""
    if how == "files":
        by_exchange(what, how, tiny, root / "warm")
        before, started = warm(), time.perf_counter()
        with most_on_disk(root) as disk:
            keys, marked = by_exchange(what, how, data, root)
        cpu, grown = spent(before)
        return {
            "cpu": cpu,
            "wall": time.perf_counter() - started,
            "memory": grown,
            "disk": disk[0],
            "keys": keys,
            "marked": marked,
        }
    return on_cluster(
        lambda folder: by_dask(folder) if how == "dd.shuffle" else by_exchange(what, how, folder, root),
        data,
        tiny,
        root,
    )


def on_cluster(run: Callable[[Path], tuple[int, int]], data: Path, tiny: Path, root: Path) -> dict[str, Any]:
    """The same on a LocalCluster with two workers."""
    import dask

    with dask.config.set({"temporary-directory": str(root)}), dk.cluster("laptop", workers=2) as client:
        run(tiny)
        before, own, started = client.run(warm), warm(), time.perf_counter()
        with most_on_disk(root) as disk:
            keys, marked = run(data)
        wall = time.perf_counter() - started
        used = [client.run(spent, before[worker], workers=[worker])[worker] for worker in before]
        cpu = spent(own)[0] + sum(cpu for cpu, _ in used)
        grown = max(grown for _, grown in used)
        return {"cpu": cpu, "wall": wall, "memory": grown, "disk": disk[0], "keys": keys, "marked": marked}


def run_case(how: str, what: str, keys: str, records: int) -> dict[str, Any]:
    """Measure one case in a fresh process, on records that another has made."""
    scratch = BUILD / "scratch" / "exchange"
    shutil.rmtree(scratch, ignore_errors=True)
    words = [sys.executable, "-m", "benchmarks.bench_exchange", "--child", how, what, keys, str(records)]
    found = {}
    for step in ("make", "measure"):
        done = subprocess.run(
            [*words, step], cwd=BUILD.parent.parent, env=environment(), capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(done.stderr)
        found = json.loads(done.stdout.splitlines()[-1])
    shutil.rmtree(scratch, ignore_errors=True)
    return found


def child(how: str, what: str, keys: str, records: str, step: str) -> dict[str, Any]:
    """Do one step of a case in this process."""
    scratch = BUILD / "scratch" / "exchange"
    data, tiny = scratch / "data", scratch / "tiny"
    if step == "make":
        make(data, keys, int(records))
        make(tiny, keys, MILLION // 10)
        return {}
    return measure(how, what, data, tiny, scratch / "root")


def main() -> None:
    """Measure one case, or print a table of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    parser.add_argument("--only", default="", help="cases whose words contain this")
    given = parser.parse_args()
    if given.child:
        print(json.dumps(child(*given.child)))
        return
    print(f"{'':24}  M records    CPU s  M/CPU-s  M/wall-s  above MB  disk MB  of records")
    for how, what, keys, millions in CASES:
        if given.only not in f"{how} {what} {keys} {millions}":
            continue
        records = 400_000 if given.quick else millions * MILLION
        found = run_case(how, what, keys, records)
        disk = found["disk"] / 1e6
        print(
            f"{how:10} {what:6} {keys:6} {records / MILLION:9.1f} {found['cpu']:8.2f} {records / MILLION / found['cpu']:8.1f} "
            f"{records / MILLION / found['wall']:9.1f} {found['memory']:9.0f} {disk:8.0f} {disk * 1e6 / (24 * records):10.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
