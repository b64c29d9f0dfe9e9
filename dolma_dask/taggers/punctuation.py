"""The tagger ``not_alphanum_paragraph_v1``: paragraphs without a word. Source: ``punctuation.py`` of the Dolma toolkit, release 1.2.1.

What is punctuation is a table of `dolma_dask.text.tables`. Each paragraph is read up to the first character that is none, nearly always its first one.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dolma_dask.taggers.base import SPANS, Part, ViewTagger
from dolma_dask.text.kernels import Bools, Bytes, Counts, kernel
from dolma_dask.text.tables import char_class, decode, load_punctuation
from dolma_dask.text.units import cut
from dolma_dask.text.view import TextView


@kernel
def _find_punctuation(data: Bytes, offsets: Counts, numbers: Bytes, blocks: Bytes, found: Bools) -> None:
    """Tell of every text whether it is all punctuation."""
    for row in range(found.size):
        at, end = offsets[row], offsets[row + 1]
        found[row] = True
        while at < end and found[row]:
            code, width = decode(data, at)
            found[row] = char_class(numbers, blocks, code) != 0
            at += width


def _punctuation(view: TextView) -> Sequence[pa.Array]:
    """Return the paragraphs of each text that are all punctuation, with a score of 1; the whole text with 0 where there is none."""
    pieces = cut(view, "paragraph")
    found = np.empty(len(pieces.view), np.bool_)
    _find_punctuation(pieces.view.data, pieces.view.offsets, *load_punctuation(), found)
    counts = np.diff(np.concatenate(([0], np.cumsum(found)))[pieces.bounds])
    without = counts == 0
    offsets = np.concatenate(([0], np.cumsum(counts + without))).astype(np.int32)
    starts, ends, scores = (
        np.zeros(offsets[-1], np.int64),
        np.empty(offsets[-1], np.int64),
        np.ones(offsets[-1]),
    )
    whole = np.zeros(offsets[-1], np.bool_)
    whole[offsets[:-1][without]] = True
    starts[~whole], ends[~whole] = pieces.starts[found], pieces.ends[found]
    ends[whole], scores[whole] = view.lengths[without], 0.0
    spans = pa.StructArray.from_arrays([starts, ends, scores], fields=list(SPANS.value_type))
    return [pa.ListArray.from_arrays(pa.array(offsets), spans)]


TAGGERS = (
    ViewTagger.of(
        "not_alphanum_paragraph_v1",
        "Paragraphs of nothing but punctuation, symbols, white space and emoji, with a score of 1; one span of the whole text with 0 where there is none.",
        Part(_punctuation, {"all_punct": "spans"}),
    ),
)
