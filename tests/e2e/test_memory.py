"""Memory does not grow with the file: a shard of one gzip member, small and then 50 MB larger, in a process for each verb.

Nor with the row group of a table, or how its values repeat; a long line takes its own size a few times.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks/bench_memory.py"
RETURN_AT_ONCE = {
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
"""Freed blocks go back to the kernel, so that the peak is that of live memory; what workers keep besides is bounded, the benchmark shows it."""
GROWTH_MB = 20
ABOVE_WARM_MB = 200
SIZES = {
    **dict.fromkeys(("convert", "tag", "mix", "downsample", "dedupe", "fuzzy", "quantiles", "filter", "validate"), ("90", "140")),
    **dict.fromkeys(("ragged", "hdf5", "attach"), ("20", "70")),
}  # fmt: skip
"""MB of a small and a large shard for each verb: the small one already fills all buffers, those of its attribute files too. Tokenizing takes longer, and so do the tables of `attach`."""


def benchmark(*words: str) -> str:
    """Return what the benchmark prints."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), *words],
        check=True, capture_output=True, text=True, env={**os.environ, **RETURN_AT_ONCE},
    )  # fmt: skip
    return done.stdout


def above_warm(*words: str) -> list[float]:
    """MB that a verb needs at most beyond those of a warm process, after each of some shards."""
    return [found["above"] for found in json.loads(benchmark(*words))]


@pytest.fixture(scope="module")
def folder(once):
    """The shards, with all that the verbs need."""

    def make(place: Path) -> Path:
        for sizes in set(SIZES.values()):
            (place / sizes[0]).mkdir()
            verbs = (verb for verb in SIZES if SIZES[verb] == sizes)
            words = ("--step", "make", "--folder", str(place / sizes[0]), "--megabytes", *sizes)
            benchmark(*words, "--verb", *verbs)
        return place

    return once("shards", make)


@pytest.mark.parametrize("verb", SIZES)
def test_memory_does_not_grow_with_the_file(verb, folder):
    place, sizes = folder / SIZES[verb][0], SIZES[verb]
    words = ("--step", "measure", "--folder", str(place), "--megabytes", *sizes)
    small, large = above_warm(*words, "--verb", verb)
    assert large - small < GROWTH_MB
    assert large < ABOVE_WARM_MB


@pytest.mark.parametrize(
    "verb, megabytes, shape",
    [
        ("tag", "300", "group"),
        ("convert", "150", "values"),
        ("tag", "150", "values"),
        ("mix", "150", "values"),
    ],
)
def test_memory_does_not_grow_with_row_groups_or_repeated_values(verb, megabytes, shape):
    (above,) = above_warm("--verb", verb, "--megabytes", megabytes, "--shape", shape)
    assert above < ABOVE_WARM_MB


def test_a_long_line_takes_at_most_three_times_its_size():
    (above,) = above_warm("--verb", "mix", "--megabytes", "50", "--shape", "line")
    assert above < 3 * 50
