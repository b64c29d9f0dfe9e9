"""Speed of the taggers over one batch, in MB (10**6 bytes) of UTF-8 text per CPU-second of this process.

Run ``python benchmarks/bench_taggers.py [--check] [FILE.jsonl.gz ...]``. Without files it reads the reference corpus
(20 MB, 7,421 documents) from the folder named by ``DOLMA_DASK_SHARED``, else from ``../shared``. ``--check`` ends with
status 1 if a goal is missed. It takes about ten seconds, half of them for the cold compilation in a fresh process.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pyarrow as pa
from isal import igzip

from dolma_dask.taggers.registry import BUILT_IN, get_tagger
from dolma_dask.text.columns import code_point_lengths

ROOT = Path(__file__).resolve().parent.parent
GOALS = {"all three": 110, "gopher_v2": 120, "code_point_lengths": 3000}
"""MB per CPU-second on one core of the Zen 5 class."""
COLD_GOAL = 8.0
"""CPU-seconds to compile everything in a process that finds no cache."""
COLD = """
import time
import numba, numpy, pyarrow as pa
from dolma_dask.taggers.registry import BUILT_IN, get_tagger
start = time.process_time()
batch = pa.RecordBatch.from_arrays([pa.array(["one two"], pa.large_string())], names=["text"])
for name in BUILT_IN:
    get_tagger(name)(batch)
print(time.process_time() - start)
"""


class Document(msgspec.Struct):
    text: str


def read_texts(paths: list[Path]) -> list[str]:
    decode = msgspec.json.Decoder(Document).decode
    texts = []
    for path in paths:
        with igzip.open(path, "rb") as lines:
            texts += [decode(line).text for line in lines]
    return texts


def cpu_seconds(job: Callable[[], object], repeat: int = 5) -> float:
    """Best of `repeat` runs."""
    best = float("inf")
    for _ in range(repeat):
        start = time.process_time()
        job()
        best = min(best, time.process_time() - start)
    return best


def cold_start() -> tuple[float, float]:
    """CPU-seconds to the first result of every tagger: with an empty cache, and with a full one."""
    with tempfile.TemporaryDirectory() as folder:
        seconds = []
        for _ in range(2):
            environment = {**os.environ, "NUMBA_CACHE_DIR": folder, "PYTHONPATH": str(ROOT)}
            done = subprocess.run(
                [sys.executable, "-c", COLD], env=environment, capture_output=True, check=True
            )
            seconds.append(float(done.stdout))
    return seconds[0], seconds[1]


def main(arguments: list[str]) -> int:
    check = "--check" in arguments
    shared = Path(os.environ.get("DOLMA_DASK_SHARED", ROOT.parent / "shared"))
    paths = [Path(name) for name in arguments if name != "--check"] or sorted(
        (shared / "corpus").rglob("*.jsonl.gz")
    )
    batch = pa.RecordBatch.from_arrays([pa.array(read_texts(paths), pa.large_string())], names=["text"])
    size = batch.column(0).buffers()[2].size / 1e6
    print(f"{batch.num_rows:,} documents, {size:.1f} MB")
    jobs: dict[str, Callable[[], object]] = {name: partial(get_tagger(name), batch) for name in BUILT_IN}
    jobs["all three"] = lambda: [get_tagger(name)(batch) for name in BUILT_IN]
    jobs["code_point_lengths"] = lambda: code_point_lengths(batch.column("text"))
    missed = []
    for name, job in jobs.items():
        speed = size / cpu_seconds(job)
        missed += [name] if speed < GOALS.get(name, 0) else []
        print(f"{name:24} {speed:8,.0f} MB per CPU-second")
    cold, warm = cold_start()
    missed += ["cold start"] if cold > COLD_GOAL else []
    print(
        f"first result of all three: {cold:.1f} CPU-seconds with an empty cache, {warm:.1f} with a full one"
    )
    if missed:
        print(f"below the goal: {', '.join(missed)}")
    return 1 if check and missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
