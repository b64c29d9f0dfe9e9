"""Folds: every shard is counted once, sums are joined in the order of the shards, and a shard that cannot be read fails by its name."""

import json
from dataclasses import dataclass
from typing import ClassVar

import pytest
from example_fold import CountSources, sources

from dolma_dask.engine import fold as module
from dolma_dask.engine.fold import fold
from dolma_dask.errors import InterruptedStageError, StageError
from dolma_dask.io.files import Input
from dolma_dask.options.groups import RunOptions

HERE = RunOptions(scheduler="synchronous", progress=False)


@pytest.fixture
def root(tmp_path):
    for shard, names in enumerate(["ab", "b", "", "aab"]):
        path = tmp_path / f"documents/{shard}.jsonl"
        path.parent.mkdir(exist_ok=True)
        rows = [{"id": f"{shard}-{row}", "source": name, "text": ""} for row, name in enumerate(names)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


@pytest.mark.parametrize("tasks", [1, 2, 256])
@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_every_document_is_counted_once_however_shards_share_tasks(root, monkeypatch, tasks, scheduler):
    monkeypatch.setattr(module, "MAX_TASKS", tasks)
    assert sources(str(root), RunOptions(scheduler=scheduler, progress=False)) == {"a": 3, "b": 3}


def test_the_sums_of_no_shards_are_those_of_the_start():
    assert fold(CountSources(), [], HERE) == {}


def test_rows_that_cannot_be_read_are_left_out(root):
    with (root / "documents/1.jsonl").open("a") as file:
        file.write("{broken\n")
    assert sources(str(root), HERE) == {"a": 3, "b": 3}


def test_a_damaged_shard_fails_by_its_name(root):
    (root / "documents/1.jsonl").rename(root / "documents/1.jsonl.gz")
    with pytest.raises(StageError, match=r"1 of 4 shards failed.*1\.jsonl"):
        sources(str(root), HERE)


def test_ctrl_c_stops_it_and_nothing_is_written(root, monkeypatch):
    def stop(self, shard):
        raise KeyboardInterrupt

    monkeypatch.setattr(CountSources, "count", stop)
    with pytest.raises(InterruptedStageError, match="sources was stopped"):
        sources(str(root), HERE)
    assert [path.name for path in root.iterdir()] == ["documents"]


@dataclass(frozen=True)
class Piece:
    name: str
    inputs: tuple[Input, ...] = ()


@dataclass(frozen=True)
class Names:
    """Joins the names of the shards: an order that matters."""

    verb: ClassVar[str] = "names"

    def start(self):
        return ""

    def count(self, piece):
        return piece.name


@pytest.mark.parametrize("arrival", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
def test_sums_are_joined_in_the_order_of_the_shards_whatever_order_they_arrive_in(monkeypatch, arrival):
    def gather(stage, tasks, options, add):
        for index in arrival:
            add(stage.run_shard(tasks[index]))

    monkeypatch.setattr(module, "gather", gather)
    pieces = [Piece("a"), Piece("b"), Piece("c")]
    assert fold(Names(), pieces, HERE) == "abc"
    assert fold(Names(), pieces, HERE, in_order=False) == "".join("abc"[index] for index in arrival)


def test_an_error_that_nobody_foresaw_says_where_it_was_raised(monkeypatch):
    monkeypatch.setattr(Names, "count", lambda names, piece: names.nothing)
    with pytest.raises(StageError, match=r"raised by names of a in .*<lambda> \(test_fold.py, line \d+\)"):
        fold(Names(), [Piece("a")], HERE)
