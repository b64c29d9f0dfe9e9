"""Laws that some verbs keep, beside those of `VerbLaws`: nothing stopped by one shard, by Ctrl-C, or by what others left."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import dask
import distributed  # noqa: F401  its defaults must be there before any of them is set
import pytest
from small_world import Verbs, change, change_same_size, run_here, store

from dolma_dask import cli, clusters
from dolma_dask.clusters import Placement
from dolma_dask.engine import Input, Task, attempts, batches, execution, flight
from dolma_dask.engine.fold import fold
from dolma_dask.errors import Failure, StageError
from dolma_dask.io.files import FileInfo
from dolma_dask.options.groups import RunOptions
from dolma_dask.testing.commands import Command, killed_at, wait_until
from dolma_dask.testing.verb_laws import leftovers, tree

pytestmark = pytest.mark.e2e

PLUGIN = {"PYTHONPATH": str(Path(__file__).resolve().parent / "plugin")}
"""Environment in which the taggers of a plug-in are found."""

NO_DASHBOARD = {"dashboard_address": "127.0.0.1:0", "scheduler_kwargs": {"dashboard": False}}
"""Without an address a scheduler takes port 8787, and warns where another process has it."""

SHARDS = 14


def run_again(name: str, world: Path, *more: str) -> dict:
    """Run a verb in a world and return its summary."""
    return Verbs.run(Verbs.cases[name].command(world, *more))


def test_what_a_stopped_run_with_other_options_has_left_is_not_taken_for_ours(done, expected, tmp_path):
    """The files of both runs have the same sizes; those that were not replaced are not made again."""
    tokenizer = json.loads((done / "tokenizer.json").read_text())
    ids = tokenizer["model"]["vocab"]
    ids["a"], ids["e"] = ids["e"], ids["a"]
    (done / "other").mkdir()
    (done / "other/tokenizer.json").write_text(json.dumps(tokenizer))
    other = Verbs.cases["ragged"].command(done, "--tokenizer", f"{done}/other/tokenizer.json")
    words = [*other, "--overwrite", "--scheduler", "synchronous", "--only", "part_3"]
    replaced: list[str] = []
    for operation in count(3):  # on the journal: the first with the files there, and no record of them
        moment = killed_at(operation, "/_journal/ragged/")
        with Command(words, tmp_path / "log", prepared=True, **moment) as command:
            assert command.wait() == -9, command.output
        found = tree(done, ["tokens"])
        replaced = [
            path
            for path, digest in found.items()
            if path.startswith("tokens/v0") and digest != expected["ragged"].get(path)
        ]
        if replaced:
            break
    assert len({path.split(".")[1] for path in replaced}) == 1, "files of one shard"
    for left in (1, 0):
        summary = run_again("ragged", done)
        assert (summary["done"], summary["skipped"]) == (left, SHARDS - left)
        assert tree(done, ["tokens"]) == expected["ragged"]


def test_stale_attributes_fail_their_shards_only(done):
    change_same_size(done / "v0/documents/plain.jsonl")
    change(done / "v0/documents/2019-03/part_3.jsonl.gz")
    for name in ("mix", "ragged"):
        failures = Verbs.run(Verbs.cases[name].command(done), status=1)["summary"]["failures"]
        assert [failure["error"] for failure in failures] == ["StaleAttributesError"] * 2


def test_a_changed_attribute_file_redoes_its_shard_only(done):
    lengths, words = (
        done / f"v0/attributes/{name}" for name in ("char_length_v1", "whitespace_tokenizer_v1")
    )
    for tagger in (lengths, words):  # as another tool would have made them
        for segment in (done / "v0/_journal/tag").iterdir():
            lines = segment.read_bytes().splitlines(keepends=True)
            segment.write_bytes(b"".join(line for line in lines if tagger.name.encode() not in line))
    change(lengths / "2019-05/part_5.jsonl.gz")
    change(words / "2019-06/part_6.jsonl.gz")  # which no rule reads
    for name in ("mix", "ragged"):
        summary = run_again(name, done)
        assert (summary["done"], summary["skipped"]) == (1, SHARDS - 1)


def test_a_changed_tokenizer_asks_and_redoes_all(done, expected):
    path = done / "tokenizer.json"
    path.write_text(path.read_text() + "\n")
    error = Verbs.run(Verbs.cases["ragged"].command(done), status=2)["error"]["message"]
    assert "tokenizer" in error
    assert "--overwrite" in error
    assert tree(done, ["tokens"]) == expected["ragged"]
    assert run_again("ragged", done, "--overwrite")["skipped"] == 0


@pytest.mark.parametrize("more", [(), ("--overwrite",), ("--dry-run",)])
def test_files_of_others_in_documents_are_refused(more, world, capsys):
    stray = world / "v1/documents/2018/old.jsonl.gz"
    store(stray, [b'{"id":"1","text":"x","source":"s"}\n'])
    assert run_here(Verbs.cases["mix"].command(world, *more)) == 2
    assert "2018/old.jsonl.gz" in capsys.readouterr().err
    assert list(tree(world / "v1")) == ["documents/2018/old.jsonl.gz"]
    assert not (world / "v1/_journal").exists()


def test_outputs_of_shards_that_are_gone_are_refused(done, expected, capsys):
    verb = Verbs.cases["mix"]
    gone = "documents/2019-04/part_4.jsonl.gz"
    (done / "v0" / gone).unlink()
    assert run_here(verb.command(done)) == 2
    error = capsys.readouterr().err
    assert gone in error
    assert "--overwrite" in error
    assert run_here(verb.command(done, "--overwrite", "--dry-run")) == 0
    assert tree(done, ["v1"]) == expected["mix"]
    assert run_here(verb.command(done, "--overwrite")) == 0
    assert tree(done, ["v1"]) == {
        path: digest for path, digest in expected["mix"].items() if path != f"v1/{gone}"
    }


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
        words, tmp_path / "log", prepared=True, **PLUGIN, DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="1"
    ) as command:
        assert command.wait() == 1, command.output
        shown = command.output
        command.wait_for_family()
    assert f"{HOSTILE_SHARDS - 1} done, 0 done before, 1 failed" in shown
    assert shown.count("FAILED") == 1
    assert "FAILED 4.jsonl: WorkerDied" in shown
    assert "memory" in shown
    # distributed logs its own for a worker that is closed while it starts
    assert f'File "{Path(cli.__file__).parent}' not in shown
    assert scheduler == "cluster" or "Traceback" not in shown
    assert len(tree(tmp_path / "v0/attributes")) == HOSTILE_SHARDS - 1
    assert leftovers(tmp_path / "v0") == []


SCRIPT = """
import os, sys
import dolma_dask as dk

