"""Taggers of length: code points of texts and of their paragraphs. Source: ``length.py`` of the Dolma toolkit, release 1.2.1."""

from collections.abc import Sequence

from dolma_dask.taggers.base import Part, ViewTagger
from dolma_dask.text.kernels import Counts
from dolma_dask.text.view import TextView


def _code_points(view: TextView) -> Sequence[Counts]:
    return [view.lengths.astype(float)]


TAGGERS = (
    ViewTagger.of("char_length_v1", "Code points of the text.", Part(_code_points, {"length": "document"})),
    ViewTagger.of(
        "char_length_with_paragraphs_v1",
        "Code points of each paragraph, and of the text.",
        Part(_code_points, {"paragraph": "document"}, "paragraph"),
        Part(_code_points, {"document": "document"}),
    ),
)
