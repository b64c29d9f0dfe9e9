"""Quantiles, in millions of values per CPU-second: the passes over kept values beside np.quantile, and the verb from files to result."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.bench_verbs import OPTIONS, tagged
from benchmarks.harness import Goal, Job, benchmark
from dolma_dask.io.publish import publish
from dolma_dask.io.records import FileRecord
from dolma_dask.rules.ordered_bits import values_of
from dolma_dask.rules.quantile_table import PROBABILITIES, interpolated, ranks_of
from dolma_dask.verbs.quantiles.files import ValueWriter
from dolma_dask.verbs.quantiles.order_statistics import order_statistics
from dolma_dask.verbs.quantiles.select import Index, SignalValues
from dolma_dask.verbs.quantiles.verb import quantiles

UNIT = "M values"
BATCH = 1 << 16
MANY = 1000
"""Groups whose rows are mixed: more than anybody has, and no two rows in a row from one."""


def real_numbers(count: int) -> np.ndarray:
    """Values of which hardly two are equal."""
    return np.random.default_rng(0).normal(size=count)


def whole_numbers(count: int) -> np.ndarray:
    """Values like numbers of words: many ties, a long tail."""
    return np.floor(np.random.default_rng(0).lognormal(5.5, 1.2, count))


def kept(folder: Path, values: np.ndarray, groups: int) -> Index:
    """Write values as the first part of the verb keeps them."""
    folder.mkdir(parents=True, exist_ok=True)
    codes = np.random.default_rng(1).integers(min(groups, 1), groups + 1, len(values)).astype(np.uint16)
    labels = [f"group {number:04d}" for number in range(1, groups + 1)]
    with publish(str(folder / "values.bin")) as out:
        writer = ValueWriter(out, 1, groups + 1)
        for start in range(0, len(values), BATCH):
            writer.add(codes[start : start + BATCH], [pa.array(values[start : start + BATCH])])
        writer.finish(labels)
    return Index(tuple(labels), (FileRecord("values.bin", out.bytes, writer.checksum),))


def find(folder: Path, index: Index) -> list[list[float]]:
    """Return the quantiles of all rows and of each group."""
    signal = SignalValues.open(str(folder), index, 0)
    ranks, shares = ranks_of(signal.extents.counts[:, 0], PROBABILITIES)
    found = order_statistics(signal.blocks, signal.sample, signal.extents, ranks)
    return interpolated(values_of(found), shares).tolist()


def _passes(job: Job, values: np.ndarray, groups: int) -> None:
    warm, folder = job.scratch / "warm", job.scratch / "kept"
    find(warm, kept(warm, values[: 8 << 20], groups))
    index = kept(folder, values, groups)
    with job.measured(len(values) / 1e6):
        found = find(folder, index)
    assert found[0] == np.quantile(values, PROBABILITIES).tolist()


def _count(job: Job) -> int:
    return 8_000_000 if job.quick else 40_000_000


@benchmark("quantiles-real", goal=Goal("speed", 50), beside="quantiles-numpy", unit=UNIT)
def quantiles_real(job: Job) -> None:
    """Kept real numbers to exact quantiles, all rows and five groups."""
    _passes(job, real_numbers(_count(job)), 5)


@benchmark("quantiles-whole", goal=Goal("speed", 50), beside="quantiles-numpy", unit=UNIT)
def quantiles_whole(job: Job) -> None:
    """Kept whole numbers with many ties, all rows and five groups."""
    _passes(job, whole_numbers(_count(job)), 5)


@benchmark("quantiles-all", goal=Goal("speed", 50), beside="quantiles-numpy", unit=UNIT)
def quantiles_all(job: Job) -> None:
    """Kept real numbers without groups."""
    _passes(job, real_numbers(_count(job)), 0)


@benchmark("quantiles-1000-groups", beside="quantiles-numpy", unit=UNIT)
def quantiles_many_groups(job: Job) -> None:
    """Kept real numbers in 1,000 groups, row by row another."""
    _passes(job, real_numbers(_count(job)), MANY)


@benchmark("quantiles-numpy", unit=UNIT)
def quantiles_numpy(job: Job) -> None:
    """np.quantile of the same real numbers in memory, without groups."""
    values = real_numbers(_count(job))
    with job.measured(len(values) / 1e6):
        np.quantile(values, PROBABILITIES)


@benchmark("quantiles", unit=UNIT)
def quantiles_verb(job: Job) -> None:
    """The verb: three attribute sets with 21 signals, .jsonl.gz in, by source."""
    _verb(job)


def _verb(job: Job, **options: bool) -> None:
    quantiles(tagged(job, "warm"), **options, **OPTIONS)
    root = tagged(job, "all")
    with job.measured(0):
        done = quantiles(root, **options, **OPTIONS)
    counts = done.counts
    assert counts["documents_in"] == job.corpus.documents
    values = (counts["values"] + counts["missing_values"]) / 1e6
    assert job.result is not None
    job.result = type(job.result)(values, job.result.cpu, job.result.wall, job.result.peak)
    shutil.rmtree(Path(root) / "quantiles")
