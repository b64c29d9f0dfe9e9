"""The signatures that RedPajama-V2 is published with, bit for bit.

Shingles are n-grams (13 there) of the words of `dolma_dask.text.normalization`, joined by blanks. The first four bytes of their SHA-1, as a
little-endian number, go through the permutations of `dolma_dask.minhash.mersenne` (128 there, of seed 42). A text of fewer than n words has no
signature. Source: RedPajama-Data, ``app/src/core/worker.py`` and ``app/src/dedupe/minhash.py``.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dolma_dask.minhash.mersenne import lower_rows61, mersenne_draws
from dolma_dask.minhash.parts import NORMALISED_WORDS
from dolma_dask.minhash.permutations import Halves
from dolma_dask.minhash.schemes import MinHash
from dolma_dask.minhash.shingles import Permutations, sign_strings

PUBLISHED = MinHash("redpajama_v2", ngram=13, unit="word", num_perm=128, seed=42)
"""Parameters of the published signatures."""


def sign_redpajama(
    texts: pa.LargeStringArray,
    *,
    ngram: int = PUBLISHED.ngram,
    num_perm: int = PUBLISHED.num_perm,
    seed: int = PUBLISHED.seed,
) -> tuple[Halves, npt.NDArray[np.uint8]]:
    """Return the signatures of texts without nulls, uint32 (n, num_perm), and their kinds (n,).

    Raises `DataError`: a text has 512 MiB or more.
    """
    permutations = Permutations(lower_rows61, *mersenne_draws(seed, num_perm))
    return sign_strings(texts, NORMALISED_WORDS, permutations, ngram=ngram, signs_short=False)
