"""The laws for mix where files are cut by size or rows are shuffled: the same bytes anywhere, killed in any pass or not, nothing left behind."""

import gzip
import json
import random
import shutil
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from commands import SLOW_DISK, Command, wait_until
from places import PLACES, Worlds, change, change_same_size, displaced, running_at
from small_world import Verb, make_documents, run_here, store, temporaries, tree

from dolma_dask import cli

pytestmark = pytest.mark.e2e

RULE = "word_count >= 20 and source != 'padding'"
SIZE = 100_000
VERBS = {
    verb.output: verb
    for verb in (
        Verb("mix", ("{}/v0", "--to", "{}/packed", "--where", RULE, "--max-size", f"{SIZE}"), "packed"),
        Verb(
            "mix",
            (
                "{}/v0",
                "--to",
                "{}/shuffled",
                "--where",
                RULE,
                "--shuffle",
                "--seed",
                "3",
                "--max-size",
                f"{SIZE}",
            ),
            "shuffled",
        ),
    )
}
SLOW = {**SLOW_DISK, "SLOW_DISK_S": "0.025"}
TAG = ("--taggers", "gopher_v2")
SHARDS = 13


def make_world(world: Path) -> None:
    """Write twelve shards, and a large one of which no row is kept: its size asks for four buckets of a shuffle."""
    make_documents(world / "v0", 7)
    padding = {"id": "p", "text": "padding", "source": "padding", "metadata": {"padding": "x" * 2_000_000}}
    store(world / "v0/documents/padding.jsonl", [json.dumps(padding).encode() + b"\n"] * 10)
    assert run_here(["tag", f"{world}/v0", *TAG]) == 0


@pytest.fixture(scope="module")
def worlds(tmp_path_factory) -> Worlds:
    before, after = (tmp_path_factory.mktemp("packed") / name / "world" for name in ("before", "after"))
    make_world(before)
    shutil.copytree(before, after)
    for verb in VERBS.values():
        assert run_here(verb.command(after)) == 0
    expected = {name: tree(after / name) for name in VERBS}
    assert all(8 <= len(found) <= 16 for found in expected.values())
    assert all((after / name / path).stat().st_size <= SIZE for name in VERBS for path in expected[name])
    return Worlds(before, after, expected)


@pytest.fixture
def world(worlds, tmp_path) -> Path:
    """A world before any of the commands ran."""
    return Path(shutil.copytree(worlds.before, tmp_path / "world"))


@pytest.fixture
def done(worlds, tmp_path) -> Path:
    """A world in which all of them have run."""
    return Path(shutil.copytree(worlds.after, tmp_path / "world"))


def check(world: Path, name: str, expected: dict[str, str]) -> None:
    """Check that the files of a verb are there, and nothing else but its journal."""
    assert tree(world / name) == expected
    assert temporaries(world / name) == []
    assert not (world / name / "_work").exists()


def words_of(name: str, world: Path, *more: str) -> list[str]:
    """Return the arguments of a verb in a certain world; options in `more` stand for its own of that name."""
    words = VERBS[name].command(world)
    for option in more:
        if option in words:
            del words[words.index(option) : words.index(option) + 2]
    return [*words, *more]


