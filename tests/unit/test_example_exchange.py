"""Verbs by exchange: flags depend on all documents, bad rows keep their place, and what was stopped goes on."""

import json
from collections import Counter
from pathlib import Path

import pytest
from example_exchange import (
    COLUMNS,
    NAME,
    FirstWordEmitter,
    SharedSink,
    SharedWords,
    find_columns,
    flag_shared,
    open_dataset,
    run_job,
)

import dolma_dask as dk
from dolma_dask.errors import InterruptedStageError, StageError, UsageError
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.journal import Journal
from dolma_dask.options.groups import RunOptions

HERE = RunOptions(scheduler="synchronous", progress=False)
TEXTS = {"a": ["the cat", "a dog", "", "the end"], "b": [], "c": ["once", "a"]}
FLAGGED = [[True, True, False, True], [], [False, True]]


@pytest.fixture
def root(tmp_path) -> Path:
    for shard, texts in TEXTS.items():
        path = tmp_path / f"documents/{shard}.jsonl"
        path.parent.mkdir(exist_ok=True)
        rows = [{"id": f"{shard}{row}", "source": "s", "text": text} for row, text in enumerate(texts)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def run(root, on_bad_record="fail"):
    return flag_shared(str(root), HERE, RecordPolicy(on_bad_record))


def flags(root):
    paths = sorted((root / f"attributes/{NAME}").iterdir())
    rows = [[json.loads(line) for line in path.read_text().splitlines()] for path in paths]
    return [[NAME in row["attributes"] for row in shard] for shard in rows]


def test_flags_are_written_once_and_readers_believe_them(root, monkeypatch):
    summary = run(root)
    assert flags(root) == FLAGGED
    assert (summary.done, summary.counts["shared"], summary.counts["documents_in"]) == (3, 4, 6)
    assert (
        dk.mix(str(root), to=str(root.parent / "v1"), where=f"{NAME} is None", **vars(HERE)).counts[
            "documents_out"
        ]
        == 2
    )
    assert not (root / "_work").exists()
    monkeypatch.setattr(DocumentFile, "__iter__", None)
    assert (run(root).done, run(root).skipped) == (0, 3)


def test_a_change_in_one_shard_makes_all_flags_anew(root):
    run(root)
    keys = {record.key for record in Journal(str(root), "shared").records.values()}
    path = root / "documents/c.jsonl"
    path.write_text(path.read_text().replace("once", "twice"))
    assert run(root).done == 3
    assert len({record.key for record in Journal(str(root), "shared").records.values()} - keys) == 1


@pytest.mark.parametrize("step", ["emit", "write"])
def test_what_was_stopped_goes_on(root, monkeypatch, step):
    calls = Counter()
    stopped, method = {"emit": (FirstWordEmitter, "records"), "write": (SharedSink, "write")}[step]
    with monkeypatch.context() as patch:
        patch.setattr(stopped, method, _failing_second(getattr(stopped, method), calls))
        with pytest.raises(InterruptedStageError):
            run(root)
    run(root)
    assert flags(root) == FLAGGED


def _failing_second(call, calls):
    def fail(*arguments):
        calls["all"] += 1
        if calls["all"] == 2:
            raise KeyboardInterrupt
        return call(*arguments)

    return fail


def test_a_bad_row_fails_or_keeps_its_place(root):
    path = root / "documents/a.jsonl"
    path.write_text("nonsense\n" + path.read_text())
    with pytest.raises(StageError, match="row 0"):
        run(root)
    assert run(root, "quarantine").counts["bad_records"] == 1
    assert flags(root) == [[False, *FLAGGED[0]], *FLAGGED[1:]]
    assert (root / "_quarantine/shared/a.jsonl.jsonl").exists()


def test_attributes_of_some_shards_are_refused(root):
    some = open_dataset(str(root)).select(prune=1)
    job = SharedWords(
        dataset=open_dataset(str(root)),
        selected=some,
        columns=find_columns(some, COLUMNS),
        name=NAME,
        policy=RecordPolicy(),
    )
    with pytest.raises(UsageError, match="shared was given 1 of 3 shards; expected all"):
        run_job(job, HERE)
    assert not (root / "attributes").exists()
