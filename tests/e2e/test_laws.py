"""The laws that hold for every verb: the same bytes anywhere, whole files or none, nothing done twice, nothing stopped by one shard."""

import gzip
import hashlib
import json
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from commands import PLUGIN, SLOW_DISK, Command, wait_until
from places import PLACES, change, change_same_size, displaced, running_at
from small_world import PER_SHARD, TAGGERS, VERBS, run_here, store, temporaries, tree

from dolma_dask import cli, engine
from dolma_dask.clusters import Placement
from dolma_dask.engine import Input, RunOptions, Task, execution
from dolma_dask.errors import Failure
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.files import FileInfo

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("place", PLACES)
def test_same_bytes_everywhere(place, world, expected):
    with running_at(place) as options:
        for name, verb in VERBS.items():
            assert cli.main(verb.command(world, *options, "--no-progress")) == 0
            assert tree(world / verb.output) == expected[name]
            assert temporaries(world / verb.output) == []


def check_whole(path: Path, data: bytes, allowed: set[str]) -> None:
    """Check that a file that is visible is one that some run leaves, and that it can be read to its end."""
    assert hashlib.sha256(data).hexdigest() in allowed, (
        f"{path} is neither the old nor the new file: {len(data)} bytes"
    )
    if path.suffix == ".gz":
        assert not (text := gzip.decompress(data)) or text.endswith(b"\n")
    if "documents" in path.parts:
        sum(block.num_rows for block in DocumentFile(str(path), ("id", "text"), source="x"))


def poll(folder: Path, command: Command, allowed: set[str]) -> int:
    """Read every visible file below `folder` whenever it has changed while a command runs; return how many were read."""
    seen = {}
    while command.running():
        walked = (
            Path(where, name) for where, _, names in os.walk(folder) for name in names
        )  # folders may vanish
        for path in walked:
            if path.name.startswith(".") or {"_journal", "_spool", "_work"} & {*path.parts}:
                continue
            try:
                stamp, data = path.stat(), path.read_bytes()
            except FileNotFoundError:
                continue  # replaced or removed meanwhile
            key = (stamp.st_mtime_ns, stamp.st_size, stamp.st_ino)
            if seen.get(path) != key:
                check_whole(path, data, allowed)
                seen[path] = key
                check_tokens(path)
    return len(seen)


def check_tokens(path: Path) -> None:
    """Whoever sees the ids of a token shard sees all of it."""
    if path.name.endswith(".data.npy"):
        others = [
            path.with_name(path.name.removesuffix(".data.npy") + ending) for ending in (".len.npy", ".json")
        ]
        assert all(other.exists() for other in others) or not path.exists()


@pytest.mark.parametrize("name", VERBS)
def test_a_reader_sees_whole_files_only(name, world, expected, tmp_path):
    verb = VERBS[name]
    with Command(verb.command(world, "--scheduler", "threads"), tmp_path / "log", **SLOW_DISK) as command:
        assert poll(world / verb.output, command, set(expected[name].values())) >= 10
        assert command.wait() == 0, command.output


def test_a_reader_sees_whole_files_when_they_are_replaced(world, undisturbed, expected, tmp_path):
    shutil.copytree(undisturbed / "v1", world / "v1")
    words = [
        "mix",
        f"{world}/v0",
        "--to",
        f"{world}/v1",
        "--where",
        "char_length_v1__char_length_v1__length < 500",
    ]
    other = [*words[:3], f"{world}/other", *words[4:]]
    assert run_here(other) == 0
    allowed = {*expected["mix"].values(), *tree(world / "other").values()}
    with Command([*words, "--scheduler", "threads"], tmp_path / "log", **SLOW_DISK) as command:
        poll(world / "v1", command, allowed)
        assert command.wait() == 0, command.output
    assert tree(world / "v1") == tree(world / "other")


