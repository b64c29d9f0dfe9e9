"""Clusters joined range by range: those of one array, in few rounds, stopped anywhere or not."""

import json
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dolma_dask as dk
from dolma_dask.engine import Ran, Task, run_job
from dolma_dask.errors import InterruptedStageError
from dolma_dask.exchange import Emitted
from dolma_dask.exchange.contract import to_records, to_words
from dolma_dask.exchange.passes import reduce, scatter
from dolma_dask.options.groups import RunOptions
from dolma_dask.results.summary import Summary
from dolma_dask.verbs.dedupe.fuzzy import merging
from dolma_dask.verbs.dedupe.fuzzy.edges import VERIFIED, EdgeReducer
from dolma_dask.verbs.dedupe.fuzzy.merging import ArrayMerger, MemoryStage, memory_note, merger_of
from dolma_dask.verbs.dedupe.fuzzy.ranges import RangeMerger, Ranges, RangeStage, ranges_of
from unit.minhash.test_ranges import FORMS, NODES

from .conftest import failing, write_lines
from .test_dedupe_fuzzy import documents_of, in_groups_of, make_world, rows_of

HERE = {"scheduler": "synchronous", "progress": False}


class _Pairs:
    """Sends a key with two documents for each edge of a task."""

    dtype = np.dtype([("key", "<u8"), ("docno", "<u8")])

    def emit(self, task, out, folder):
        edges = task.work.astype(np.uint64)
        words = np.empty((len(edges), 2, 2), np.uint64)
        words[:, :, 0] = (np.arange(len(edges), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))[:, None]
        words[:, :, 1] = edges
        out(words.reshape(-1, 2).view(self.dtype).reshape(-1))
        return Emitted((), 0)


class _Verified:
    """Gives out edges with matches that depend on both documents."""

    dtype = VERIFIED

    def reduce(self, runs, out):
        def given(edges):
            words = to_words(edges, edges.dtype)
            matches = (words.sum(axis=1) * np.uint64(7)) % np.uint64(100)
            out(to_records(np.column_stack([words, matches]), VERIFIED))

        return EdgeReducer(1).reduce(runs, given)


@dataclass(frozen=True)
class Joining:
    """Joins edges, group after group; `found` takes the merger, labels and matches."""

    root: str
    documents: int
    groups: Any
    how: Any  # ranges; None: one array
    is_verified: bool
    found: list
    name: str = "joining"
    key: str = "joining"

    verb: ClassVar[str] = "joining"
    record: ClassVar[None] = None
    writes: ClassVar[tuple] = ()
    inputs: ClassVar[tuple] = ()

    def outputs(self, known, overwrite):
        """Leave it to the passes."""

    def passes(self, work, known):
        merger = (
            RangeMerger(work, self.how, self.is_verified) if self.how else ArrayMerger(work, self.documents)
        )
        for number, edges in enumerate(self.groups):
            keys = yield from scatter(work, _Pairs(), [Task("edges", (), (), edges)], name=f"keys-{number}")
            reducer = merger.taking(_Verified() if self.is_verified else EdgeReducer(1))
            named = merger.named(f"edges-{number}")
            reduced = yield from reduce(work, reducer, keys, name=named, cut=merger.cut)
            yield from merger.add(reduced.staged, number == len(self.groups) - 1)
        labels = yield from merger.labels()
        numbers = labels.read(work.url, 0, self.documents), labels.read_matches(work.url, 0, self.documents)
        middle = self.documents // 3
        assert labels.read(work.url, middle, 3).tolist() == numbers[0][middle : middle + 3].tolist()
        self.found[:] = [merger, *(each.tolist() for each in numbers)]
        return Ran(Summary(self.verb, self.root), {})

    def summarize(self, ran, known):
        return ran.summary


def joined(root, documents, groups, how=None, is_verified=False):
    """Return the merger, the labels and the most matches of all documents."""
    found = []
    options = RunOptions(**HERE)
    run_job(Joining(str(root), documents, groups, how, is_verified, found), options)
    assert not list(root.glob("_work/*"))
    return found


