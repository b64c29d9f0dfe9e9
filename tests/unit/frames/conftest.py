"""Datasets for the tests of this folder, made once; `import partition_worlds` finds the file beside the tests."""

import shutil
import sys
from pathlib import Path

import dask
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from partition_worlds import FORMATS, ROWS, Parsed, count_parsed, make_dataset


@pytest.fixture(autouse=True)
def _here():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="session")
def worlds(tmp_path_factory) -> dict[tuple[str, str | None], Path]:
    """A dataset for each format of documents and attributes; not to be changed."""
    folder = tmp_path_factory.mktemp("worlds")
    return {pair: make_dataset(folder / f"{pair[0]}-{pair[1]}", ROWS, *pair) for pair in FORMATS}


@pytest.fixture
def gz(worlds) -> str:
    """Gzip files in members of a few rows."""
    return str(worlds["jsonl.gz", None])


@pytest.fixture
def plain(worlds, tmp_path) -> Path:
    """Plain files, which can be cut whatever is done to them."""
    return Path(shutil.copytree(worlds["jsonl", None], tmp_path / "v0"))


@pytest.fixture
def parsed(monkeypatch) -> Parsed:
    """Record all that is parsed in this test."""
    return count_parsed(monkeypatch)


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Path:
    """Gzip files in members of a few rows; not to be changed."""
    return make_dataset(tmp_path_factory.mktemp("collections") / "v0", ROWS)


@pytest.fixture
def root(made, tmp_path) -> str:
    return str(shutil.copytree(made, tmp_path / "v0"))
