"""Survivors among records sorted by key: the first of each key, and the records it stands for.

Records are rows of uint64 words: two of the key, any that decide the order (a rank), and the location last. A cluster is all records of one
key; it may go on over any number of chunks, so that a key of ten million records needs no more memory than others. 2 ns
per record, 17 where every other record survives one.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dolma_dask.exchange.contract import Records, to_records, to_words
from dolma_dask.text.columns import for_kernel
from dolma_dask.text.kernels import Int, Words, kernel

FLAGS = np.dtype([("location", "<u8"), ("size", "<u8")])
"""Flag of a document that is not alone: 0 for one that another stands for, else the size of the cluster it stands for."""

LARGEST = 20
"""Clusters that are named, the largest first."""

_STATE = 4  # key (two words), location of the survivor, size; a size of 0 means that no cluster is open


@kernel
def flag_clusters(records: Words, state: Words, out: Words) -> Int:
    """Go on with sorted records, (n, words); write (location, size) of documents that are not alone as soon as they are known.

    `state` (`_STATE`,) is all 0 at the start. Returns how many rows of `out`, (n + 1, 2), are filled.
    """
    written = 0
    last = records.shape[1] - 1
    for i in range(records.shape[0]):
        if state[3] > 0 and records[i, 0] == state[0] and records[i, 1] == state[1]:
            state[3] += np.uint64(1)
            out[written, 0] = records[i, last]
            out[written, 1] = np.uint64(0)
            written += 1
            continue
        if state[3] > 1:
            out[written, 0] = state[2]
            out[written, 1] = state[3]
            written += 1
        state[0] = records[i, 0]
        state[1] = records[i, 1]
        state[2] = records[i, last]
        state[3] = np.uint64(1)
    return written


@dataclass(frozen=True)
class SurvivorReducer:
    """Reduces sorted records to `FLAGS`; the exchange calls it once per range of keys."""

    dtype: np.dtype[Any] = FLAGS

    def reduce(self, runs: Iterable[Records], out: Callable[[Records], None]) -> dict[str, Any]:
        """Give out the flags of a range, from runs that are sorted by all fields; the records of one key may go on in the next run.

        Returns ``largest``: up to `LARGEST` clusters as [size, location of the survivor].
        """
        state = np.zeros(_STATE, np.uint64)
        largest: list[list[int]] = []
        for run in runs:
            flags = np.empty((len(run) + 1, 2), np.uint64)
            count = flag_clusters(for_kernel(to_words(run, run.dtype)), state, flags)
            largest = _give(flags[:count], largest, out)
        if state[3] > 1:
            largest = _give(state[2:].reshape(1, 2), largest, out)
        return {"largest": largest}


def _give(flags: Words, largest: list[list[int]], out: Callable[[Records], None]) -> list[list[int]]:
    """Give out flags, and return the largest clusters with those among them."""
    out(to_records(flags, FLAGS))
    return largest_of([*largest, *largest_survivors(flags[flags[:, 1] > 0])])


def largest_survivors(survivors: Words) -> list[list[int]]:
    """Return the largest clusters of survivors (location, size, ...) as [size, location, ...]; those of the lowest locations among equals."""
    if len(survivors) > LARGEST:
        least = np.partition(survivors[:, 1], -LARGEST)[-LARGEST]
        survivors = survivors[survivors[:, 1] >= least]
        survivors = survivors[np.lexsort((survivors[:, 0], ~survivors[:, 1]))][:LARGEST]
    return [[size, location, *others] for location, size, *others in survivors.tolist()]


def largest_of(clusters: Iterable[list[int]]) -> list[list[int]]:
    """Return the first `LARGEST` of [size, location, ...], by size and then by location."""
    return sorted(clusters, key=lambda cluster: (-cluster[0], cluster[1]))[:LARGEST]
