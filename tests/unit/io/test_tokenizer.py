"""Tokenizers from a path, a folder, a store or as text: the same ids and names, and clear errors."""

from pathlib import Path

import pytest

from dolma_dask.errors import UsageError
from dolma_dask.io.publish import publish
from dolma_dask.io.tokenizer import open_tokenizer
from dolma_dask.testing.tokenizer import train_tokenizer
from dolma_dask.tokens.engine import load_tokenizer
from dolma_dask.tokens.specials import read_config


@pytest.fixture
def local(tmp_path: Path) -> Path:
    train_tokenizer(["one two three", "naïve café"], tmp_path / "tokenizer.json", vocab_size=300)
    return tmp_path / "tokenizer.json"


@pytest.mark.parametrize("name", ["tokenizer.json", "t5.json"])
def test_the_same_as_a_local_file(root: str, local: Path, name: str) -> None:
    with publish(f"{root}/{name}") as out:
        out.write(local.read_bytes())
    places = [f"{root}/{name}", *([root] if name == "tokenizer.json" else [])]
    for place in places:
        found = open_tokenizer(place)
        assert found == load_tokenizer(local)
        assert found.file_name == name
        assert found.max_id == load_tokenizer(local).max_id


def test_the_config_beside_it_counts_too(root: str, local: Path) -> None:
    config = b'{"eos_token": "one"}'
    local.with_name("tokenizer_config.json").write_bytes(config)
    for name, content in (("tokenizer.json", local.read_bytes()), ("tokenizer_config.json", config)):
        with publish(f"{root}/{name}") as out:
            out.write(content)
    assert read_config(open_tokenizer(root)) == read_config(load_tokenizer(local)) == {"eos_token": "one"}


def test_text(local: Path) -> None:
    found = open_tokenizer(local.read_text())
    assert found == load_tokenizer(local)
    assert found.file_name is None


def test_what_cannot_be_read(root: str) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        open_tokenizer(f"{root}/none.json")
    for content, message in ((b"\xff", "cannot be read"), (b"[1]", "cannot be read")):
        with publish(f"{root}/bad.json") as out:
            out.write(content)
        with pytest.raises(UsageError, match=message):
            open_tokenizer(f"{root}/bad.json")
