"""Small datasets for the tests of verbs."""

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import dolma_dask as dk
from dolma_dask.io import files
from dolma_dask.io.records import FileRecord
from dolma_dask.journal import Journal
from dolma_dask.testing.tokenizer import train_tokenizer

from .report_pages import drawn

TEXTS = ["one two three", "naïve café", "", "line one\nline two\nline two", "日本語 テキスト", "a " * 60]


def write_lines(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(line + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.name.endswith(".gz") else data)


def read_lines(path: Path) -> list[str]:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.name.endswith(".gz") else data).decode().splitlines()


def write_as_tagged(root: Path, name: str, lines: list[str]) -> None:
    """Write an attribute file with other rows, as if `tag` had made it so."""
    path = root / name
    write_lines(path, lines)
    journal, stored = Journal(str(root), "tag"), files.stat(str(path))
    record = journal.by_file()[name]
    file = FileRecord(name, stored.bytes, files.checksum(str(path)), len(lines), stamp=stored.stamp)
    journal.append(msgspec.structs.replace(record, files=(file,)))


def document(number: int, **extra: object) -> str:
    text = TEXTS[number % len(TEXTS)]
    return json.dumps({"id": f"d{number}", "text": text, "source": "s", **extra}, ensure_ascii=False)


@contextmanager
def failing(
    stage: type,
    error: type[BaseException] = KeyboardInterrupt,
    at: Callable[[Any], object] = lambda task: True,
    method: str = "run_shard",
) -> Iterator[None]:
    """Let a stage fail at some tasks, all by default, while the block runs."""
    run = getattr(stage, method)

    def fail(self: Any, task: Any, *more: Any) -> Any:
        if at(task):
            raise error("stopped here")
        return run(self, task, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, method, fail)
        yield


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


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the drawing of a report out."""
    monkeypatch.setattr("dolma_dask.pages.page.render", drawn)


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Path of a tokenizer that was trained on the texts."""
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    train_tokenizer(TEXTS, path, vocab_size=400)
    return str(path)
