"""Memory does not grow with the file: a shard of one gzip member, small and then more than twice as large, in a process for each verb.

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
SIZES = ("90", "140")
"""MB of a small and a large shard: the small one already fills all buffers, those of its attribute files too."""
FOR_TOKENS = ("40", "90")
"""Tokenizing takes longer."""
VERBS = (
    "convert", "tag", "mix", "downsample", "ragged", "hdf5", "dedupe", "fuzzy", "quantiles", "filter", "validate", "attach",
)  # fmt: skip


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
def folder(tmp_path_factory):
    """The shards, with all that the verbs need."""
    made = tmp_path_factory.mktemp("shards")
    benchmark(
        "--step", "make", "--folder", str(made), "--megabytes", *{*FOR_TOKENS, *SIZES}, "--verb", *VERBS
    )
    return str(made)


@pytest.mark.parametrize("verb", VERBS)
def test_memory_does_not_grow_with_the_file(verb, folder):
    sizes = FOR_TOKENS if verb in ("ragged", "hdf5") else SIZES
    small, large = above_warm("--step", "measure", "--folder", folder, "--megabytes", *sizes, "--verb", verb)
    assert large - small < GROWTH_MB
    assert large < ABOVE_WARM_MB


@pytest.mark.parametrize(
    "verb, megabytes, shape",
    [
        ("tag", "400", "group"),
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
