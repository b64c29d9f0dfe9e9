"""Files of tasks that appear while the next task works: their order, their errors, their bounds."""

import errno
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dolma_dask import engine
from dolma_dask.engine import Plan, Task, Unit, attempts, batches
from dolma_dask.errors import DiskFullError, Failure, InterruptedStageError, StageError
from dolma_dask.io import files
from dolma_dask.io.publish import move, publish, publish_later, stamp_of
from dolma_dask.io.records import FileRecord
from dolma_dask.io.waiting import Waiting
from dolma_dask.journal import Journal, Record
from dolma_dask.options.groups import RunOptions

HERE = RunOptions(scheduler="synchronous", progress=False)
PATIENCE_S = 60.0


class Writing:
    """Writes a file for each task; `before` and `after` are called with its name around that."""

    verb = "write"

    def __init__(
        self, root: Path, before: Callable[[str], Any] = str, after: Callable[[str], Any] = str
    ) -> None:
        self.root, self.before, self.after = root, before, after

    def run_shard(self, task: Task) -> list[Record]:
        self.before(task.shard)
        url = f"{self.root}/out/{task.shard}"
        with publish_later(url) as out:
            out.write(task.shard.encode() * 100)
        self.after(task.shard)
        file = FileRecord(f"out/{task.shard}", out.bytes, out.checksum, stamp=stamp_of(url))
        return [Record(f"out/{task.shard}", task.shard, "k", files=(file,))]


def tasks_of(names: str) -> list[Task]:
    return [Task(name, (Unit(f"out/{name}", "k"),), ()) for name in names]


def run(stage: Writing, names: str = "abc") -> dict[str, Record]:
    """Run tasks as a plan; return what the journal knows then."""
    engine.run(Plan(stage, str(stage.root), tasks_of(names), {}, ("out/",)), HERE)
    return Journal(str(stage.root), "write").records


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_no_end_of_a_batch_is_waited_for(
    scheduler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "BATCH_SECONDS", -1.0)
    begun = {name: threading.Event() for name in "abcd"}

    def waits_for_the_next(name: str) -> None:
        assert name == "d" or begun[chr(ord(name) + 1)].wait(PATIENCE_S), f"nothing begins behind {name}"

    syncing(monkeypatch, waits_for_the_next)
    options = RunOptions(scheduler=scheduler, workers=1, progress=False)
    stage = Writing(tmp_path, before=lambda name: begun[name].set())
    engine.run(Plan(stage, str(tmp_path), tasks_of("abcd"), {}, ("out/",)), options)
    assert names_in(tmp_path / "out") == [*"abcd"]


def outcomes(
    stage: Writing, names: str, take: Callable[[Task, Any], Any] = lambda task, outcome: None
) -> dict[str, Any]:
    """Do tasks in their order; return what came of each."""
    found = {}

    def taken(task: Task, outcome: Any) -> None:
        take(task, outcome)
        found[task.shard] = outcome

    batches.run_all(stage, batches.Groups(stage, tasks_of(names)), taken)
    return found


def syncing(monkeypatch: pytest.MonkeyPatch, act: Callable[[str], Any]) -> None:
    """Call `act` with the name of the target whenever a file is synced."""

    def sync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))  # noqa: PTH115
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode) and path.parent.name == "out":
            act(path.name.split(".")[1])

    monkeypatch.setattr(os, "fsync", sync)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_next_task_works_while_a_file_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, handed = threading.Event(), list[str]()
    syncing(monkeypatch, lambda name: name == "a" and begun.wait(PATIENCE_S))
    stage = Writing(tmp_path, before=lambda name: name == "b" and (begun.set(), handed.append("b begins")))

    def take(task: Task, outcome: list[Record]) -> None:
        assert (tmp_path / "out" / task.shard).exists(), "it is there before it is spoken of"
        handed.append(task.shard)

    outcomes(stage, "abc", take)
    assert handed == ["b begins", "a", "b", "c"]


@pytest.mark.parametrize("at_once", [False, True], ids=["waits", "does not wait any more"])
def test_the_stamp_is_that_of_the_file_that_appeared(at_once: bool, tmp_path: Path) -> None:
    class Stamping(Writing):
        def run_shard(self, task: Task) -> list[Record]:
            records = super().run_shard(task)
            if at_once:
                with publish(f"{self.root}/beside"):
                    pass
            return records

    for name, (record,) in outcomes(Stamping(tmp_path), "ab").items():
        info = files.stat(f"{tmp_path}/out/{name}")
        assert info is not None
        assert record.files[0].stamp == info.stamp


def test_a_file_that_cannot_be_synced_fails_its_shard_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs: list[str] = []

    def broken(name: str) -> None:
        syncs.append(name)
        if name == "b":
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(attempts, "RETRY_SECONDS", 0.0)
    syncing(monkeypatch, broken)
    with pytest.raises(StageError, match=rf"b: .*Input/output error: '{tmp_path}/out/b'"):
        run(Writing(tmp_path), "abcd")
    assert Journal(str(tmp_path), "write").records.keys() == {"out/a", "out/c", "out/d"}
    assert names_in(tmp_path / "out") == ["a", "c", "d"]
    assert syncs.count("b") > 1, "a disk may be back the next time"
    syncing(monkeypatch, str)
    assert run(Writing(tmp_path), "abcd").keys() == {"out/a", "out/b", "out/c", "out/d"}


