"""Fonts for the names of the data: matplotlib's own has no Chinese, Japanese, Korean or Indic letters, fonts of the machine may."""

import logging
from collections.abc import Iterator, Set
from contextlib import contextmanager
from functools import lru_cache

from matplotlib.font_manager import fontManager
from matplotlib.ft2font import FT2Font

FIRST = "DejaVu Sans"
"""Family that comes with matplotlib."""

_PLACEHOLDER = "Last Resort"
"""Family that has a box for every letter there is."""


def families_with(letters: Set[str]) -> tuple[list[str], Set[str]]:
    """Return families of installed fonts that together have some letters, `FIRST` at the front, and the letters that none has."""
    files, shown = _files(), frozenset(filter(str.isprintable, letters))
    families, left = [FIRST], shown - _found_in(files[FIRST], shown)
    while left:
        found = {name: _found_in(file, left) for name, file in sorted(files.items())}
        best = max(found, key=lambda name: len(found[name]))
        if not found[best]:
            break
        families, left = [*families, best], left - found[best]
    return families, left


@contextmanager
def quiet() -> Iterator[None]:
    """Keep matplotlib from reporting that a family has one weight alone."""
    logger = logging.getLogger("matplotlib.font_manager")
    logger.addFilter(_is_of_user)
    try:
        yield
    finally:
        logger.removeFilter(_is_of_user)


def _is_of_user(record: logging.LogRecord) -> bool:
    return "Failed to find font weight" not in record.getMessage()


def _files() -> dict[str, str]:
    """Return a file of each family."""
    upright = sorted(
        (entry for entry in fontManager.ttflist if entry.style == "normal"), key=lambda each: each.fname
    )
    return {entry.name: entry.fname for entry in upright if not entry.name.startswith(_PLACEHOLDER)}


@lru_cache(maxsize=10_000)
def _found_in(file: str, letters: frozenset[str]) -> frozenset[str]:
    """Return the letters that a font can draw; none if it holds pictures of one size, as fonts of emoji do."""
    try:
        font = FT2Font(file)
    except (OSError, RuntimeError):
        return frozenset()
    return frozenset(letter for letter in letters if font.scalable and font.get_char_index(ord(letter)))