@dk.tagger(types="fine", version=1)
def script_v1(text):
    if text == "poison":
        os._exit(1)
    return 1.0

print("script runs", flush=True)
dk.tag(sys.argv[1], [script_v1], scheduler=sys.argv[2], workers=8, progress=False)
"""
"""Without a ``__main__`` guard, and with a tagger of its own."""


def run_script(folder: Path, scheduler: str) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(SCRIPT)
    words = [sys.executable, script, folder / "v0", scheduler]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout == "script runs\n", "it is imported by no worker"
    return done


def test_a_script_needs_no_guard_for_processes(tmp_path):
    hostile_dataset(tmp_path / "v0", "", "")
    assert run_script(tmp_path, "processes").returncode == 0
    assert len(tree(tmp_path / "v0/attributes")) == HOSTILE_SHARDS


def test_a_deadly_shard_kills_a_script_once(tmp_path):
    """The run after one that died works in processes, so that all other shards are done and the deadly one is named."""
    hostile_dataset(tmp_path / "v0", "4", "poison")
    assert run_script(tmp_path, "auto").stderr == ""
    done = run_script(tmp_path, "auto")
    assert "StageError" in done.stderr
    assert "4.jsonl: WorkerDied" in done.stderr
    assert len(tree(tmp_path / "v0/attributes")) == HOSTILE_SHARDS - 1


@pytest.mark.parametrize(
    "scheduler, group",
    [("cluster", True), ("cluster", False), ("threads", False), ("synchronous", False), ("processes", True)],
)
def test_ctrl_c_stops_and_keeps_what_is_finished(scheduler, group, tmp_path):
    hostile_dataset(tmp_path / "v0", "7", "tarry")
    words = ["tag", f"{tmp_path}/v0", "--taggers", "tarry_v1", "--scheduler", scheduler, "--workers", "2"]
    with Command(words, tmp_path / "log", prepared=True, **PLUGIN, TARRY_S="100000") as command:
        folder = tmp_path / "v0/attributes/tarry_v1"
        wait_until(lambda: visible_files(folder) >= 9 or not command.running(), "finished shards")
        time.sleep(0.5)
        command.interrupt(group)
        assert command.wait() == 130, command.output
        shown = command.output
        command.wait_for_family()
    assert "Run the same command again to go on" in shown
    assert "Traceback" not in shown
    assert leftovers(tmp_path / "v0") == []
    again = [*words[:4], "--scheduler", "synchronous", "--json"]  # what is left is the same anywhere
    with Command(again, tmp_path / "log2", prepared=True, **PLUGIN) as command:
        assert command.wait() == 0, command.output
        summary = json.loads(command.output[command.output.index("{") :])
    assert summary["skipped"] >= 3
    assert summary["done"] + summary["skipped"] == HOSTILE_SHARDS


def test_a_worker_killed_while_it_starts(tmp_path):
    hostile_dataset(tmp_path / "v0", "", "")
    words = ["tag", f"{tmp_path}/v0", "--taggers", "tarry_v1", "--scheduler", "cluster", "--workers", "2"]
    with Command(words, tmp_path / "log", **PLUGIN) as command:
        found = []
        wait_until(lambda: found.extend(command.workers()) or found or not command.running(), "workers")
        found[0].kill()
        assert command.wait() == 0, command.output
        assert "Traceback" not in command.output
    assert len(tree(tmp_path / "v0/attributes")) == HOSTILE_SHARDS


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
    made = {path: content for path, content in tree(tmp_path / "v0").items() if path not in before}
    assert tree(tmp_path / "v0") == before | made
    assert all(path.startswith("attributes/tarry_v1/") for path in made), "shards that were finished by then"
    assert leftovers(tmp_path / "v0") == []


CLUSTER = """
import operator, os, cloudpickle, dolma_dask as dk
from dolma_dask import clusters

