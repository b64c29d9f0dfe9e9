"""Normalised words: every character, every place of a window, and marks without end."""

import importlib.util
import re
import string
import unicodedata
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from thorough import THOROUGH

from dolma_dask.text import normalization, tables
from dolma_dask.text.normalization import normalised_words

IS_SAME_UNICODE = tables.table_versions()[0] == unicodedata.unidata_version
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def expected(text):
    lowered = text.translate(NO_PUNCTUATION).lower()
    return unicodedata.normalize("NFD", re.sub(r"\s+", " ", lowered.strip()))


def normalised(texts):
    tokens = normalised_words(pa.array(texts, pa.large_string()))
    ends = tokens.starts[tokens.bounds]
    return [
        bytes(tokens.data[first : max(last - 1, first)]).decode() for first, last in pairwise(ends.tolist())
    ]


@pytest.mark.slow
def test_every_character():
    numbers, blocks = tables.load_tables()
    classes = blocks.reshape(-1, 256)[numbers].reshape(-1)
    step = 1 if THOROUGH else 16  # code points of no character are alike: some of every block of the tables
    codes = [
        code
        for code in range(0x110000)
        if not 0xD800 <= code < 0xE000
        and (classes[code] & tables.ASSIGNED or (IS_SAME_UNICODE and code % step == 0))
    ]
    texts = [f"a{chr(code)}\u0301Σ {chr(code)}Σ{chr(code)}" for code in codes]
    wrong = [
        hex(code)
        for code, text, own in zip(codes, texts, normalised(texts), strict=True)
        if own != expected(text)
    ]
    assert wrong == []


@pytest.mark.parametrize("piece", [".", " ", "É", "ΣΑ", "한", "\u0323\u0301", "'\t-", "あ", "\U00010400"])
def test_every_place_of_a_window(piece):
    texts = ["W" * before + piece + "X" * after for before in range(0, 70) for after in (0, 1, 64)]
    texts += [("W" * before + piece) * 5 for before in range(20)]
    assert normalised(texts) == [expected(text) for text in texts]


def test_marks_are_sorted_however_many():
    marks = "\u0301\u0323\u0345\u0300\u0f74\u0f71\u0338" * 3000
    runs = sorted(marks, key=unicodedata.combining)
    assert normalised([f"e{marks}-{marks}!a", marks]) == [
        "e" + "".join(sorted(runs * 2, key=unicodedata.combining)) + "a",
        "".join(runs),
    ]


def test_no_character_grows_more_than_the_room():
    forms = normalization.load_forms()
    sizes = np.diff(forms.starts)[
        forms.blocks.reshape(-1, 256)[forms.numbers].reshape(-1) & normalization.FORM
    ]
    widths = np.searchsorted([0x80, 0x800, 0x10000], np.arange(0x110000), "right") + 1
    assert (sizes / widths).max() <= normalization.GROWTH


@pytest.mark.slow
def test_tool_makes_the_shipped_arrays():
    if not IS_SAME_UNICODE:
        pytest.skip("another Unicode version than that of the tables")
    path = Path(__file__).resolve().parents[3] / "tools" / "make_unicode_tables.py"
    spec = importlib.util.spec_from_file_location("make_unicode_tables", path)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    for name, made in tool.lower_forms().items():
        np.testing.assert_array_equal(made, tables.read_arrays(name)[0], err_msg=name)
