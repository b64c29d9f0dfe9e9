"""Every notebook runs from top to bottom, and leaves outputs that can be shown."""

import pytest

import notebooks

pytestmark = pytest.mark.e2e

COLLECTED = """
import shutil
from dolma_dask.config import demonstration

def copied(folder, collect=demonstration.collect_corpus):
    shutil.copytree({folder!r}, folder, ignore=shutil.ignore_patterns("v0"), dirs_exist_ok=True)
    return collect(folder)

demonstration.collect_corpus = copied
"""
"""Runs before the first cell: all notebooks begin with the same raw files, which take a quarter of their time to collect."""


@pytest.mark.parametrize("path", notebooks.named(()), ids=lambda path: path.stem)
def test_it_runs(path, demo_corpus, tmp_path):
    startup = tmp_path / "collected.py"
    startup.write_text(COLLECTED.format(folder=str(demo_corpus)))
    assert notebooks.complaints(notebooks.execute(path, PYTHONSTARTUP=str(startup))) == []
