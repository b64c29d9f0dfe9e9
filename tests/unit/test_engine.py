"""The engine with a toy stage: what is redone, what is refused, what happens to failures, and where things run."""

import dataclasses
import errno
import gc
import importlib
import os
import signal
import sys
import threading
import time
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import pytest
from dask.callbacks import Callback
from msgspec.structs import replace

from dolma_dask import clusters, engine
from dolma_dask.clusters import Placement
from dolma_dask.engine import (
    Input,
    Plan,
    Task,
    Unit,
    attempts,
    batches,
    execution,
    grouped,
    mapping,
    refusals,
    resume,
    runs,
)
from dolma_dask.engine.attempts import Stopped, is_transient
from dolma_dask.engine.in_process import Stoppable
from dolma_dask.errors import (
    BadRecordBudgetError,
    DataError,
    DiskFullError,
    InterruptedStageError,
    StageError,
    StoreAccessError,
    StoreError,
    StoreUnreachableError,
    UsageError,
)
from dolma_dask.io import files, late
from dolma_dask.io.files import FileInfo
from dolma_dask.io.publish import publish
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.journal import Journal, Record
from dolma_dask.options.groups import RunOptions
from dolma_dask.ownership import incomplete
from dolma_dask.progress import Progress

HERE = RunOptions(scheduler="synchronous", progress=False)
THREADS = RunOptions(scheduler="threads", workers=3, progress=False)


@dataclass
class Copy:
    """Copies each input to ``out/``; `bad` says what happens to a shard instead."""

    root: str
    bad: dict = field(default_factory=dict)
    seen: list = field(default_factory=list)
    counts: dict = field(default_factory=dict)
    parts: int = 1
    verb: str = "copy"

    def run_shard(self, task):
        self.seen.append(task.shard)
        if action := self.bad.get(task.shard):
            action()
        records = []
        for unit in task.units:
            (item,) = task.inputs
            data = files.read_bytes(item.url)
            written = []
            for number in range(self.parts):
                path = unit.name if number == 0 else f"{unit.name}-part-{number:05d}.x"
                with publish(files.join(self.root, path)) as out:
                    out.write(data)
                written.append(FileRecord(path, out.bytes, out.checksum))
            stored = InputRecord(item.info.path, item.info.bytes, item.info.stamp, files.checksum(item.url))
            records.append(
                Record(
                    unit.name,
                    task.shard,
                    unit.key,
                    inputs=(stored,),
                    files=tuple(written),
                    counts=self.counts,
                )
            )
        return records


@pytest.fixture
def root(tmp_path) -> Path:
    for number, name in enumerate("abcde"):
        path = tmp_path / f"in/{name}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(name.encode() * (number + 1) * 100)
    return tmp_path


def plan_of(root: Path, key: str = "k", folder: str = "out", **more) -> tuple[Plan, Copy]:
    """Copy everything below ``in/`` to `folder`."""
    stage = more.pop("stage", None) or Copy(str(root))
    infos = [replace(info, path=f"in/{info.path}") for info in files.list_files(f"{root}/in")]
    tasks = [
        Task(
            Path(info.path).name,
            (Unit(f"{folder}/{Path(info.path).name}", key),),
            engine.inputs_of(str(root), [info]),
        )
        for info in infos
    ]
    return Plan(stage, str(root), tasks, {}, (f"{folder}/",), **more), stage


def run(root, options=HERE, **more):
    plan, stage = plan_of(root, **more)
    return engine.run(plan, options).summary, stage.seen


def test_big_shards_first_everywhere(root):
    for options in (HERE, dataclasses.replace(THREADS, workers=1)):
        summary, seen = run(root, dataclasses.replace(options, overwrite=True))
        assert seen == ["e", "d", "c", "b", "a"]
        assert (summary.done, summary.skipped, summary.failed) == (5, 0, 0)


def test_nothing_is_done_twice(root):
    run(root)
    plan, stage = plan_of(root)
    summary = engine.run(plan, RunOptions(scheduler="tcp://127.0.0.1:1")).summary
    assert (summary.done, summary.skipped, stage.seen) == (0, 5, [])
    assert len(list((root / "_journal/copy").iterdir())) == 1


@pytest.fixture
def seen_late(root, monkeypatch):
    """Outputs are listed after some looks, as where workers of other machines have made them; the number of looks is returned with None for never."""
    looks = {"left": 3}
    listed = files.list_files

    def list_files(url):
        found = listed(url)
        if url.endswith("/out") and looks["left"]:
            found = [info for info in found if info.path not in ("b", "d")]
        return found

    def sleep(seconds):
        looks["left"] -= 1

    monkeypatch.setattr(files, "list_files", list_files)
    monkeypatch.setattr(late, "may_be_late", lambda url: True)
    monkeypatch.setattr(late.time, "sleep", sleep)
    return looks


