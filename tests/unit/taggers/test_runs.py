"""`whitespace_tokenizer_v1`: tokens of words and of punctuation, across windows."""

import numpy as np
import pytest
import regex

from dolma_dask.taggers.whitespace_tokenizer import count_runs
from dolma_dask.text.tables import load_tables


def runs(text, after=b"x"):
    data = np.frombuffer((text.encode() + after).ljust(64, b"?"), np.uint8)
    return count_runs(data, 0, len(text.encode()), *load_tables())


def expected(text):
    return len(regex.findall(r"\w+|[^\w\s]+", text))


@pytest.mark.parametrize(
    "char", ["é", "あ", "\U00010348", "\u0301", "…", "\u3000", "٣", "\U0001f468", "\u200d", "_", "\x1c"]
)
def test_characters_over_the_edge_of_a_window(char):
    for before in range(58, 68):
        for lead in ("a", ".", " "):
            for tail in ("a", ".", " ", char, ""):
                text = lead * before + char + tail
                assert runs(text) == expected(text), (before, lead, tail)


def test_ascii_one_by_one():
    for code in range(128):
        for before in "a. ":
            assert runs(before + chr(code) + "a") == expected(before + chr(code) + "a"), code
