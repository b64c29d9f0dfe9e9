"""what_if over published signals with the thresholds of the chain counts the documents that the chain kept, at every level and in every language."""

import json
from pathlib import Path
from typing import Any

import pytest

import dolma_dask as dk
from dolma_dask.rules.strictness import LEVELS

pytestmark = pytest.mark.conformance

HERE: Any = {"scheduler": "synchronous", "progress": False}
LANGUAGES = ("de", "en", "es", "fr", "it")


@pytest.fixture(scope="module")
def v0(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The published documents as a dataset, with their signals in Parquet."""
    folder = shared / "conformance/rpv2"
    root = str(tmp_path_factory.mktemp("what_if") / "v0")
    dk.convert([str(folder / "documents")], to=root, mapping="redpajama_v2", **HERE)
    dk.attach(root, str(folder / "quality_signals"), name="rps", format="parquet", **HERE)
    return root


def kept(shared: Path, level: str, language: str) -> int:
    """Documents that the chain kept."""
    path = shared / f"conformance/rpv2/quality_filter/kept_{level}/{language}_quality_filtered_ids.jsonl"
    return len([line for line in path.read_text().splitlines() if json.loads(line)])


def test_levels_keep_what_the_chain_kept(shared: Path, v0: str, tmp_path: Path) -> None:
    file = shared / "conformance/rpv2/quality_filter/thresholds_regular.json"
    answer = dk.what_if(v0, str(file), to=str(tmp_path / "page.html"), **HERE)
    found = {(row.level, row.group): row.kept.documents for row in answer.levels}
    assert [found[level, "all"] for level in LEVELS] == [176, 49, 21, 2]
    assert {key: count for key, count in found.items() if key[1] != "all"} == {
        (level, language): kept(shared, level, language) for level in LEVELS for language in LANGUAGES
    }
    assert answer.groups[0].documents.documents == 489
    assert answer.groups[0].kept.documents == 176
    assert len(answer.rule_names) == 15
