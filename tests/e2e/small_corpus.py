"""A part of the corpus of the demo: every kind of raw file, and what is done to each is the same."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from dolma_dask.testing import corpus


def collect_small_corpus(folder: Path, part: int = 10) -> corpus.Manifest:
    """Collect the corpus with a tenth (one in `part`) of the text of each kind; `dolma-dask demo` finds it whole."""
    kinds = tuple(replace(kind, max_bytes=kind.max_bytes // part) for kind in corpus._KINDS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "_KINDS", kinds)
        return corpus.collect_corpus(folder)
