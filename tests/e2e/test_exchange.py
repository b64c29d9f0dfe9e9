"""The exchange on real clusters: the same for any number of workers, whoever is killed in whatever pass, through files and through Dask's shuffle."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import exchange_world
import one_key_world
import pytest
from thorough import THOROUGH

import dolma_dask as dk
from dolma_dask.errors import DataError, StageError
from dolma_dask.options.groups import RunOptions
from dolma_dask.testing.commands import Command, held, held_at

pytestmark = pytest.mark.e2e

SHUFFLES = ("files", "dask")
PASSES = ("scatter", "reduce", "shards")
SEED = os.environ.get("KILL_SEED", "20")


def script(root: Path, shuffle: str, scheduler: str, **environment: str) -> Command:
    """Start `exchange_world`, to be watched and killed like a command."""
    words = [exchange_world.__file__, str(root), shuffle, scheduler, "2"]
    return Command(words, root / "log", **environment)


@pytest.fixture(scope="module")
def expected():
    return json.loads(json.dumps(exchange_world.expected()))


def check(root: Path, expected) -> None:
    assert json.loads((root / "result.json").read_text()) == expected
    assert sorted(path.name for path in root.iterdir()) == ["log", "result.json"], "nothing else is left"


@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_in_one_process(shuffle, tmp_path, expected):
    for scheduler in ("synchronous", "threads"):
        options = RunOptions(scheduler=scheduler, progress=False)
        result, ranges = exchange_world.run(
            str(tmp_path),
            shuffle,
            options,
            collect=lambda done: (exchange_world.outcome(done), len(done.infos)),
        )
        assert result == expected
        assert ranges > 8
        assert list(tmp_path.iterdir()) == []


def test_dask_without_records_and_with_errors(tmp_path, expected):
    keys, groups = exchange_world.Keys, exchange_world.Groups

    def run(*parts, **more):
        options = RunOptions(scheduler="threads", progress=False)
        return exchange_world.run(
            str(tmp_path), "dask", options, *parts, collect=lambda done: done.infos, **more
        )

    with pytest.raises(StageError, match="shard 3: DataError: 3 is broken") as caught:
        run(keys(broken=3), groups())
    assert [failure.shard for failure in caught.value.failures] == ["shard 3"]
    with pytest.raises(DataError, match="the reducer is broken"):
        run(keys(), groups(is_broken=True))
    assert sum(info["keys"] for info in run(keys(), groups(dtype=None))) == expected["keys"]
    assert run(keys(), groups(), shards=0) == ()


@pytest.mark.parametrize("workers", [1, 2, 4] if THOROUGH else [1, 3])
def test_any_number_of_workers(workers, tmp_path, expected):
    with dk.cluster("laptop", workers=workers):
        for shuffle in SHUFFLES:
            assert exchange_world.run(str(tmp_path), shuffle, RunOptions(progress=False)) == expected
            assert list(tmp_path.iterdir()) == []


def held_in(passes: Sequence[str], marks: Path, draw: random.Random) -> dict[str, str]:
    """Return the environment in which in each pass a process waits to be killed, sooner or later in it."""
    return held_at(draw.choice([1, 3, 7]), marks, *(f"/{phase}/" for phase in passes))


def test_workers_are_killed_in_each_pass(tmp_path, tmp_path_factory, expected):
    """Through files; what a lost worker does to Dask's shuffle is Dask's affair."""
    shuffle, marks = "files", tmp_path_factory.mktemp("marks")
    draw = random.Random(f"{SEED} {shuffle}")
    with script(tmp_path, shuffle, "cluster", **held_in(PASSES, marks, draw)) as running:
        for phase in PASSES:
            worker = held(running, marks, f"/{phase}/")
            assert worker in running.workers()
            worker.kill()
        assert running.wait() == 0, running.output
        running.wait_for_family()
    assert "Traceback" not in running.output, "what Dask says about a killed worker is noise to the user"
    check(tmp_path, expected)


@pytest.mark.parametrize(
    "shuffle, scheduler, passes",
    [
        ("files", "synchronous", PASSES),
        # a start with workers costs three without: of its passes the one in which these shuffle, the others in one process
        ("dask", "threads", PASSES if THOROUGH else ("scatter", "shards")),
        ("dask", "cluster", PASSES if THOROUGH else ("reduce",)),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_whole_process_is_killed_in_each_pass(
    shuffle, scheduler, passes, tmp_path, tmp_path_factory, expected
):
    marks, draw = tmp_path_factory.mktemp("marks"), random.Random(f"{SEED} {shuffle} {scheduler}")
    for phase in passes:
        with script(tmp_path, shuffle, scheduler, **held_in([phase], marks, draw)) as running:
            held(running, marks, f"/{phase}/")
            running.kill(group=draw.random() < 0.5)
            running.wait_for_family()
    # what is left is the same anywhere
    with script(tmp_path, shuffle, scheduler if THOROUGH else "threads") as running:
        assert running.wait() == 0, running.output
    check(tmp_path, expected)


def test_ten_million_records_of_one_key(tmp_path):
    """240 MB of records that no range can share: they go through disk, in order, and memory stays what a range needs."""
    count = 10_000_000
    returning = {"MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_MMAP_THRESHOLD_": "131072"}
    done = subprocess.run(
        [sys.executable, one_key_world.__file__, str(tmp_path), str(count)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **returning},
    )
    told = json.loads(done.stdout)
    (info,) = told["infos"]
    assert (info["count"], info["sorted"], told["same"]) == (count, True, True)
    assert info["largest"] * one_key_world.KEYED.itemsize <= 2 << 20
    assert told["above_mb"] < 120
    assert list(tmp_path.iterdir()) == []