def run_again(name: str, world: Path, capsys, *more: str) -> dict:
    """Run a verb in a world once more and return its summary."""
    capsys.readouterr()
    assert run_here([*words_of(name, world, *more), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def fresh(name: str, world: Path, tmp_path: Path, *more: str) -> dict[str, str]:
    """Return what a verb writes where nothing is yet."""
    place = tmp_path / "fresh" / world.name
    shutil.copytree(world / "v0", place / "v0")
    assert run_here(words_of(name, place, *more)) == 0
    return tree(place / name)


@pytest.mark.parametrize("place", [place for place in PLACES if place not in ("synchronous", "cluster of 1")])
def test_same_bytes_everywhere(place, world, worlds):
    with running_at(place) as options:
        for name, verb in VERBS.items():
            if place == "processes" and name == "packed":  # each pass starts processes anew
                continue
            assert cli.main(verb.command(world, *options, "--no-progress")) == 0
            check(world, name, worlds.expected[name])


def lines_of(folder: Path) -> list[bytes]:
    """Return the documents of all files in their order."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    texts = [
        gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes() for path in found
    ]
    return [line for text in texts for line in text.splitlines()]


def test_no_row_is_lost_and_a_shuffle_spreads_them(worlds, tmp_path):
    words = ["mix", f"{worlds.after}/v0", "--to", f"{tmp_path}/plain", "--where", RULE, "--format", "jsonl"]
    assert run_here(words) == 0
    plain = lines_of(tmp_path / "plain/documents")
    assert len(plain) > 2000
    assert lines_of(worlds.after / "packed/documents") == plain
    shuffled = lines_of(worlds.after / "shuffled/documents")
    assert sorted(shuffled) == sorted(plain)
    shards = [json.loads(line)["id"].rpartition("-")[0] for line in shuffled]
    alike = sum(one == other for one, other in pairwise(shards))
    by_chance = sum(count**2 for count in Counter(shards).values()) / len(shards)
    assert 0.7 * by_chance < alike < 1.3 * by_chance, (
        "neighbours are no more often of one shard than by chance"
    )


# ------------------------------------------------------------------------------------------------ kills


PASSES = {
    "pieces": "_work/mix-part/*/pieces/[0-9]*",
    "buckets": "_work/mix-part/*/sorted/[0-9]*",
    "files": "documents/[a-z]*",
    "half a file": "documents/.*",
}
"""What each pass writes; temporary files are hidden."""


def made(root: Path, where: str) -> int:
    """Count the files that a pass has made so far."""
    return len(list(root.glob(PASSES[where])))


def kill_at(words, root: Path, where: str, files: int, group: bool, log: Path) -> None:
    """Run a command and kill it when so many files of a pass are there."""
    with Command(words, log, **SLOW) as command:
        wait_until(lambda: made(root, where) >= files or not command.running(), f"{files} {where}")
        assert command.running(), command.output
        command.kill(group)
        command.wait_for_family()
    assert (root / "_work").exists(), f"it ended before it was killed at {files} {where}"


def moments(name: str, worlds: Worlds) -> list[tuple[str, int]]:
    """Return moments in each pass; the last one is when only the journal does not know yet that all files are there."""
    files = len(worlds.expected[name])
    if name == "packed":
        return [("pieces", 3), ("half a file", 1), ("files", files)]
    return [("pieces", 5), ("pieces", 2 * SHARDS), ("buckets", 2), ("files", files)]


@pytest.mark.parametrize("name", VERBS)
def test_killed_in_each_pass(name, world, worlds, tmp_path, capsys):
    words = words_of(name, world, "--scheduler", "synchronous")
    draw = random.Random(f"packed {name}")
    for where, files in moments(name, worlds):
        kill_at(words, world / name, where, files, draw.random() < 0.5, tmp_path / "log")
    summary = run_again(name, world, capsys)
    assert (summary["done"], summary["skipped"]) == (0, SHARDS), "no shard is read again for the last pass"
    check(world, name, worlds.expected[name])


def test_a_command_with_workers_is_killed(world, worlds, tmp_path, capsys):
    """The workers must see by themselves that it is gone."""
    words = words_of("shuffled", world, "--scheduler", "cluster", "--workers", "2")
    kill_at(words, world / "shuffled", "buckets", 1, False, tmp_path / "log")
    run_again("shuffled", world, capsys)
    check(world, "shuffled", worlds.expected["shuffled"])


def test_an_input_changes_after_a_kill(world, worlds, tmp_path, capsys):
    """What was sorted and joined of the old one is of no use."""
    words = words_of("shuffled", world, "--scheduler", "synchronous")
    kill_at(words, world / "shuffled", "files", 3, True, tmp_path / "log")
    change_same_size(world / "v0/documents/plain.jsonl")
    assert run_here(["tag", f"{world}/v0", *TAG]) == 0
    run_again("shuffled", world, capsys)
    wanted = fresh("shuffled", world, tmp_path)
    assert wanted != worlds.expected["shuffled"]
    check(world, "shuffled", wanted)


def test_workers_are_killed(world, worlds, tmp_path):
    root, draw = world / "shuffled", random.Random("packed workers")
    words = words_of("shuffled", world, "--scheduler", "cluster", "--workers", "2")
    with Command(words, tmp_path / "log", **SLOW) as command:
        for where, files in (("pieces", 3), ("buckets", 1)):
            wait_until(
                lambda w=where, n=files: made(root, w) >= n or not command.running(), f"{files} {where}"
            )
            workers = command.workers()
            assert workers, command.output
            draw.choice(workers).kill()
        assert command.wait() == 0, command.output
        command.wait_for_family()
    assert "Traceback" not in command.output
    check(world, "shuffled", worlds.expected["shuffled"])


def test_what_others_left_is_cleared_away(world, worlds, tmp_path, capsys):
    """Runs with other options are killed; and one at its very end, when all is known and its folder not yet removed."""
    for more, where, files in ((("--max-size", "40000"), "files", 15), (("--seed", "4"), "buckets", 1)):
        words = words_of("shuffled", world, *more, "--scheduler", "synchronous")
        kill_at(words, world / "shuffled", where, files, True, tmp_path / "log")
    left = shutil.copytree(world / "shuffled/_work", tmp_path / "left")
    run_again("shuffled", world, capsys)
    check(world, "shuffled", worlds.expected["shuffled"])
    shutil.copytree(left, world / "shuffled/_work")
    assert run_again("shuffled", world, capsys)["done"] == 0
    check(world, "shuffled", worlds.expected["shuffled"])


def test_a_file_of_a_killed_run_never_passes_for_the_old_one(world, tmp_path, capsys):
    """Not compressed, the rows of two seeds make files of the same size: the second run is killed, the first is asked again."""
    path, plain = (
        world / "shuffled/documents/part-0000.jsonl",
        ("--format", "jsonl", "--max-size", "10000000"),
    )
    run_again("shuffled", world, capsys, *plain)
    before, stamp = path.read_bytes(), path.stat().st_mtime_ns
    words = words_of("shuffled", world, *plain, "--seed", "4", "--scheduler", "synchronous")
    with Command(words, tmp_path / "log", **SLOW) as command:
        wait_until(lambda: path.stat().st_mtime_ns != stamp or not command.running(), "the other file")
        assert command.running(), command.output
        command.kill(group=True)
    assert path.read_bytes() != before
    assert path.stat().st_size == len(before)
    run_again("shuffled", world, capsys, *plain)
    assert path.read_bytes() == before


def test_two_commands_at_once_do_no_harm(world, worlds, tmp_path, capsys):
    """One works; the other says so, or finds all done."""
    words = words_of("shuffled", world)
    with Command([*words, "--scheduler", "synchronous"], tmp_path / "log", **SLOW) as one:
        wait_until(lambda: made(world / "shuffled", "pieces") >= 3 or not one.running(), "pieces")
        assert run_here(words) == 2
        assert "another mix" in capsys.readouterr().err
        assert one.wait() == 0, one.output
    check(world, "shuffled", worlds.expected["shuffled"])
    assert run_again("shuffled", world, capsys)["done"] == 0


# ------------------------------------------------------------------------------------------------ what is done again


@pytest.mark.parametrize("how", ["move", "copy", "touch"])
def test_moving_copying_and_touching_redo_nothing(how, done, worlds, capsys):
    place = displaced(done, how)
    for name in VERBS:
        before = {path: path.stat().st_mtime_ns for path in (place / name).rglob("*")}
        assert run_again(name, place, capsys, "--dry-run")["planned"] == []
        assert {path: path.stat().st_mtime_ns for path in (place / name).rglob("*")} == before
        summary = run_again(name, place, capsys)
        assert (summary["done"], summary["skipped"], summary["failed"]) == (0, SHARDS, 0)
        assert summary["counts"]["documents_in"] > 3000, "what was done before counts too"
        check(place, name, worlds.expected[name])


@pytest.mark.parametrize("name", VERBS)
def test_nothing_left_starts_nothing(name, done, capsys):
    """No scheduler answers there: a run with something to do would fail."""
    capsys.readouterr()
    assert cli.main(words_of(name, done, "--scheduler", "tcp://127.0.0.1:1", "--json")) == 0
    assert json.loads(capsys.readouterr().out)["done"] == 0


@pytest.mark.parametrize("name", VERBS)
def test_dry_run_writes_nothing(name, world, capsys):
    before = {path: path.stat().st_mtime_ns for path in world.rglob("*")}
    assert len(run_again(name, world, capsys, "--dry-run")["planned"]) == SHARDS
    assert {path: path.stat().st_mtime_ns for path in world.rglob("*")} == before


@pytest.mark.parametrize("name", VERBS)
def test_changed_inputs_are_found(name, done, worlds, tmp_path, capsys):
    """A document of the same length, an attribute, a shard that is gone: each time the files of a fresh run."""
    found = [worlds.expected[name]]

    def check_anew(number: int) -> None:
        run_again(name, done, capsys)
        found.append(fresh(name, done, tmp_path / f"{number}"))
        assert found[-1] not in found[:-1]
        check(done, name, found[-1])
        assert run_again(name, done, capsys)["done"] == 0

    change_same_size(done / "v0/documents/plain.jsonl")
    assert run_here(words_of(name, done)) == 1, "the attributes are stale now"
    assert "StaleAttributesError" in capsys.readouterr().out
    assert tree(done / name / "documents") == {
        path.removeprefix("documents/"): digest for path, digest in worlds.expected[name].items()
    }
    assert run_here(["tag", f"{done}/v0", *TAG]) == 0
    check_anew(1)
    change(done / "v0/documents/2019-03/part_3.jsonl.gz")
    assert run_here(["tag", f"{done}/v0", *TAG]) == 0
    check_anew(2)
    (done / "v0/documents/zst/a.jsonl.zst").unlink()
    check_anew(3)


@pytest.mark.parametrize("name", VERBS)
def test_lost_and_torn_files_are_made_again(name, done, worlds, capsys):
    first, second, *_ = sorted(worlds.expected[name])
    (done / name / first).unlink()
    run_again(name, done, capsys)
    check(done, name, worlds.expected[name])
    torn = done / name / second
    torn.write_bytes(torn.read_bytes()[:-9])
    kept = {path: (done / name / path).stat().st_mtime_ns for path in worlds.expected[name] if path != second}
    run_again(name, done, capsys)
    check(done, name, worlds.expected[name])
    assert {path: (done / name / path).stat().st_mtime_ns for path in kept} == kept


OTHERS = {
    "packed": [("--max-size", "300000"), ("--max-size", "40000"), ("--format", "jsonl.zst")],
    "shuffled": [("--seed", "4"), ("--max-size", "300000"), ("--format", "jsonl.zst")],
}


@pytest.mark.parametrize("name", VERBS)
def test_other_options_replace_all_files(name, done, worlds, tmp_path, capsys):
    for number, more in enumerate(OTHERS[name]):
        wanted = fresh(name, done, tmp_path / f"{number}", *more)
        assert set(wanted.values()).isdisjoint(worlds.expected[name].values())
        run_again(name, done, capsys, *more)
        check(done, name, wanted)
    run_again(name, done, capsys)
    check(done, name, worlds.expected[name])


# ------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize("more", [(), ("--overwrite",), ("--dry-run",)])
@pytest.mark.parametrize("name", VERBS)
def test_files_of_others_in_documents_are_refused(name, more, done, worlds, capsys):
    store(done / name / "documents/2018/old.jsonl.gz", [b'{"id":"1","text":"x","source":"s"}\n'])
    before = tree(done)
    assert run_here(words_of(name, done, "--name", "other", *more)) == 2
    assert "2018/old.jsonl.gz" in capsys.readouterr().err
    assert tree(done) == before


@pytest.mark.parametrize("name", VERBS)
def test_foreign_files_of_the_same_name_are_refused(name, world, worlds, capsys):
    path = world / name / sorted(worlds.expected[name])[1]
    store(path, [b'{"id":"1","text":"x","source":"s"}\n'])
    before = tree(world)
    for more in ((), ("--dry-run",)):
        assert run_here(words_of(name, world, *more)) == 2
        shown = capsys.readouterr().err
        assert path.name in shown
        assert "--overwrite" in shown
        assert tree(world) == before
    run_again(name, world, capsys, "--overwrite")
    check(world, name, worlds.expected[name])


@pytest.mark.parametrize("name", VERBS)
def test_files_made_of_another_dataset_are_refused(name, done, capsys):
    """Before anything is read, and with all files still there."""
    make_documents(done / "v0/other", 8)
    shutil.rmtree(done / "v0/other/documents/zst")
    assert run_here(["tag", f"{done}/v0/other", *TAG]) == 0
    before = tree(done)
    words = words_of(name, done)
    words[1] = f"{done}/v0/other"
    assert run_here(words) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert tree(done) == before
    assert run_here([*words, "--overwrite"]) == 0
    made_before = {path.removeprefix(f"{name}/"): digest for path, digest in before.items()}
    assert tree(done / name).items().isdisjoint(made_before.items())
