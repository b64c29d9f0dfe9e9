"""The dataset card of a mix: what its YAML says, and whose cards stay."""

import json
from pathlib import Path

import fsspec
import pytest
import yaml

import dolma_dask as dk

HERE = {"scheduler": "synchronous", "progress": False}

ROWS = [
    {"id": "1", "source": "s", "text": "a", "metadata": {"x": 1}, "n": 1, "tags": [], "late": None, "ok": True},
    {"id": "2", "source": "s", "text": "b", "metadata": {"y": [2]}, "n": 1.5, "tags": ["t"], "attributes": {"k": [[0, 1, 1]]}},
]  # fmt: skip


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    for name in ("a.jsonl", "x/b.jsonl"):
        path = tmp_path / "v0/documents" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return tmp_path


def front_matter(root: Path) -> dict:
    first, second, *_ = (root / "README.md").read_text().split("---\n", 2)[1:]
    assert second.startswith("\n# ")
    return yaml.safe_load(first)


def test_the_card_names_documents_and_the_types_of_their_fields(corpus):
    dk.mix(str(corpus / "v0"), to=str(corpus / "v1"), **HERE)
    (config,) = front_matter(corpus / "v1")["configs"]
    assert (config["config_name"], config["data_files"][0]["split"]) == ("default", "train")
    patterns = config["data_files"][0]["path"]
    found = [path for one in patterns for path in fsspec.filesystem("file").glob(f"{corpus}/v1/{one}")]
    assert sorted(found) == [f"{corpus}/v1/documents/{name}" for name in ("a.jsonl", "x/b.jsonl")]
    types = {field.pop("name"): field for field in config["features"]}
    usual = ("id", "text", "source", "added", "created", "metadata", "late", "attributes")
    assert types == {
        **{name: {"dtype": "string"} for name in usual},
        "n": {"dtype": "float64"},
        "ok": {"dtype": "bool"},
        "tags": {"sequence": "string"},
    }


def test_tables_and_fields_that_no_type_says(corpus):
    dk.mix(str(corpus / "v0"), to=str(corpus / "v1"), format="parquet", **HERE)
    (config,) = front_matter(corpus / "v1")["configs"]
    assert config["data_files"][0]["path"] == ["documents/*.parquet", "documents/*/*.parquet"]
    assert "features" not in config
    (corpus / "v0/documents/a.jsonl").write_text(json.dumps({**ROWS[0], "tags": [{}]}) + "\n")
    dk.mix(str(corpus / "v0"), to=str(corpus / "v2"), **HERE)
    assert "features" not in front_matter(corpus / "v2")["configs"][0]


def test_a_card_of_somebody_else_stays_and_ours_is_renewed(corpus):
    def mixed(**options):
        return dk.mix(str(corpus / "v0"), to=str(corpus / "v1"), overwrite=True, **options, **HERE)

    card = corpus / "v1/README.md"
    mixed()
    ours = card.read_bytes()
    assert mixed(format="parquet", dry_run=True).planned
    assert card.read_bytes() == ours
    mixed(format="jsonl.gz")
    assert b".jsonl.gz" in card.read_bytes()
    for theirs in (card.read_text().replace("# Documents", "# My corpus"), "# By hand\n"):
        card.write_text(theirs)
        assert "README.md is not the card that this tool writes" in mixed(format="jsonl").notes[-1]
        assert card.read_text() == theirs
    card.unlink()
    assert not dk.mix(str(corpus / "v0"), to=str(corpus / "v1"), format="jsonl", **HERE).notes
    assert card.read_bytes() == ours, "made again where it is missing"


@pytest.mark.slow
@pytest.mark.parametrize("file_format", ["jsonl.gz", "parquet"])
@pytest.mark.parametrize("tool", ["datasets", "duckdb", "polars"])
def test_other_tools_read_the_documents(corpus, tool, file_format):
    package = pytest.importorskip(tool)
    dk.mix(str(corpus / "v0"), to=str(corpus / "v1"), format=file_format, **HERE)
    files = f"{corpus}/v1/documents/**/*.{file_format}"
    if tool == "datasets":
        rows = package.load_dataset(str(corpus / "v1"), split="train", cache_dir=str(corpus / "cache"))
        assert sorted(rows["text"]) == ["a", "a", "b", "b"]
        assert {type(value) for value in rows["metadata"]} == {str}
    elif tool == "duckdb":
        assert package.sql(f"SELECT count(*) FROM '{files}'").fetchall() == [(4,)]
    elif file_format == "parquet":
        assert package.scan_parquet(files).select("text").collect().height == 4
