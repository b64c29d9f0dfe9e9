"""Words by the rules of Unicode: the recorded classes, and texts in which a careless machine takes quadratic time."""

import numpy as np
import pyarrow as pa
import pytest
import regex

from dolma_dask.text.columns import string_parts
from dolma_dask.text.tables import read_arrays
from dolma_dask.text.word_breaks import CLASSES, count_words, load_word_breaks, word_stop


def words(text):
    offsets, data = string_parts(pa.array([text], pa.large_string()))
    at, found = 0, []
    while at < offsets[1]:
        stop = word_stop(data, at, int(offsets[1]), *load_word_breaks())
        found.append(bytes(data[at:stop]).decode())
        at = stop
    return found


def test_words_end_where_the_standard_says():
    assert "|".join(words("The quick (“brown”) fox can’t jump 32.3 feet, right?")) == (
        "The| |quick| |(|“|brown|”|)| |fox| |can’t| |jump| |32.3| |feet|,| |right|?"
    )
    assert words("a:b a: b 1,2 1,a\r\n\u0308x  y") == [
        "a:b", " ", "a", ":", " ", "b", " ", "1,2", " ", "1", ",", "a", "\r\n", "\u0308", "x", "  ", "y",
    ]  # fmt: skip


@pytest.mark.slow
def test_classes_are_those_of_a_newer_unicode_unless_it_gave_a_character_one():
    """Only what had no class got one since; signs lost theirs of pictures."""
    numbers, blocks = read_arrays("break_numbers", "break_blocks")
    codes = np.setdiff1d(np.arange(0x110000), np.arange(0xD800, 0xE000))
    found = blocks[numbers[codes >> 8].astype(int) * 256 + (codes & 255)]
    text = "".join(map(chr, codes))
    for name in {known.partition(" ")[0] for known in CLASSES} - {"Other"}:
        numbered = [k for k, known in enumerate(CLASSES) if known.partition(" ")[0] == name]
        matched = np.zeros(len(codes), bool)
        matched[[match.start() for match in regex.finditer(rf"\p{{Word_Break={name}}}", text)]] = True
        is_other = np.char.startswith(np.array(CLASSES)[found[matched]], "Other")
        assert np.isin(found[matched], numbered)[~is_other].all()
        assert matched[np.isin(found, numbered)].all(), name
        assert is_other.sum() < 800


@pytest.mark.parametrize(
    "piece, count",
    [("a", 1), ("1,", 2), ("a'\u0308", 2), ("\u200d", 1), ("\U0001f1e6", 50_000), ("\n", 0), ('\u05d0"', 2)],
)
def test_long_runs_take_no_longer(piece, count):
    """A machine that went back to the beginning for each character would take minutes."""
    data = np.frombuffer((piece * 100_000).encode().ljust(64), np.uint8)
    assert count_words(data, 0, data.size, *load_word_breaks()) == (count, count)
