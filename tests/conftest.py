"""Fixtures shared by all tests."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def shared_folder() -> Path:
    """Where the outputs of the original tools lie, if they are on this machine."""
    return Path(os.environ.get("DOLMA_DASK_SHARED", ROOT.parent / "shared"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data; tests that ask for it are skipped where it is missing."""
    folder = shared_folder()
    if not (folder / "conformance").is_dir():
        pytest.skip(f"reference data not found at {folder}; set DOLMA_DASK_SHARED")
    return folder
