"""What the end-to-end tests share: a small world before and after all verbs, and the corpus of the demo, made once."""

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from small_world import Verbs

import dolma_dask as dk
from dolma_dask.testing.verb_laws import Worlds

COLLECTED = """
import shutil
from dolma_dask.config import demonstration

def copied(folder, collect=demonstration.collect_corpus):
    shutil.copytree({folder!r}, folder, ignore=shutil.ignore_patterns("v0"), dirs_exist_ok=True)
    return collect(folder)

demonstration.collect_corpus = copied
"""
"""What the kernel of a notebook runs before its first cell: all notebooks begin with the same raw files, which take a quarter of their time to collect."""


@pytest.fixture
def startup(demo_corpus, tmp_path_factory) -> str:
    """A file for PYTHONSTARTUP with `COLLECTED`."""
    file = tmp_path_factory.mktemp("startup") / "collected.py"
    file.write_text(COLLECTED.format(folder=str(demo_corpus)))
    return str(file)


@pytest.fixture(scope="session")
def worlds(once) -> Worlds:
    """A world before any verb ran, and one in which all have run in one process, without disturbance."""
    return once("worlds", Verbs.make_worlds)


@pytest.fixture(scope="session")
def demo_corpus(once, collected) -> Path:
    """The folder of the demo's corpus, with all that `dolma_dask.demo_corpus` puts there."""

    def make(folder: Path) -> Path:
        shutil.copytree(collected, folder, dirs_exist_ok=True)
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
