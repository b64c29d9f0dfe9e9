"""Taggers ``uniseg_length_*``: words by the rules of Unicode (`dolma_dask.text.word_breaks`). Source: ``length.py`` of the Dolma toolkit, release 1.2.1.

White space on either side of a text or paragraph is stripped first. In a text all that stands between two boundaries counts, white space and signs too; in
paragraphs only what is not white space.
"""

from collections.abc import Iterator, Mapping
from typing import cast

import numpy as np

from dolma_dask.taggers.base import Kind, Part, ViewTagger, summed
from dolma_dask.text.kernels import Bytes, Counts, Floats, kernel
from dolma_dask.text.view import TextView
from dolma_dask.text.word_breaks import Entries, count_words, load_word_breaks


@kernel
def _count(
    data: Bytes, offsets: Counts, numbers: Bytes, blocks: Bytes, machine: Entries, out: Floats
) -> None:
    """Count the words of every text: all of them, and those that are not white space."""
    for row in range(out.shape[1]):
        out[0, row], out[1, row] = count_words(data, offsets[row], offsets[row + 1], numbers, blocks, machine)


def _counted(view: TextView) -> Floats:
    if "uniseg" not in view.kept:
        out = np.empty((2, len(view)))
        _count(view.data, view.offsets, *load_word_breaks(), out)
        view.kept["uniseg"] = out
    return cast(Floats, view.kept["uniseg"])


def _pieces(view: TextView) -> Iterator[Floats]:
    yield _counted(view)[0]


def _words(view: TextView) -> Iterator[Floats]:
    yield (words := _counted(view)[1])
    yield 0 - words  # no negative zero


_MEANINGS = {
    "paragraph": "words of each paragraph",
    "negative_paragraph": "the same, negative: for filters that only know 'greater than'",
    "document": "words of all paragraphs together",
    "negative_document": "the same, negative",
}
_PARAGRAPH: Mapping[str, Kind] = {"paragraph": "document", "negative_paragraph": "document"}
_DOCUMENT: Mapping[str, Kind] = {"document": "document", "negative_document": "document"}

TAGGERS = (
    ViewTagger.of(
        "uniseg_length_v1",
        "Words of the text by the rules of Unicode, with white space and signs between them.",
        Part(_pieces, {"length": "document"}),
    ),
    ViewTagger.of(
        "uniseg_length_paragraphs_v1",
        "Words of each paragraph by the rules of Unicode, without white space.",
        Part(_words, _PARAGRAPH, "paragraph"),
        meanings={name: _MEANINGS[name] for name in _PARAGRAPH},
    ),
    ViewTagger.of(
        "uniseg_length_paragraphs_with_empty_v1",
        "Words of each paragraph by the rules of Unicode, blank ones too.",
        Part(_words, _PARAGRAPH, "any_paragraph"),
        meanings={name: _MEANINGS[name] for name in _PARAGRAPH},
    ),
    ViewTagger.of(
        "uniseg_length_paragraphs_with_doc_length_v1",
        "Words of each paragraph by the rules of Unicode, without white space, and of the document.",
        Part(_words, _PARAGRAPH, "paragraph"),
        Part(summed(_words, "paragraph"), _DOCUMENT),
        meanings=_MEANINGS,
    ),
)
