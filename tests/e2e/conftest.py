"""Fixtures for end-to-end tests: a small world before and after all verbs, and a small corpus of the demo, made once."""

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from small_corpus import collect_small_corpus
from small_world import Verbs

import dolma_dask as dk
from dolma_dask.testing.verb_laws import Worlds

COLLECTED = """
import shutil
from dolma_dask.pipelines import demonstration

def copied(folder, collect=demonstration.collect_corpus):
    shutil.copytree({folder!r}, folder, ignore=shutil.ignore_patterns("v0"), dirs_exist_ok=True)
    return collect(folder)

demonstration.collect_corpus = copied
"""
"""Code that the kernel of a notebook runs before its first cell: all notebooks begin with the same raw files, a third of those that a user sees, which take a
quarter of their time to collect."""


@pytest.fixture
def startup(once, tmp_path_factory) -> str:
    """A file for PYTHONSTARTUP with `COLLECTED`."""

    def make(folder: Path) -> Path:
        collect_small_corpus(folder, 3)
        dk.demo_corpus(folder)
        return folder

    file = tmp_path_factory.mktemp("startup") / "collected.py"
    file.write_text(COLLECTED.format(folder=str(once("a third", make))))
    return str(file)


@pytest.fixture(scope="session")
def worlds(once) -> Worlds:
    """A world before any verb ran, and one in which all have run in one process, without disturbance."""
    return once("worlds", Verbs.make_worlds)


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
