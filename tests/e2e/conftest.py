"""What the end-to-end tests share: a small world before and after all verbs, and the corpus of the demo, made once."""

import fcntl
import os
import pickle
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from small_world import Verbs

import dolma_dask as dk
from dolma_dask.testing.verb_laws import Worlds

T = TypeVar("T")
Once = Callable[[str, Callable[[Path], T]], T]


@pytest.fixture(scope="session")
def once(tmp_path_factory) -> Once:
    """A function that returns what another makes in a folder: the first process of this test run makes it, and all look at it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def made(name: str, make: Callable[[Path], T]) -> T:
        known = shared / f"{name}.pickle"
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not known.exists():
                (shared / name).mkdir()
                known.write_bytes(pickle.dumps(make(shared / name)))
        return pickle.loads(known.read_bytes())

    return made


@pytest.fixture(scope="session")
def worlds(once) -> Worlds:
    """A world before any verb ran, and one in which all have run in one process, without disturbance."""
    return once("worlds", Verbs.make_worlds)


@pytest.fixture(scope="session")
def demo_corpus(once) -> Path:
    """The folder of the demo's corpus, with all that `dolma_dask.demo_corpus` puts there."""

    def make(folder: Path) -> Path:
        dk.demo_corpus(folder)
        return folder

    return once("demo", make)


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
