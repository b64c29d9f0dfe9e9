"""Many small shards: what is asked of the file system grows with them as they do, and does not with earlier runs."""

import gc
import pickle
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import dolma_dask as dk
from dolma_dask.engine import LazyTasks, attempts, runs
from dolma_dask.journal import Journal, Record, journals
from dolma_dask.pages.survey import Survey

from .verbs.conftest import document, write_lines

ASKED = {"open", "os.scandir", "os.listdir", "os.remove", "os.rename", "os.mkdir"}
"""Events that a process is told of."""

OPTIONS: dict[str, Any] = {"scheduler": "synchronous", "progress": False}

VERBS: dict[str, Callable[[str], Any]] = {
    "tag": lambda root: dk.tag(f"{root}/v0", ["char_length_v1"], **OPTIONS),
    "mix": lambda root: dk.mix(f"{root}/v0", to=f"{root}/v1", where="length >= 1", **OPTIONS),
    "validate": lambda root: dk.validate(f"{root}/v0", **OPTIONS),
    "dedupe": lambda root: dk.dedupe(f"{root}/v0", **OPTIONS),
    "status": lambda root: dk.status(f"{root}/v0"),
}

_counters: list[Counter[str]] = []


def _count(event: str, given: tuple[object, ...]) -> None:
    if _counters and event in ASKED and "site-packages" not in str(given[0]):
        _counters[-1][event] += 1


sys.addaudithook(_count)


@contextmanager
def counted() -> Iterator[Counter[str]]:
    _counters.append(Counter())
    try:
        yield _counters[-1]
    finally:
        _counters.pop()


def asked(root: Path, shards: int) -> dict[str, Counter[str]]:
    """Return what each verb asks, and what it asks again with nothing left to do."""
    for number in range(shards):
        write_lines(
            root / f"v0/documents/{number:04d}.jsonl.gz", [document(3 * number + n) for n in range(3)]
        )
    found = {}
    for verb, run in VERBS.items():
        for name in verb, f"{verb} again":
            with counted() as found[name]:
                run(str(root))
    return found


@pytest.fixture
def _one_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """However fast this machine is, journals are written once, and one that was read is not read again."""
    monkeypatch.setattr("dolma_dask.journal.writer.FLUSH_SECONDS", 1e6)
    monkeypatch.setattr("dolma_dask.io.files._SETTLED_SECONDS", 0.0)


@pytest.mark.usefixtures("_one_flush")
def test_requests_are_linear_in_shards(tmp_path: Path) -> None:
    asked(tmp_path / "warm", 2)
    few, some, many = (asked(tmp_path / f"{shards}", shards) for shards in (8, 16, 24))
    for name in few:
        for event in ASKED:
            first, second = some[name][event] - few[name][event], many[name][event] - some[name][event]
            assert second <= first + 2, f"{name}: {event}, {few[name]}, {some[name]}, {many[name]}"
    for name in ("tag again", "mix again", "dedupe again", "status", "status again"):
        assert many[name]["open"] <= some[name]["open"] + 2, (
            f"{name} opens files of finished shards: {few[name]}, {some[name]}, {many[name]}"
        )


@pytest.mark.usefixtures("_one_flush")
def test_requests_do_not_grow_with_earlier_runs(tmp_path: Path) -> None:
    asked(tmp_path, 4)
    again = []
    for _ in range(4):
        with counted() as found:
            dk.tag(f"{tmp_path}/v0", ["char_length_v1"], overwrite=True, **OPTIONS)
        again.append(found)
    assert again[-1].total() <= again[1].total(), (
        f"{again}"
    )  # before the first, `status` has read the journal


def made(root: Path, shards: int = 5) -> None:
    """Make small shards, one of them empty, with what `tag`, `mix` and `validate` make of them."""
    for number in range(shards):
        rows = range(3 * number, 3 * number + (3 if number != 1 else 0))
        lines = [document(row, source="ab"[row % 2]) for row in rows]
        write_lines(root / f"v0/documents/{number:04d}.jsonl.gz", lines)
    for verb in ("tag", "mix", "validate"):
        VERBS[verb](str(root))


