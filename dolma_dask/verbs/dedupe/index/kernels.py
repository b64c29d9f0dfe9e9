"""Kernels over sorted records of an index and of a new dataset: those of the index come first."""

import numpy as np

from dolma_dask.text.kernels import Int, Words, kernel
from dolma_dask.verbs.dedupe.fuzzy.clusters import NOWHERE


@kernel
def flag_known(records: Words, first: np.uint64, state: Words, out: Words, beside: Words) -> tuple[Int, Int]:
    """Go on with sorted records, (n, words), of which those from location `first` on are new; write (location, size, old) of new documents that are not
    alone, locations counted from `first`, and (key, location) of those that survive.

    `state` is that of `flag_clusters`. Returns how many rows of `out`, (n + 1, 3), and `beside`, (n, 3), are filled.
    """
    written, kept = 0, 0
    last = records.shape[1] - 1
    for i in range(records.shape[0]):
        location = records[i, last]
        if state[3] > 0 and records[i, 0] == state[0] and records[i, 1] == state[1]:
            if location >= first:
                state[3] += np.uint64(1)
                out[written, 0] = location - first
                out[written, 1] = np.uint64(0)
                out[written, 2] = state[2] if state[2] < first else NOWHERE
                written += 1
            continue
        if state[3] > 1 and state[2] >= first:
            out[written, 0] = state[2] - first
            out[written, 1] = state[3]
            out[written, 2] = NOWHERE
            written += 1
        state[0] = records[i, 0]
        state[1] = records[i, 1]
        state[2] = location
        state[3] = np.uint64(1)
        if location >= first:
            beside[kept, 0] = state[0]
            beside[kept, 1] = state[1]
            beside[kept, 2] = location
            kept += 1
    return written, kept


OLD = 8
"""Documents of the index that a new one is compared with for each key that they share: the first of them."""

STATE = 6 + OLD
"""Words that `known_pairs` keeps between calls: the key, how many documents it has so far, how many of them are new, the first and the last of these, how many
of the index are held, and these.
"""


@kernel
def known_pairs(keys: Words, old: np.uint64, state: Words, pairs: Words) -> tuple[Int, Int]:
    """Write pairs of (key, document) in order, shape (n, 2), of which documents below `old` are of the index: each new one with the first `OLD` of these, with
    the first new one and with the one before it.

    `state` (`STATE`,) is all 0 at the start, `pairs` has room for ``(OLD + 2) n``. Returns the number of pairs and the documents of the largest key.
    """
    count, largest = 0, np.uint64(0)
    for i in range(keys.shape[0]):
        if state[1] == 0 or keys[i, 0] != state[0]:
            state[0] = keys[i, 0]
            state[1] = np.uint64(0)
            state[2] = np.uint64(0)
            state[5] = np.uint64(0)
        document = keys[i, 1]
        state[1] += np.uint64(1)
        largest = max(largest, state[1])
        if document < old:
            if state[5] < OLD:
                state[np.int64(6) + np.int64(state[5])] = document
                state[5] += np.uint64(1)
            continue
        for held in range(np.int64(state[5])):
            pairs[count, 0] = state[6 + held]
            pairs[count, 1] = document
            count += 1
        if state[2] == 0:
            state[3] = document
        else:
            pairs[count, 0] = state[3]
            pairs[count, 1] = document
            count += 1
        if state[2] > 1:
            pairs[count, 0] = state[4]
            pairs[count, 1] = document
            count += 1
        state[2] += np.uint64(1)
        state[4] = document
    return count, np.int64(largest)
