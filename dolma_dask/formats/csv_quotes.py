"""Quotes in tables of text: where one closes a cell of several lines and text follows it, a quote before it was probably never closed, and the rows between are lost in the cell.

Cost: one pass of a kernel over the bytes of the table.
"""

from collections.abc import Iterator

import numpy as np

from dolma_dask.text.kernels import Bytes, Counts, Int, kernel

_START, _PLAIN, _QUOTED, _CLOSED = (
    0,
    1,
    2,
    3,
)  # where the scan stands: before a cell, in one, in quotes, behind them
_FOUND = 256  # torn rows that are looked for at a time

_QUOTE, _NEWLINE, _RETURN = b'"\n\r'


@kernel
def _find_torn(
    data: Bytes, start: Int, delimiter: Int, carried: Counts, rows: Counts, lines: Counts
) -> tuple[Int, int]:
    """Return where the scan ended, and how many torn `rows` it found, with the `lines` of their cells."""
    found = 0
    state, inside, row, cells = carried[0], carried[1], carried[2], carried[3]
    position = np.int64(start)
    while position < data.size and found < rows.size:
        byte = data[position]
        position += 1
        if state == _QUOTED:
            if byte == _QUOTE:
                state = _CLOSED
            elif byte == _NEWLINE:
                inside += 1
        elif byte == delimiter:
            state, cells = _START, cells + 1
        elif byte in (_NEWLINE, _RETURN):
            if cells or state != _START:  # empty lines are no rows
                row += 1
            state, cells = _START, 0
        elif byte == _QUOTE and state == _CLOSED:  # two quotes are one in the cell
            state = _QUOTED
        elif byte == _QUOTE and state == _START:
            state, inside = _QUOTED, 0
        else:
            if state == _CLOSED and inside and (found == 0 or rows[found - 1] != row):
                rows[found], lines[found] = row, inside + 1
                found += 1
            state = _PLAIN
    carried[0], carried[1], carried[2], carried[3] = state, inside, row, cells
    return position, found


class QuoteScan:
    """A scan of the pieces of a table in their order."""

    def __init__(self, delimiter: str) -> None:
        self._delimiter = ord(delimiter)
        self._carried = np.zeros(4, np.int64)  # state, line ends in the cell, rows, delimiters in the row

    @property
    def is_open(self) -> bool:
        """True if the pieces until now end within quotes."""
        return int(self._carried[0]) == _QUOTED

    def torn(self, piece: bytes) -> Iterator[tuple[int, int]]:
        """Yield the rows in which text follows a cell of several lines behind its quote, from 0 with the heading, and the number of these lines."""
        data = np.frombuffer(piece, np.uint8)
        rows, lines = np.empty((2, _FOUND), np.int64)
        start: Int = 0
        while start < data.size:
            start, found = _find_torn(data, start, self._delimiter, self._carried, rows, lines)
            yield from zip(rows[:found].tolist(), lines[:found].tolist(), strict=True)
