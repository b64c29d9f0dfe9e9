"""Kill -9 at any moment, run the same command again: the bytes of an undisturbed run, no temporary file, no process left behind."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import SLOW_DISK, Command, Watched, wait_until
from small_world import VERBS, run_here, temporaries, tree

pytestmark = pytest.mark.e2e

SEED = os.environ.get("KILL_SEED", "20")
"""Another seed kills at other moments."""


def moments(draw: random.Random, count: int, files: int) -> list[int]:
    """Return after how many new files to kill: growing, since less is left each time."""
    return sorted(draw.randrange(files) for _ in range(count))


def wait_for_files(command: Command, watched: Watched, files: int, draw: random.Random) -> None:
    """Wait until some files have appeared and a moment more, or the command has ended."""
    wait_until(lambda: watched.count() >= files or not command.running(), f"{files} files")
    time.sleep(draw.uniform(0, 0.06))


def check(verb, world, expected) -> None:
    assert tree(world / verb.output) == expected[verb.key]
    assert temporaries(world / verb.output) == []


KILLED = [name for name in VERBS if name != "hdf5"]
"""What `hdf5` does, a mix to tokens does too; its own passes are stopped in test_hdf5."""

CASES = [(name, *rest) for name in KILLED for rest in (("cluster", 1), ("synchronous", 3))]


@pytest.mark.parametrize("name, scheduler, kills", [*CASES, ("tag", "processes", 1)])
def test_whole_command_is_killed(name, scheduler, kills, world, expected, tmp_path):
    verb = VERBS[name]
    words = verb.command(world, "--scheduler", scheduler, "--workers", "2")
    draw = random.Random(f"{SEED} {name} {scheduler}")
    group = (
        draw.random() < 0.5 and scheduler != "processes"
    )  # else the workers must see by themselves that the command is gone
    killed = 0
    for files in moments(draw, kills, 12):
        watched = Watched(world / verb.output)
        with Command(words, tmp_path / "log", **SLOW_DISK) as command:
            wait_for_files(command, watched, files, draw)
            killed += command.running()
            command.kill(group)
            command.wait_for_family()
    assert killed, "every run ended before it was killed: make the disk slower"
    with Command(words, tmp_path / "log") as command:
        assert command.wait() == 0, command.output
    check(verb, world, expected)


@pytest.mark.parametrize("scheduler", ["cluster", "processes"])
@pytest.mark.parametrize("name", KILLED)
def test_workers_are_killed(name, scheduler, world, expected, tmp_path):
    verb = VERBS[name]
    words = verb.command(world, "--scheduler", scheduler, "--workers", "2")
    watched = Watched(world / verb.output)
    draw = random.Random(f"{SEED} {name} {scheduler}")
    killed = 0
    with Command(words, tmp_path / "log", **SLOW_DISK) as command:
        for files in moments(draw, 2, 12):
            wait_for_files(command, watched, files + 2, draw)
            wait_until(
                lambda: command.workers() or not command.running(), "workers"
            )  # between two passes there are none
            if workers := command.workers():
                draw.choice(workers).kill()
                killed += 1
        assert command.wait() == 0, command.output
        command.wait_for_family()
    assert killed
    check(verb, world, expected)
    assert "Traceback" not in command.output, "what Dask says about a killed worker is noise to the user"


KILLED = """
import os
from dolma_dask import cli
from dolma_dask.engine import runs

runs._Running.take = lambda *of: os._exit(9)  # the files of a shard are there, and no record speaks of them
cli.main({words!r})
"""


def test_what_a_stopped_run_with_other_options_has_left_is_not_taken_for_ours(undisturbed, tmp_path, capsys):
    """The files of both runs have the same sizes; those that were not replaced are not made again."""
    world = Path(shutil.copytree(undisturbed, tmp_path / "world"))
    verb = VERBS["ragged"]
    before = tree(world / verb.output)
    tokenizer = json.loads((world / "tokenizer.json").read_text())
    ids = tokenizer["model"]["vocab"]
    ids["a"], ids["e"] = ids["e"], ids["a"]
    (world / "other").mkdir()
    (world / "other/tokenizer.json").write_text(json.dumps(tokenizer))
    other = [word.replace("/tokenizer.json", "/other/tokenizer.json") for word in verb.command(world)]
    code = KILLED.format(words=[*other, "--scheduler", "synchronous", "--no-progress"])
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    assert tree(world / verb.output) != before
    for done in (1, 0):
        capsys.readouterr()
        assert run_here([*verb.command(world), "--json"]) == 0
        summary = json.loads(capsys.readouterr().out)
        assert (summary["done"], summary["skipped"]) == (done, 12 - done)
        assert tree(world / verb.output) == before
