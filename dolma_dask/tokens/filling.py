"""Segments to the channels of rows: ids, loss mask and labels, and for rows of several documents where each attends and the places of its tokens.

What counts for the loss is said by the tokens themselves: one that is not to be predicted has bit 31 of its word set (`UNPREDICTED`), so that it is
negative as int32. Words without that bit are plain ids, and one kernel serves all. Cost: 3 to 4 GB of int32 per CPU-second.
"""

import numpy as np
from numpy.typing import NDArray

from dolma_dask.text.kernels import kernel
from dolma_dask.tokens.packing import Int64s, Rows

UNPREDICTED = np.int32(-(2**31))
"""Bit 31 of a word: the token does not count for the loss. It belongs to the token that is predicted, not to the one before."""

ID = 0x7FFFFFFF
"""Bits of a word that are the id of its token."""


@kernel
def _fill(words, starts, sizes, bounds, pad, eos, seen, unseen, shows_last, rows, counts):  # type: ignore[no-untyped-def]
    """Write every position of `rows`; count padding, positions for the loss and ends of documents of each."""
    channels, length = rows.shape[1], rows.shape[2]
    for row in range(len(bounds) - 1):
        at, losses, ends = 0, 0, 0
        for segment in range(bounds[row], bounds[row + 1]):
            first, filled = int(starts[segment]), int(sizes[segment]) - 1
            for place in range(filled):
                token = np.int32(words[first + place]) & ID
                word = np.int32(words[first + place + 1])
                rows[row, 0, at + place] = token
                rows[row, 1, at + place] = seen if word >= 0 else unseen
                rows[row, 2, at + place] = word & ID
                losses += 1 if word >= 0 else 0
                ends += 1 if token == eos else 0
            if channels > 3:
                for place in range(filled):
                    rows[row, 3, at + place] = filled - 1 - place
                    rows[row, 4, at + place] = place
            at += filled
            if shows_last and at < length:
                token = np.int32(words[first + filled]) & ID
                rows[row, 0, at] = token
                rows[row, 1, at] = unseen
                rows[row, 2, at] = pad
                ends += 1 if token == eos else 0
                at += 1
        counts[row, 0] = length - at
        counts[row, 1] = losses
        counts[row, 2] = ends
        for place in range(at, length):
            rows[row, 0, place] = pad
            rows[row, 1, place] = unseen
            rows[row, 2, place] = pad
        if channels > 3:
            for place in range(at, length):
                rows[row, 3, place] = 0
                rows[row, 4, place] = 0


def fill_rows(
    words: NDArray[np.int32],
    rows: Rows,
    shape: tuple[int, int],
    *,
    eos_id: int | None,
    pad_id: int,
    inverted_mask: bool = False,
    shows_last: bool = False,
) -> tuple[NDArray[np.int32], Int64s]:
    """Make rows of segments of `words` (n_words,), whose sizes add up to no more than a row has room for.

    Parameters
    ----------
    words : ndarray of int32, (n_words,)
        Ids, with bit 31 set where a token is not to be predicted.
    rows : Rows
        Segments of each row.
    shape : tuple of int
        Channels (3; or 5 with spans and positions) and tokens of a channel.
    eos_id : int or None
        End of a document, which is counted.
    pad_id : int
        Stands behind the last segment, in ids and labels.
    inverted_mask : bool
        The mask is 1 where nothing is predicted.
    shows_last : bool
        The last token of a segment stands among the ids too, if there is room, and predicts nothing; of rows of one segment.

    Returns
    -------
    rows : ndarray of int32, (n_rows, channels, length)
        ``input_ids``, loss mask, ``labels``, ``attention_span`` (later positions of the segment that may still attend to this one), ``position_ids``.
    counts : ndarray of int64, (n_rows, 3)
        Padding, positions that count for the loss, ends of documents among the ids.
    """
    made = np.empty((len(rows), *shape), np.int32)
    counts = np.empty((len(rows), 3), np.int64)
    seen, unseen = (0, 1) if inverted_mask else (1, 0)
    starts, sizes = rows.segments.starts, rows.segments.sizes
    eos = -1 if eos_id is None else eos_id
    words = np.ascontiguousarray(words)
    _fill(words, starts, sizes, rows.bounds, pad_id, eos, seen, unseen, shows_last, made, counts)
    return made, counts
