"""Mixes whose files are cut by size or whose rows are shuffled: no row is lost, no shard read twice, nothing of another run passes for ours."""

import gzip
import json
import shutil
from collections import Counter
from itertools import count, pairwise
from pathlib import Path

import pytest
from small_world import RULE, TAGGERS, Verbs, make_documents, run_here, store

from dolma_dask.testing.commands import Command, killed_at
from dolma_dask.testing.verb_laws import tree

pytestmark = pytest.mark.e2e

VERBS = ("packed", "shuffled")
SIZE = 100_000
SHARDS = 14
TAG = ("--taggers", *TAGGERS)


def words_of(name: str, world: Path, *more: str) -> list[str]:
    return Verbs.cases[name].command(world, *more)


def run_again(name: str, world: Path, *more: str) -> dict:
    """Run a verb in a world once more and return its summary."""
    return Verbs.run(words_of(name, world, *more))


def check(world: Path, name: str, worlds) -> None:
    Verbs().check(name, world, worlds)


def fresh(name: str, world: Path, tmp_path: Path, *more: str) -> dict[str, str]:
    """Return what a verb writes where nothing is yet."""
    place = tmp_path / "fresh" / world.name
    shutil.copytree(world / "v0", place / "v0")
    run_again(name, place, *more)
    return tree(place, [name])


def die_at_files(words: list[str], operation: int, log: Path) -> None:
    """Run a command that is killed while it writes the files of its last pass."""
    with Command(
        [*words, "--scheduler", "synchronous"], log, prepared=True, **killed_at(operation, "/documents/")
    ) as command:
        assert command.wait() == -9, command.output


def test_files_are_as_large_as_asked(worlds):
    for name in VERBS:
        assert 8 <= len(worlds.expected[name]) <= 16
        assert all((worlds.after / path).stat().st_size <= SIZE for path in worlds.expected[name])


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
    assert len(plain) > 800
    assert lines_of(worlds.after / "packed/documents") == plain
    shuffled = lines_of(worlds.after / "shuffled/documents")
    assert sorted(shuffled) == sorted(plain)
    shards = [json.loads(line)["id"].rpartition("-")[0] for line in shuffled]
    alike = sum(one == other for one, other in pairwise(shards))
    by_chance = sum(number**2 for number in Counter(shards).values()) / len(shards)
    assert 0.7 * by_chance < alike < 1.3 * by_chance, (
        "neighbours are no more often of one shard than by chance"
    )


@pytest.mark.parametrize("name", VERBS)
def test_no_shard_is_read_again_for_the_last_pass(name, world, worlds, tmp_path):
    die_at_files(words_of(name, world), 7, tmp_path / "log")
    summary = run_again(name, world)
    assert (summary["done"], summary["skipped"]) == (0, SHARDS)
    check(world, name, worlds)


def test_an_input_changes_after_a_kill(world, worlds, tmp_path):
    """Parts that were sorted and joined of the old one are of no use."""
    die_at_files(words_of("shuffled", world), 7, tmp_path / "log")
    Verbs.change(world)
    run_again("shuffled", world)
    wanted = fresh("shuffled", world, tmp_path)
    assert wanted != worlds.expected["shuffled"]
    assert tree(world, ["shuffled"]) == wanted


def test_what_others_left_is_cleared_away(world, worlds, tmp_path):
    """Runs with other options are killed; and one at its very end, when all is known and its folder not yet removed."""
    for more in (("--max-size", "16000"), ("--seed", "4")):
        die_at_files(words_of("shuffled", world, *more), 7, tmp_path / "log")
    left = shutil.copytree(world / "shuffled/_work", tmp_path / "left")
    run_again("shuffled", world)
    check(world, "shuffled", worlds)
    shutil.copytree(left, world / "shuffled/_work")
    assert run_again("shuffled", world)["done"] == 0
    check(world, "shuffled", worlds)


def test_a_file_of_a_killed_run_never_passes_for_the_old_one(world, tmp_path):
    """Not compressed, the rows of two seeds make files of the same size: the second run is killed, the first is asked again."""
    path, plain = (
        world / "shuffled/documents/part-0000.jsonl",
        ("--format", "jsonl", "--max-size", "10000000"),
    )
    run_again("shuffled", world, *plain)
    before = path.read_bytes()
    words = words_of("shuffled", world, *plain, "--seed", "4", "--overwrite", "--scheduler", "synchronous")
    for operation in count(
        8
    ):  # on the journal: the first with the file there, and no record of it; later where a record was slow to come
        moment = killed_at(operation, "/shuffled/_journal/")
        with Command(words, tmp_path / "log", prepared=True, **moment) as command:
            assert command.wait() == -9, command.output
        if path.read_bytes() != before:
            break
    assert path.stat().st_size == len(before)
    assert run_here(words_of("shuffled", world, *plain)) == 0
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", VERBS)
def test_a_shard_that_is_gone_is_found(name, done, worlds, tmp_path):
    (done / "v0/documents/zst/a.jsonl.zst").unlink()
    run_again(name, done)
    wanted = fresh(name, done, tmp_path)
    assert tree(done, [name]) == wanted != worlds.expected[name]
    assert run_again(name, done)["done"] == 0


@pytest.mark.parametrize("more", [(), ("--overwrite",), ("--dry-run",)])
@pytest.mark.parametrize("name", VERBS)
def test_files_of_others_in_documents_are_refused(name, more, done, capsys):
    store(done / name / "documents/2018/old.jsonl.gz", [b'{"id":"1","text":"x","source":"s"}\n'])
    before = tree(done)
    assert run_here(words_of(name, done, "--name", "other", *more)) == 2
    assert "2018/old.jsonl.gz" in capsys.readouterr().err
    assert tree(done) == before


@pytest.mark.parametrize("name", VERBS)
def test_files_made_of_another_dataset_are_refused(name, done, capsys):
    """Before anything is read, and with all files still there."""
    make_documents(done / "v0/other", 9)
    shutil.rmtree(done / "v0/other/documents/zst")
    assert run_here(["tag", f"{done}/v0/other", *TAG]) == 0
    before = tree(done)
    words = words_of(name, done)
    words[1] = f"{done}/v0/other"
    assert run_here(words) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert tree(done) == before
    assert run_here([*words, "--overwrite"]) == 0
    made = {path: digest for path, digest in tree(done, [name]).items() if not path.endswith("/README.md")}
    assert made.items().isdisjoint(before.items())