def run_again(verb, world, capsys, *more) -> dict:
    """Run a verb in a world once more and return its summary."""
    capsys.readouterr()
    assert run_here([*verb.command(world, *more), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def done(undisturbed, tmp_path) -> Path:
    """A world of one's own in which every verb has run."""
    return Path(shutil.copytree(undisturbed, tmp_path / "world"))


@pytest.mark.parametrize("how", ["move", "copy", "touch"])
def test_moving_copying_and_touching_redo_nothing(how, done, expected, capsys):
    place = displaced(done, how)
    for name, verb in VERBS.items():
        summary = run_again(verb, place, capsys)
        assert (summary["done"], summary["failed"]) == (0, 0), name
        assert summary["skipped"] > 0
        assert summary["counts"]["documents_in"] > 0, "what was done before counts too"
        assert tree(place / verb.output) == expected[name]


def test_a_changed_document_file_redoes_its_shard_only(done, capsys):
    for root in ("untagged", "v0"):
        change_same_size(done / root / "documents/plain.jsonl")
        change(done / root / "documents/2019-03/part_3.jsonl.gz")
    summary = run_again(VERBS["tag"], done, capsys)
    assert (summary["done"], summary["skipped"]) == (2, 10)
    for name in ("mix", "ragged"):
        capsys.readouterr()
        assert run_here(VERBS[name].command(done)) == 1, "the attributes are stale now"
        shown = capsys.readouterr().out
        assert shown.count("FAILED") == 2
        assert shown.count("StaleAttributesError") == 2
    assert run_here(["tag", f"{done}/v0", "--taggers", *TAGGERS]) == 0
    for name in ("mix", "ragged"):
        summary = run_again(VERBS[name], done, capsys)
        assert (summary["done"], summary["skipped"]) == (2, 10)
        assert run_again(VERBS[name], done, capsys)["done"] == 0


def test_a_changed_attribute_file_redoes_its_shard_only(done, capsys):
    change(done / "v0/attributes/char_length_v1/2019-05/part_5.jsonl.gz")
    change(done / "v0/attributes/whitespace_tokenizer_v1/2019-06/part_6.jsonl.gz")  # which no rule reads
    for name in ("mix", "ragged"):
        summary = run_again(VERBS[name], done, capsys)
        assert (summary["done"], summary["skipped"]) == (1, 11)
    redone = run_again(VERBS["tag"], done, capsys)
    assert redone["done"] == 0


def test_a_changed_raw_file_redoes_its_shard_only(done, capsys):
    change(done / "raw/dump/3.jsonl.gz")
    summary = run_again(VERBS["convert"], done, capsys)
    assert (summary["done"], summary["skipped"]) == (1, summary["skipped"])
    assert summary["skipped"] > 3


def test_changed_parameters_redo_all(done, capsys):
    changed = {
        "convert": ["--source", "other"],
        "tag": ["--source", "other"],
        "mix": ["--where", "char_length_v1__char_length_v1__length < 500"],
        "ragged": ["--bos", "<|endoftext|>"],
    }
    for name, more in changed.items():
        verb = VERBS[name]
        words = list(verb.words)
        if more[0] in words:
            del words[words.index(more[0]) : words.index(more[0]) + 2]
        again = type(verb)(name, tuple(words), verb.output)
        summary = run_again(again, done, capsys, *more)
        assert (summary["skipped"], summary["failed"]) == (0, 0), name
        assert summary["done"] >= 4


def test_changed_tokenizer_redoes_all(done, capsys):
    path = done / "tokenizer.json"
    path.write_text(path.read_text() + "\n")
    assert run_again(VERBS["ragged"], done, capsys)["skipped"] == 0


def test_lost_and_torn_outputs_are_made_again(done, expected, capsys):
    (done / "v1/documents/plain.jsonl").unlink()
    torn = done / "v1/documents/2019-00/part_0.jsonl.gz"
    torn.write_bytes(torn.read_bytes()[:-9])
    summary = run_again(VERBS["mix"], done, capsys)
    assert (summary["done"], summary["skipped"]) == (2, 10)
    assert tree(done / "v1") == expected["mix"]


@pytest.mark.parametrize("name", PER_SHARD)
def test_dry_run_writes_nothing_and_only_prune_overwrite_choose(name, world, expected, capsys):
    verb = VERBS[name]
    before = {path: path.stat().st_mtime_ns for path in world.rglob("*")}
    planned = run_again(verb, world, capsys, "--dry-run")["planned"]
    assert {path: path.stat().st_mtime_ns for path in world.rglob("*")} == before
    assert len(planned) > 3
    assert run_again(verb, world, capsys, "--only", planned[0])["done"] == 1
    assert run_again(verb, world, capsys, "--prune", "2", "--overwrite")["done"] == 2
    assert run_again(verb, world, capsys, "--dry-run")["planned"] == [
        path for path in planned if path not in sorted_first(planned, 2)
    ]
    assert run_again(verb, world, capsys, "--overwrite")["skipped"] == 0
    assert tree(world / verb.output) == expected[name]


def sorted_first(paths: list[str], count: int) -> list[str]:
    return sorted(paths, key=str.encode)[:count]


@pytest.mark.parametrize("name", PER_SHARD)
def test_foreign_files_are_refused(name, undisturbed, world, expected, capsys):
    """What another program wrote in the same place is not ours to replace."""
    verb = VERBS[name]
    source = undisturbed / verb.output
    first = next(
        path
        for path in sorted(expected[name])
        if not path.startswith("documents/") or name in ("convert", "mix")
    )
    target = world / verb.output / first
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source / first, target)
    before = tree(world)
    assert run_here(verb.command(world)) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert run_here(verb.command(world, "--dry-run")) == 2
    assert tree(world) == before
    assert run_here(verb.command(world, "--overwrite")) == 0
    assert tree(world / verb.output) == expected[name]


@pytest.mark.parametrize("more", [(), ("--overwrite",), ("--dry-run",)])
def test_files_of_others_in_documents_are_refused(more, world, capsys):
    stray = world / "v1/documents/2018/old.jsonl.gz"
    store(stray, [b'{"id":"1","text":"x","source":"s"}\n'])
    assert run_here(VERBS["mix"].command(world, *more)) == 2
    assert "2018/old.jsonl.gz" in capsys.readouterr().err
    assert list(tree(world / "v1")) == ["documents/2018/old.jsonl.gz"]
    assert not (world / "v1/_journal").exists()


def test_outputs_of_shards_that_are_gone_are_refused(done, expected, capsys):
    verb = VERBS["mix"]
    gone = "documents/2019-04/part_4.jsonl.gz"
    (done / "v0" / gone).unlink()
    assert run_here(verb.command(done)) == 2
    error = capsys.readouterr().err
    assert gone in error
    assert "--overwrite" in error
    assert run_here(verb.command(done, "--overwrite", "--dry-run")) == 0
    assert tree(done / "v1") == expected["mix"]
    assert run_here(verb.command(done, "--overwrite")) == 0
    assert tree(done / "v1") == {path: digest for path, digest in expected["mix"].items() if path != gone}


@pytest.mark.parametrize("name", VERBS)
def test_nothing_left_starts_nothing(name, done, capsys):
    """No scheduler answers there: a run with something to do would fail."""
    verb = VERBS[name]
    capsys.readouterr()
    assert cli.main(verb.command(done, "--scheduler", "tcp://127.0.0.1:1", "--json")) == 0
    assert json.loads(capsys.readouterr().out)["done"] == 0


@pytest.mark.parametrize("name", ["convert", "tag"])
def test_two_commands_at_once_do_no_harm(name, world, expected, tmp_path):
    verb = VERBS[name]
    words = verb.command(world, "--scheduler", "threads", "--workers", "2")
    with (
        Command(words, tmp_path / "a", **SLOW_DISK) as one,
        Command(words, tmp_path / "b", **SLOW_DISK) as other,
    ):
        assert one.wait() == 0, one.output
        assert other.wait() == 0, other.output
    assert tree(world / verb.output) == expected[name]
    assert temporaries(world / verb.output) == []
    assert cli.main(verb.command(world, "--scheduler", "tcp://127.0.0.1:1")) == 0, (
        "both wrote down what they did"
    )


HOSTILE_SHARDS = 20
"""More than two workers have batches, so that shards share them."""


def hostile_dataset(root: Path, bad: str, word: str) -> None:
    """Write shards of equal size, one of which holds the word that a tagger of the plug-in acts on."""
    for number in range(HOSTILE_SHARDS):
        texts = [word if f"{number}" == bad and row == 3 else "nothing" for row in range(40)]
        lines = [
            b'{"id":"%d","text":"%s","source":"s"}\n' % (row, text.encode()) for row, text in enumerate(texts)
        ]
        store(root / f"documents/{number}.jsonl", lines)


def visible_files(folder: Path) -> int:
    return sum(not name.startswith(".") for name in os.listdir(folder)) if folder.exists() else 0  # noqa: PTH208


@pytest.mark.parametrize("scheduler", ["cluster", "processes"])
def test_a_deadly_shard_fails_alone(scheduler, tmp_path):
    hostile_dataset(tmp_path / "v0", "4", "poison")
    words = ["tag", f"{tmp_path}/v0", "--taggers", "deadly_v1", "--scheduler", scheduler, "--workers", "2"]
    with Command(
        words, tmp_path / "log", **PLUGIN, DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="1"
    ) as command:
        assert command.wait() == 1, command.output
        shown = command.output
        command.wait_for_family()
    assert f"{HOSTILE_SHARDS - 1} done, 0 done before, 1 failed" in shown
    assert shown.count("FAILED") == 1
    assert "FAILED 4.jsonl: WorkerDied" in shown
    assert "memory" in shown
    assert "Traceback" not in shown
    assert len(tree(tmp_path / "v0/attributes")) == HOSTILE_SHARDS - 1
    assert temporaries(tmp_path / "v0") == []


@pytest.mark.parametrize(
    "scheduler, group",
    [("cluster", True), ("cluster", False), ("threads", False), ("synchronous", False), ("processes", True)],
)
def test_ctrl_c_stops_and_keeps_what_is_finished(scheduler, group, tmp_path):
    hostile_dataset(tmp_path / "v0", "7", "tarry")
    words = ["tag", f"{tmp_path}/v0", "--taggers", "tarry_v1", "--scheduler", scheduler, "--workers", "2"]
    with Command(words, tmp_path / "log", **PLUGIN, TARRY_S="100000") as command:
        folder = tmp_path / "v0/attributes/tarry_v1"
        wait_until(lambda: visible_files(folder) >= 9 or not command.running(), "finished shards")
        time.sleep(0.5)
        command.interrupt(group)
        assert command.wait() == 130, command.output
        shown = command.output
        command.wait_for_family()
    assert "Run the same command again to go on" in shown
    assert "Traceback" not in shown
    assert temporaries(tmp_path / "v0") == []
    with Command([*words, "--json"], tmp_path / "log2", **PLUGIN) as command:
        assert command.wait() == 0, command.output
        summary = json.loads(command.output[command.output.index("{") :])
    assert summary["skipped"] >= 3
    assert summary["done"] + summary["skipped"] == HOSTILE_SHARDS


def test_ctrl_c_while_workers_start(tmp_path):
    """In a terminal it reaches the workers too, which are still importing."""
    hostile_dataset(tmp_path / "v0", "7", "tarry")
    before = tree(tmp_path / "v0")
    words = ["tag", f"{tmp_path}/v0", "--taggers", "tarry_v1", "--scheduler", "cluster", "--workers", "2"]
    with Command(words, tmp_path / "log", **PLUGIN, TARRY_S="100000") as command:
        wait_until(lambda: command.workers() or not command.running(), "a worker process")
        command.interrupt(group=True)
        assert command.wait() == 130, command.output
        shown = command.output
        command.wait_for_family()
    assert "Run the same command again to go on" in shown
    assert "Traceback" not in shown
    assert tree(tmp_path / "v0") == before
    assert temporaries(tmp_path / "v0") == []


@dataclass
class Count:
    """Reads nothing; large on paper, so that no two tasks share a batch."""

    verb: str = "count"

    def run_shard(self, task):
        return task.shard


def many_tasks(count: int) -> list[Task]:
    size = FileInfo("", execution.BATCH_BYTES, "")
    return [Task(f"{number:03d}", (), (Input("", size),)) for number in range(count)]


@pytest.mark.filterwarnings("ignore")  # of Dask, whose scheduler is gone
def test_a_lost_scheduler_fails_what_was_left():
    from distributed import Client, LocalCluster

    taken = {}

    def take(task, outcome):
        taken[task.shard] = outcome
        if len(taken) == 3:
            cluster.close()

    small = {"processes": False, "n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    with (
        LocalCluster(**small, silence_logs=50) as cluster,
        Client(cluster.scheduler_address, set_as_default=False, timeout=1) as client,
    ):
        execution.execute(Count(), many_tasks(40), Placement(client), take)
    assert len(taken) == 40
    lost = [outcome for outcome in taken.values() if isinstance(outcome, Failure)]
    assert len(lost) >= 20
    assert {failure.error for failure in lost} <= {"SchedulerLost", "CommClosedError"}


def test_a_cluster_holds_a_bounded_number_of_tasks(monkeypatch):
    from distributed import Client

    tasks = many_tasks(100)
    seen = []
    fill = execution._Flight._fill

    def watched(flight):
        fill(flight)
        seen.append(len(flight._running))

    monkeypatch.setattr(execution._Flight, "_fill", watched)
    for threads in (1, 8):
        seen.clear()
        with Client(processes=False, n_workers=1, threads_per_worker=threads, dashboard_address=None):
            assert engine.gather(Count(), tasks, RunOptions(progress=False)) == [task.shard for task in tasks]
        assert max(seen) == max(execution.LEAST_IN_FLIGHT, execution.IN_FLIGHT_PER_THREAD * threads)


def test_a_failing_shard_stops_no_other_and_all_failures_are_told(world, capsys):
    bad = {"2019-01/part_1.jsonl.gz": b"{\n", "plain.jsonl": b"[]\n"}
    for path, line in bad.items():
        file = world / "v0/documents" / path
        file.write_bytes(file.read_bytes() + (gzip.compress(line) if path.endswith("gz") else line))
    corrupt = world / "v0/documents/2019-02/part_2.jsonl.gz"
    corrupt.write_bytes(corrupt.read_bytes()[:-20])
    words = ["mix", f"{world}/v0", "--to", f"{world}/v1", "--where", "id != 'x'", "--scheduler", "threads"]
    assert cli.main([*words, "--no-progress"]) == 1
    shown = capsys.readouterr().out
    assert shown.count("FAILED") == 3
    assert all(f"FAILED {path}" in shown for path in (*bad, "2019-02/part_2.jsonl.gz"))
    assert len(tree(world / "v1")) == 9
    assert temporaries(world / "v1") == []
    assert cli.main([*words, "--json", "--no-progress"]) == 1
    summary = json.loads(capsys.readouterr().out)["summary"]
    assert (summary["done"], summary["skipped"], summary["failed"]) == (0, 9, 3)


def test_the_budget_of_bad_rows_counts_all_runs(world, capsys):
    path = world / "v0/documents/plain.jsonl"
    path.write_bytes(path.read_bytes() + b"nonsense\n" * 200)
    words = [
        "mix",
        f"{world}/v0",
        "--to",
        f"{world}/v1",
        "--where",
        "id != 'x'",
        "--on-bad-record",
        "quarantine",
    ]
    for _ in range(2):  # the second time everything is done
        assert run_here(words) == 1
        error = capsys.readouterr().err
        assert "BadRecordBudgetError" in error
        assert "200" in error
    assert run_here([*words, "--max-bad-fraction", "0.2"]) == 0