def test_a_run_ends_when_it_lists_what_its_workers_have_made(root, seen_late):
    """Else the next verb would read a part, and end well."""
    assert run(root)[0].done == 5
    assert seen_late["left"] == 0
    assert [info.path for info in files.list_files(f"{root}/out")] == list("abcde")


def test_outputs_that_are_never_seen_are_an_error_and_not_made_again(root, seen_late, monkeypatch):
    monkeypatch.setattr(late, "SECONDS", 0.0)
    with pytest.raises(
        StoreAccessError, match=r"2 files that workers have written are not seen on .* after 0 s, first out/b"
    ):
        run(root)
    seen_late["left"] = 0
    assert run(root)[1] == []


@pytest.mark.parametrize("options", [HERE, THREADS])
def test_what_a_worker_wrote_where_nobody_sees_it_ends_the_run(root, options, monkeypatch):
    """As on the disk of a node: the shard is not finished, whatever the worker says."""
    monkeypatch.setattr(late, "REPLACED_SECONDS", 0.0)
    plan, stage = plan_of(root)
    stage.root = str(root / "of a node")
    with pytest.raises(StoreAccessError, match=r"out/. was written by a worker, and is not here, on "):
        engine.run(plan, options)
    assert sorted(run(root)[1]) == list("abcde"), "nothing of it is believed"


def test_an_output_that_another_run_replaces_is_waited_for(root, monkeypatch):
    """As `ragged` does, which removes the ids of before until its other files are there."""
    plan, stage = plan_of(root)
    run_shard = stage.run_shard

    def replaced(task):
        records = run_shard(task)
        (root / "out" / task.shard).rename(root / "hidden")
        return records

    monkeypatch.setattr(stage, "run_shard", replaced)
    monkeypatch.setattr(late.time, "sleep", lambda seconds: (root / "hidden").rename(root / "out/a"))
    assert engine.run(replace(plan, tasks=plan.tasks[:1]), HERE).summary.done == 1


def test_an_input_that_is_late_is_read_as_soon_as_it_is_seen(root, monkeypatch):
    plan, stage = plan_of(root)
    (root / "in/c").rename(root / "hidden")
    monkeypatch.setattr(late, "may_be_late", lambda url: True)
    monkeypatch.setattr(late.time, "sleep", lambda seconds: (root / "hidden").rename(root / "in/c"))
    assert engine.run(plan, HERE).summary.done == 5
    assert sorted(stage.seen) == list("abccde")


def test_changed_inputs_keys_and_outputs_are_redone(root):
    run(root)
    (root / "in/a").write_bytes(b"b" * 100)  # same size
    (root / "in/b").write_bytes(b"longer" * 100)
    (root / "out/c").unlink()
    (root / "out/d").write_bytes(b"torn")
    assert sorted(run(root)[1]) == ["a", "b", "c", "d"]
    assert len(run(root, key="other")[1]) == 5
    assert run(root, key="other")[1] == []
    assert len(run(root)[1]) == 5, "only the newest record of a unit counts"


def test_new_time_stamps_redo_nothing_and_are_hashed_once(root, monkeypatch):
    run(root)
    hashed = []
    checksum = files.checksum
    monkeypatch.setattr(files, "checksum", lambda url: hashed.append(url) or checksum(url))
    for path in (root / "in").iterdir():
        os.utime(path, ns=(1, 10**18))
    assert run(root, dataclasses.replace(HERE, dry_run=True))[0].planned == ()
    assert len(hashed) == 5
    hashed.clear()
    assert run(root)[1] == []
    assert len(hashed) == 5
    hashed.clear()
    assert run(root)[1] == []
    assert hashed == [], "the journal knows the new stamps"


def test_an_input_that_cannot_be_hashed_fails_as_a_shard(root, monkeypatch):
    run(root)
    os.utime(root / "in/a", ns=(1, 10**18))
    monkeypatch.setattr(files, "checksum", lambda url: (_ for _ in ()).throw(PermissionError(url)))
    plan, _ = plan_of(root)
    with pytest.raises(StageError, match=r"1 of 5 shards failed.*a: PermissionError"):
        engine.run(plan, HERE)


def test_each_file_is_hashed_once_however_many_units_it_has(root, monkeypatch):
    plan, _ = plan_of(root)
    tasks = [replace(task, units=(*task.units, Unit(f"out/{task.shard}2", "k"))) for task in plan.tasks]
    engine.run(replace(plan, tasks=tasks), HERE)
    for path in (root / "in").iterdir():
        os.utime(path, ns=(1, 10**18))
    hashed = []
    checksum = files.checksum
    monkeypatch.setattr(files, "checksum", lambda url: hashed.append(url) or checksum(url))
    again, _ = plan_of(root)
    tasks = [replace(task, units=old.units) for task, old in zip(again.tasks, tasks, strict=True)]
    assert engine.run(replace(again, tasks=tasks), HERE).summary.skipped == 5
    assert len(hashed) == 5


