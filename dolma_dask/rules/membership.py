"""Membership of keys in a list: a hash table for lists that fit into memory, and a pass over sorted records for those that do not.

The table: 5 million entries take 150 MB and 0.3 s, a look-up 30 ns. The pass reads records of key and location; locations of list entries are
lower than those of all documents, so that an entry comes before what it may match.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from dolma_dask.text.columns import for_kernel
from dolma_dask.text.kernels import Bools, Counts, Int, Positions, Words, kernel

FREE = np.int32(-1)
"""A slot without entry; as a look-up's result: not in the list."""

LOCATIONS = np.dtype([("location", "<u8")])

Records = npt.NDArray[Any]


@kernel
def fill_table(high: Words, low: Words, shift: np.uint64, slots: Positions) -> Int:
    """Enter every key under its number, unless it is there; return how many were."""
    repeated = 0
    for i in range(high.size):
        slot = np.int64(high[i] >> shift)
        while slots[slot] != -1 and not (high[slots[slot]] == high[i] and low[slots[slot]] == low[i]):
            slot = (slot + 1) & (slots.size - 1)
        if slots[slot] == -1:
            slots[slot] = np.int32(i)
        else:
            repeated += 1
    return repeated


@kernel
def look_up(
    high: Words,
    low: Words,
    shift: np.uint64,
    slots: Positions,
    high_keys: Words,
    low_keys: Words,
    out: Positions,
) -> None:
    """Write for every key the number of the first entry that has it, or `FREE`."""
    for i in range(high_keys.size):
        slot = np.int64(high_keys[i] >> shift)
        while slots[slot] != -1 and not (
            high[slots[slot]] == high_keys[i] and low[slots[slot]] == low_keys[i]
        ):
            slot = (slot + 1) & (slots.size - 1)
        out[i] = slots[slot]


class KeyTable:
    """Keys of 128 bits in memory, (n,) high and low halves; fewer than 2**30."""

    def __init__(self, high: Words, low: Words) -> None:
        bits = max(int(2 * len(high)).bit_length(), 1)
        self._high, self._low = for_kernel(high), for_kernel(low)
        self._shift = np.uint64(64 - bits)
        slots = np.full(1 << bits, FREE, np.int32)
        self.repeated = int(fill_table(self._high, self._low, self._shift, slots))
        self._slots = for_kernel(slots)

    def first(self) -> Bools:
        """Tell for each key (n,) whether it is the first of its kind."""
        is_first: Bools = self.find(self._high, self._low) == np.arange(len(self._high), dtype=np.int32)
        return is_first

    def find(self, high: Words, low: Words) -> Positions:
        """Return for every key (n,) the number of its first entry, or `FREE`."""
        numbers = np.empty(len(high), np.int32)
        look_up(self._high, self._low, self._shift, self._slots, for_kernel(high), for_kernel(low), numbers)
        return numbers


@kernel
def match_sorted(records: Words, first_document: np.uint64, state: Words, out: Words, counts: Counts) -> Int:
    """Go on with sorted records of (key, key, location); write locations of matched documents and of entries that nothing matches.

    Parameters
    ----------
    records : ndarray of uint64, shape (n, 3)
    first_document : uint64
        Lower locations are those of list entries.
    state : ndarray of uint64, shape (5,)
        All 0 at the start: key (two words), location of its first entry, whether there is one, whether a document has matched it.
    out : ndarray of uint64, shape (n + 1,)
        Filled from the front.
    counts : ndarray of int64, shape (3,)
        Added to: repeated entries, matches, entries without one.

    Returns
    -------
    int
        Elements of `out`.
    """
    written = 0
    for i in range(records.shape[0]):
        location = records[i, 2]
        if state[3] == 0 or records[i, 0] != state[0] or records[i, 1] != state[1]:
            if state[3] == 1 and state[4] == 0:
                out[written] = state[2]
                written += 1
                counts[2] += 1
            state[0] = records[i, 0]
            state[1] = records[i, 1]
            state[2] = location
            state[3] = np.uint64(location < first_document)
            state[4] = np.uint64(0)
        elif location < first_document:
            counts[0] += 1
        if location >= first_document and state[3] == 1:
            out[written] = location
            written += 1
            counts[1] += 1
            state[4] = np.uint64(1)
    return written


class MembershipReducer(Struct, frozen=True):
    """Reduces sorted records of a list and of documents to the locations of matched documents and of unmatched entries."""

    first_document: int  # lower locations are those of list entries

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the output."""
        return LOCATIONS

    def reduce(self, runs: Iterable[Records], out: Callable[[Records], None]) -> dict[str, Any]:
        """Give out the locations of a range; return how many entries were ``repeated`` and, each once, ``unmatched`` by any document."""
        state, counts = np.zeros(5, np.uint64), np.zeros(3, np.int64)
        for run in runs:
            records = np.ascontiguousarray(run).view(np.uint64).reshape(len(run), 3)
            locations = np.empty(len(run) + 1, np.uint64)
            count = match_sorted(
                for_kernel(records), np.uint64(self.first_document), state, locations, counts
            )
            if count:
                out(locations[:count].view(LOCATIONS))
        if state[3] == 1 and state[4] == 0:
            counts[2] += 1
            out(state[2:3].copy().view(LOCATIONS))
        return {"repeated": int(counts[0]), "unmatched": int(counts[2])}