@pytest.mark.slow
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_labels_and_matches_are_those_of_one_array(tmp_path, data):
    documents = data.draw(st.integers(6, 60))
    node = st.integers(0, documents - 1)
    pairs = st.lists(st.tuples(node, node).filter(lambda pair: pair[0] != pair[1]), max_size=40)
    groups = data.draw(st.lists(pairs, min_size=1, max_size=3))
    is_verified = data.draw(st.booleans())
    if is_verified:
        groups = [[pair for group in groups for pair in group]]
    groups = [np.array(group, np.uint64).reshape(-1, 2) for group in groups]
    ranges = Ranges(documents, data.draw(st.integers(0, 6)))
    expected = joined(tmp_path, documents, groups, None, is_verified)
    found = joined(tmp_path, documents, groups, ranges, is_verified)
    assert found[1:] == expected[1:]


@pytest.mark.slow
@pytest.mark.parametrize(("form", "bits"), [("chain", 6), ("comb", 6), ("shuffled chain", 9), ("grid", 9)])
def test_long_ways_are_joined_in_few_rounds(tmp_path, form, bits):
    merger, *found = joined(tmp_path, NODES, [FORMS[form]], Ranges(NODES, bits))
    assert found == joined(tmp_path, NODES, [FORMS[form]])[1:]
    steps = merger.cut.count.bit_length()
    labels = 1 + 2 * (steps + 1)  # two passes for each halving
    edges = (
        1 if form == "chain" else 2 * (steps + 1)
    )  # those that follow a way wait for it to become short once
    assert merger.rounds <= edges + 2 * labels


@pytest.mark.slow
@pytest.mark.parametrize("is_verified", [False, True])
def test_a_run_that_was_stopped_in_any_round_goes_on_from_there(tmp_path, is_verified):
    rng = np.random.default_rng(5)
    groups = list(np.split(rng.permutation(60)[: 2 * 24].reshape(-1, 2), 2))
    groups.append(np.array([[0, 50], [50, 31], [31, 20], [20, 10], [59, 10]]))
    groups = [np.concatenate(groups)] if is_verified else groups
    ranges, calls = Ranges(60, 4), []
    with failing(RangeStage, at=lambda task: calls.append(task.shard)):
        whole = joined(tmp_path, 60, groups, ranges, is_verified)[1:]
    assert whole == joined(tmp_path, 60, groups, None, is_verified)[1:]
    every = len(calls)
    assert every > 12
    for stop in range(every):
        calls.clear()

        def at(task, stop=stop, calls=calls):
            calls.append(task.shard)
            return len(calls) == stop + 1

        with failing(RangeStage, at=at), pytest.raises(InterruptedStageError):
            joined(tmp_path, 60, groups, ranges, is_verified)
        with failing(RangeStage, at=lambda task, calls=calls: calls.append(task.shard)):
            assert joined(tmp_path, 60, groups, ranges, is_verified)[1:] == whole
        assert len(calls) == every + 1  # nothing that was done is done again


HOW = {
    "bands": {"verify": "none"},
    "loose": {"verify": "none", "num_bands": 25, "rows_per_band": 2},
    "signatures": {"keep": "longest"},
    "ngrams": {"verify": "ngrams"},
}


@pytest.mark.slow
@pytest.mark.parametrize("how", HOW)
def test_ranges_change_no_byte(tmp_path, monkeypatch, how):
    in_groups_of(16 * 96 * 6, monkeypatch)
    written = []
    for merge_bytes in (None, 200, 64):
        root = make_world(tmp_path / str(merge_bytes))
        summary = dk.dedupe(str(root), how="fuzzy", merge_bytes=merge_bytes, **HOW[how], **HERE)
        assert not list(root.glob("_work/*"))
        assert any("joined to clusters in" in note for note in summary.notes) == bool(merge_bytes)
        written.append((rows_of(root), (root / "clusters/fuzzy.parquet").read_bytes(), summary.clusters))
    assert written[1] == written[0]
    assert written[2] == written[0]