def test_a_sync_that_fails_once_costs_an_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [OSError(errno.EIO, "Input/output error")]

    def broken_once(name: str) -> None:
        if name == "b" and failures:
            raise failures.pop()

    monkeypatch.setattr(attempts, "RETRY_SECONDS", 0.0)
    syncing(monkeypatch, broken_once)
    ran: list[str] = []
    assert run(Writing(tmp_path, before=ran.append)).keys() == {"out/a", "out/b", "out/c"}
    assert (sorted(ran), names_in(tmp_path / "out")) == (["a", "b", "b", "c"], ["a", "b", "c"])


def test_a_disk_that_is_full_when_it_is_synced_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(name: str) -> None:
        if name == "b":
            raise OSError(errno.ENOSPC, "No space left on device")

    syncing(monkeypatch, full)
    with pytest.raises(DiskFullError, match=rf"{tmp_path}/out: .*expected room for b\. Make room"):
        run(Writing(tmp_path))
    assert "b" not in names_in(tmp_path / "out")
    assert all(not name.startswith(".") for name in names_in(tmp_path / "out"))


def test_a_task_that_fails_leaves_none_of_its_files(tmp_path: Path) -> None:
    def fail(name: str) -> None:
        if name == "b":
            raise ValueError("no")

    found = outcomes(Writing(tmp_path, after=fail), "abc")
    assert isinstance(found["b"], Failure)
    assert names_in(tmp_path / "out") == ["a", "c"]


def test_ctrl_c_keeps_what_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = threading.Event()
    syncing(monkeypatch, lambda name: stopped.wait(PATIENCE_S))

    def stop(name: str) -> None:
        if name == "c":
            stopped.set()
            raise KeyboardInterrupt

    with pytest.raises(InterruptedStageError):
        run(Writing(tmp_path, after=stop))
    assert Journal(str(tmp_path), "write").records.keys() == {"out/a", "out/b"}
    assert names_in(tmp_path / "out") == ["a", "b"]


@pytest.mark.parametrize("limit", [("MAX_WAITING_FILES", 2), ("MAX_WAITING_BYTES", 250)])
def test_no_more_wait_than_may(
    limit: tuple[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, *limit)
    are_too_many, done, gate = batches._are_too_many, list[str](), threading.Event()
    syncing(monkeypatch, lambda name: gate.wait(PATIENCE_S))

    def counted(begun: Any) -> bool:
        if found := are_too_many(begun):
            assert done[:3] == done or gate.is_set()
            gate.set()
        return found

    monkeypatch.setattr(batches, "_are_too_many", counted)
    assert list(outcomes(Writing(tmp_path, after=done.append), "abcdef")) == list("abcdef")
    assert gate.is_set()


def waiting_file(folder: Path, name: str) -> None:
    with publish_later(str(folder / name)) as out:
        out.write(b"x")
    assert not (folder / name).exists()


@pytest.mark.parametrize("what", ["publish", "remove", "remove_tree", "move"])
def test_what_is_done_at_once_comes_after_what_waits(what: str, tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "folder").mkdir()
    with Waiting():
        waiting_file(tmp_path, "a")
        if what == "publish":
            with publish(str(tmp_path / "b")):
                assert not (tmp_path / "a").exists()
        elif what == "move":
            move(str(tmp_path / "old"), str(tmp_path / "new"))
        else:
            getattr(files, what)(str(tmp_path / ("old" if what == "remove" else "folder")))
        assert (tmp_path / "a").read_bytes() == b"x"


def test_a_file_that_waits_can_be_removed(tmp_path: Path) -> None:
    with Waiting() as waiting:
        waiting_file(tmp_path, "a")
        files.remove(str(tmp_path / "a"))
        waiting.appear()
    assert names_in(tmp_path) == []


def test_files_appear_in_the_order_in_which_they_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    appeared: list[str] = []
    replace = Path.replace
    monkeypatch.setattr(
        Path, "replace", lambda self, target: (appeared.append(target.name), replace(self, target))[1]
    )
    with Waiting() as waiting:
        with publish_later(str(tmp_path / "last")):
            waiting_file(tmp_path, "z")
            waiting_file(tmp_path, "b")
        assert len(waiting) == 3
        waiting.appear()
    assert appeared == ["z", "b", "last"]


def test_files_behind_one_that_fails_never_appear(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    with Waiting() as waiting:
        for name in ("a", "c"):
            waiting_file(tmp_path, name)
        with publish_later(str(tmp_path / "b")):
            pass
        waiting_file(tmp_path, "d")
        with pytest.raises(Exception, match="is a folder"):
            waiting.appear()
    assert names_in(tmp_path) == ["a", "b", "c"]


def test_outside_of_tasks_files_appear_at_once(tmp_path: Path) -> None:
    with publish_later(str(tmp_path / "a")):
        pass
    assert names_in(tmp_path) == ["a"]