def test_only_missing_units_of_a_shard_are_left(root):
    run(root)
    plan, _ = plan_of(root)
    tasks = [replace(task, units=(*task.units, Unit(f"out/{task.shard}2", "k"))) for task in plan.tasks]
    before = {path: path.stat().st_mtime_ns for path in (root / "out").iterdir()}
    summary = engine.run(replace(plan, tasks=tasks), HERE).summary
    assert (summary.done, summary.skipped) == (5, 0)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_outputs_that_a_unit_no_longer_has_are_removed(root):
    run(root, stage=Copy(str(root), parts=3))
    assert len(list((root / "out").iterdir())) == 15
    run(root, key="other", stage=Copy(str(root), parts=2))
    assert len(list((root / "out").iterdir())) == 10


def test_a_failing_shard_stops_no_other(root):
    def fail():
        raise DataError("row 7 is bad", row=7)

    for options in (HERE, THREADS):
        stage = Copy(str(root), {"b": fail, "d": lambda: 1 / 0, "a": lambda: exit(3)})
        plan, _ = plan_of(root, stage=stage)
        with pytest.raises(StageError) as caught:
            engine.run(plan, dataclasses.replace(options, overwrite=True))
        failures = {failure.shard: failure for failure in caught.value.failures}
        assert {shard: failure.error for shard, failure in failures.items()} == {
            "a": "SystemExit",
            "b": "DataError",
            "d": "ZeroDivisionError",
        }
        assert failures["b"].message == "row 7 is bad"
        summary = caught.value.details["summary"]
        assert (summary.done, summary.failed, summary.exit_status) == (2, 3, 1)
    assert run(root)[1] == ["d", "b", "a"]


def test_transient_errors_are_tried_again(root, monkeypatch):
    monkeypatch.setattr(attempts, "RETRY_SECONDS", 0.001)
    tried = []

    def shaky():
        tried.append(1)
        if len(tried) < 3:
            raise ConnectionResetError("the store hung up")

    assert run(root, stage=Copy(str(root), {"c": shaky}))[0].done == 5
    assert len(tried) == 3
    tried.clear()
    tried += [1] * -10
    always = Copy(str(root), {"c": lambda: (_ for _ in ()).throw(OSError(5, "Input/output error"))})
    with pytest.raises(StageError, match="OSError"):
        run(root, dataclasses.replace(HERE, overwrite=True), stage=always)
    assert always.seen.count("c") == 1 + attempts.RETRIES


@pytest.mark.parametrize(
    "error, again",
    [
        (OSError(28, "No space left on device"), False),
        (TimeoutError(), True),
        (FileNotFoundError(), False),
        (PermissionError(), False),
        (ValueError(), False),
        (DataError("x"), False),
        (type("EndpointConnectionError", (Exception,), {})(), True),
        (StoreError("x"), True),
        (StoreAccessError("x"), False),
        (StoreUnreachableError("x"), False),
    ],
)
def test_what_may_help_to_try_again(error, again):
    assert is_transient(error) is again


@pytest.mark.parametrize("options", [HERE, THREADS])
def test_a_store_that_is_away_stops_the_run_and_keeps_what_is_finished(root, options):
    def away():
        raise StoreUnreachableError("s3://b/x: the store does not answer")

    stage = Copy(str(root), {"c": away})
    with pytest.raises(StoreUnreachableError, match="does not answer"):
        run(root, options, stage=stage)
    assert stage.seen.count("c") == 1
    done, again = run(root)
    assert done.skipped == 5 - len(again)
    assert "c" in again
    if options is HERE:
        assert done.skipped == 2, "e and d, which are larger, came before"


def test_missing_files_are_not_tried_again(root):
    def missing():
        raise FileNotFoundError("gone")

    stage = Copy(str(root), {"c": missing})
    with pytest.raises(StageError):
        run(root, stage=stage)
    assert stage.seen.count("c") == 1


def test_notes_of_an_error_are_told(root):
    def noted():
        error = FileNotFoundError("gone")
        error.add_note("set TMPDIR")
        raise error

    with pytest.raises(StageError, match="gone; set TMPDIR"):
        run(root, stage=Copy(str(root), {"c": noted}))


def test_a_full_disk_says_what_to_do():
    found = attempts.failure(Task("a", (), ()), OSError(28, "No space left on device"))
    assert "make room and run the same command again" in found.message


def test_foreign_files_are_refused(root):
    (root / "out").mkdir()
    (root / "out/c").write_bytes(b"mine")
    for options in (HERE, dataclasses.replace(HERE, dry_run=True)):
        with pytest.raises(UsageError, match=r"out/c.*--overwrite"):
            run(root, options)
    assert not (root / "_journal").exists()
    assert (root / "out/c").read_bytes() == b"mine"
    run(root, dataclasses.replace(HERE, overwrite=True))
    assert (root / "out/c").read_bytes() == b"c" * 300


