"""Published quality signals to attributes, in MB of their JSON per CPU-second: `attach` as it runs in one process, beside isal's inflate of the same files.

Run ``python -m benchmarks.bench_attach [--megabytes 200] [--runs 3]``; half a minute. Signals have the names, digits and shares of missing values of RedPajama-V2,
and 20 lines to a document; 2 in 100 documents have no row. Texts are short: none is read.
"""

import argparse
import gzip
import json
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from isal import isal_zlib

import dolma_dask as dk
from dolma_dask.taggers.registry import get_tagger

SHARDS, LINES = 4, 20
OF_LINES = [*get_tagger("redpajama_v2_lines").types]
OF_DOCUMENTS = [*get_tagger("redpajama_v2_ccnet").types, *get_tagger("redpajama_v2_doc").types]

HERE: Any = {"scheduler": "synchronous", "progress": False, "overwrite": True}


def make_signals(draw: random.Random) -> dict[str, Any]:
    """Return the signals of a document as they are published."""
    ends = [0, *sorted(draw.randrange(1, 6000) for _ in range(LINES))]
    whole = [0, ends[-1]]
    of_document = {
        name: [[*whole, round(draw.random(), 8) if draw.random() < 0.9 else None]] for name in OF_DOCUMENTS
    }
    of_lines = {
        name: [[ends[i], ends[i + 1], draw.choice((0.0, 1.0, round(draw.random(), 8)))] for i in range(LINES)]
        for name in OF_LINES
    }
    return of_document | of_lines


def make_world(root: Path, megabytes: float) -> float:
    """Write documents and their signals; return the MB of the signals' JSON."""
    draw, written = random.Random(5), 0
    for number in range(SHARDS):
        shard, row = f"2023-06/{number:04d}/en_head", 0
        documents, signals = [], []
        while written < megabytes * 1e6 * (number + 1) / SHARDS:
            identity = f"{shard}.json.gz/{row}"
            documents.append(json.dumps({"id": identity, "text": "some text", "source": "rpv2"}))
            if draw.random() < 0.98:
                line = {"id": identity, "id_int": draw.getrandbits(63), "metadata": {"language": "en"}}
                line["quality_signals"] = make_signals(draw)
                signals.append(json.dumps(line, separators=(",", ":")))
                written += len(signals[-1]) + 1
            row += 1
        for name, lines in (
            (f"v0/documents/{shard}.jsonl.gz", documents),
            (f"signals/{shard}.signals.json.gz", signals),
        ):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(gzip.compress("".join(line + "\n" for line in lines).encode(), 6))
    return written / 1e6


def cpu_seconds(job: Callable[[], object]) -> float:
    start = time.process_time()
    job()
    return time.process_time() - start


def inflate(root: Path) -> None:
    for path in sorted((root / "signals").rglob("*.gz")):
        isal_zlib.decompress(path.read_bytes(), 31)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        size = make_world(root, args.megabytes)

        def attach(name: str, **options: Any) -> Callable[[], object]:
            return lambda: dk.attach(f"{root}/v0", f"{root}/signals", name=name, **{**HERE, **options})

        for name, file_format in (("rps", None), ("columns", "parquet")):
            attach(f"warm-{name}", format=file_format, prune=1)()
            speeds = [size / cpu_seconds(attach(name, format=file_format)) for _ in range(args.runs)]
            shown = ", ".join(f"{speed:.0f}" for speed in speeds)
            print(f"{file_format or 'jsonl.gz'}: {shown} MB per CPU-second")
        speeds = [size / cpu_seconds(lambda: inflate(root)) for _ in range(args.runs)]
        print(f"inflate alone: {', '.join(f'{speed:.0f}' for speed in speeds)}; {size:.0f} MB of JSON")


if __name__ == "__main__":
    main()
