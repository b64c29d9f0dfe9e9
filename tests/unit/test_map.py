"""Maps: every row of a shard reaches the sinks that lack something; bad rows keep their place, and what is finished is not read again."""

import json
from pathlib import Path

import pytest
from example_map import NAME, ShoutSink, shout

from dolma_dask.errors import DataError, StageError
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.journal import Journal
from dolma_dask.options.groups import RunOptions

HERE = RunOptions(scheduler="synchronous", progress=False)
TEXTS = {"a": ["Stop!", "now", "No! No!"], "b": [], "c": ["!"]}


@pytest.fixture
def root(tmp_path) -> Path:
    for shard, texts in TEXTS.items():
        path = tmp_path / f"documents/{shard}.jsonl"
        path.parent.mkdir(exist_ok=True)
        rows = [{"id": f"{shard}{row}", "source": "s", "text": text} for row, text in enumerate(texts)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def run(root, on_bad_record="fail"):
    return shout(str(root), HERE, RecordPolicy(on_bad_record))


def rows_of(root, shard):
    lines = (root / f"attributes/{NAME}/{shard}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_each_shard_is_read_once_and_has_a_record(root, monkeypatch):
    summary = run(root)
    assert (summary.done, summary.counts["shouts"], summary.counts["documents_in"]) == (3, 4, 4)
    assert [row["attributes"][NAME] for row in rows_of(root, "a")] == [1, 0, 2]
    record = Journal(str(root), "shout").records[f"attributes/{NAME}/a.jsonl"]
    assert (record.rows, len(record.ids_digest), len(record.content_digest)) == (3, 32, 32)
    monkeypatch.setattr(DocumentFile, "__iter__", None)
    assert run(root).skipped == 3


def test_a_row_that_cannot_be_read_keeps_its_place_or_fails_the_shard(root):
    with (root / "documents/c.jsonl").open("a") as file:
        file.write("{broken\n")
    with pytest.raises(StageError, match="1 of 3 shards failed"):
        run(root)
    assert not (root / f"attributes/{NAME}/c.jsonl").exists()
    summary = run(root, "quarantine")
    assert (summary.counts["bad_records"], summary.exit_status) == (1, 1)
    assert [row["id"] for row in rows_of(root, "c")] == ["c0", None]
    assert "expected" in rows_of(root, "c")[1]["error"]
    (kept,) = (root / "_quarantine/shout").iterdir()
    assert json.loads(kept.read_text())["row"] == 1


def test_a_sink_that_fails_leaves_no_file(root, monkeypatch):
    def refuse(sink, block):
        raise DataError("no")

    write = ShoutSink.write
    monkeypatch.setattr(ShoutSink, "write", refuse)
    with pytest.raises(StageError, match="2 of 3 shards failed"):
        run(root)
    assert [path.name for path in (root / f"attributes/{NAME}").iterdir()] == ["b.jsonl"]
    monkeypatch.setattr(ShoutSink, "write", write)
    run(root)
    assert [row["attributes"][NAME] for row in rows_of(root, "a")] == [1, 0, 2]
