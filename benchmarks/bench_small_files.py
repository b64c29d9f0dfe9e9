"""Costs of many small files: whole commands over shards of three documents, per shard and once more with nothing to do.

Run ``python -m benchmarks.bench_small_files --shards 20000 [--only tag status ...] [--root FOLDER]``; a million shards need 3 M inodes and 15 GB of disk. Shards are
spread over folders of a thousand. CPU is user and system time of the whole process tree, memory that of its largest process.
"""

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.corpus import BUILD, shared_folder
from benchmarks.harness import environment

DOCUMENTS = 3

PER_FOLDER = 1_000

FEW = 20
"""Shards over which kernels are compiled."""

WORDS = [f"word{number}" for number in range(500)]

TOKENIZER = str(shared_folder() / "tokenizers" / "neox-encoder.json")

COMMANDS = {
    "tag": ["tag", "v0", "--taggers", "gopher_v2"],
    "tag-again": ["tag", "v0", "--taggers", "gopher_v2"],
    "status": ["status", "v0"],
    "dedupe": ["dedupe", "v0"],
    "dedupe-again": ["dedupe", "v0"],
    "mix": ["mix", "v0", "--to", "v1", "--where", "word_count >= 1"],
    "mix-again": ["mix", "v0", "--to", "v1", "--where", "word_count >= 1"],
    "validate": ["validate", "v0"],
    "validate-again": ["validate", "v0"],
    "ragged": ["ragged", "v0", "ragged", "--tokenizer", TOKENIZER],
    "ragged-again": ["ragged", "v0", "ragged", "--tokenizer", TOKENIZER],
    "convert": ["convert", "v0/documents", "--to", "converted"],
    "convert-again": ["convert", "v0/documents", "--to", "converted"],
    "report": ["report", "v0", "--to", "page.html", "--overwrite"],
}
"""Words of each command, in the order in which they run."""


def shards(count: int) -> Iterator[tuple[str, bytes]]:
    """Yield the path of each shard and its bytes."""
    draw = np.random.default_rng(0)
    for number in range(count):
        rows = range(number * DOCUMENTS, (number + 1) * DOCUMENTS)
        texts = [" ".join(WORDS[at] for at in draw.integers(0, len(WORDS), 40)) for _ in rows]
        lines = [
            json.dumps({"id": f"d{row}", "source": "small", "text": text}) + "\n"
            for row, text in zip(rows, texts, strict=True)
        ]
        path = f"{number // PER_FOLDER:04d}/{number % PER_FOLDER:03d}.jsonl.gz"
        yield path, gzip.compress("".join(lines).encode(), 1, mtime=0)


def make(root: Path, count: int) -> None:
    """Write a dataset."""
    documents = root / "v0" / "documents"
    for path, data in shards(count):
        place = documents / path
        if path.endswith("/000.jsonl.gz"):
            place.parent.mkdir(parents=True)
        place.write_bytes(data)


def call(root: Path, words: Sequence[str]) -> tuple[float, float, float]:
    """Run a command; return CPU-seconds and seconds of it and its children, and MB of the largest process."""
    command = [str(Path(sys.executable).with_name("dolma-dask")), *words]
    begun = time.monotonic()
    with (root / "log.txt").open("ab") as log:
        process = subprocess.Popen(command, cwd=root, env=environment(), stdout=log, stderr=log)
        _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(words)}: status {status}; see {root}/log.txt")
    return used.ru_utime + used.ru_stime, time.monotonic() - begun, used.ru_maxrss * 1024 / 1e6


def warm_up(names: Sequence[str]) -> None:
    """Run commands over a few shards, so that kernels are compiled."""
    root = BUILD / "scratch" / "few_small_files"
    shutil.rmtree(root, ignore_errors=True)
    make(root, FEW)
    for name in names:
        call(root, COMMANDS[name])
    shutil.rmtree(root)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=20_000)
    parser.add_argument("--only", nargs="+", choices=list(COMMANDS), default=list(COMMANDS))
    parser.add_argument("--root", type=Path, help="Folder that is kept; by default one that is removed.")
    given = parser.parse_args()
    root = given.root or BUILD / "scratch" / "small_files"
    if given.root is None:
        shutil.rmtree(root, ignore_errors=True)
    if not root.exists():
        make(root, given.shards)
    warm_up(given.only)
    print(f"{given.shards:,} shards of {DOCUMENTS} documents\n{'':14} CPU-s  ms a shard     s     MB")
    for name in given.only:
        cpu, wall, peak = call(root, COMMANDS[name])
        print(f"{name:14} {cpu:5.1f} {cpu / given.shards * 1e3:9.2f} {wall:8.1f} {peak:7.0f}", flush=True)
    if given.root is None:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