def test_foreign_parts_are_refused(root):
    (root / "out").mkdir()
    (root / "out/c-part-00003.x").write_bytes(b"mine")
    units = frozenset(f"out/{name}" for name in ("a", "b", "c", "d", "e", "c.x"))
    with pytest.raises(UsageError):
        run(root, all_units=units)


def test_files_of_a_killed_run_are_ours(root):
    plan, _ = plan_of(root)
    Journal(str(root), "copy").start({}, plan.writes, "")
    (root / "out").mkdir()
    (root / "out/c").write_bytes(b"written, but not yet in the journal")
    assert run(root)[0].done == 5


def test_own_orphans_are_refused_and_removed_on_request(root):
    units = frozenset(f"out/{name}" for name in "abcde")
    run(root, all_units=units)
    (root / "in/e").unlink()
    fewer = units - {"out/e"}
    with pytest.raises(UsageError, match="'out/e'"):
        run(root, all_units=fewer)
    dry, _ = run(root, dataclasses.replace(HERE, overwrite=True, dry_run=True), all_units=fewer)
    assert any("would be removed; first out/e" in note for note in dry.notes)
    assert (root / "out/e").exists()
    run(root, dataclasses.replace(HERE, overwrite=True), all_units=fewer)
    assert not (root / "out/e").exists()


def test_files_that_nobody_here_made_are_never_removed(root):
    units = frozenset(f"out/{name}" for name in "abcde")
    run(root, all_units=units)
    (root / "out/old.jsonl").write_bytes(b"somebody's documents")
    (root / "out/notes.docx").write_bytes(b"somebody's notes")
    for options in (HERE, dataclasses.replace(HERE, overwrite=True)):
        with pytest.raises(UsageError, match=r"no copy has made, first 'out/old.jsonl'"):
            run(root, options, all_units=units, reads=(".jsonl",))
    (root / "out/old.jsonl").unlink()
    run(root, dataclasses.replace(HERE, overwrite=True), all_units=units, reads=(".jsonl",))
    assert (root / "out/notes.docx").exists()


def test_files_that_a_stopped_run_may_have_left_are_not_said_to_be_foreign(root):
    Journal(str(root), "copy").start({}, ("out/",), "").flush()
    (root / "out").mkdir()
    (root / "out/part-00001.jsonl").write_bytes(b"cut otherwise, and not yet in the journal")
    units = frozenset(f"out/{name}" for name in "abcde")
    with pytest.raises(
        UsageError, match=r"may be what a stopped run has left, or yours, first 'out/part.*move them away"
    ):
        run(root, dataclasses.replace(HERE, overwrite=True), all_units=units, reads=(".jsonl",))
    assert (root / "out/part-00001.jsonl").exists()


def test_outputs_made_from_another_input_are_not_replaced(root):
    run(root, origin=str(root / "in"))
    (root / "in/a").write_bytes(b"other bytes")
    with pytest.raises(
        UsageError,
        match=r"made from in; this run would replace 1 of its files, first out/a, .* from elsewhere",
    ):
        run(root, origin=str(root / "elsewhere"))
    assert run(root, origin=str(root / "in"))[0].done == 1
    assert run(root, dataclasses.replace(HERE, overwrite=True), origin=str(root / "elsewhere"))[0].done == 5
    assert run(root, origin=str(root / "in"))[0].skipped == 5  # nothing would be replaced


def test_other_options_are_told(root):
    run(root)
    summary, _ = run(root, key="another")
    assert summary.done == 5
    assert any("made before with other options" in note for note in summary.notes)


def test_a_run_says_how_it_ended(root):
    run(root)
    assert [(run.finished > 0, run.missing) for run in Journal(str(root), "copy").runs] == [(True, 0)]


def test_what_is_left_undone_is_known_until_it_is_done(root):
    units = frozenset(f"documents/{name}" for name in "abcde")

    def fail():
        raise DataError("no")

    with pytest.raises(StageError):
        run(root, stage=Copy(str(root), bad={"c": fail}), all_units=units, folder="documents")
    assert Journal(str(root), "copy").runs[-1].missing == 1
    assert "left 1 of its files out" in incomplete(str(root), ["copy"])[0]
    run(root, all_units=units, folder="documents")
    assert incomplete(str(root), ["copy"]) == []


def test_dry_run_writes_nothing(root):
    before = sorted(root.rglob("*"))
    summary, seen = run(root, dataclasses.replace(HERE, dry_run=True))
    assert (summary.planned, seen) == (("a", "b", "c", "d", "e"), [])
    assert sorted(root.rglob("*")) == before


