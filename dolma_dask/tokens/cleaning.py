"""Texts before they are tokenized: repaired by ftfy, and wikitext's spaced-out punctuation put together.

ftfy works on a text line by line and leaves a line as it is that has only ASCII letters and marks, no ``&`` and no control characters. A
kernel finds the other lines, and only they go through ftfy: the result is the same, at 1 GB/s instead of 3 to 7 MB/s for plain lines.
"""

from collections.abc import Mapping
from importlib.metadata import version
from itertools import chain
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import asdict
from numpy.typing import NDArray

from dolma_dask.errors import UsageError
from dolma_dask.extras import require
from dolma_dask.text.columns import string_parts
from dolma_dask.text.kernels import kernel

Normalizer = Literal["NFC", "NFD", "NFKC", "NFKD"]

LIKE_MODELZOO = ("6.1.", "6.2.")
"""Versions of ftfy that make the rows of ModelZoo 2.2, which asks for 6.1.1."""

_NEWLINE, _ANGLE = 10, 60

_PLAIN = np.zeros(256, np.uint8)
_PLAIN[[9, 10, 12, *range(32, 127)]] = 1  # form feed and tab are the control characters that ftfy keeps
_PLAIN[38] = 0  # & may begin an entity


class Cleaning(Struct, frozen=True):
    """Repairs of every text.

    Raises `UsageError`: there is no such normalization.
    """

    use_ftfy: bool = False  # repair with ftfy: broken encodings, entities, control characters, line ends
    normalizer: Normalizer | None = "NFC"  # unicode normalization that ftfy ends with
    wikitext: bool = False  # put wikitext's punctuation together

    def __post_init__(self) -> None:
        if self.normalizer is not None and self.normalizer not in get_args(Normalizer):
            raise UsageError(
                f"ftfy_normalizer={self.normalizer!r}; expected one of {', '.join(get_args(Normalizer))}, or None for no normalization."
            )

    @property
    def ftfy(self) -> str | None:
        """Version of ftfy, if it repairs the texts: others may repair them otherwise."""
        if not self.use_ftfy:
            return None
        require("ftfy", "the repair of texts")
        return version("ftfy")

    def params(self) -> Mapping[str, Any]:
        """Return all that decides the cleaned texts."""
        return {**asdict(self), **({"ftfy": self.ftfy} if self.use_ftfy else {})}

    def check_like_modelzoo(self) -> None:
        """Refuse a version of ftfy that repairs other texts than those of ModelZoo 2.2.

        Raises `UsageError`.
        """
        if self.ftfy and not self.ftfy.startswith(LIKE_MODELZOO):
            raise UsageError(
                f"compat='modelzoo-2.2' repairs texts with ftfy, and version {self.ftfy} is installed; expected one of 6.1 or 6.2, whose rows are "
                "those of ModelZoo 2.2 (it asks for 6.1.1): 6.3 repairs some texts otherwise. Install it: python -m pip install 'ftfy>=6.2,<6.3'. "
                "Without repairs (use_ftfy=False, --use-ftfy False) or compat any version will do."
            )

    def apply(self, texts: pa.LargeStringArray) -> pa.LargeStringArray:
        """Return the cleaned texts; the array itself if nothing changes."""
        if self.use_ftfy:
            texts = fix_texts(texts, self.normalizer)
        if self.wikitext:
            texts = pa.array([detokenize(text) for text in texts.to_pylist()], pa.large_string())
        return texts


@kernel
def _find_lines(data, offsets, plain, out):  # type: ignore[no-untyped-def]
    """Find lines that are not plain; return how many. Up to ``len(out)`` of them get (start, stop, ``<`` seen in the text before)."""
    count = 0
    for text in range(len(offsets) - 1):
        begin, end, seen = offsets[text], offsets[text + 1], 0
        while begin < end:
            stop, is_plain, has_angle = begin, 1, 0
            while stop < end:
                byte = data[stop]
                is_plain &= plain[byte]
                has_angle |= byte == _ANGLE
                stop += 1
                if byte == _NEWLINE:
                    break
            if not is_plain:
                if count < len(out):
                    out[count, 0], out[count, 1], out[count, 2] = begin, stop, seen
                count += 1
            seen |= has_angle
            begin = stop
    return count


