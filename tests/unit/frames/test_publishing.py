from pathlib import Path

import dask
import pytest
from partition_worlds import MANY

import dolma_dask as dk
from dolma_dask.engine import Task, Unit
from dolma_dask.errors import CorruptFileError, InterruptedStageError
from dolma_dask.frames.publishing import MoveStage, StagedFiles
from dolma_dask.io import files
from dolma_dask.io.publish import publish
from dolma_dask.io.records import FileRecord
from dolma_dask.journal import Record

HERE = {"scheduler": "synchronous", "progress": False}


def test_attempts_of_one_task_do_not_meet(root, tmp_path):
    """A worker that is lost, or taken for lost: tasks run twice, here with other results, and any of their answers may be used."""
    attempts: list[int] = []

    def marked(part):
        return part.assign(text=f"attempt {sum(attempts)}")

    df, to = dk.read_dataframe(root, partition_bytes=None), tmp_path / "v1"
    task = dk.write_documents(df.map_partitions(marked, meta=df._meta), str(to), compute=False)
    graph = dict(task.dask)
    writers = sorted(key for key in graph if str(key).startswith("write_documents-part"))
    assert not [key for key in graph if isinstance(key, tuple)], "no rows between tasks"
    first = dask.get(graph, writers)
    attempts.append(1)
    second = dask.get(graph, writers)
    finish = graph[task.key].func
    assert finish([first[0], second[1], *first[2:]]).done == 5
    assert finish([first[0], second[1], *first[2:]]).skipped == 5, "the last task too may run twice"
    found = dk.read_dataframe(str(to), ["text"], partition_bytes=None)
    assert [set(found.partitions[number].compute().text) for number in (0, 1)] == [
        {"attempt 0"},
        {"attempt 1"},
    ]
    assert dk.validate(str(to), **HERE).exit_status == 0
    assert not (to / "_work").exists()


@pytest.mark.parametrize("where", ["local", "store"])
def test_a_file_is_moved_once_and_believed_when_it_is_there(tmp_path, where):
    root = str(tmp_path) if where == "local" else f"memory://moved-{tmp_path.name}"
    folder, target = files.join(root, "_work/a"), files.join(root, "b")
    with publish(files.join(folder, "x/1.txt")) as out:
        out.write(b"one")
    task = Task(
        "s",
        (Unit("x/1.txt", "key"),),
        (),
        StagedFiles(folder, (Record("x/1.txt", "s", "", files=(FileRecord("x/1.txt", 3, out.checksum),)),)),
    )
    stage = MoveStage("verb", target)
    (record,) = stage.run_shard(task)
    assert (record.key, files.read_bytes(files.join(target, "x/1.txt"))) == ("key", b"one")
    assert files.stat(files.join(folder, "x/1.txt")) is None
    assert stage.run_shard(task) == [record]
    with publish(files.join(target, "x/1.txt")) as out:
        out.write(b"two")
    with pytest.raises(CorruptFileError, match=r"is gone; .*another call"):
        stage.run_shard(task)


@pytest.mark.slow
def test_collections_in_a_store(root, tmp_path):
    to = f"memory://collections-{tmp_path.name}"
    df = dk.read_dataframe(root, partition_bytes=MANY)
    dk.write_documents(df, to)
    here = tmp_path / "v1"
    dk.write_documents(df, str(here))
    for path in (here / "documents").iterdir():
        assert files.read_bytes(f"{to}/documents/{path.name}") == path.read_bytes()
    there = dk.read_dataframe(to, partition_bytes=None)
    assert dk.write_attributes(there.assign(n=there.text.str.len()), to, "n", partition_bytes=None).done == 10
    assert dk.mix(to, to=f"{to}-1", where="n > 20", **HERE).counts["unproved_attribute_files"] == 0
    assert not [info for info in files.list_files(to) if info.path.startswith("_work")]


def test_a_call_that_is_stopped_leaves_what_was_there(root, tmp_path):
    df = dk.read_dataframe(root, partition_bytes=None)
    dk.write_documents(df, str(tmp_path / "v1"))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def stop(part):
        raise KeyboardInterrupt

    with pytest.raises(InterruptedStageError, match="is as it was"):
        dk.write_documents(df.map_partitions(stop, meta=df._meta), str(tmp_path / "v1"))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert not Path(tmp_path / "v1/_work").exists()
