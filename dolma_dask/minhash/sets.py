"""Sets of hashed n-grams, sorted: how many of one are in another."""

from dolma_dask.text.bits import first_from
from dolma_dask.text.kernels import Counts, Int, Words, kernel


@kernel
def count_common(rows: Words, skip: Int, sizes: Counts, own: Words, common: Counts) -> None:
    """Set ``common[i]`` to how many of ``rows[i, skip : skip + sizes[i]]``, which rise, are in `own`, which rises too."""
    for i in range(rows.shape[0]):
        common[i] = 0
        if sizes[i] > 0:
            # both rise: one search for the first value, then a merge
            at = first_from(own, rows[i, skip])
            for k in range(skip, skip + sizes[i]):
                value = rows[i, k]
                while at < own.size and own[at] < value:
                    at += 1
                common[i] += at < own.size and own[at] == value
