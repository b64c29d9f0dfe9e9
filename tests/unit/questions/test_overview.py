"""Overview of a dataset in a notebook: documents, attribute sets, journals; it never raises."""

import json
import shutil

import pytest

import dolma_dask as dk
from dolma_dask.dataset import Dataset, Shard
from dolma_dask.questions.status import overview

HERE = {"scheduler": "synchronous", "progress": False}


@pytest.fixture
def root(tmp_path):
    for name, count in (("a/one", 1), ("a/two", 5), ("b<i>/three", 20)):
        path = tmp_path / f"v0/documents/{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (json.dumps({"id": f"{name}{n}", "text": "some words", "source": "s"}) for n in range(count))
        path.write_text("\n".join(lines) + "\n")
    return tmp_path / "v0"


def test_folders_come_by_size_and_attribute_sets_with_who_made_them(root):
    dk.tag(str(root), ["char_length_v1"], experiment="own", **HERE)
    shutil.copytree(root / "attributes/own", root / "attributes/other")
    next((root / "attributes/own/a").glob("one*")).unlink()
    page = dk.open_dataset(str(root))._repr_html_()
    assert page.index("b&lt;i&gt;/: 1 shard") < page.index("a/: 2 shards") < page.index("two.jsonl")
    assert "<td>own</td><td>tag: char_length_v1</td><td align='right'>2</td>" in page
    assert "<td>other</td><td>another tool</td>" in page


@pytest.mark.parametrize("line", ['{"format":2,"unit":"attributes/own/a', "\0\xff", '{"kind":"run"}', "[1]"])
def test_a_damaged_journal_is_shown_as_such(root, line):
    dk.tag(str(root), ["char_length_v1"], **HERE)
    (root / "_journal/tag/0-0.jsonl").write_text(f"{line}\n", encoding="latin-1")
    assert "_journal/tag/0-0.jsonl: 1 line" in dk.open_dataset(str(root))._repr_html_()


def test_what_cannot_be_read_is_a_note(root):
    dataset = dk.open_dataset(str(root))
    shutil.rmtree(root)
    assert "cannot be told: UsageError" in dataset._repr_html_()


def test_many_shards_are_counted_and_their_journals_left_alone(monkeypatch):
    monkeypatch.setattr(overview, "MAX_CHECKED", 100)
    shards = tuple(Shard(f"{n % 20}/{n % 3}/{n:04d}.jsonl", 10, "") for n in range(200))
    page = Dataset("/nowhere", shards)._repr_html_()
    assert "200 shards, 2.00 kB" in page
    assert "and 12 more, 1.20 kB" in page
    assert "dk.status(dataset) tells it" in page
    assert len(page) < 20_000
