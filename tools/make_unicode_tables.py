"""Make ``dolma_dask/text/tables.npz``: the class of every code point, frozen so that scores do not change with Python.

``str.isspace``, ``str.isalpha`` and the ``\\w`` and ``\\s`` of the ``regex`` package follow the Unicode version
of whatever Python and ``regex`` are installed. The published taggers must give the same number on every machine,
so their classes are recorded once, here, and read from the file ever after. So are the folds that `dolma_dask.minhash.tokens` makes
equal what differs in case, diacritics and width.

Run ``python tools/make_unicode_tables.py`` with the ``test`` dependencies to write the file again; do so only
together with a raise of the ``version`` of every tagger whose output changes.
"""

import string
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import regex

from dolma_dask.taggers import olmo_pretokenizer as pieces
from dolma_dask.text import normalization, tables, word_breaks

TARGET = Path(__file__).resolve().parent.parent / "dolma_dask" / "text" / "tables.npz"
CODE_POINTS = 0x110000
BLOCK = 256
SURROGATES = range(0xD800, 0xE000)
UNSPACED = regex.compile(
    r"[\p{scx=Han}\p{scx=Hiragana}\p{scx=Katakana}\p{scx=Bopomofo}\p{scx=Yi}\p{scx=Tangut}\p{scx=Nushu}"
    r"\p{scx=Khitan_Small_Script}\p{scx=Balinese}\p{scx=Javanese}\p{Line_Break=SA}]"
)
"""Characters of scripts that are written without spaces."""
INVISIBLE = regex.compile(r"\p{Default_Ignorable_Code_Point}")
PUNCTUATION = regex.compile(r"[[:punct:]\s\u2600-\u27bf\U0001f300-\U0001f64f\U0001f680-\U0001f6ff]")
"""Punctuation, symbols that are no letters, white space, and the blocks of dingbats and emoji."""
REGEX_SPACE = regex.compile(r"\s")
HANGUL = range(0xAC00, 0xD7A4)
"""Syllables, which kernels compose and decompose by arithmetic."""


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
            | token_class_of(char)
        )

    return np.array([0 if code in SURROGATES else class_of(code) for code in codes], np.uint8)


def token_class_of(char: str) -> int:
    """Return how a character takes part in tokens: TOKEN, ALONE, FOLDS; 0 if it separates them."""
    if not (unicodedata.category(char)[0] in "LMN" or is_invisible(char)):
        return 0
    folded = fold(char)
    alone = tables.ALONE * (UNSPACED.match(folded or " ") is not None)
    return tables.TOKEN | alone | tables.FOLDS * (folded != char)


def fold(char: str) -> str:
    """Return what a character of tokens becomes: of normal width, case-folded, without diacritics and what is invisible; decomposed."""
    tag, _, wide = unicodedata.decomposition(char).partition(" ")
    if tag in ("<wide>", "<narrow>"):
        char = chr(int(wide, 16))
    return char if ord(char) in HANGUL else bare(bare(char).casefold())


def bare(text: str) -> str:
    """Decompose a text and drop the marks of a combining class other than 0, and what is invisible."""
    decomposed = unicodedata.normalize("NFD", text)
    return "".join(char for char in decomposed if not (unicodedata.combining(char) or is_invisible(char)))


def is_invisible(char: str) -> bool:
    """Tell whether an assigned character is ignored by default."""
    return unicodedata.category(char) != "Cn" and INVISIBLE.match(char) is not None


def str_classes(codes: Iterable[int] = range(CODE_POINTS)) -> np.ndarray:
    """The answers of the methods of `str` about each code point, uint8 of shape (codes,); bits as in `dolma_dask.text.tables.load_str_classes`."""

    def class_of(char: str) -> int:
        return (
            tables.SPACE * char.isspace()
            | tables.STR_WORD * (char.isalnum() or char == "_")
            | tables.STR_UPPER * char.isupper()
            | tables.STR_LOWER * (char.islower() or unicodedata.category(char) == "Lt")
            | tables.STR_NUMERIC * char.isnumeric()
        )

    return np.array([0 if code in SURROGATES else class_of(chr(code)) for code in codes], np.uint8)


