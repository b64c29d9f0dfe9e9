"""what-if beside reading the same Parquet columns with pyarrow: python -m benchmarks.bench_what_if [--documents N] [--json].

A dataset of short documents with 15 signals of their own is made once below `build/`; five sources are the groups. CPU-seconds, of the question alone and of the
whole command with its start, which is mostly imports.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import dolma_dask as dk
from benchmarks.corpus import BUILD
from benchmarks.harness import cpu_seconds, peak_megabytes
from dolma_dask.taggers.base import ViewTagger
from dolma_dask.text.kernels import Floats
from dolma_dask.text.view import TextView

SIGNALS = [f"signal_{number:02d}" for number in range(15)]
SHARDS = 8
OPTIONS: dict[str, Any] = {"scheduler": "synchronous", "progress": False}


def _signals(view: TextView) -> Sequence[Floats]:
    """Signals as different as those of real texts: shares, whole numbers with a long tail, scores."""
    draw = np.random.default_rng(int(view.lengths.sum()))
    count = len(view)
    kinds: list[Callable[[], Floats]] = [
        lambda: draw.beta(2, 8, count),
        lambda: np.floor(draw.lognormal(5.5, 1.2, count)),
        lambda: draw.normal(4.5, 1, count),
    ]
    return [kinds[number % 3]() for number in range(len(SIGNALS))]


def make(root: Path, documents: int, file_format: Any) -> str:
    """Make the dataset, unless it is there."""
    if not (root / "quantiles").exists():
        for shard in range(SHARDS):
            path = root / f"documents/{shard}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("w") as out:
                for row in range(shard, documents, SHARDS):
                    line = {
                        "id": f"2023-06/0000/en_head.json.gz/{row}",
                        "source": f"s{row % 5}",
                        "text": "x" * (row % 50),
                    }
                    out.write(json.dumps(line) + "\n")
        tagger = ViewTagger("bench", dict.fromkeys(SIGNALS, "document"), _signals)
        dk.tag(str(root), [tagger], format=file_format, **OPTIONS)
        dk.quantiles(str(root), SIGNALS, by="source", **OPTIONS)
    return str(root)


def timed(call: Callable[[], object]) -> float:
    """Return the CPU-seconds of a call, the least of three."""
    found = []
    for _ in range(3):
        started = cpu_seconds()
        call()
        found.append(cpu_seconds() - started)
    return min(found)


READ = [*(f"bench__bench__{name}" for name in SIGNALS), "source", "id"]
"""Columns that the question reads: signals, groups, and ids, which name the documents beside the bounds and draw the sample."""

SCRIPT = """
import sys
from pathlib import Path
import pyarrow.parquet as pq
for path in sorted(Path(sys.argv[1], "attributes/bench").rglob("*.parquet")):
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=sys.argv[2:], use_threads=False):
            pass
"""


def read_with_pyarrow(root: str, names: Sequence[str]) -> int:
    """Read columns of all attribute files."""
    rows = 0
    for path in sorted(Path(root, "attributes/bench").rglob("*.parquet")):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=names, use_threads=False):
                rows += batch.num_rows
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true", help="attributes as gzip JSON lines")
    options = parser.parse_args()
    kind = "jsonl.gz" if options.json else "parquet"
    root = make(BUILD / f"what_if-{kind}-{options.documents}", options.documents, kind)
    dk.what_if(root, "regular", only=["0"], **OPTIONS)  # kernels are loaded
    rows = {"what_if": timed(lambda: dk.what_if(root, "regular", **OPTIONS))}
    rows["histogram, one signal"] = timed(lambda: dk.histogram(root, SIGNALS[1], **OPTIONS))
    rule = f"{SIGNALS[1]} >= 100"
    rows["the same with a rule"] = timed(
        lambda: dk.histogram(root, SIGNALS[1], where=rule, by="source", **OPTIONS)
    )
    rows["filter, 15 signals"] = timed(lambda: dk.filter(root, overwrite=True, **OPTIONS))
    if not options.json:
        rows["pyarrow, signals alone"] = timed(lambda: read_with_pyarrow(root, READ[:-2]))
        rows["pyarrow, the same columns"] = timed(lambda: read_with_pyarrow(root, READ))
        words = [sys.executable, "-c", SCRIPT, root, *READ]
        rows["the same as a script"] = timed(lambda words=words: subprocess.run(words, check=True))  # type: ignore[misc]
    command = [sys.executable, "-m", "dolma_dask", "what-if", root, "regular", "--no-progress"]
    page = str(BUILD / "what_if.html")
    for name, more in (("command, synchronous", []), ("command with a page", ["--to", page])):
        words = [*command, "--scheduler", "synchronous", *more]
        rows[name] = timed(lambda words=words: subprocess.run(words, check=True, stdout=subprocess.DEVNULL))  # type: ignore[misc]
    for name, seconds in rows.items():
        sys.stdout.write(
            f"{name:28} {seconds:7.2f} CPU-s {1e9 * seconds / options.documents:7.0f} ns per document\n"
        )
    sys.stdout.write(f"{'peak':28} {peak_megabytes():7.0f} MB\n")


if __name__ == "__main__":
    main()
