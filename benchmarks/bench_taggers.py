"""Speed of the taggers over one batch, in MB (10**6 bytes) of UTF-8 text per CPU-second of this process.

Run ``python benchmarks/bench_taggers.py [--check] [--write] [FILE.jsonl.gz ...]``. Without files it reads the reference corpus
(20 MB, 7,421 documents) from the folder named by ``DOLMA_DASK_SHARED``, else from ``../shared``. ``--check`` ends with
status 1 if a goal is missed; ``--write`` renews the speeds that ``dolma-dask list`` shows. It takes about ten seconds, half of them for the cold compilation in a fresh process.
"""

import json
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

from dolma_dask.extras import missing
from dolma_dask.taggers.base import Tagger, ViewTagger
from dolma_dask.taggers.registry import built_in, get_tagger
from dolma_dask.text.columns import code_point_lengths
from dolma_dask.text.view import TextView

ROOT = Path(__file__).resolve().parent.parent
DOLMA = ("char_length_v1", "gopher_v2", "whitespace_tokenizer_v1")
REDPAJAMA = ("redpajama_v2_doc", "redpajama_v2_lines")
GOALS = {"Dolma's three": 110, "gopher_v2": 120, "code_point_lengths": 3000}
"""MB per CPU-second on one core of the Zen 5 class."""
SLOW = 4.0
"""CPU-seconds after which a job is not repeated."""
SPEEDS = ROOT / "dolma_dask/taggers/speeds.json"
SHARE_OF_INFLATE = 0.1
"""Goal of all rule signals of RedPajama-V2: speed by that of isal's inflate of the same text."""
COLD_GOAL = 20.0
"""CPU-seconds to compile everything in a process that finds no cache."""
COLD = """
import time
import numba, numpy, pyarrow as pa
from dolma_dask.extras import missing
from dolma_dask.taggers.registry import built_in
start = time.process_time()
names = ["text", "metadata", "id", "source"]
batch = pa.RecordBatch.from_arrays([pa.array([value], pa.large_string()) for value in ("one two", "{}", "", "")], names=names)
for known in built_in().values():
    if not (known.source or known.extra and missing(known.extra, "")):
        known(batch)
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
    """Best of `repeat` runs, fewer of what takes seconds."""
    best, spent = float("inf"), 0.0
    for _ in range(repeat):
        start = time.process_time()
        job()
        best = min(best, time.process_time() - start)
        spent += best
        if spent > SLOW:
            break
    return best


def is_usable(known: Tagger) -> bool:
    """Tell whether a tagger works without files of the user's, and its package is installed."""
    return not (
        isinstance(known, ViewTagger) and (known.source or (known.extra and missing(known.extra, "")))
    )


def tag_together(batch: pa.RecordBatch, names: tuple[str, ...]) -> None:
    """Run taggers on one view, as `tag` does."""
    view = TextView(batch.column("text"))
    for name in names:
        get_tagger(name).of_view(view, batch)  # type: ignore[attr-defined]


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
    paths = [Path(name) for name in arguments if not name.startswith("--")] or sorted(
        (shared / "corpus").rglob("*.jsonl.gz")
    )
    texts = pa.array(read_texts(paths), pa.large_string())
    metadata = pa.repeat(pa.scalar('{"language":"en"}', pa.large_string()), len(texts))
    ids = pa.array([str(row) for row in range(len(texts))], pa.large_string())
    batch = pa.RecordBatch.from_arrays(
        [texts, metadata, ids, ids], names=["text", "metadata", "id", "source"]
    )
    data = texts.buffers()[2].to_pybytes()
    stored, size = igzip.compress(data, 3), len(data) / 1e6
    print(f"{batch.num_rows:,} documents, {size:.1f} MB")
    usable = [name for name, known in built_in().items() if is_usable(known)]
    groups = {**{name: (name,) for name in usable}, "Dolma's three": DOLMA, "RedPajama-V2": REDPAJAMA}
    groups |= {"all without models": tuple(name for name in usable if not built_in()[name].extra)}  # type: ignore[attr-defined]
    jobs: dict[str, Callable[[], object]] = {
        name: partial(tag_together, batch, names) for name, names in groups.items()
    }
    jobs["code_point_lengths"] = lambda: code_point_lengths(texts)
    jobs["isal's inflate"] = lambda: igzip.decompress(stored)
    speeds = {name: size / cpu_seconds(job) for name, job in jobs.items()}
    goals = {**GOALS, "RedPajama-V2": SHARE_OF_INFLATE * speeds["isal's inflate"]}
    if "--write" in arguments:
        measured = {name: float(f"{speeds[name]:.2g}") for name in sorted(usable)}
        SPEEDS.write_text(json.dumps(measured, indent=1) + "\n", "utf-8")
    for name, speed in speeds.items():
        print(f"{name:24} {speed:8,.0f} MB per CPU-second")
    missed = [name for name, goal in goals.items() if speeds[name] < goal]
    cold, warm = cold_start()
    missed += ["cold start"] if cold > COLD_GOAL else []
    print(f"first result of all: {cold:.1f} CPU-seconds with an empty cache, {warm:.1f} with a full one")
    if missed:
        print(f"below the goal: {', '.join(missed)}")
    return 1 if check and missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
