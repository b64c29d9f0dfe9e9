"""A block of texts, read once for all taggers of a pass: its lengths, words and lines, each found on first use.

Words and lines of all texts stand back to back, text ``i`` having those from ``bounds[i]`` to ``bounds[i + 1]``. They take 21 bytes per word
and 16 per line while the view lives, so a view is made of a block that fits into the cache and not of a dataset. Finding words costs 1.2 ns
per byte of English.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from dolma_dask.errors import DataError
from dolma_dask.text import joined
from dolma_dask.text.columns import code_point_lengths, for_kernel, large_strings, string_parts
from dolma_dask.text.joined import JoinedTokens, parts_with_margin
from dolma_dask.text.kernels import Bytes, Counts, Words
from dolma_dask.text.normalization import normalise
from dolma_dask.text.tables import load_tables
from dolma_dask.text.words import count_words, find_lines, find_words, line_end, measure_words

LONGEST_TEXT = 2**31 - 1
"""Bytes of the longest text in which words and lines are found: their positions are held in 32 bits."""

PART_BYTES = 4 << 20
"""Bytes of texts that `TextView.parts` cuts at line ends: blocks of many documents have fewer."""

Int32s = npt.NDArray[np.int32]


class WordTable(Struct, frozen=True):
    """Words of all texts, as `str.split` makes them."""

    bounds: Counts  # (texts + 1,)
    starts: Int32s  # (words,) byte in the text
    sizes: Int32s  # (words,) bytes
    chars: Int32s  # (words,) code points
    hashes: Words  # (words,) see `dolma_dask.text.bits.hash_bytes`
    kinds: Bytes  # (words,) LETTER, NUMBER_SIGN and ELLIPSIS of `dolma_dask.text.words`


class LineTable(Struct, frozen=True):
    """Lines of all texts, as ``text.split("\\n")`` makes them: every text has one or more."""

    bounds: Counts  # (texts + 1,)
    starts: Int32s  # (lines,) byte in the text
    sizes: Int32s  # (lines,) bytes without the newline
    hashes: Words  # (lines,)


class NormalTable(Struct, frozen=True):
    """Normalised words of all texts (`dolma_dask.text.normalization`), by the lines of a `LineTable`."""

    tokens: JoinedTokens  # line ``j`` has the words from ``bounds[j]`` to ``bounds[j + 1]``
    chars: Int32s  # (words,) code points
    hashes: Words  # (words,) see `dolma_dask.text.bits.hash_bytes`


class TextView:
    """A block of texts without nulls (n,). `previous` is a view of an earlier block that nobody uses any more: this one takes over its
    memory.
    """

    def __init__(self, texts: pa.LargeStringArray, previous: "TextView | None" = None) -> None:
        self.texts = texts
        self.offsets, self.data = string_parts(texts)  # text i is data[offsets[i]:offsets[i + 1]]
        self.kept: dict[str, Any] = {}  # what a tagger has found, for others of its rule set
        self._rooms: dict[str, list[npt.NDArray[Any]]] = {} if previous is None else previous._rooms
        self._inner: dict[str, TextView] = {} if previous is None else previous._inner

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def lengths(self) -> Counts:
        """Code points of each text (n,)."""
        return code_point_lengths(self.texts)

    @cached_property
    def words(self) -> WordTable:
        """Words of all texts.

        Raises `DataError`: a text is longer than `LONGEST_TEXT` bytes.
        """
        self._check_sizes()
        bounds = np.zeros(len(self) + 1, np.int64)
        room = self.room(
            "words", self._bytes // 2 + len(self), np.int32, np.int32, np.int32, np.uint64, np.uint8
        )
        starts, lengths, chars, hashes, kinds = room
        find_words(self.data, self.offsets, *load_tables(), bounds, starts, lengths, chars, hashes, kinds)
        return WordTable(bounds, *(column[: bounds[-1]] for column in room))

    @cached_property
    def word_counts(self) -> Counts:
        """Number of words of each text (n,): a tenth of the time that it takes to say where they stand."""
        counts = np.empty(len(self), np.int64)
        count_words(self.data, self.offsets, counts)
        return counts

    def _check_sizes(self) -> None:
        sizes = np.diff(self.offsets)
        if sizes.max(initial=0) > LONGEST_TEXT:
            row = int(sizes.argmax())
            raise DataError(
                f"row {row} of the batch is a text of {sizes[row]:,} bytes; words and lines are measured in texts of up to {LONGEST_TEXT:,} bytes. "
                "Split the document, or leave it out before tagging.",
                row=row,
            )

    @cached_property
    def lines(self) -> LineTable:
        """Lines of all texts.

        Raises `DataError`: a text is longer than `LONGEST_TEXT` bytes.
        """
        self._check_sizes()
        bounds = np.zeros(len(self) + 1, np.int64)
        room = self.room("lines", self._bytes + len(self), np.int32, np.int32, np.uint64)
        starts, sizes, hashes = room
        find_lines(self.data, self.offsets, bounds, starts, sizes, hashes)
        return LineTable(bounds, *(column[: bounds[-1]] for column in room))

    @cached_property
    def pieces(self) -> tuple[Counts, Bytes]:
        """Byte at which each of `lines` begins, and the end of the last one (lines + 1,), with the UTF-8 that they cut; `dolma_dask.text.joined.MARGIN` bytes
        behind it can be read.
        """
        offsets, data = parts_with_margin(self.texts)
        cuts = np.empty(len(self.lines.starts) + 1, np.int64)
        cuts[:-1], cuts[-1] = np.repeat(offsets[:-1], np.diff(self.lines.bounds)), offsets[-1]
        cuts[:-1] += self.lines.starts
        return for_kernel(cuts), data

    @cached_property
    def normalised(self) -> NormalTable:
        """Normalised words of all texts.

        Raises `DataError`: the texts have more than `dolma_dask.text.joined.LONGEST_TEXT` bytes.
        """
        if self._bytes > joined.LONGEST_TEXT:
            row = int(np.diff(self.offsets).argmax())
            raise DataError(
                f"row {row} of the batch is the longest of texts of {self._bytes:,} bytes; words are normalised in texts of up to "
                f"{joined.LONGEST_TEXT:,} bytes together. Split the document, or leave it out before tagging.",
                row=row,
            )
        tokens = normalise(*self.pieces)
        words = len(tokens.starts) - 1
        room = self.room("normalised", self._bytes // 2 + len(self), np.int32, np.uint64)
        chars, hashes = (column[:words] for column in room)
        measure_words(tokens.data, tokens.starts, chars, hashes)
        return NormalTable(tokens, chars, hashes)

    def inner(self, texts: pa.LargeStringArray, name: str) -> "TextView":
        """Return a view of pieces of the texts; it takes over the memory of that of the same name in an earlier block."""
        self._inner[name] = TextView(texts, self._inner.get(name))
        return self._inner[name]

    @property
    def is_large(self) -> bool:
        """Whether what is found in each line takes too much memory to be held for all of them, as in one text of many MB."""
        return self._bytes > PART_BYTES

    def parts(self) -> Iterator[tuple[int, "TextView"]]:
        """Yield the texts in views of about `PART_BYTES`, each with the row of its first text; a longer one is cut at line ends. Each is used up before the next."""
        part = None
        for row, texts in self._cuts():
            part = TextView(texts, part)
            yield row, part

    def _cuts(self) -> Iterator[tuple[int, pa.LargeStringArray]]:
        row = 0
        while row < len(self):
            begin, end = self.offsets[row : row + 2].tolist()
            last = int(np.searchsorted(self.offsets, begin + PART_BYTES, "right")) - 1
            if last > row:
                yield row, self.texts[row:last]
            while last == row and begin < end:
                stop = min(line_end(self.data, min(begin + PART_BYTES, end), end) + 1, end)
                yield row, large_strings(np.array([begin, stop]), self.data)
                begin = stop
            row = max(last, row + 1)

    @property
    def _bytes(self) -> int:
        return int(self.offsets[-1] - self.offsets[0])

    def room(self, name: str, most: int, *types: type) -> list[npt.NDArray[Any]]:
        """Return an array of each type for `most` elements or more: address space, of which only what is reached becomes memory. The next call with this name, here or in
        the view of the next block, gives the same memory.
        """
        if name not in self._rooms or len(self._rooms[name][0]) < most:
            self._rooms[name] = [np.empty(1 << most.bit_length(), kind) for kind in types]
        return self._rooms[name]
