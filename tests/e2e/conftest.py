"""What the end-to-end tests share: a small world before and after all verbs, made once."""

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from small_world import Verbs

from dolma_dask.testing.verb_laws import Worlds


@pytest.fixture(scope="session")
def worlds(tmp_path_factory) -> Worlds:
    """A world before any verb ran, and one in which all have run in one process, without disturbance."""
    return Verbs.make_worlds(tmp_path_factory.mktemp("worlds"))


@pytest.fixture
def world(worlds, tmp_path) -> Path:
    """A world of one's own, before any verb ran."""
    return Path(shutil.copytree(worlds.before, tmp_path / "world"))


@pytest.fixture
def done(worlds, tmp_path) -> Path:
    """A world of one's own in which every verb has run."""
    return Path(shutil.copytree(worlds.after, tmp_path / "world"))


@pytest.fixture(scope="session")
def expected(worlds) -> dict[str, dict[str, str]]:
    """Digests of all files that each verb must leave below the world, by case."""
    return worlds.expected