def test_a_budget_of_bad_rows_is_checked_on_every_run(root):
    stage = Copy(str(root), counts={"documents_in": 100, "bad_records": 3})
    for _ in range(2):
        with pytest.raises(
            BadRecordBudgetError, match=r"15 of 500 rows are bad \(3.000%\); allowed are 1.000%"
        ):
            run(root, stage=stage, max_bad_fraction=0.01)
    assert stage.seen == ["e", "d", "c", "b", "a"]
    assert run(root, max_bad_fraction=0.03)[0].counts["bad_records"] == 15
    assert run(root, bad_is_loss=True)[0].exit_status == 1


def test_failures_are_told_before_the_budget(root):
    stage = Copy(str(root), {"a": lambda: 1 / 0}, counts={"documents_in": 100, "bad_records": 3})
    with pytest.raises(StageError, match="ZeroDivisionError"):
        run(root, stage=stage, max_bad_fraction=0.01)


def interrupt():
    signal.raise_signal(signal.SIGINT)


def test_ctrl_c_keeps_what_is_finished(root):
    with pytest.raises(
        InterruptedStageError, match=r"2 of 5 shards are finished and kept\. Run the same command again"
    ):
        run(root, stage=Copy(str(root), {"c": interrupt}))
    summary, seen = run(root)
    assert seen == ["c", "b", "a"]
    assert (summary.done, summary.skipped) == (3, 2)


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_ctrl_c_stops_a_run_whatever_fails_on_its_way(root, scheduler):
    """A plug-in that cannot close what it never opened hides neither the end of the run nor a failure of its shard."""

    def fail_to_close():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            while True:
                time.sleep(0.001)
        finally:
            raise AttributeError("_stack")

    stage = Copy(str(root), {"c": fail_to_close})
    with pytest.raises(InterruptedStageError, match="copy was stopped"):
        run(root, RunOptions(scheduler=scheduler, workers=1, progress=False), stage=stage)
    assert stage.seen == ["e", "d", "c"]


def test_ctrl_c_stops_threads_in_the_middle_of_a_shard(root):
    begun = threading.Event()
    ended = []

    def tarry():
        try:
            with publish(f"{root}/out/unfinished"):
                begun.set()
                time.sleep(0.01)
                while True:
                    time.sleep(0.01)
        finally:
            ended.append(True)

    def stop():
        begun.wait(60)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(InterruptedStageError):
        run(root, THREADS, stage=Copy(str(root), {"b": tarry, "a": stop}))
    assert ended
    assert {path.name for path in (root / "out").iterdir()} <= set("acde"), "no temporary file is left"
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("dolma-dask")]
    assert "b" in run(root)[1]


def test_threads_begin_nothing_after_ctrl_c_and_what_they_finish_is_kept(root):
    """Taggers of others catch everything, and so what stops a thread."""
    begun, stopped = threading.Event(), threading.Event()

    def catch_all():
        try:
            begun.set()
            while True:
                time.sleep(0.001)
        except BaseException:  # noqa: BLE001  as such taggers do
            stopped.set()

    def stop():
        begun.wait(60)
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            time.sleep(0.001)

    stage = Copy(str(root), {"e": catch_all, "d": stop})
    options = RunOptions(scheduler="threads", workers=2, progress=False)
    with pytest.raises(InterruptedStageError, match="1 of 5 shards are finished and kept"):
        run(root, options, stage=stage)
    assert stopped.is_set()
    assert sorted(stage.seen) == ["d", "e"]
    assert Journal(str(root), "copy").records.keys() == {"out/e"}


def test_a_second_ctrl_c_also_stops_threads_that_were_let_finish_an_import(root):
    importing, release, second, told = (threading.Event() for _ in range(4))
    source = "importing.set()\nwhile not release.wait(0.001):\n    pass\n"
    code = compile(source, "<frozen importlib._bootstrap>", "exec")

    def import_slowly():
        try:
            exec(code, {"importing": importing, "release": release})
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                time.sleep(0.001)
        except Stopped:
            told.set()
            raise

    def stop():
        importing.wait(60)
        os.kill(os.getpid(), signal.SIGINT)
        try:
            while True:
                time.sleep(0.001)
        finally:  # the first has come, and nobody is waited for but the thread that imports
            os.kill(os.getpid(), signal.SIGINT)
            second.set()

    after = threading.Thread(target=lambda: (second.wait(60), time.sleep(0.1), release.set()))
    after.start()
    options = RunOptions(scheduler="threads", workers=2, progress=False)
    with pytest.raises(InterruptedStageError):
        run(root, options, stage=Copy(str(root), {"e": import_slowly, "d": stop}))
    after.join()
    assert told.wait(60)


def test_results_are_written_down_as_they_arrive(root, monkeypatch):
    """While the third shard is at work, the journal already knows the first two."""
    monkeypatch.setattr("dolma_dask.journal.writer.FLUSH_SECONDS", 0.01)

    def look():
        deadline = time.monotonic() + 60
        while len(Journal(str(root), "copy").records) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.005)

    run(root, stage=Copy(str(root), {"c": look}))


