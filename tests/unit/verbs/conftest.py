"""Small datasets for the tests of verbs."""

import gzip
import json
from pathlib import Path

import pytest

import dolma_dask as dk

TEXTS = ["one two three", "naïve café", "", "line one\nline two\nline two", "日本語 テキスト", "a " * 60]


def write_lines(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(line + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.name.endswith(".gz") else data)


def read_lines(path: Path) -> list[str]:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.name.endswith(".gz") else data).decode().splitlines()


def document(number: int, **extra: object) -> str:
    text = TEXTS[number % len(TEXTS)]
    return json.dumps({"id": f"d{number}", "text": text, "source": "s", **extra}, ensure_ascii=False)


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Two shards in folders, six and four documents."""
    root = tmp_path / "v0"
    write_lines(root / "documents/x/a.jsonl.gz", [document(number) for number in range(6)])
    write_lines(root / "documents/y/z/b.jsonl.gz", [document(number) for number in range(6, 10)])
    return root


@pytest.fixture
def tagged(dataset: Path) -> Path:
    dk.tag(str(dataset), ["char_length_v1", "whitespace_tokenizer_v1"], progress=False)
    return dataset
