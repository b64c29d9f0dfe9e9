"""Levels of 15 signals of Parquet attributes, in millions of documents per CPU-second: beside pyarrow that reads the same columns, and ids and sources."""

import gzip
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

import dolma_dask as dk
from benchmarks.harness import Goal, Job, benchmark
from dolma_dask.rules.levels import Levels
from dolma_dask.rules.thresholds import LEVELS
from dolma_dask.taggers.base import ViewTagger
from dolma_dask.text.kernels import Floats
from dolma_dask.text.view import TextView

UNIT = "M documents"
SIGNALS = [f"s{number:02d}" for number in range(15)]
SHARDS = 4
LANGUAGES = ("en", "de", "fr", "it", "es")
OPTIONS = {"scheduler": "synchronous", "progress": False}


def _draw(view: TextView) -> Sequence[Floats]:
    """Return numbers with five decimals, and ratios of small numbers, as signals are."""
    return [np.round(_RANDOM.lognormal(2, 1, len(view)), 5) for _ in SIGNALS]


_RANDOM = np.random.default_rng(0)
DRAWN = ViewTagger("drawn", dict.fromkeys(SIGNALS, "document"), _draw)


def _rows(job: Job) -> int:
    return 100_000 if job.quick else 500_000


def _made(job: Job) -> str:
    """Return a dataset with drawn signals in Parquet, and their quantiles by source; documents are empty."""
    root = job.scratch / "v0"
    for shard in range(SHARDS):
        path = root / f"documents/2023-06/{shard:04d}/en_head.jsonl.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (
            f'{{"id":"2023-06/{shard:04d}/en_head.json.gz/{row}","text":"","source":"{LANGUAGES[row % 5]}"}}\n'
            for row in range(_rows(job))
        )
        path.write_bytes(gzip.compress("".join(lines).encode(), 1))
    dk.tag(str(root), [DRAWN], format="parquet", **OPTIONS)
    dk.quantiles(str(root), SIGNALS, by="source", **OPTIONS)
    return str(root)


def _tables(root: str) -> list[Path]:
    return sorted((Path(root) / "attributes/drawn").rglob("*.parquet"))


@benchmark("filter", goal=Goal("ratio", 3), beside="filter-pyarrow", unit=UNIT)
def filter_verb(job: Job) -> None:
    """The verb: 15 signals in Parquet to levels in Parquet, by source."""
    root = _made(job)
    dk.filter(root, format="parquet", name="warm", prune=1, **OPTIONS)
    with job.measured(SHARDS * _rows(job) / 1e6):
        done = dk.filter(root, format="parquet", **OPTIONS)
    assert done.counts["documents_in"] == SHARDS * _rows(job)
    shutil.rmtree(root)


@benchmark("filter-kernel", beside="filter-pyarrow", unit=UNIT)
def filter_kernel(job: Job) -> None:
    """Levels of 15 signals in memory."""
    root = _made(job)
    levels = Levels.of([dk.thresholds(root, level) for level in LEVELS])
    tables = [pq.read_table(path, columns=["source", *levels.columns[:-1]]) for path in _tables(root)]
    batches = [batch for table in tables for batch in table.to_batches(1 << 16)]
    columns = [dict(zip(batch.schema.names, batch.columns, strict=True)) for batch in batches]
    levels.passed(columns[0], len(batches[0]))
    with job.measured(SHARDS * _rows(job) / 1e6):
        for batch, own in zip(batches, columns, strict=True):
            levels.passed(own, len(batch))
    shutil.rmtree(root)


@benchmark("filter-pyarrow", unit=UNIT)
def filter_pyarrow(job: Job) -> None:
    """pyarrow reading the same columns in one thread."""
    root = _made(job)
    columns = ["id", "source", *(f"drawn__drawn__{name}" for name in SIGNALS)]
    with job.measured(SHARDS * _rows(job) / 1e6):
        for path in _tables(root):
            pq.read_table(path, columns=columns, use_threads=False)
    shutil.rmtree(root)
