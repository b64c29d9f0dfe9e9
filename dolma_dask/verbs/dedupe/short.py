"""Texts that are too short to be compared, as whole documents: a dataset has many copies of an empty page, and none of them is a copy of a page."""

from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import asdict

from dolma_dask.text import compute as pc
from dolma_dask.text.columns import code_point_lengths, string_parts
from dolma_dask.text.kernels import Bools, Counts


class Least(Struct, frozen=True):
    """What a text has at least, to be compared."""

    skip_empty: bool = False  # a character that is no white space
    min_length: int = 0  # code points
    min_words: int = 0

    def params(self) -> dict[str, Any]:
        """Return what was requested."""
        return {name: value for name, value in asdict(self).items() if value}

    def met_by(self, texts: pa.LargeStringArray) -> Bools:
        """Tell which texts (n,) have it; no null has."""
        texts = pc.fill_null(texts, "")
        lengths = code_point_lengths(texts)
        met = lengths >= self.min_length
        if self.skip_empty:
            met &= (lengths > 0) & ~np.asarray(pc.utf8_is_space(texts))
        if self.min_words:
            met &= _have_words(texts, met, self.min_words)
        return met


ANY = Least()
"""Every text has it, also one that is empty."""


def _have_words(texts: pa.LargeStringArray, wanted: Bools, least: int) -> Bools:
    """Tell which of the wanted texts have so many words, by the rules of Unicode and without white space."""
    from dolma_dask.text.tables import load_tables
    from dolma_dask.text.word_breaks import load_word_breaks
    from dolma_dask.verbs.dedupe.paragraphs.ngrams import find_ngrams, powers

    offsets, data = string_parts(texts)
    items: Counts = wanted.astype(np.int64)
    none, window = np.empty(0, np.uint64), np.empty(2, np.uint64)
    numbers, blocks, machine = load_word_breaks()
    find_ngrams(
        data, offsets, 0, 1, least, False, *powers(0),
        *load_tables(), numbers, blocks, machine, window, items, np.zeros(len(items), np.bool_), none, none,
    )  # fmt: skip
    return items > 0
