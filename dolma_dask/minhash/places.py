"""Where the tokens of `dolma_dask.minhash.tokens` stand in their texts, in code points; for the few texts of which that is asked, and as far into them."""

import numpy as np
import pyarrow as pa

from dolma_dask.minhash.characters import CODE_BITS, Tables, decode_composed, folded_codes, load_characters
from dolma_dask.text.columns import for_kernel, string_parts
from dolma_dask.text.kernels import Bytes, Counts, Int, kernel
from dolma_dask.text.tables import ALONE, TOKEN, char_class


def token_places(texts: pa.LargeStringArray, first: Counts | None = None) -> tuple[Counts, Counts, Counts]:
    """Return the tokens of texts without nulls (n,) as words, of each the `first` ones (n,) at least, by default all: ``bounds`` as from `dolma_dask.minhash.ngrams.hash_tokens`, and where each begins and ends in its text, in code points.

    Marks behind a token that vanish from it belong to it. A character that becomes several tokens is the place of each.
    """
    offsets, data = string_parts(texts)
    bounds = np.zeros(len(texts) + 1, np.int64)
    if first is None:
        first = np.diff(offsets) * 2
    # the last character of a text may become three tokens
    starts, ends = (np.empty(int((first + 3).sum()), np.int64) for _ in range(2))
    _place_tokens(data, offsets, for_kernel(first), load_characters(), bounds, starts, ends)
    return bounds, starts[: bounds[-1]], ends[: bounds[-1]]


@kernel
def _place_tokens(
    data: Bytes, offsets: Counts, first: Counts, tables: Tables, bounds: Counts, starts: Counts, ends: Counts
) -> None:
    """Go through all texts character by character, by the rules of `dolma_dask.minhash.tokens.scan_tokens`.

    What vanishes may still belong to the last token that is asked for, so the one behind it ends the search.
    """
    count: Int = 0
    for row in range(offsets.size - 1):
        at, end = offsets[row], offsets[row + 1]
        place: Int = 0
        inside = False
        while at < end and count - bounds[row] <= first[row]:
            code, width = decode_composed(data, at, end)
            # letters that were composed have three bytes each
            chars = max(width // 3, 1)
            at += width
            kind = char_class(tables.numbers, tables.blocks, code)
            alone = kind & ALONE != 0
            inside = inside and kind & TOKEN != 0 and not alone
            if kind & TOKEN != 0:
                folded = folded_codes(tables, code, kind)
                # what vanishes belongs to the token that ends before it
                if count > bounds[row] and ends[count - 1] == place and (inside or folded == 0):
                    ends[count - 1] = place + chars
                while folded and not inside:
                    starts[count], ends[count] = place, place + chars
                    count += 1
                    inside = not alone
                    folded >>= CODE_BITS
            place += chars
        bounds[row + 1] = count
