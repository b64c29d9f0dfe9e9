"""The order of rows in a file against that of the same rows in an earlier version of it.

Files in order, which is the rule, cost 2 ns per row; else the earlier keys are sorted, 0.4 s per million.
"""

import numpy as np

from dolma_dask.text.kernels import Counts, Int, Words, kernel
from dolma_dask.verbs.validate.keys import Keys


def order_break(ours: Keys, theirs: Keys) -> tuple[int, int, int, int, int] | None:
    """Tell where rows stand in another order than in the earlier file.

    Rows that the earlier file does not have are passed over. Where it has a key several times, any order that fits is taken.

    Memory: the keys of both files, 16 bytes per row of each; and if rows are not in order, as much again for those of the earlier file, and
    16 bytes per row while they are sorted.

    Parameters
    ----------
    ours, theirs : numpy.ndarray of uint64
        (n, 2) and (m, 2) keys of the rows of both files.

    Returns
    -------
    tuple of int, or None
        None: all rows are in order. Else the number of rows that are not, the first of them, its row in the earlier file, the row
        that it should not follow, and that one's row in the earlier file.
    """
    if _follows(ours, theirs):
        return None
    order = np.lexsort((theirs[:, 1], theirs[:, 0]))
    found = np.zeros(5, np.int64)
    _find_breaks(ours, np.ascontiguousarray(theirs[order]), order, found)
    count, *rest = found.tolist()
    return (count, *rest) if count else None  # type: ignore[return-value]


@kernel
def _follows(ours: Words, theirs: Words) -> bool:
    """Tell whether all of `ours` stand in `theirs` in this order."""
    at, rows = 0, theirs.shape[0]
    for i in range(ours.shape[0]):
        if ours[i, 0] == 0 and ours[i, 1] == 0:
            continue
        while at < rows and (theirs[at, 0] != ours[i, 0] or theirs[at, 1] != ours[i, 1]):
            at += 1
        if at == rows:
            return False
        at += 1
    return True


@kernel
def _find_breaks(ours: Words, ordered: Words, order: Counts, found: Counts) -> None:
    last, last_row = -1, -1
    rows = ordered.shape[0]
    for i in range(ours.shape[0]):
        high, low = ours[i, 0], ours[i, 1]
        if high == 0 and low == 0:
            continue
        start = _lower_bound(ordered, high, low)
        at = start
        while at < rows and ordered[at, 0] == high and ordered[at, 1] == low and order[at] <= last:
            at += 1
        if at < rows and ordered[at, 0] == high and ordered[at, 1] == low:
            last = order[at]
            last_row = i
        elif at > start:
            if found[0] == 0:
                found[1] = i
                found[2] = order[start]
                found[3] = last_row
                found[4] = last
            found[0] += 1


@kernel
def _lower_bound(ordered: Words, high: Int, low: Int) -> Int:
    start, stop = 0, ordered.shape[0]
    while start < stop:
        middle = (start + stop) // 2
        if ordered[middle, 0] < high or (ordered[middle, 0] == high and ordered[middle, 1] < low):
            start = middle + 1
        else:
            stop = middle
    return start
