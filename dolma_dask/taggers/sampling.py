"""A random number for each document, the same in every run: it follows from source and id. Source: ``sampling.py`` of the Dolma toolkit, release 1.2.1."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dolma_dask.rules.sampling import document_hashes
from dolma_dask.taggers.base import Part, ViewTagger
from dolma_dask.text.kernels import Floats
from dolma_dask.text.view import TextView

_DECIMALS = 8
_PARTS, _HALF, _LOW = np.uint64(10**_DECIMALS), np.uint64(32), np.uint64(0xFFFFFFFF)


def _random(view: TextView, source: pa.Array, identity: pa.Array) -> Sequence[Floats]:
    """Return the hash of each document as a share of 2**64, rounded down: 1 is never reached."""
    hashes = document_hashes(source, identity, seed=0)
    # upper half of the product with 10**8, by halves of the hash
    share = ((hashes >> _HALF) * _PARTS + ((hashes & _LOW) * _PARTS >> _HALF)) >> _HALF
    return [share.astype(float) / 10**_DECIMALS]


TAGGERS = (
    ViewTagger.of(
        "random_number_v1",
        "Number from 0 to below 1 by a hash of source and id; documents below 0.3 are those that `mix --sample 0.3` takes.",
        Part(_random, {"random": "document"}),
        reads=("source", "id"),
        decimals=_DECIMALS,
        differs="The number follows from source and id; the toolkit draws another one in each run and process.",
    ),
)
