"""Which paragraphs of some rows are duplicates, from what was found out about their items: one pass over all of them."""

import numpy as np

from dolma_dask.text.kernels import Counts, Floats, Int, kernel


@kernel
def mark_paragraphs(
    bounds: Counts, widths: Counts, items: Counts, at: Counts, sizes: Counts, overlap: float,
    counts: Counts, row: Counts, starts: Counts, ends: Counts, scores: Floats,
) -> Int:  # fmt: skip
    """Write the row, the bounds in its text and the score of each flagged paragraph; returns how many there are.

    Row i has the paragraphs from ``bounds[i]`` to ``bounds[i + 1]``, each with its code points and its items. Item ``at[k]``, in order, is flagged where ``sizes[k]`` is
    0, and else the first of so many. A paragraph is flagged by `overlap`, the least share of its items; by a single one where that is below 0. `counts` (4, rows), all
    0, are those of a row: paragraphs, flagged ones, code points of these, and the most copies of an item.
    """
    written: Int = 0
    known: Int = 0
    before: Int = 0
    for text in range(bounds.size - 1):
        end = np.int64(0)
        for place in range(bounds[text], bounds[text + 1]):
            width, own, seen = widths[place], items[place], np.int64(0)
            end += width
            counts[0, text] += np.int64(width > 0)
            before += own
            while known < at.size and at[known] < before:
                seen += np.int64(sizes[known] == 0)
                counts[3, text] = max(counts[3, text], sizes[known])
                known += 1
            score = seen / max(own, np.int64(1))
            if own > 0 and (score >= overlap if overlap >= 0 else seen > 0):
                row[written], starts[written], ends[written] = text, end - width, end
                scores[written] = score
                written += 1
                counts[1, text] += 1
                counts[2, text] += width
    return written
