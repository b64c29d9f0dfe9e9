"""Items that many documents have: menus, cookie notes and the like, flagged wherever they are."""

import tempfile
from collections.abc import Callable, Iterable
from typing import IO, Any, ClassVar

import numpy as np
from msgspec import Struct

from dolma_dask.exchange.contract import Records, Words, to_records, to_words
from dolma_dask.verbs.dedupe.flags import FLAGS

HELD_BYTES = 8 << 20
"""Bytes of places of one item that wait in memory until it is known whether enough documents have it; more of them wait in a file."""


class CopiesReducer(Struct, frozen=True):
    """Gives out all places of the items that enough documents have, as `FLAGS`; records are (hi, lo, document, location)."""

    only_shared: ClassVar[bool] = True  # an item of several documents is there several times

    least: int  # documents
    dtype: np.dtype[Any] = FLAGS

    def reduce(self, runs: Iterable[Records], out: Callable[[Records], None]) -> dict[str, Any]:
        """Give out the places of a range; the records of one item may go on in the next run. Returns how many items are ``repeated``."""
        repeated, held = 0, None
        with tempfile.SpooledTemporaryFile(HELD_BYTES) as waiting:
            for run in runs:
                words = to_words(run, run.dtype)
                held, found = self._go_on(words, held, waiting, out)
                repeated += found
        return {"repeated": repeated, "largest": []}

    def _go_on(
        self, words: Words, held: tuple[Words, int] | None, waiting: Any, out: Callable[[Records], None]
    ) -> tuple[tuple[Words, int], int]:
        """Take the next sorted records; `held` is the last record before them, with the number of documents that have its item.

        Returns the new `held`, and how many items these records have shown to be repeated.
        """
        starts, counts = _items(words, held)
        before = held[1] if held and (words[0, :2] == held[0][:2]).all() else 0
        many = counts >= self.least
        if before and before < self.least and many[0]:
            _give_waiting(waiting, out)
        elif not (before and len(counts) == 1):
            _forget(waiting)
        is_many = np.repeat(many, np.diff([*starts, len(words)]))
        _give(words[is_many, 3], out)
        if not many[-1]:
            waiting.write(words[starts[-1] :, 3].tobytes())
        found = int(np.count_nonzero(many)) - (before >= self.least)
        return (words[-1].copy(), int(counts[-1])), found


def _items(words: Words, held: tuple[Words, int] | None) -> tuple[Any, Any]:
    """Return where each item begins, and how many documents have it, those of the runs before included."""
    is_start = np.ones(len(words), np.bool_)
    is_start[1:] = (words[1:, :2] != words[:-1, :2]).any(axis=1)
    is_document = is_start.copy()
    is_document[1:] |= words[1:, 2] != words[:-1, 2]
    starts = np.flatnonzero(is_start)
    counts = np.add.reduceat(is_document.astype(np.int64), starts)
    if held and (words[0, :2] == held[0][:2]).all():
        counts[0] += held[1] - (words[0, 2] == held[0][2])
    return starts, counts


def _give(places: Words, out: Callable[[Records], None]) -> None:
    flags = np.zeros((len(places), 2), np.uint64)
    flags[:, 0] = places
    out(to_records(flags, FLAGS))


def _give_waiting(waiting: IO[bytes], out: Callable[[Records], None]) -> None:
    waiting.seek(0)
    while part := waiting.read(1 << 20):
        _give(np.frombuffer(part, np.uint64), out)
    _forget(waiting)


def _forget(waiting: IO[bytes]) -> None:
    waiting.seek(0)
    waiting.truncate()
