"""Taggers of length: characters, bytes and documents, of texts and of their paragraphs. Source: ``length.py`` of the Dolma toolkit, release 1.2.1."""

from collections.abc import Sequence

import numpy as np

from dolma_dask.taggers.base import Part, ViewTagger
from dolma_dask.text.kernels import Bytes, Counts, Floats, Int, kernel
from dolma_dask.text.view import TextView
from dolma_dask.text.words import space_bytes, word_start


@kernel
def _spaces_before(data: Bytes, at: Int, end: Int) -> Int:
    """Count the white-space characters that end at byte `end`, down to byte `at`, where another one stands."""
    count: Int = 0
    while end > at:
        end -= 1
        # back to the first byte of the character
        while data[end] & 0xC0 == 0x80:
            end -= 1
        if space_bytes(data, end) == 0:
            break
        count += 1
    return count


@kernel
def _take_spaces_off(data: Bytes, offsets: Counts, lengths: Counts) -> None:
    """Take white space at either end of the texts off their `lengths`."""
    for row in range(lengths.size):
        at, end = offsets[row], offsets[row + 1]
        begin = word_start(data, at, end)
        lengths[row] -= _spaces_before(data, at, begin)
        lengths[row] -= _spaces_before(data, begin, end)


def _code_points(view: TextView) -> Sequence[Floats]:
    return [view.lengths.astype(float)]


def _bytes(view: TextView) -> Sequence[Floats]:
    return [np.diff(view.offsets).astype(float)]


def _stripped(view: TextView) -> Sequence[Floats]:
    lengths = view.lengths.copy()
    _take_spaces_off(view.data, view.offsets, lengths)
    return [lengths.astype(float)]


def _ones(view: TextView) -> Sequence[Floats]:
    return [np.ones(len(view))]


TAGGERS = (
    ViewTagger.of("char_length_v1", "Code points of the text.", Part(_code_points, {"length": "document"})),
    ViewTagger.of(
        "char_length_with_paragraphs_v1",
        "Code points of each paragraph, and of the text.",
        Part(_code_points, {"paragraph": "document"}, "paragraph"),
        Part(_code_points, {"document": "document"}),
    ),
    ViewTagger.of(
        "char_length_strip_ws_v1",
        "Code points of the text without the white space at its ends.",
        Part(_stripped, {"length_no_ws": "document"}),
    ),
    ViewTagger.of("bytes_length_v1", "Bytes of the text in UTF-8.", Part(_bytes, {"bytes": "document"})),
    ViewTagger.of("doc_count_v1", "1 for each document, to be added up.", Part(_ones, {"docs": "document"})),
)
