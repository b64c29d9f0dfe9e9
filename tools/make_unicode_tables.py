"""Make ``dolma_dask/text/tables.npz``: the class of every code point, frozen so that scores do not change with Python.

``str.isspace``, ``str.isalpha`` and the ``\\w`` and ``\\s`` of the ``regex`` package follow the Unicode version
of whatever Python and ``regex`` are installed. The published taggers must give the same number on every machine,
so their classes are recorded once, here, and read from the file ever after.

Run ``python tools/make_unicode_tables.py`` with the ``test`` dependencies to write the file again; do so only
together with a raise of the ``version`` of every tagger whose output changes.
"""

import string
import unicodedata
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import regex

from dolma_dask.text import normalization, tables

TARGET = Path(__file__).resolve().parent.parent / "dolma_dask" / "text" / "tables.npz"
CODE_POINTS = 0x110000
BLOCK = 256
SURROGATES = range(0xD800, 0xE000)
HANGUL = range(0xAC00, 0xD7A4)


def classify(codes: Iterable[int] = range(CODE_POINTS)) -> np.ndarray:
    """The class byte of each code point, uint8 of shape (codes,); bits as in `dolma_dask.text.tables`."""
    word, space = regex.compile(r"\w"), regex.compile(r"\s")

    def class_of(code: int) -> int:
        char = chr(code)
        return (
            tables.SPACE * char.isspace()
            | tables.LETTER * char.isalpha()
            | tables.REGEX_SPACE * (space.match(char) is not None)
            | tables.REGEX_WORD * (word.match(char) is not None)
            | tables.ASSIGNED * (unicodedata.category(char) != "Cn")
        )

    return np.array([0 if code in SURROGATES else class_of(code) for code in codes], np.uint8)


def compress(classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split `classes` into blocks of 256 and keep each different one once: (block number by code >> 8, blocks)."""
    blocks, numbers = np.unique(classes.reshape(-1, BLOCK), axis=0, return_inverse=True)
    return numbers.reshape(-1).astype(np.uint8), blocks.reshape(-1)


def lower_forms() -> dict[str, np.ndarray]:
    """The lower-case canonical decomposition of each code point; arrays as in `dolma_dask.text.normalization`."""
    forms = {("", 0, 0): 0}

    def form_of(char: str) -> int:
        lowered = unicodedata.normalize("NFD", char.lower())
        marks = [unicodedata.combining(part) for part in lowered]
        return forms.setdefault(("" if lowered == char else lowered, marks[0], marks[-1]), len(forms))

    def flags_of(char: str) -> int:
        cased = (char + "\u03a3").lower().endswith("\u03c2")
        ignored = ("A" + char + "\u03a3").lower().endswith("\u03c2") and not cased
        ignored |= char in string.punctuation
        return (
            normalization.CASED * cased
            | normalization.IGNORED * ignored
            | normalization.SPACE * char.isspace()
        )

    plain = {*SURROGATES, *HANGUL}
    codes = [0 if code in plain else form_of(chr(code)) | flags_of(chr(code)) for code in range(CODE_POINTS)]
    numbers, blocks = compress(np.array(codes, np.uint16))
    texts, first, last = zip(*forms, strict=True)
    return {
        "lower_numbers": numbers,
        "lower_blocks": blocks,
        "lower_sizes": np.array([len(text.encode()) for text in texts], np.uint8),
        "lower_classes": np.array([first, last], np.uint8),
        "lower_texts": np.frombuffer("".join(texts).encode(), np.uint8),
    }


def main() -> None:
    """Write the file."""
    numbers, blocks = compress(classify())
    versions = np.array([unicodedata.unidata_version, regex.__version__])
    np.savez_compressed(TARGET, numbers=numbers, blocks=blocks, versions=versions, **lower_forms())
    print(f"{TARGET}: {len(blocks) // BLOCK} blocks, {TARGET.stat().st_size} bytes, {versions}")


if __name__ == "__main__":
    main()
