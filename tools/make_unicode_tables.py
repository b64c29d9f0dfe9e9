"""Make ``dolma_dask/text/tables.npz``: the class of every code point, frozen so that scores do not change with Python.

``str.isspace``, ``str.isalpha`` and the ``\\w`` and ``\\s`` of the ``regex`` package follow the Unicode version
of whatever Python and ``regex`` are installed. The published taggers must give the same number on every machine,
so their classes are recorded once, here, and read from the file ever after.

Run ``python tools/make_unicode_tables.py`` with the ``test`` dependencies to write the file again; do so only
together with a raise of the ``version`` of every tagger whose output changes.
"""

import unicodedata
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import regex

from dolma_dask.text import tables

TARGET = Path(__file__).resolve().parent.parent / "dolma_dask" / "text" / "tables.npz"
CODE_POINTS = 0x110000
BLOCK = 256
SURROGATES = range(0xD800, 0xE000)


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


def main() -> None:
    """Write the file."""
    numbers, blocks = compress(classify())
    versions = np.array([unicodedata.unidata_version, regex.__version__])
    np.savez_compressed(TARGET, numbers=numbers, blocks=blocks, versions=versions)
    print(f"{TARGET}: {len(blocks) // BLOCK} blocks, {TARGET.stat().st_size} bytes, {versions}")


if __name__ == "__main__":
    main()