def test_two_runs_in_one_process_do_not_mix(root, tmp_path_factory):
    """Dask's callbacks are global to a process: each run must get its own results, and all of them."""
    other = tmp_path_factory.mktemp("other")
    (other / "in").mkdir()
    for number in range(60):
        (other / f"in/{number}").write_bytes(b"x" * (number + 1))
    found = []
    thread = threading.Thread(target=lambda: found.append(run(other, THREADS)))
    thread.start()
    for _ in range(10):
        assert run(root, dataclasses.replace(THREADS, overwrite=True))[0].done == 5
    thread.join()
    assert found[0][0].done == 60


def test_progress_counts_every_shard_once(root, monkeypatch):
    made = []

    @contextmanager
    def make(stage, *totals):
        made.append(Progress(stage))
        made[-1].begin(stage, *totals[:2])
        yield made[-1]

    monkeypatch.setattr(mapping, "progress_of", make)
    with pytest.raises(StageError):
        run(root, THREADS, stage=Copy(str(root), {"c": lambda: 1 / 0}))
    (progress,) = made
    assert (progress.shards, progress.total_shards) == (5, 5)
    assert progress.bytes == progress.total_bytes == 1500
    run(root)
    assert (made[-1].shards, made[-1].total_shards, made[-1].total_bytes) == (1, 1, 300)


@dataclass
class Lengths:
    """Reads only."""

    verb: str = "lengths"

    def run_shard(self, task):
        return len(files.read_bytes(task.inputs[0].url))


def test_work_that_cannot_be_sent_is_refused_at_once(root):
    stage = Copy(str(root), {"c": threading.Lock()})
    with pytest.raises(UsageError, match=r"cannot be sent to another process.*threads"):
        run(root, RunOptions(scheduler="processes", progress=False), stage=stage)
    assert stage.seen == []


class Deadly(Executor):
    """A pool of one process that dies whenever a batch with one of the words is submitted."""

    _max_workers = 1

    def __init__(self, words):
        self.words = words
        self.broken = False

    def submit(self, call, *args, **kwargs):
        future = Future()
        ((_, data, *_),) = args[0]
        if self.broken or any(word.encode() in data for word in self.words):
            self.broken = True
            future.set_exception(BrokenExecutor("a process died"))
        else:
            future.set_result(call(*args, **kwargs))
        return future


def outcomes(tasks, words, monkeypatch):
    """Run tasks on pools that die at certain shards; return what came of each, and the number of pools."""
    pools = []

    def start(workers):
        pools.append(Deadly(words))
        return pools[-1]

    monkeypatch.setattr(clusters.local, "start_processes", start)
    taken = {}

    def take(task, outcome):
        assert task.shard not in taken
        taken[task.shard] = outcome

    execution.execute(Lengths(), tasks, Placement(scheduler="processes", workers=1), take)
    return taken, len(pools)


def many_tasks(root, names):
    infos = [FileInfo("in/a", 1000, "")] * len(names)
    return [
        Task(name, (), engine.inputs_of(str(root), [info])) for name, info in zip(names, infos, strict=True)
    ]


def test_a_shard_that_kills_its_process_fails_alone(root, monkeypatch):
    tasks = many_tasks(root, [f"shard-{number}" for number in range(10)])
    taken, pools = outcomes(tasks, ["shard-4", "shard-7"], monkeypatch)
    assert {shard for shard, outcome in taken.items() if outcome != 100} == {"shard-4", "shard-7"}
    assert taken["shard-4"].error == "WorkerDied"
    assert "memory" in taken["shard-4"].message
    assert "--only" not in taken["shard-4"].message, "verbs over all shards refuse it"
    assert len(taken) == 10
    assert pools <= 2 * (1 + attempts.LIVES) + 4


def test_processes_that_always_die_are_given_up(root, monkeypatch):
    tasks = many_tasks(root, [f"shard-{number}" for number in range(50)])
    taken, pools = outcomes(tasks, ["shard-"], monkeypatch)
    assert {outcome.error for outcome in taken.values()} == {"WorkerDied"}
    assert len(taken) == 50
    assert "before they do anything" in taken["shard-49"].message
    assert pools <= 1 + 2 * attempts.LIVES


@pytest.mark.parametrize("sizes", [[0] * 64, [9_000_000, *[100] * 63]], ids=["no inputs", "a large one"])
def test_all_workers_get_tasks(sizes):
    """Whatever the sizes of inputs are, and where none are known."""
    tasks = [Task(str(n), (), (Input("", FileInfo("", size, "")),)) for n, size in enumerate(sizes)]
    shares = batches.batches_of(tasks, 2, "mix")
    assert [task for batch in shares for task in batch] == tasks
    assert max(map(len, shares)) <= len(tasks) / (2 * batches.BATCHES_PER_WORKER)
    assert len(shares) <= 2 * 2 * batches.BATCHES_PER_WORKER


