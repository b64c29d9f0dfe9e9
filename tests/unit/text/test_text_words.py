"""Ends of words: at every place of a window, before every kind of white space."""

import re

import numpy as np
import pyarrow as pa
import pytest

from dolma_dask.text.tables import SPACE, load_tables
from dolma_dask.text.view import TextView
from dolma_dask.text.words import length_at, space_bytes, word_end, word_start

EVERY_CHAR = np.r_[0:0xD800, 0xE000:0x110000].astype("<u4").tobytes().decode("utf-32-le")
SPACES = re.findall(r"\s", EVERY_CHAR)  # those of `str.isspace`, by its documentation
NOT_SPACES = [chr(code) for code in [*range(0x3100), *range(0xFE00, 0x11000)] if not chr(code).isspace()]


def buffer(text):
    return np.frombuffer(text.encode("utf-8").ljust(64, b"!"), np.uint8)


def split(text):
    data, end = buffer(text), len(text.encode())
    found, at = [], word_start(data, 0, end)
    while at < end:
        stop = word_end(data, at, end)
        found.append(bytes(data[at:stop]).decode())
        at = word_start(data, stop, end)
    return found


def test_white_space_is_that_of_str():
    for char in SPACES:
        assert space_bytes(buffer(char), 0) == len(char.encode()), hex(ord(char))
    text = "".join(char for char in NOT_SPACES)
    data, at = buffer(text), 0
    for char in text:
        assert space_bytes(data, at) == 0, hex(ord(char))
        at += len(char.encode())


def test_table_and_bytes_agree_on_white_space():
    numbers, blocks = load_tables()
    classes = blocks.reshape(-1, 256)[numbers].reshape(-1)
    assert [chr(code) for code in np.flatnonzero(classes & SPACE)] == SPACES


@pytest.mark.parametrize("space", SPACES, ids=lambda char: f"{ord(char):04x}")
def test_word_of_any_length_ends_at_any_white_space(space):
    for letter in "aéあ\U00010348":
        for length in range(12, 70):
            text = f"{letter * length}{space}{space}b{space}"
            assert split(text) == text.split(), (letter, length)


@pytest.mark.parametrize("near", "\u0084\u00a1\u1681\u2027\u202a\u200b\u205e\u3001\x1b\x08\x0e\u20a0\u2180")
def test_neighbours_of_white_space_do_not_end_a_word(near):
    for length in range(70):
        text = "a" * length + near + "b c"
        assert split(text) == text.split()


def test_bytes_after_the_end_do_not_matter():
    data = np.frombuffer(("ab" * 40 + " c").encode(), np.uint8)
    for end in range(1, 80):
        assert word_end(data, 0, end) == end


@pytest.mark.parametrize(
    "lengths", [[1], [3, 1], [300, 5, 400], [1000, 999, 5000, 17], [256, 255, 257], list(range(600))]
)
def test_length_at_any_rank(lengths):
    ends = np.r_[0, np.cumsum(lengths)].astype(np.int64)
    common = np.bincount(np.minimum(lengths, 256), minlength=257).astype(np.int64)
    found = [length_at(rank, ends, len(lengths), common) for rank in range(len(lengths))]
    assert found == sorted(lengths)


@pytest.mark.parametrize("space", ["\u3000", "\xa0", "\x1c", " \u2003"])
def test_words_are_counted_wherever_windows_end(space):
    texts = ["", space, "a"]
    for length in range(58, 70):
        texts += [
            "é" * 20 + "a" * (length - 40) + behind for behind in (space, f"{space}{space}b", f"{space}あ")
        ]
        texts += [space * length, f"{space * length}b{space}", "あ" * length]
    assert TextView(pa.array(texts, pa.large_string())).word_counts.tolist() == [
        len(text.split()) for text in texts
    ]
