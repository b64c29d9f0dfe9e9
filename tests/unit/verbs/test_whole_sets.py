"""Marks that depend on all documents are believed only while these are the documents that they were made of."""

import json
import time
from pathlib import Path

import pytest

import dolma_dask as dk
from dolma_dask.errors import AlignmentError, DataError, StageError, StaleAttributesError

from .conftest import read_lines, write_lines

HERE = {"scheduler": "synchronous", "progress": False}


def document(identity: str, text: str, **metadata: object) -> str:
    return json.dumps({"id": identity, "text": text, "source": "s", "metadata": metadata})


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Two shards with one text in both; the first survives."""
    write_lines(tmp_path / "v0/documents/a.jsonl", [document("a", "twice", url="u1")])
    write_lines(
        tmp_path / "v0/documents/b.jsonl", [document("b", "twice", url="u2"), document("c", "once", url="u3")]
    )
    dk.dedupe(str(tmp_path / "v0"), **HERE)
    return str(tmp_path / "v0")


def kept(root: str, **options: object) -> list[str]:
    to = Path(root).with_name(f"v{time.time_ns()}")
    dk.mix(root, to=str(to), where="exact is None", **HERE, **options)
    return [
        json.loads(line)["text"] for path in sorted((to / "documents").glob("*")) for line in read_lines(path)
    ]


def refused(root: str, **options: object) -> str:
    """Return why mix, read_dataframe and validate do not take the marks."""
    with pytest.raises((DataError, StageError)) as caught:
        kept(root, **options)
    if not options:
        with pytest.raises(DataError):
            dk.read_dataframe(root, ["id", "exact"]).compute(scheduler="synchronous")
        assert dk.validate(root, **HERE).exit_status == 1
    return str(caught.value)


def test_marks_are_taken_while_nothing_changes(root):
    assert kept(root) == ["twice", "once"]
    assert kept(root, only="b") == ["once"]
    assert dk.validate(root, **HERE).exit_status == 0


def test_the_shard_of_a_survivor_is_gone(root):
    (Path(root) / "documents/a.jsonl").unlink()
    assert "documents/a.jsonl is gone" in refused(root)
    (Path(root) / "attributes/exact/a.jsonl").unlink()
    assert "Re-run: dolma-dask dedupe" in refused(root)
    dk.dedupe(root, **HERE)
    assert kept(root) == ["twice", "once"]


def test_a_shard_is_new(root):
    write_lines(Path(root) / "documents/0.jsonl", [document("0", "once")])
    with pytest.raises(DataError, match=r"0\.jsonl"):
        kept(root)
    with pytest.raises(StaleAttributesError, match=r"documents/0\.jsonl is new"):
        kept(root, only="b")


@pytest.mark.parametrize("text", ["other", "longer than it was"])
def test_the_survivor_has_another_text_now(root, text):
    write_lines(Path(root) / "documents/a.jsonl", [document("a", text, url="u1")])
    assert "dedupe" in refused(root)
    with pytest.raises(StaleAttributesError, match=r"documents/a\.jsonl has changed"):
        kept(root, only="b")


def test_marks_by_a_field_of_the_metadata_that_has_changed(root):
    dk.dedupe(root, by="metadata.url", **HERE)
    assert kept(root) == ["twice", "twice", "once"]
    write_lines(Path(root) / "documents/a.jsonl", [document("a", "twice", url="u2")])
    assert "depends on metadata" in refused(root)


def test_marks_that_were_edited(root):
    path = Path(root) / "attributes/exact/b.jsonl"
    lines = read_lines(path)
    write_lines(path, [line.replace("[[0,5,1]]", "[[0,5,2]]") for line in lines])
    assert read_lines(path) != lines
    assert "is not the file that `dedupe` wrote" in refused(root)
    write_lines(path, [line.replace('"exact":[[0,5,1]]', "") for line in lines])
    with pytest.raises(AlignmentError, match="changed"):
        kept(root)
