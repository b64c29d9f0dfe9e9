"""Files for the tests of readers and writers."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest


def stored(name: str, data: bytes) -> bytes:
    """Return `data` as a file called `name` would hold it."""
    if name.endswith(".gz"):
        return gzip.compress(data, mtime=0)
    if name.endswith((".zst", ".zstd")):
        return bytes(pa.Codec("zstd").compress(data, asbytes=True))
    return data


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Write a file, compressed as its name says unless `raw`, and return its URL."""

    def put(name: str, data: bytes, *, raw: bool = False) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if raw else stored(name, data))
        return str(path)

    return put
