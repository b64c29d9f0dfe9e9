"""Lists of a mix: what `block` says of them reaches the person who mixes."""

import json
from pathlib import Path

import pytest

import dolma_dask as dk
from dolma_dask.dataset import open_dataset
from dolma_dask.verbs.mix.verb import narrow

from .conftest import write_lines

HERE = {"scheduler": "synchronous", "progress": False}


@pytest.fixture
def world(tmp_path: Path) -> Path:
    lines = [json.dumps({"id": str(row), "source": "s", "text": "t"}) for row in range(3)]
    write_lines(tmp_path / "v0/documents/a.jsonl", lines)
    return tmp_path / "v0"


@pytest.mark.parametrize("kind", ["block", "allow"])
def test_entries_that_match_nothing_are_told(world: Path, kind: str) -> None:
    path = world.parent / "wrong.txt"
    write_lines(path, ["s,1", "s,2"])
    for name in ("v1", "v2"):  # the second time from the journal
        done = dk.mix(str(world), to=str(world.parent / name), **{kind: [str(path)]}, **HERE)
        (note,) = [note for note in done.notes if "no document has" in note]
        assert note.startswith("wrong: no document has 2 of 2 entries of the list, first 's,1'")
        assert "_quarantine/block/wrong.unmatched.jsonl" in note
        assert done.exit_status == 0


def test_documents_that_a_list_could_not_be_compared_with_are_told(world: Path) -> None:
    write_lines(world.parent / "l.txt", ["1"])
    lists = [str(world.parent / "l.txt")]
    options = {"on_bad_record": "quarantine", **HERE}
    assert narrow(open_dataset(str(world)), None, lists, [], None, options).lost is False
    write_lines(world / "documents/b.jsonl", ["nonsense"])
    assert narrow(open_dataset(str(world)), None, lists, [], None, options).lost is True