@pytest.mark.parametrize("scheduler", ["synchronous", "threads", "processes"])
def test_a_long_batch_hands_over_what_it_has_done(scheduler, root, monkeypatch):
    """A kill costs a few seconds of work, however many shards share a batch; under a callback of Dask all its schedulers have batches."""
    tasks = many_tasks(root, [f"shard-{number}" for number in range(20)])
    assert len(batches.batches_of(tasks, 1, "lengths")) < 10, "several shards share a batch"
    taken, ended = [], []
    monkeypatch.setattr(batches, "_in_time", lambda groups: islice(groups, 1))
    with Callback(posttask=lambda key, *_: ended.append(key)):
        execution.execute(
            Lengths(),
            tasks,
            Placement(scheduler=scheduler, workers=1),
            lambda task, _: taken.append(task.shard),
        )
    assert sorted(taken) == sorted(task.shard for task in tasks)
    if scheduler != "processes":  # these have the time of theirs
        assert len(ended) == 20


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_outcomes_are_taken_one_by_one(scheduler, root):
    tasks = many_tasks(root, [f"shard-{number}" for number in range(20)])
    done, taken, ahead = [], [], []

    class Counting(Lengths):
        def run_shard(self, task):
            done.append(task.shard)
            return super().run_shard(task)

    def take(task, outcome):
        taken.append(task.shard)
        ahead.append(len(done) - len(taken))

    execution.execute(Counting(), tasks, Placement(scheduler=scheduler, workers=1), take)
    assert sorted(taken) == sorted(task.shard for task in tasks) == sorted(done)
    if scheduler == "synchronous":
        assert set(ahead) == {0}


def test_outcomes_that_were_taken_are_not_held_until_all_batches_end(root, monkeypatch):
    """Dask keeps what each batch returns: records of a million shards would take gigabytes."""
    monkeypatch.setattr(batches, "BATCHES_PER_WORKER", 20)
    tasks = many_tasks(root, [f"shard-{number}" for number in range(40)])
    held = []

    def take(task, outcome):
        held.append(sum(len(one) for one in gc.get_objects() if isinstance(one, batches.Outcomes)))

    with Callback():  # else nothing runs under Dask
        execution.execute(Lengths(), tasks, Placement(scheduler="threads", workers=1), take)
    assert len(held) == len(tasks)
    assert max(held) <= 3 * max(map(len, batches.batches_of(tasks, 1, "lengths")))


def test_batches_of_very_many_tasks_are_not_sent_in_vain():
    """What a batch cannot do in its time is pickled once more, each time with all that is left of it."""
    tasks = [Task(str(number), (), ()) for number in range(20 * batches.BATCH_TASKS)]
    assert max(map(len, batches.batches_of(tasks, 1, "mix"))) <= batches.BATCH_TASKS


def test_outputs_are_leased_in_one_order(root):
    """Else two runs with several outputs in common could refuse each other, and none would work."""
    plan, _ = plan_of(root)
    orders = [runs._lease_folders(replace(plan, writes=writes)) for writes in (("b/", "a/"), ("a/", "b/"))]
    assert orders[0] == orders[1]
    assert len(set(orders[0])) == 2


def test_batches_share_a_task_up_to_their_limit():
    sizes = [50, 30, 10, 10, 10, 1, 1]
    tasks = [Task(str(index), (), (Input("", FileInfo("", size, "")),)) for index, size in enumerate(sizes)]
    batches = [[task.bytes for task in batch] for batch in grouped(tasks, lambda task: task.bytes, 30)]
    assert batches == [[50], [30], [10, 10, 10], [1, 1]]
    assert grouped([], len, 30) == []


def test_groups_have_a_most_of_items():
    groups = grouped([0] * 1000, lambda size: size, 30, max_items=256)
    assert [len(group) for group in groups] == [256, 256, 256, 232]


def test_listing_comes_before_the_journal(root, monkeypatch):
    """Another run may write between the two: what is listed must be known, or it would be taken for foreign."""
    order = []
    monkeypatch.setattr(resume, "_existing", lambda root, writes: order.append("list") or {})
    monkeypatch.setattr(resume, "Journal", lambda *args: order.append("journal") or Journal(*args))
    plan, _ = plan_of(root)
    resume.look_back(plan, False)
    assert order == ["list", "journal"]


@pytest.mark.parametrize(
    "options",
    [
        RunOptions(scheduler="nonsense"),
        RunOptions(scheduler="processes"),
        RunOptions(scheduler="tcp://127.0.0.1:1"),
    ],
)
def test_a_wrong_call_leaves_nothing_behind(root, options, monkeypatch):
    monkeypatch.setattr(clusters.places, "CONNECT_SECONDS", 0.1)
    with pytest.raises(UsageError):
        run(root, options, stage=Copy(str(root), {"c": threading.Lock()}))
    assert sorted(path.name for path in root.iterdir()) == ["in"]


