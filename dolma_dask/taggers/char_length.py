"""The published tagger ``char_length_v1``: the length of a text in code points.

Source: ``length.py`` of the Dolma toolkit, release 1.2.1: ``len(text)``.
"""

from collections.abc import Sequence

import numpy as np

from dolma_dask.taggers.base import ViewTagger
from dolma_dask.text.kernels import Floats
from dolma_dask.text.view import TextView


def _lengths(view: TextView) -> Sequence[Floats]:
    """Length in code points, as `char_length_v1` of the Dolma toolkit."""
    return [view.lengths.astype(np.float64)]


char_length_v1 = ViewTagger("char_length_v1", {"length": "document"}, _lengths)