def facts():
    import fsspec
    umask = os.umask(0o077)
    os.umask(umask)
    environment = [os.environ.get(name) for name in ("SET_LATER", "SET_EARLIER", "MALLOC_TRIM_THRESHOLD_")]
    return os.getppid(), *environment, umask, fsspec.config.conf.get("memory")

class Sent:
    def __reduce__(self):
        return cloudpickle.loads, (cloudpickle.dumps(facts),)

if __name__ == "__main__":
    os.umask(0o022)
    os.environ["SET_EARLIER"] = "yes"
    with clusters.process_pool(1) as pool:
        assert pool.submit(operator.call, Sent()).result()[1:] == (None, "yes", str(64 << 20), 0o022, None)
    os.environ["SET_LATER"] = os.environ.pop("SET_EARLIER")
    os.umask(0o027)
    import fsspec
    fsspec.config.conf["memory"] = {"x": 1}
    now = ("yes", None, str(64 << 20), 0o027, {"x": 1})
    with clusters.process_pool(1) as pool:
        assert pool.submit(operator.call, Sent()).result()[1:] == now
    with dk.cluster(workers=2) as client:
        found = client.run(facts)
        assert len(found) == 2, found
        assert client.dashboard_link
    assert [fact[1:] for fact in found.values()] == [now, now], found
    assert len({parent for parent, *_ in found.values()} - {os.getpid()}) == 1, found
