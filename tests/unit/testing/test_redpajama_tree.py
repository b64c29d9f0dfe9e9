"""The synthetic tree of RedPajama-V2: the same for the same seed, and such that its tables meet their documents, with all that is wrong in it."""

import pyarrow.parquet as pq
import pytest

import dolma_dask as dk
from dolma_dask.errors import StageError
from dolma_dask.testing import redpajama_tree
from dolma_dask.testing.redpajama_tree import write_tree

HERE = {"progress": False, "scheduler": "synchronous"}


@pytest.fixture
def small(monkeypatch):
    """Two languages in one shard, with more of what is rare."""
    monkeypatch.setattr(redpajama_tree, "SNAPSHOTS", ("2023-06",))
    monkeypatch.setattr(redpajama_tree, "SHARDS", 1)
    monkeypatch.setattr(redpajama_tree, "LETTERS", {"en": "", "de": "uüoö"})
    monkeypatch.setattr(redpajama_tree, "_UNREADABLE", 0.1)
    monkeypatch.setattr(redpajama_tree, "_MISSING", 0.2)


def files_of(folder):
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.mark.slow
def test_the_same_seed_makes_the_same_tree(tmp_path, small):
    trees = [write_tree(tmp_path / name, 0.1, seed) for name, seed in (("a", 1), ("b", 1), ("c", 2))]
    assert trees[0] == trees[1] != trees[2]
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b") != files_of(tmp_path / "c")


@pytest.mark.slow
def test_tables_meet_their_documents(tmp_path, small):
    tree = write_tree(tmp_path / "tree", 0.3, seed=3)
    assert tree.text_bytes > 300_000
    assert min(tree.unreadable, tree.duplicates, len(tree.broken), len(tree.missing)) > 0
    (broken,) = tree.broken
    with pytest.raises(StageError, match=broken):
        dk.convert(str(tmp_path / "tree/documents"), to=str(tmp_path / "v0"), mapping="redpajama_v2", **HERE)
    shards = sorted((tmp_path / "v0/documents").rglob("*.jsonl.gz"))
    assert len(shards) == 5
    signals, duplicates = (
        dk.attach(
            str(tmp_path / "v0"), str(tmp_path / "tree" / name), name=name[:4], missing="null", **HERE
        ).counts
        for name in ("quality_signals", "duplicates")
    )
    assert signals["rows_without_document"] == duplicates["rows_without_document"] == 0
    assert 0 < duplicates["duplicates"] <= tree.duplicates
    assert signals["documents_without_row"] > 0


def test_signatures_are_published_ones(tmp_path, small):
    write_tree(tmp_path, 0.1)
    table = pq.read_table(next(tmp_path.glob("minhash/**/*.parquet")))
    assert table.schema.equals(redpajama_tree.MINHASH_SCHEMA)
    assert [len(band) for band in table["signature_sim0.8"][0].as_py()] == [52] * 9