MAX_HELD = 1_350
"""Bytes of Python's objects for each shard when a first mix ends, where shards are very many: packed records of two journals 570, what is listed 250, names and sets 450."""


def test_a_first_mix_holds_little_of_each_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "journal.kept.UNPACKED", "io.listing.FEW", "journal.REMEMBERED_BYTES":
        monkeypatch.setattr(f"dolma_dask.{name}", 10)
    # records are packed beside the first that a process packs, which another test may have made
    monkeypatch.setattr("dolma_dask.journal.kept._packings", {})
    held: list[int] = []
    wait = runs._wait_for_outputs

    def looked(each: runs.Running) -> None:
        wait(each)
        gc.collect()
        held.append(tracemalloc.get_traced_memory()[0])

    monkeypatch.setattr(runs, "_wait_for_outputs", looked)
    sizes = 200, 200, 800  # the first is to load what is loaded once
    for number, shards in enumerate(sizes):
        for at in range(shards):
            write_lines(tmp_path / f"{number}/v0/documents/{at:04d}.jsonl.gz", [document(at)])
        VERBS["tag"](f"{tmp_path}/{number}")
        tracemalloc.start()
        VERBS["mix"](f"{tmp_path}/{number}")
        tracemalloc.stop()
    assert (held[-1] - held[-3]) / (sizes[-1] - sizes[-2]) < MAX_HELD, held


def test_outlines_of_lazy_tasks_are_the_tasks_without_their_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[LazyTasks[Any]] = []
    make = LazyTasks.__init__

    def remembered(self: LazyTasks[Any], *given: Any) -> None:
        make(self, *given)
        found.append(self)

    monkeypatch.setattr(LazyTasks, "__init__", remembered)
    made(tmp_path)
    assert {task.work is None for tasks in [*found] for task in tasks.outlines} == {True, False}
    for tasks in [*found]:
        plain = [replace(task, work=None) for task in tasks]
        assert [replace(task, work=None) for task in tasks.outlines] == plain
        assert [replace(task, work=None) for task in tasks[1:]] == plain[1:]
        assert [replace(task, work=None) for task in pickle.loads(pickle.dumps(tasks))] == plain


def test_journals_that_name_no_file_are_not_read_for_files(tmp_path: Path) -> None:
    made(tmp_path)
    root = f"{tmp_path}/v0"
    assert [journal.verb for journal in journals(root)] == ["tag", "validate"]
    assert [journal.verb for journal in journals(root, of_files=True)] == ["tag"]
    Journal(root, "ours").append(Record("attributes/x/", "", "k"))  # of no run that could tell
    assert [journal.verb for journal in journals(root, of_files=True)] == ["ours", "tag"]


def test_a_report_counts_small_shards_as_one_as_it_counts_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path)
    joined = Survey.count_joined
    pairs: list[tuple[Any, Any]] = []

    def both(self: Survey, works: Any) -> Any:
        pairs.append((joined(self, works), reduce(add, map(self.count, works))))
        return pairs[-1][0]

    monkeypatch.setattr("dolma_dask.engine.fold.MAX_TASKS", 2)
    monkeypatch.setattr(Survey, "count_joined", both)
    for name in "v0", "v1":
        dk.report(f"{tmp_path}/{name}", to=f"{tmp_path}/{name}.html", **OPTIONS)
    assert len(pairs) == 4
    for one, alone in pairs:
        for field in one.__struct_fields__:
            assert repr(getattr(one, field)) == repr(getattr(alone, field)), field


def test_a_mistake_in_counting_several_shards_as_one_costs_no_sum_and_is_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made(tmp_path)
    root = f"{tmp_path}/v0"
    before = dk.report(root, to=f"{tmp_path}/before.html", **OPTIONS)

    def mistaken(self: Survey, works: Any) -> Any:
        raise KeyError("a mistake")

    monkeypatch.setattr("dolma_dask.engine.fold.MAX_TASKS", 2)
    monkeypatch.setattr(Survey, "count_joined", mistaken)
    with caplog.at_level("DEBUG", attempts.__name__):
        after = dk.report(root, to=f"{tmp_path}/after.html", **OPTIONS)
    assert before.counts == after.counts
    assert {record.exc_info[0] for record in caplog.records if record.exc_info} == {KeyError}
