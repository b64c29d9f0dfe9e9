"""Memory does not grow with the file: a shard of one gzip member, small and then 30 MB larger, in a process for each verb.

Nor with the row group of a table, or how its values repeat; a long line takes its own size a few times.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import bench_memory

pytestmark = pytest.mark.e2e

RETURN_AT_ONCE = {
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
"""Freed blocks go back to the kernel, so that the peak is that of live memory; what workers keep besides is bounded, the benchmark shows it."""
GROWTH = 0.4
"""Share of the bytes that the large shard has more: what keeps its documents grows by all of them, what keeps none by less than a fifth."""
ABOVE_WARM_MB = 110
"""A row group of 100 MB that is decoded whole takes 200 MB, and rows of 80 MB that are decoded at once 160."""
SIZES = {
    **dict.fromkeys(("convert", "tag", "mix", "downsample", "dedupe", "quantiles", "filter", "validate"), (36, 66)),
    "fuzzy": (66, 106),
    "attach": (20, 50),
    **dict.fromkeys(("ragged", "hdf5"), (12, 42)),
}  # fmt: skip
"""MB of a small and a large shard for each verb: the small one already fills all buffers, those of its attribute files too, and the signatures and pairs
of `fuzzy`. Tokenizing takes longer, and so do the tables of `attach`."""


def above_warm(verb: str, folder: Path, sizes: tuple[int, ...], shape: str = "lines") -> list[float]:
    """MB that a verb needs at most beyond those of a warm process, after each of some shards."""
    words = ["--step", "measure", "--verb", verb, "--folder", str(folder), "--shape", shape]
    done = subprocess.run(
        [sys.executable, bench_memory.__file__, *words, "--megabytes", *map(str, sizes)],
        check=True, capture_output=True, text=True, env={**os.environ, **RETURN_AT_ONCE},
    )  # fmt: skip
    return [found["above"] for found in json.loads(done.stdout)]


@pytest.fixture(scope="module")
def shards(once):
    """A function that returns the folder of shards of some sizes, with all that the verbs need; they are made here, since only verbs need a process of their own."""

    def of(sizes: tuple[int, ...]) -> Path:
        def make(place: Path) -> Path:
            bench_memory.make([verb for verb in SIZES if SIZES[verb] == sizes], place, sizes, "lines")
            return place

        return once(f"shards-{sizes[0]}", make)

    return of


@pytest.mark.parametrize("verb", SIZES)
def test_memory_does_not_grow_with_the_file(verb, shards):
    sizes = SIZES[verb]
    small, large = above_warm(verb, shards(sizes), sizes)
    assert large - small < GROWTH * (sizes[1] - sizes[0])
    assert large < ABOVE_WARM_MB


@pytest.mark.parametrize(
    "verb, megabytes, shape",
    [("tag", 100, "group"), ("convert", 80, "values"), ("tag", 80, "values"), ("mix", 80, "values")],
)
def test_memory_does_not_grow_with_row_groups_or_repeated_values(verb, megabytes, shape, tmp_path):
    bench_memory.make([verb], tmp_path, [megabytes], shape)
    (above,) = above_warm(verb, tmp_path, (megabytes,), shape)
    assert above < ABOVE_WARM_MB


def test_a_long_line_takes_at_most_three_times_its_size(tmp_path):
    bench_memory.make(["mix"], tmp_path, [30], "line")
    (above,) = above_warm("mix", tmp_path, (30,), "line")
    assert above < 3 * 30
