"""An index for crawls to come: what it grows by, and what a further dataset costs beside one without index, at two sizes of the index 8 times apart.

Run ``python -m benchmarks.bench_index --documents 50000``. A new dataset, of which three tenths repeat documents of the old ones, is deduplicated with no index, with an
index of as many documents and with one of eight times as many; each in one process, past start-up. Bytes are those that the process reads (``rchar``), and
``--segments 64`` cuts the old documents into so many datasets.
"""

import argparse
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

import dolma_dask as dk
from benchmarks.corpus import BUILD

OPTIONS: dict[str, Any] = {"scheduler": "synchronous", "progress": False}

SHARE = 0.3
"""Share of the new documents that are in the index, of which every second one is a near copy."""

WORDS = np.array([f"word{number:05d}" for number in range(20_000)])

CALLS: dict[str, dict[str, Any]] = {
    "exact": {"how": "exact"},
    "fuzzy": {"how": "fuzzy"},
    "bands": {"how": "fuzzy", "verify": "none"},
}

ROWS = 5_000
"""Documents of a shard."""


def texts(first: int, count: int) -> list[str]:
    """Return texts of about 40 words, each decided by its number."""
    return [
        " ".join(WORDS[np.random.default_rng(number).integers(0, len(WORDS), 40)])
        for number in range(first, first + count)
    ]


def write(root: Path, lines: list[str]) -> str:
    """Write a dataset."""
    for start in range(0, len(lines), ROWS):
        path = root / f"documents/{start // ROWS:05d}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            for row, text in enumerate(lines[start : start + ROWS], start):
                file.write(json.dumps({"id": f"{root.name}-{row}", "source": "s", "text": text}) + "\n")
    return str(root)


def new_texts(count: int) -> list[str]:
    """Return the texts of the new dataset: copies, near copies and others."""
    copies = texts(0, int(SHARE * count))
    near = [f"{text} more" if number % 2 else text for number, text in enumerate(copies)]
    return [*near, *texts(10**9, count - len(near))]


def measured(root: str, **call: Any) -> dict[str, float]:
    """Return CPU-seconds, seconds and bytes read of a call."""
    read, cpu, wall = _read_bytes(), sum(os.times()[:2]), time.monotonic()
    done = dk.dedupe(root, **call, **OPTIONS)
    return {
        "cpu": sum(os.times()[:2]) - cpu,
        "wall": time.monotonic() - wall,
        "read": _read_bytes() - read,
        "duplicates": done.counts["duplicates"],
    }


def _read_bytes() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


def compare(scratch: Path, documents: int, segments: int, call: dict[str, Any]) -> None:
    """Measure one way to compare."""
    for times in (0, 1, 8):
        index, old = scratch / f"index-{times}", times * documents
        step = max(old // segments, 1)
        for number, first in enumerate(range(0, old, step)):
            made = write(scratch / f"old-{times}/{number}", texts(first, step))
            dk.dedupe(made, **call, index=str(index), **OPTIONS)
        size = sum(path.stat().st_size for path in index.rglob("*") if path.is_file())
        new = write(scratch / f"new-{times}", new_texts(documents))
        found = measured(new, **call, index=str(index))
        grown = sum(path.stat().st_size for path in index.rglob("*") if path.is_file()) - size
        kept = documents - found["duplicates"]
        print(
            f"{call}: index of {old:,} documents in {len(range(0, old, step)):,} segments, {size / 1e6:,.1f} MB; {documents:,} new ones: "
            f"{found['cpu']:.2f} CPU-s, {found['wall']:.2f} s, {found['read'] / 1e6:,.1f} MB read, {found['duplicates']:,.0f} duplicates, "
            f"index grows by {grown / 1e6:,.1f} MB, {grown / kept:,.0f} B for each of {kept:,.0f} kept",
            flush=True,
        )


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=50_000)
    parser.add_argument("--segments", type=int, default=1)
    parser.add_argument("--calls", nargs="*", default=[*CALLS])
    given = parser.parse_args()
    scratch = BUILD / "index"
    for number, call in enumerate(CALLS[name] for name in given.calls):
        shutil.rmtree(scratch, ignore_errors=True)
        for name in ("one", "two"):  # kernels
            warm = write(scratch / f"warm-{name}", texts(0, 2_000))
            dk.dedupe(warm, **call, index=str(scratch / "warm"), **OPTIONS)
        compare(scratch / str(number), given.documents, given.segments, call)
    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