def punctuation(codes: Iterable[int] = range(CODE_POINTS)) -> np.ndarray:
    """Whether each code point is `PUNCTUATION`, uint8 of shape (codes,)."""
    return np.array([PUNCTUATION.match(chr(code)) is not None for code in codes], np.uint8)


def fold_table(classes: np.ndarray) -> np.ndarray:
    """The entry of each code point, uint64 of shape (code points,); as in `dolma_dask.text.tables.load_folds`."""
    entries = np.zeros(CODE_POINTS, np.uint64)
    for code in np.flatnonzero(classes & tables.FOLDS):
        points = [ord(char) << tables.FOLDED * place for place, char in enumerate(fold(chr(code)))]
        entries[code] = sum(points)
    return entries


def compress(classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split an array over all code points into blocks of 256 and keep each different one once: (block number by code >> 8, blocks)."""
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


def break_classes() -> dict[str, np.ndarray]:
    """The class of each code point in `dolma_dask.text.word_breaks`, by the ``uniseg`` package; where it is not installed, what the file has."""
    names = ("break_numbers", "break_blocks")
    try:
        from uniseg.emoji import extended_pictographic
        from uniseg.wordbreak import word_break
    except ImportError:
        return dict(zip(names, tables.read_arrays(*names), strict=True))

    def class_of(char: str) -> int:
        name = word_break(char).value
        kinds = [f"{name} pictographic"] * extended_pictographic(char) + [f"{name} white"] * char.isspace()
        known = [kind for kind in kinds if kind in word_breaks.CLASSES]
        return word_breaks.CLASSES.index([*known, name][0])

    return dict(zip(names, compress(every_char(class_of)), strict=True))


def piece_classes() -> dict[str, np.ndarray]:
    """The class of each code point in `dolma_dask.taggers.olmo_pretokenizer`."""

    def class_of(char: str) -> int:
        category = unicodedata.category(char)
        if char == " " or REGEX_SPACE.match(char):
            return pieces.BLANK if char == " " else pieces.SPACE
        if category[0] == "P":
            return pieces.PUNCTUATION
        if category[0] == "N":
            return pieces.DIGIT if category == "Nd" else pieces.NUMBER
        return pieces.LETTER if category[0] == "L" else pieces.OTHER

    return dict(zip(("piece_numbers", "piece_blocks"), compress(every_char(class_of)), strict=True))


def every_char(class_of: Callable[[str], int]) -> np.ndarray:
    """The class of each code point, uint8 of shape (code points,); 0 for surrogates."""
    codes = range(CODE_POINTS)
    return np.array([0 if code in SURROGATES else class_of(chr(code)) for code in codes], np.uint8)


def main() -> None:
    """Write the file."""
    classes = classify()
    numbers, blocks = compress(classes)
    fold_numbers, folds = compress(fold_table(classes))
    str_numbers, str_blocks = compress(str_classes())
    punctuation_numbers, punctuation_blocks = compress(punctuation())
    versions = np.array([unicodedata.unidata_version, regex.__version__])
    arrays = {"numbers": numbers, "blocks": blocks, "fold_numbers": fold_numbers, "folds": folds}
    arrays |= {"str_numbers": str_numbers, "str_blocks": str_blocks}
    arrays |= {"punctuation_numbers": punctuation_numbers, "punctuation_blocks": punctuation_blocks}
    arrays |= break_classes() | piece_classes()
    np.savez_compressed(TARGET, versions=versions, **arrays, **lower_forms())
    made = f"{len(blocks) // BLOCK} blocks, {len(folds) // BLOCK} of folds"
    print(f"{TARGET}: {made}, {TARGET.stat().st_size} bytes, {versions}")


if __name__ == "__main__":
    main()
