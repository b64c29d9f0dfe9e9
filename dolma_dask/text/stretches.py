"""Stretches of words on end that n-grams cover together."""

import numpy as np
from msgspec import Struct

from dolma_dask.text.kernels import Bools, Counts


class Stretches(Struct, frozen=True):
    """Runs of words on end that are covered by n-grams of one key."""

    keys: Counts  # (runs,) rising
    starts: Counts  # (runs,) first word
    stops: Counts  # (runs,) behind the last one

    @classmethod
    def of(cls, keys: Counts, starts: Counts, stops: Counts, is_near: Bools) -> "Stretches":
        """Join n-grams (m,), one or more, of one key: those that share a word, and those that touch each other where the second one begins near the word before (words,)."""
        order = np.lexsort((starts, keys))
        keys, starts, stops = keys[order], starts[order], stops[order]
        # keys lie so far apart that one running maximum serves all
        apart = np.cumsum(np.append(0, keys[1:] != keys[:-1])) * (int(stops.max()) + 2)
        reached = np.maximum.accumulate(stops + apart)
        distance = (starts + apart)[1:] - reached[:-1]
        begins = np.flatnonzero(np.append(True, (distance > 0) | ((distance == 0) & ~is_near[starts[1:]])))
        ends = np.append(begins[1:], len(keys)) - 1
        return cls(keys[begins], starts[begins], (reached - apart)[ends])