"""
"""Two workers, when the server that forks processes runs already."""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere processes are started, not forked")
def test_workers_are_forked_from_one_server_with_the_settings_of_now(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(CLUSTER)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@dataclass
class Count:
    """Reads nothing; large on paper, so that no two tasks share a batch."""

    verb: str = "count"

    def run_shard(self, task):
        return task.shard

    def start(self):
        return ()

    def count(self, piece):
        return (piece.name,)


def many_tasks(count: int) -> list[Task]:
    size = FileInfo("", batches.BATCH_BYTES, "")
    return [Task(f"{number:03d}", (), (Input("", size),)) for number in range(count)]


@pytest.mark.filterwarnings("ignore")  # of Dask, whose scheduler is gone
def test_a_lost_scheduler_fails_what_was_left():
    from distributed import Client, LocalCluster

    taken = {}

    def take(task, outcome):
        taken[task.shard] = outcome
        if len(taken) == 3:
            cluster.close()

    small = {"processes": False, "n_workers": 1, "threads_per_worker": 1, **NO_DASHBOARD}
    with (
        LocalCluster(**small, silence_logs=50) as cluster,
        Client(cluster.scheduler_address, set_as_default=False, timeout=5) as client,
    ):
        execution.execute(Count(), many_tasks(40), Placement(client), take)
    assert len(taken) == 40
    lost = [outcome for outcome in taken.values() if isinstance(outcome, Failure)]
    assert len(lost) >= 20
    assert {failure.error for failure in lost} <= {"SchedulerLost", "CommClosedError"}


def test_a_cluster_holds_a_bounded_number_of_tasks(monkeypatch):
    from distributed import Client

    pieces = [SimpleNamespace(name=task.shard, inputs=task.inputs) for task in many_tasks(100)]
    seen = []
    fill = flight.Flight._fill

    def watched(flight):
        fill(flight)
        seen.append(len(flight._running))

    monkeypatch.setattr(flight.Flight, "_fill", watched)
    for threads in (1, 8):
        seen.clear()
        with Client(processes=False, n_workers=1, threads_per_worker=threads, **NO_DASHBOARD):
            counted = fold(Count(), pieces, RunOptions(progress=False))
        assert counted == tuple(piece.name for piece in pieces)
        assert max(seen) == max(flight.MIN_IN_FLIGHT, flight.IN_FLIGHT_PER_THREAD * threads)


def test_a_cluster_goes_on_with_what_a_long_batch_has_left(monkeypatch):
    from distributed import Client

    monkeypatch.setattr(batches, "BATCH_SECONDS", -1.0)
    pieces = [SimpleNamespace(name=task.shard, inputs=()) for task in many_tasks(100)]
    with Client(processes=False, n_workers=1, threads_per_worker=1, **NO_DASHBOARD):
        counted = fold(Count(), pieces, RunOptions(progress=False))
    assert counted == tuple(piece.name for piece in pieces)


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
    assert len(tree(world / "v1")) == SHARDS - 3
    assert leftovers(world / "v1") == []
    assert cli.main([*words, "--json", "--no-progress"]) == 1
    summary = json.loads(capsys.readouterr().out)["summary"]
    assert (summary["done"], summary["skipped"], summary["failed"]) == (0, SHARDS - 3, 3)


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


@dataclass(frozen=True)
class KillsItsWorker:
    """Reads only; a task kills its worker some times, and then returns."""

    folder: str
    deaths: int
    verb: str = "kills"

    def start(self):
        return 0

    def count(self, piece):
        died = sum(1 for _ in Path(self.folder).iterdir())
        if died < self.deaths:
            Path(self.folder, str(died)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return died


def test_workers_that_die_all_at_once_do_not_fail_a_task(tmp_path):
    """Dask passes a task on to workers that are dying too, until none of its attempts is left: it gets others."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        clusters.cluster(workers=1),
    ):
        pieces = [SimpleNamespace(name="a", inputs=())]
        for deaths in range(1, attempts.LIVES):
            (tmp_path / f"{deaths}").mkdir()
            stage = KillsItsWorker(str(tmp_path / f"{deaths}"), deaths)
            assert fold(stage, pieces, RunOptions(progress=False)) == deaths
        (tmp_path / "many").mkdir()
        stage = KillsItsWorker(str(tmp_path / "many"), 99)
        with pytest.raises(StageError, match=rf"its workers were killed {attempts.LIVES} times"):
            fold(stage, pieces, RunOptions(progress=False))


def test_a_worker_that_cannot_be_waited_for_does_not_keep_a_cluster_from_its_end():
    """Dask refuses to wait for a process without a number; one that it starts again has none for a moment."""
    with clusters.cluster(workers=1) as client:
        (nanny,) = client.cluster.workers.values()
        nanny.process.process._state.pid = None
    assert client.status == "closed"