def fix_texts(texts: pa.LargeStringArray, normalizer: Normalizer | None) -> pa.LargeStringArray:
    """Return ``ftfy.fix_text`` of every text.

    Once a text has a ``<``, ftfy takes it for HTML and leaves entities alone from that line on: a line must know what came before it.
    """
    offsets, data = string_parts(texts)
    lines = _odd_lines(data, offsets)
    import ftfy

    before = ftfy.TextFixerConfig(normalization=normalizer, explain=False)
    after = before._replace(unescape_html=False)
    changes = []
    for start, stop, seen in lines.tolist():
        line = data[start:stop].tobytes()
        fixed = ftfy.fix_text(line.decode(), after if seen else before).encode()
        if fixed != line:
            changes.append((start, stop, fixed))
    return _replaced(texts, data, offsets, changes) if changes else texts


def _odd_lines(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    lines = np.empty((1024, 3), np.int64)
    count = _find_lines(data, offsets, _PLAIN, lines)
    if count > len(lines):
        lines = np.empty((count, 3), np.int64)
        _find_lines(data, offsets, _PLAIN, lines)
    return lines[:count]


def _replaced(
    texts: pa.LargeStringArray,
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    changes: list[tuple[int, int, bytes]],
) -> pa.LargeStringArray:
    """Return the texts with some of their bytes exchanged."""
    view, position = memoryview(data.data), int(offsets[0])
    pieces: list[bytes | memoryview] = []
    for start, stop, fixed in changes:
        pieces += [view[position:start], fixed]
        position = stop
    pieces.append(view[position : int(offsets[-1])])
    grown = np.cumsum([0, *(len(fixed) - (stop - start) for start, stop, fixed in changes)])
    ends = np.searchsorted(np.array([stop for _, stop, _ in changes]), offsets, side="right")
    moved = offsets - offsets[0] + grown[ends]
    buffers = [None, pa.py_buffer(moved.astype(np.int64)), pa.py_buffer(b"".join(pieces))]
    return pa.Array.from_buffers(pa.large_string(), len(texts), buffers)


_REPLACED_FIRST = (
    ("s '", "s'"),
    (" @-@ ", "-"),
    (" @,@ ", ","),
    (" @.@ ", "."),
    *((f" {mark} ", f"{mark} ") for mark in ":;.!?,"),
)
_PAIRS = (("(", ")"), ("[", "]"), ("{", "}"), ('"', '"'), ("'", "'"))
_REPLACED_LAST = (
    ("= = = =", "===="),
    ("= = =", "==="),
    ("= =", "=="),
    (" \N{DEGREE SIGN} ", "\N{DEGREE SIGN}"),
    (" \n", "\n"),
    ("\n ", "\n"),
    (" N ", " 1 "),
    (" 's", "'s"),
)


def detokenize(text: str) -> str:
    """Undo the tokenization of wikitext: ``3 @,@ 000 ( about ) .`` becomes ``3,000 (about).``

    The replacements are made in the order in which the tool of WikiText-103's readers makes them.
    """
    for old, new in _REPLACED_FIRST:
        text = text.replace(old, new)
    for opening, closing in _PAIRS:
        text = _strip_inside(text, opening, closing)
    for old, new in _REPLACED_LAST:
        text = text.replace(old, new)
    return text


def _strip_inside(text: str, opening: str, closing: str) -> str:
    """Strip white space behind each opening mark and before the next closing one."""
    pieces, position = [], 0
    while (start := text.find(opening, position)) >= 0 and (stop := text.find(closing, start + 1)) >= 0:
        pieces.append((text[position : start + 1], text[start + 1 : stop].strip(), closing))
        position = stop + 1
    return "".join(chain(chain.from_iterable(pieces), [text[position:]]))
