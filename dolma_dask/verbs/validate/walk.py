"""Equal keys of documents, one after another: which stand twice in a dataset, and which not in an earlier version.

The exchange brings equal keys of all shards together, those of an earlier version behind the others; so one walk over the sorted records
tells both. Memory: a block of records, and the first places. 160 M records per CPU-second, also when all have one key.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dolma_dask.exchange.contract import Records
from dolma_dask.text.kernels import Counts, Words, kernel
from dolma_dask.verbs.validate.keys import Keys


@dataclass(frozen=True)
class KeyReducer:
    """Walks over a range of keys and tells which stand twice in the dataset, and which not in the earlier version.

    Attributes
    ----------
    keep : int
        Places that are told: the first ones.
    has_earlier : bool
        Whether there is an earlier version.
    """

    keep: int
    has_earlier: bool
    dtype: None = None

    def reduce(self, runs: Iterable[Records], out: Callable[[Records], None]) -> dict[str, Any]:
        """Return counts, and the first places: ``duplicates`` with the place of the first of their key, and ``unmatched``."""
        walk = KeyWalk(self.keep)
        for run in runs:
            walk.add(run)
        return walk.end(self.has_earlier)


class KeyWalk:
    """A running walk over sorted records, which may be cut anywhere.

    Parameters
    ----------
    keep : int
        Places that are remembered.
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._state = np.zeros(
            6, np.uint64
        )  # is open, key, first place, rows of ours, rows of the earlier version
        self._counts = np.zeros(2, np.int64)
        self._duplicates = np.empty((0, 2), np.uint64)
        self._unmatched = np.empty((0, 2), np.uint64)
        self._missing = 0

    def add(self, run: Records) -> None:
        """Take the next records."""
        duplicates = np.empty((len(run), 2), np.uint64)
        unmatched = np.empty((len(run), 2), np.uint64)  # first place of a key and its rows
        high, low, place = (np.ascontiguousarray(run[name]) for name in ("hi", "lo", "location"))
        here = np.zeros(2, np.int64)
        _walk_keys(high, low, place, self._state, duplicates, unmatched, here)
        self._counts[0] += here[0]
        self._take_unmatched(unmatched[: here[1]])
        self._duplicates = self._first(self._duplicates, duplicates[: here[0]])

    def _take_unmatched(self, found: Keys) -> None:
        self._missing += int(found[:, 1].sum())
        self._unmatched = self._first(self._unmatched, found)

    def _first(self, known: Keys, more: Keys) -> Keys:
        both = np.concatenate([known, more])
        return both[np.argsort(both[:, 0], kind="stable")[: self._keep]]

    def end(self, has_earlier: bool) -> dict[str, Any]:
        """Return what was found; the last key ends here."""
        is_open, _, _, first, ours, theirs = self._state
        if is_open and ours and not theirs:
            self._take_unmatched(np.array([[first, ours]], np.uint64))
        found: dict[str, Any] = {"duplicates": int(self._counts[0]), "first": self._duplicates.tolist()}
        if has_earlier:
            found |= {"unmatched": self._missing, "first_unmatched": self._unmatched[:, 0].tolist()}
        return found


@kernel
def _walk_keys(
    high: Words, low: Words, place: Words, state: Words, duplicates: Words, unmatched: Words, counts: Counts
) -> None:
    """Walk over sorted records; `state` carries the key that is open from one call to the next."""
    for i in range(high.size):
        if state[0] == 0 or high[i] != state[1] or low[i] != state[2]:
            if state[0] != 0 and state[4] != 0 and state[5] == 0:
                unmatched[counts[1], 0] = state[3]
                unmatched[counts[1], 1] = state[4]
                counts[1] += 1
            state[0] = 1
            state[1] = high[i]
            state[2] = low[i]
            state[3] = place[i]
            state[4] = 0
            state[5] = 0
        if place[i] >> np.uint64(63):
            state[5] += np.uint64(1)
            continue
        if state[4] != 0:
            duplicates[counts[0], 0] = place[i]
            duplicates[counts[0], 1] = state[3]
            counts[0] += 1
        state[4] += np.uint64(1)


def places_of(found: Mapping[str, Any]) -> list[int]:
    """Return all places that a reducer's result speaks of."""
    pairs = [place for pair in found["first"] for place in pair]
    return [*pairs, *found.get("first_unmatched", ())]


def merge(infos: Iterable[Mapping[str, Any]], keep: int) -> dict[str, Any]:
    """Put the results of all ranges together: counts, and the first `keep` places."""
    results = list(infos)
    merged: dict[str, Any] = {
        "duplicates": sum(item["duplicates"] for item in results),
        "first": sorted(pair for item in results for pair in item["first"])[:keep],
        "unmatched": sum(item.get("unmatched", 0) for item in results),
        "first_unmatched": sorted(place for item in results for place in item.get("first_unmatched", ()))[
            :keep
        ],
    }
    return merged
