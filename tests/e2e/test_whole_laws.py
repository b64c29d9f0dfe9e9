"""The laws for verbs whose result depends on all shards: the same bytes anywhere, killed or not, nothing done twice, nothing left behind."""

import gzip
import json
import random
import shutil
import time
from pathlib import Path

import pytest
from commands import SLOW_DISK, Command, Watched, wait_until
from places import Worlds, displaced
from small_world import Verb, make_documents, run_here, store, temporaries, tree

import dolma_dask as dk
from dolma_dask import cli

pytestmark = pytest.mark.e2e

VERBS = {
    verb.name: verb
    for verb in (
        Verb("dedupe", ("{}/v0", "--keep", "longest"), "v0"),
        Verb("block", ("{}/v0", "{}/list.txt", "--name", "takedown"), "v0"),
        Verb(
            "quantiles",
            ("{}/v0", "--signals", "word_count", "length", "--by", "source", "--level", "regular"),
            "v0",
        ),
        Verb("validate", ("{}/v0", "--to", "{}/v0/report.json"), "v0"),
    )
}
WRITES = {
    "dedupe": "attributes/exact",
    "block": "attributes/takedown",
    "quantiles": "quantiles",
    "validate": "report.json",
}
LEAST = {"dedupe": 13, "block": 13, "quantiles": 2, "validate": 1}
"""Files that each verb leaves."""


def make_world(world: Path) -> None:
    """Write twelve shards and a thirteenth that repeats rows of the others, tagged, and a list of ids."""
    make_documents(world / "v0", 11)
    draw = random.Random(5)
    lines = gzip.decompress((world / "v0/documents/2019-03/part_3.jsonl.gz").read_bytes()).splitlines(
        keepends=True
    )
    copies = [dict(json.loads(draw.choice(lines)), id=f"copy-{number}") for number in range(300)]
    store(world / "v0/documents/zzz.jsonl.gz", [json.dumps(copy).encode() + b"\n" for copy in copies])
    ids = [f"copy-{number}" for number in range(0, 300, 7)] + ["2019-01/part_1-5", "nobody"]
    (world / "list.txt").write_text("".join(f"{identity}\n" for identity in ids))
    assert run_here(["tag", f"{world}/v0", "--taggers", "gopher_v2", "char_length_v1"]) == 0


def written(world: Path, name: str) -> dict[str, str]:
    """Return the digests of what a verb wrote."""
    return {path: digest for path, digest in tree(world / "v0").items() if path.startswith(WRITES[name])}


def check(world: Path, name: str, expected: dict[str, dict[str, str]]) -> None:
    assert written(world, name) == expected[name]
    assert temporaries(world / "v0") == []
    assert not (world / "v0/_work").exists()


@pytest.fixture(scope="module")
def worlds(tmp_path_factory) -> Worlds:
    root = tmp_path_factory.mktemp("whole")
    before, after = (
        root / "before/world",
        root / "after/world",
    )  # of one name, which stands in the report of validate
    make_world(before)
    shutil.copytree(before, after)
    for verb in VERBS.values():
        assert run_here(verb.command(after)) == 0
    expected = {name: written(after, name) for name in VERBS}
    assert {name: len(found) for name, found in expected.items()} == LEAST
    return Worlds(before, after, expected)


@pytest.fixture
def world(worlds, tmp_path) -> Path:
    return Path(shutil.copytree(worlds.before, tmp_path / "world"))


@pytest.fixture
def done(worlds, tmp_path) -> Path:
    return Path(shutil.copytree(worlds.after, tmp_path / "world"))