@pytest.mark.slow
def test_ranges_of_several_datasets(tmp_path):
    written = []
    for merge_bytes in (None, 100):
        root = make_world(tmp_path / str(merge_bytes))
        other = root.with_name("other")
        texts = [json.dumps({**one, "id": f"o{at}"}) for at, one in enumerate(documents_of(root)[::3])]
        write_lines(other / "documents/0.jsonl.gz", texts)
        dk.dedupe(str(root), how="fuzzy", others=[str(other)], merge_bytes=merge_bytes, **HERE)
        table = pq.read_table(root / "clusters/fuzzy.parquet")
        written.append((rows_of(root), rows_of(other), table.to_pylist()))
    assert written[0] == written[1]
    assert any("fuzzy" in attributes for _, attributes in written[0][1])


def test_a_run_that_was_stopped_goes_on_with_other_workers_in_the_same_way(tmp_path):
    root = make_world(tmp_path)
    done = []
    with (
        failing(RangeStage, at=lambda task: done.append(task) or len(done) == 20),
        pytest.raises(InterruptedStageError),
    ):
        dk.dedupe(str(root), how="fuzzy", merge_bytes=64, **HERE)
    before = len(done)
    with failing(RangeStage, at=lambda task: done.append(task)):
        dk.dedupe(str(root), how="fuzzy", merge_bytes=1 << 30, **HERE)
    assert len(done) > before  # in ranges, although one array would do
    whole = make_world(tmp_path / "whole")
    dk.dedupe(str(whole), how="fuzzy", **HERE)
    assert rows_of(root) == rows_of(whole)


# ------------------------------------------------------------------------------------------------ the rule


def chosen(work, documents, memory, *given):
    """Return the way of edges where a worker has so much memory."""
    asked = merger_of(work, documents, *given)
    try:
        step = next(asked)
        assert isinstance(step.stage, MemoryStage)
        asked.send([memory])
    except StopIteration as end:
        return end.value
    raise AssertionError("one question is enough")


@pytest.fixture
def work(tmp_path):
    from dolma_dask.engine import WorkDir

    return WorkDir(str(tmp_path), "dedupe", "fuzzy", "key")


def test_one_array_may_take_half_of_a_worker(work):
    billion = 1_000_000_000
    assert isinstance(chosen(work, billion, 8_000_000_000, False, None), ArrayMerger)
    ranged = chosen(work, billion, 7_999_999_999, False, None)
    assert ranged.ranges == Ranges(billion, 24)
    assert isinstance(chosen(work, billion, 8_000_000_000, True, None), RangeMerger)
    assert isinstance(chosen(work, 16_000_000, 1, False, None), ArrayMerger)  # any worker has that
    assert chosen(work, 1000, 1, False, 100).ranges == Ranges(1000, 4)
    assert isinstance(chosen(work, 1000, 1, False, 4000), ArrayMerger)


@pytest.mark.parametrize("documents", [1, 2, 1000, 1_800_000_000, 20_800_000_000, 10**12])
def test_ranges_are_neither_large_nor_many(documents):
    for most in (1, 1000, 1 << 40):
        ranges = ranges_of(documents, most, 24)
        assert ranges.cut.count <= 4096
        assert (
            sum(ranges.rows(number) for number in {0, ranges.cut.count - 1}) <= documents
            or ranges.cut.count == 1
        )
        assert (ranges.cut.count - 1) << ranges.bits < documents <= ranges.cut.count << ranges.bits
        assert ranges.bits <= 24 or ranges.cut.count > 2048


def test_a_rehearsal_tells_the_rule():
    assert memory_note(1000, True, None) == "6.00 kB of memory in one worker beside what every worker needs"
    assert memory_note(1_800_000_000, False, None) == (
        "7.20 GB of memory in one worker beside what every worker needs, if that is at most half of the worker's memory; else 134 MB in each worker, since "
        "documents are joined in 108 ranges"
    )
    assert memory_note(1_800_000_000, False, 1 << 30).startswith("134 MB in each worker")


def test_memory_is_that_of_the_worker():
    assert MemoryStage().run_shard(Task("memory", (), ())) == merging.memory_limit() > 0
