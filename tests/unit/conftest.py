"""Fixtures shared by the unit tests."""

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))


@pytest.fixture(params=["local", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A folder on this machine, and one in an object store."""
    if request.param == "local":
        yield str(tmp_path / "root")
        return
    url = f"memory://test-{uuid.uuid4().hex}"
    yield url
    fs, path = fsspec.core.url_to_fs(url)
    if fs.exists(path):
        fs.rm(path, recursive=True)
