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
RETURN_AT_ONCE = {"MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_MMAP_THRESHOLD_": "131072"}
"""Freed blocks go back to the kernel, so that the peak is that of live memory; what workers keep besides is bounded, the benchmark shows it."""
GROWTH_MB = 20
ABOVE_WARM_MB = 200
QUICK = (60, 140)
"""MB of a small and a large shard: the small one already fills all buffers. Tokenizing them takes longer."""
CASES = {
    "convert": QUICK, "tag": QUICK, "mix": QUICK, "downsample": QUICK, "ragged": (40, 90), "hdf5": (40, 90), "dedupe": QUICK, "fuzzy": QUICK,
    "quantiles": QUICK, "filter": QUICK, "validate": QUICK, "attach": QUICK,
}  # fmt: skip


def above_warm(verb: str, *megabytes: int, shape: str = "lines") -> list[float]:
    """MB that a verb needs at most beyond those of a warm process, after each of some shards."""
    words = [sys.executable, str(BENCHMARK), "--verb", verb, "--shape", shape, "--megabytes"]
    environment = {**os.environ, **RETURN_AT_ONCE}
    done = subprocess.run(
        [*words, *map(str, megabytes)], check=True, capture_output=True, text=True, env=environment
    )
    return [found["above"] for found in json.loads(done.stdout)]


@pytest.mark.parametrize("verb", CASES)
def test_memory_does_not_grow_with_the_file(verb):
    small, large = above_warm(verb, *CASES[verb])
    assert large - small < GROWTH_MB
    assert large < ABOVE_WARM_MB


@pytest.mark.parametrize(
    "verb, megabytes, shape",
    [("tag", 400, "group"), ("convert", 150, "values"), ("tag", 150, "values"), ("mix", 150, "values")],
)
def test_memory_does_not_grow_with_row_groups_or_repeated_values(verb, megabytes, shape):
    (above,) = above_warm(verb, megabytes, shape=shape)
    assert above < ABOVE_WARM_MB


def test_a_long_line_takes_at_most_three_times_its_size():
    (above,) = above_warm("mix", 50, shape="line")
    assert above < 3 * 50
