"""`find` among many short documents: the index made, made again after one shard has changed, and asked.

python -m benchmarks.bench_find [--documents 10_000_000] [--shards 64] [--folder FOLDER]
"""

import argparse
import json
import os
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from isal import igzip_lib

import dolma_dask as dk

MEMBER_BYTES = 8 << 20
"""Text of a gzip member, as this package writes them."""

ASKED = 40
"""Ids that are looked up, each by itself."""


def write_shard(path: Path, shard: int, rows: int) -> None:
    """Write short documents in members."""
    lines = "".join(
        f'{{"id":"doc-{shard}-{row}","text":"a short text of document {row}, number {row * 7919 % rows}","source":"s"}}\n'
        for row in range(rows)
    )
    data = lines.encode()
    with path.open("wb") as out:
        at = 0
        while at < len(data):
            end = data.find(b"\n", at + MEMBER_BYTES) + 1 or len(data)
            out.write(igzip_lib.compress(data[at:end], level=0, flag=igzip_lib.COMP_GZIP))
            at = end


def corpus(folder: Path, documents: int, shards: int) -> Path:
    """Write a dataset, or return the one that is there; `mix` writes it again, so that a journal knows its members."""
    root = folder / f"raw-{documents}-{shards}"
    made = folder / f"find-{documents}-{shards}"
    if not made.exists():
        (root / "documents").mkdir(parents=True)
        for shard in range(shards):
            write_shard(root / f"documents/{shard:04d}.jsonl.gz", shard, documents // shards)
        dk.mix(str(root), to=str(made), progress=False)
    return made


def measured(what: str, call: Callable[[], Any], say: Callable[..., None]) -> Any:
    """Call, and say what it took."""
    wall, cpu = time.perf_counter(), os.times()
    result = call()
    now = os.times()
    used = sum(now[:4]) - sum(cpu[:4])
    peak = (
        max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        / 1024
    )
    say(
        f"{what}: {time.perf_counter() - wall:.2f} s, {used:.2f} CPU-seconds, peak of a process {peak:,.0f} MB"
    )
    return result


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--documents", type=int, default=10_000_000)
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "bench_find")
    given = parser.parse_args()
    root = corpus(given.folder, given.documents, given.shards)
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(dir=given.folder)
    say = print
    first = "doc-0-0"
    measured("first call, which makes the index", lambda: dk.find(first, str(root), progress=False), say)
    size = sum(path.stat().st_size for path in Path(os.environ["XDG_CACHE_HOME"]).rglob("*.ids"))
    say(f"index: {size / 1e6:,.0f} MB, {size / given.documents:.1f} bytes a document")
    shard = next((root / "documents").glob("0007*"), next((root / "documents").iterdir()))
    os.utime(shard)
    measured("after one shard has another stamp", lambda: dk.find(first, str(root), progress=False), say)
    draw, taken = random.Random(3), []
    for _ in range(ASKED):
        id = f"doc-{draw.randrange(given.shards)}-{draw.randrange(given.documents // given.shards)}"
        start = time.perf_counter()
        found = dk.find(id, str(root), progress=False)
        taken.append(time.perf_counter() - start)
        assert len(found.ids[0].documents) == 1
    say(f"a look-up: median {1000 * statistics.median(taken):.1f} ms, most {1000 * max(taken):.1f} ms")
    start = time.perf_counter()
    found = dk.find("nobody", str(root), progress=False)
    say(f"an id that is nowhere: {1000 * (time.perf_counter() - start):.1f} ms")
    say(json.dumps({"documents": given.documents, "shards": given.shards}))


if __name__ == "__main__":
    main()
