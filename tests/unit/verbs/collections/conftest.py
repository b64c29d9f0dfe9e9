"""Collections for the tests of this folder; `import partition_worlds` finds the datasets of read_dataframe."""

import shutil
import sys
from pathlib import Path

import dask
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "partitions"))

from partition_worlds import ROWS, make_dataset


@pytest.fixture(autouse=True)
def _here():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Path:
    """Gzip files in members of a few rows; not to be changed."""
    return make_dataset(tmp_path_factory.mktemp("collections") / "v0", ROWS)


@pytest.fixture
def root(made, tmp_path) -> str:
    return str(shutil.copytree(made, tmp_path / "v0"))
