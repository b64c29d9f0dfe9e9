"""Kernels over sorted records of an index and of a new dataset: those of the index come first."""

import numpy as np

from dolma_dask.text.kernels import Int, Words, kernel
from dolma_dask.verbs.dedupe.clusters import NOWHERE


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
