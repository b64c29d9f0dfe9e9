"""Memory does not grow with the file: a shard of one gzip member, small and three times as large, each in a fresh process."""

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
    ("ragged", 20),
    ("hdf5", 40),
    ("dedupe", 60),
    ("quantiles", 60),
    ("validate", 60),
]


def above_warm(verb: str, megabytes: int) -> float:
    """MB that a verb needs beyond those of a warm process."""
    words = [sys.executable, str(BENCHMARK), "--verb", verb, "--megabytes", str(megabytes)]
    environment = {**os.environ, **RETURN_AT_ONCE}
    done = subprocess.run(words, check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout)["above"]


@pytest.mark.parametrize("verb, megabytes", CASES)
def test_memory_does_not_grow_with_the_file(verb, megabytes):
    small, large = above_warm(verb, megabytes), above_warm(verb, 3 * megabytes)
    assert abs(large - small) < GROWTH_MB
    assert max(small, large) < ABOVE_WARM_MB
