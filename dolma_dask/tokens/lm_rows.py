"""Rows of language modelling: ids, loss mask and labels from windows of tokens, and what they hold, counted while they are written.

Cost: 3 to 4 GB of int32 per CPU-second (a kernel that writes each row once).
"""

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dolma_dask.errors import UsageError
from dolma_dask.formats.hdf5 import LM_FEATURES, RowCounts
from dolma_dask.text.kernels import kernel
from dolma_dask.tokens.packing import Int64s, Windows

CHANNELS = len(LM_FEATURES)


@kernel
def _fill_rows(tokens, starts, sizes, pad, eos, inverted, rows):  # type: ignore[no-untyped-def]
    """Write every position of `rows`; return how many are padding, count for the loss, and are an end of document."""
    length = rows.shape[2]
    pads, losses, ends = 0, 0, 0
    seen, unseen = (0, 1) if inverted else (1, 0)
    for row in range(len(starts)):
        first, filled = starts[row], sizes[row] - 1
        for at in range(filled):
            token = np.int32(tokens[first + at])
            rows[row, 0, at] = token
            rows[row, 1, at] = seen
            rows[row, 2, at] = np.int32(tokens[first + at + 1])
            ends += token == eos
        for at in range(filled, length):
            rows[row, 0, at] = pad
            rows[row, 1, at] = unseen
            rows[row, 2, at] = pad
        pads += length - filled
        losses += filled
    return pads, losses, ends


def make_rows(
    tokens: NDArray[np.integer[Any]],
    windows: Windows,
    length: int,
    *,
    eos_id: int | None,
    pad_id: int,
    inverted_mask: bool = False,
) -> tuple[NDArray[np.int32], RowCounts]:
    """Make rows of ``[input_ids, loss mask, labels]``, (n_rows, 3, length), one for each window of the tokens (n_tokens,).

    End tokens are counted and predicted like any other; `pad_id` stands where a window is shorter, in ids and labels. An inverted mask is 1 where
    nothing is predicted.
    """
    rows = np.empty((len(windows), CHANNELS, length), np.int32)
    eos = -1 if eos_id is None else eos_id
    pads, losses, ends = _fill_rows(
        np.ascontiguousarray(tokens), windows.starts, windows.sizes, pad_id, eos, inverted_mask, rows
    )
    counts = RowCounts(
        rows=len(windows),
        tokens=len(windows) * length,
        pad_tokens=int(pads),
        loss_tokens=int(losses),
        eos_tokens=int(ends),
    )
    return rows, counts


LEAST_SHORT = 2
"""Tokens of the shortest window that `short_seq_prob` leaves: one to see and one to predict."""

_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_STEP = 0x9E3779B97F4A7C15


def shorten(windows: Windows, first_row: int, probability: float, seed: int, length: int) -> Windows:
    """Cut some windows to 2 to `length` - 1 tokens at random, so that a model also sees short rows; what is cut off is lost.

    Chance depends on the seed and the number of the row among all (the first of these is `first_row`), not on files or workers.
    """
    if not probability:
        return windows
    numbers = np.arange(first_row, first_row + len(windows), dtype=np.uint64)
    chance, size = _draw(numbers, 2 * seed), _draw(numbers, 2 * seed + 1)
    kept = LEAST_SHORT + np.floor(size * (length - LEAST_SHORT)).astype(np.int64)
    return _cut(windows, np.where(chance < probability, kept, length + 1))


def _draw(numbers: NDArray[np.uint64], seed: int) -> NDArray[np.float64]:
    """Return a number from 0 to 1 for each of `numbers`: the finalizer of splitmix64 (Steele, Lea, Flood 2014)."""
    mixed = numbers * np.uint64(_STEP) + np.uint64((seed * _MIX[1] + _STEP) % 2**64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(_MIX[0])
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(_MIX[1])
    mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def shorten_like_modelzoo(
    windows: Windows, first_row: int, probability: float, seed: int, length: int
) -> Windows:
    """Do as `shorten`, with the chances of ModelZoo 2.2 run with one process: Python's generator, drawn from the first row on.

    Cost: 0.1 us for each row before `first_row`, which must be drawn too.
    """
    if not probability:
        return windows
    drawn = random.Random(seed)
    sizes = []
    for row in range(first_row + len(windows)):
        kept = drawn.randint(LEAST_SHORT, length - 1) if drawn.random() < probability else length + 1
        if row >= first_row:
            sizes.append(kept)
    return _cut(windows, np.array(sizes, np.int64))


def _cut(windows: Windows, most: Int64s) -> Windows:
    return Windows(windows.starts, np.minimum(windows.sizes, most))


def check_short(probability: float, length: int) -> None:
    """Refuse (`UsageError`) a share of short rows that is none, or rows too short to be cut."""
    if not 0 <= probability <= 1:
        raise UsageError(f"short_seq_prob={probability!r}; expected a share of rows from 0 to 1.")
    if probability and length <= LEAST_SHORT:
        raise UsageError(
            f"short_seq_prob={probability} with max_seq_length={length}; expected rows of more than {LEAST_SHORT} tokens."
        )
