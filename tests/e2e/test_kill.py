"""Kill -9 at any moment, run the same command again: the bytes of an undisturbed run, no temporary file, no process left behind."""

import random
import time

import pytest
from commands import Command, Watched, wait_until
from small_world import VERBS, temporaries, tree

pytestmark = pytest.mark.e2e

SLOW_DISK_S = 0.04
SEED = 20


def moments(name: str, count: int, files: int) -> list[int]:
    """Return after how many appeared files to kill: random, the same every time, growing."""
    draw = random.Random(f"{SEED} {name}")
    return sorted(draw.randrange(files) for _ in range(count))


def wait_for_files(command: Command, watched: Watched, files: int) -> None:
    """Wait until some files have appeared, or the command has ended."""
    wait_until(lambda: watched.count() >= files or not command.running(), f"{files} files")
    time.sleep(random.Random(f"{SEED} {files}").uniform(0, 0.05))


def check(verb, world, expected) -> None:
    assert tree(world / verb.output) == expected[verb.name]
    assert temporaries(world / verb.output) == []


@pytest.mark.parametrize("scheduler, kills", [("cluster", 2), ("synchronous", 4)])
@pytest.mark.parametrize("name", VERBS)
def test_the_whole_command_is_killed_again_and_again(name, scheduler, kills, world, expected, tmp_path):
    verb = VERBS[name]
    words = verb.command(world, "--scheduler", scheduler, "--workers", "2")
    killed = 0
    for number, files in enumerate(moments(f"{name} {scheduler}", kills, 12)):
        watched = Watched(world / verb.output)
        with Command(words, tmp_path / "log", SLOW_DISK_S) as command:
            wait_for_files(command, watched, files)
            killed += command.running()
            command.kill(group=number % 2 == 1)  # else the workers must see by themselves that the command is gone
            command.wait_for_family()
    assert killed, "every run ended before it was killed: make the disk slower"
    with Command(words, tmp_path / "log") as command:
        assert command.wait() == 0, command.output
    check(verb, world, expected)


@pytest.mark.parametrize("scheduler", ["cluster", "processes"])
@pytest.mark.parametrize("name", VERBS)
def test_workers_are_killed(name, scheduler, world, expected, tmp_path):
    verb = VERBS[name]
    words = verb.command(world, "--scheduler", scheduler, "--workers", "2")
    watched = Watched(world / verb.output)
    draw = random.Random(f"{SEED} {name} {scheduler}")
    with Command(words, tmp_path / "log", SLOW_DISK_S) as command:
        for files in moments(f"{name} {scheduler}", 2, 14):
            wait_for_files(command, watched, files + 2)
            workers = command.workers()
            if workers and command.running():
                draw.choice(workers).kill()
        assert command.wait() == 0, command.output
        command.wait_for_family()
    check(verb, world, expected)
    assert "Traceback" not in command.output