def test_what_a_tagger_raises_never_passes_for_ctrl_c(root):
    """Workers do not get Ctrl-C; a KeyboardInterrupt there fails its shard, as any other error."""
    with pytest.raises(StageError) as caught:
        run(root, THREADS, stage=Copy(str(root), bad={"c": _interrupt}))
    assert [(failure.shard, failure.error) for failure in caught.value.failures] == [
        ("c", "KeyboardInterrupt")
    ]
    assert Journal(str(root), "copy").records.keys() == {f"out/{name}" for name in "abde"}


def stopped_before(release, running, work, pool):
    """Stop a batch that goes on once `release` is set, after it has been told to stop."""
    stopping = pool.submit(running.stop)
    while not running._stopped:
        time.sleep(0.001)
    release.set()
    stopping.result()
    with pytest.raises(attempts.Stopped):
        work.result()


def _interrupt():
    raise KeyboardInterrupt("of a tagger")


@pytest.mark.parametrize("compiles", [False, True], ids=["import", "kernel"])
def test_threads_that_hold_locks_end_that_before_they_stop(tmp_path, monkeypatch, compiles):
    """An import that is cut off would keep its lock, and so would a kernel that is compiled."""
    started, release, imported = threading.Event(), threading.Event(), []
    monkeypatch.setattr(threading, "events", (started, release), raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "slow_to_import", raising=False)
    slow = tmp_path / "slow_to_import.py"
    slow.write_text(
        "import threading\nstarted, release = threading.events\nstarted.set()\nwhile not release.wait(0.001):\n    pass\n"
    )

    class Importing:
        verb = "import"

        def run_shard(self, task):
            if compiles:
                exec(compile(slow.read_text(), "/lib/numba/core/compiler_lock.py", "exec"), {})
            else:
                importlib.import_module("slow_to_import")
            imported.append(task)
            while True:
                time.sleep(0.001)

    running = Stoppable(batches.run_batch)
    with ThreadPoolExecutor(2) as pool:
        batch = batches.Quoted([Task("a", (), ())])
        work = pool.submit(running, batches.Quoted(Importing()), batch)
        started.wait()
        stopped_before(release, running, work, pool)
    assert imported


def test_threads_are_not_stopped_while_they_start_another_one(monkeypatch):
    """The new one would die in place of the one that waits for its start, for ever."""
    patched, starting, release, started = threading.Event(), threading.Event(), threading.Event(), []
    start_new = threading._start_new_thread

    def slow(*args):
        if threading.current_thread().name.startswith("worker"):
            starting.set()
            while not release.wait(0.001):
                pass
        return start_new(*args)

    class Starting:
        verb = "start"

        def run_shard(self, task):
            patched.wait()
            other = threading.Thread(target=lambda: None)
            other.start()
            started.append(other)
            while True:
                time.sleep(0.001)

    running = Stoppable(batches.run_batch)
    with ThreadPoolExecutor(1, "worker") as workers, ThreadPoolExecutor(1) as pool:
        work = workers.submit(running, batches.Quoted(Starting()), batches.Quoted([Task("a", (), ())]))
        pool.submit(int).result()
        monkeypatch.setattr(threading, "_start_new_thread", slow)
        patched.set()
        assert starting.wait(60)
        stopped_before(release, running, work, pool)
    assert started


def test_a_full_disk_stops_the_run_at_once(root):
    def full():
        with publish(f"{root}/out/c"):
            raise OSError(errno.ENOSPC, "No space left on device")

    stage = Copy(str(root), bad={"c": full})
    with pytest.raises(
        DiskFullError, match=rf"{root}/out: No space left on device; expected room for c. Make room"
    ):
        run(root, stage=stage)
    assert stage.seen == ["e", "d", "c"], "neither tried again, nor the next ones"
    assert Journal(str(root), "copy").records.keys() == {"out/e", "out/d"}


def test_long_options_are_shown_where_they_differ():
    before = '{"added":null,"created":null,"generated_id":"{stem}-{row}","source":"a"}'
    now = before.replace('"a"', '"bc"')
    (shown,) = refusals.differing({"mapping": before, "same": 1}, {"mapping": now, "same": 1})
    assert shown == "mapping.source 'a', now 'bc'"
    rule = " and ".join(f"signal_{number} > 0" for number in range(20))
    (shown,) = refusals.differing({"where": rule}, {"where": rule.replace("signal_17", "other")})
    assert shown.startswith("where ...")
    assert "signal_17" in shown.split(", now ")[0]
    assert "other" in shown.split(", now ")[1]
    assert refusals.differing({}, {"seed": 3}) == ["seed not given, now 3"]