def run_again(name: str, world: Path, capsys, *more: str) -> dict:
    capsys.readouterr()
    assert run_here([*VERBS[name].command(world, *more), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("location", ["threads", "processes", "cluster of 1", "cluster of 2"])
def test_same_bytes_everywhere(place, world, worlds):
    def run() -> None:
        for name, verb in VERBS.items():
            if place == "processes" and name in ("block", "validate"):  # each pass starts processes anew
                continue
            if name == "validate":  # looks at what the others wrote
                for other in ("dedupe", "block"):
                    assert written(world, other) == worlds.expected[other]
            more = [] if place.startswith("cluster") else ["--scheduler", place, "--workers", "2"]
            assert cli.main([*verb.command(world), *more, "--no-progress"]) == 0
            check(world, name, worlds.expected)

    if place.startswith("cluster"):
        with dk.cluster("laptop", workers=int(place[-1])):
            run()
    else:
        run()


@pytest.mark.parametrize("name", ["dedupe", "block", "quantiles"])
@pytest.mark.parametrize("scheduler, kills", [("cluster", 1), ("synchronous", 4)])
def test_whole_command_is_killed(name, scheduler, kills, world, worlds, tmp_path):
    words = VERBS[name].command(world, "--scheduler", scheduler, "--workers", "2")
    draw = random.Random(f"whole {name} {scheduler}")
    killed = 0
    for files in sorted(draw.randrange(16) for _ in range(kills)):
        watched = Watched(world / "v0")
        with Command(words, tmp_path / "log", **SLOW_DISK) as command:
            wait_until(
                lambda w=watched, n=files, c=command: w.count() >= n or not c.running(), f"{files} files"
            )
            time.sleep(draw.uniform(0, 0.06))
            killed += command.running()
            command.kill(group=draw.random() < 0.5)
            command.wait_for_family()
    assert killed, "every run ended before it was killed: make the disk slower"
    with Command(words, tmp_path / "log") as command:
        assert command.wait() == 0, command.output
    check(world, name, worlds.expected)


@pytest.mark.parametrize("name", ["dedupe", "quantiles"])
def test_workers_are_killed(name, world, worlds, tmp_path):
    words = VERBS[name].command(world, "--scheduler", "cluster", "--workers", "2")
    watched, draw, killed = Watched(world / "v0"), random.Random(f"workers {name}"), 0
    with Command(words, tmp_path / "log", **SLOW_DISK) as command:
        for files in (3, 12):
            wait_until(lambda n=files: watched.count() >= n or not command.running(), f"{files} files")
            if workers := command.workers():
                draw.choice(workers).kill()
                killed += 1
        assert command.wait() == 0, command.output
        command.wait_for_family()
    assert killed
    assert "Traceback" not in command.output
    check(world, name, worlds.expected)


@pytest.mark.parametrize("how", ["move", "copy", "touch"])
@pytest.mark.parametrize("name", VERBS)
def test_moving_copying_and_touching_redo_nothing(name, how, done, worlds, capsys):
    place = displaced(done, how)
    summary = run_again(name, place, capsys)
    assert (summary["done"], summary["failed"]) == (0, 0)
    check(place, name, worlds.expected)


@pytest.mark.parametrize("name", VERBS)
def test_nothing_left_starts_nothing(name, done, capsys):
    """No scheduler answers there: a run with something to do would fail."""
    capsys.readouterr()
    assert cli.main(VERBS[name].command(done, "--scheduler", "tcp://127.0.0.1:1", "--json")) == 0
    assert json.loads(capsys.readouterr().out)["done"] == 0


@pytest.mark.parametrize("name", VERBS)
def test_dry_run_writes_nothing(name, world, capsys):
    before = {path: path.stat().st_mtime_ns for path in world.rglob("*")}
    assert run_again(name, world, capsys, "--dry-run")["planned"]
    assert {path: path.stat().st_mtime_ns for path in world.rglob("*")} == before


def change_a_copy(world: Path) -> None:
    """Give one document of the last shard another text."""
    path = world / "v0/documents/zzz.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    store(
        path, [json.dumps(dict(json.loads(lines[0]), text="quite another text")).encode() + b"\n", *lines[1:]]
    )


def test_a_changed_document_is_found_by_all(done, worlds, capsys):
    change_a_copy(done)
    assert run_here(["tag", f"{done}/v0", "--taggers", "gopher_v2", "char_length_v1"]) == 0
    for name in ("dedupe", "block", "quantiles"):
        run_again(name, done, capsys)
        if name != "block":  # ids are as they were
            assert written(done, name) != worlds.expected[name]
        assert run_again(name, done, capsys)["done"] == 0
    assert run_again("validate", done, capsys)["problems"] == {}


def test_stale_marks_are_refused_and_named(done, capsys):
    change_a_copy(done)
    assert run_here(["mix", f"{done}/v0", "--to", f"{done}/v1", "--where", "exact is None"]) == 1
    shown = capsys.readouterr().err
    assert "StaleAttributesError" in shown
    assert "dolma-dask dedupe" in shown
    assert run_here(VERBS["validate"].command(done)) == 1
    assert "stale" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["dedupe", "block"])
def test_a_set_of_that_name_made_by_others_is_not_replaced(name, world, capsys):
    folder = world / "v0" / WRITES[name]
    shutil.copytree(world / "v0/attributes/char_length_v1", folder)
    before = tree(world / "v0")
    assert run_here(VERBS[name].command(world)) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert tree(world / "v0") == before


def texts_of(folder: Path) -> list[str]:
    """Return the texts of all documents below a folder of .jsonl.gz, .jsonl.zst, .json.gz and .jsonl, sorted."""
    df = dk.read_dataframe(str(folder), ["text"])
    return sorted(df["text"].compute(scheduler="synchronous"))


def test_marks_of_a_killed_run_never_drop_every_copy(done, tmp_path, capsys):
    """Its files are renamed before the journal speaks of them: mix must refuse such a mixture, or keep each text once."""
    every = sorted(set(texts_of(done / "v0")))
    draw = random.Random("marks")
    refused = killed = 0
    for number in range(6):
        keep = ("first", "longest")[number % 2]
        words = ["dedupe", f"{done}/v0", "--keep", keep, "--scheduler", "synchronous", "--overwrite"]
        watched = Watched(done / "v0/attributes/exact")
        with Command(words, tmp_path / "log", **SLOW_DISK) as command:
            files = draw.randrange(1, 13)
            wait_until(
                lambda w=watched, n=files, c=command: w.count() >= n or not c.running(), f"{files} marks"
            )
            killed += command.running()
            command.kill(group=True)
        to = tmp_path / f"mixed-{number}"
        if run_here(["mix", f"{done}/v0", "--to", str(to), "--where", "exact is None"]) == 0:
            assert texts_of(to) == every
        else:
            refused += 1
            assert "dolma-dask dedupe" in capsys.readouterr().err
    assert killed
    assert refused
    assert run_here(VERBS["dedupe"].command(done)) == 0
    assert run_here(["mix", f"{done}/v0", "--to", str(tmp_path / "last"), "--where", "exact is None"]) == 0
    assert texts_of(tmp_path / "last") == every
