"""Memory does not grow with the file: a shard of one gzip member, small and three times as large, each in a fresh process.

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
CASES = [
    ("convert", 60),
    ("tag", 60),
    ("mix", 60),
    ("downsample", 60),
    ("ragged", 20),
    ("hdf5", 40),
    ("dedupe", 60),
    ("fuzzy", 60),
    ("quantiles", 60),
    ("filter", 60),
    ("validate", 60),
    ("attach", 60),
]


def above_warm(verb: str, megabytes: int, shape: str = "lines") -> float:
    """MB that a verb needs beyond those of a warm process."""
    words = [sys.executable, str(BENCHMARK), "--verb", verb, "--megabytes", str(megabytes), "--shape", shape]
    environment = {**os.environ, **RETURN_AT_ONCE}
    done = subprocess.run(words, check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout)["above"]


@pytest.mark.parametrize("verb, megabytes", CASES)
def test_memory_does_not_grow_with_the_file(verb, megabytes):
    small, large = above_warm(verb, megabytes), above_warm(verb, 3 * megabytes)
    assert abs(large - small) < GROWTH_MB
    assert max(small, large) < ABOVE_WARM_MB


@pytest.mark.parametrize(
    "verb, megabytes, shape",
    [("tag", 400, "group"), ("convert", 150, "values"), ("tag", 150, "values"), ("mix", 150, "values")],
)
def test_memory_does_not_grow_with_row_groups_or_repeated_values(verb, megabytes, shape):
    assert above_warm(verb, megabytes, shape) < ABOVE_WARM_MB


def test_a_long_line_takes_at_most_three_times_its_size():
    assert above_warm("mix", 50, "line") < 3 * 50
