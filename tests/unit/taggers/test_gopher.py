"""`gopher_v2`: values worked out by hand, and what a batch may look like."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from dolma_dask.errors import DataError
from dolma_dask.taggers.gopher import TYPES, gopher_v2
from dolma_dask.text import view


def tag(*texts):
    return gopher_v2(
        pa.RecordBatch.from_arrays([pa.array(texts, pa.large_string())], names=["text"])
    ).to_pylist()


def measured(text, *names):
    row = tag(text)[0]
    return tuple(row[name] for name in names)


@pytest.mark.slow
def test_empty_text_has_no_ngrams_and_zeros_elsewhere():
    assert list(tag("")[0].values()) == [None] * 9 + [0.0] * 10


def test_ngrams_are_null_with_too_few_words():
    for words in range(12):
        row = tag(" ".join("abcdefghijkl"[:words]))[0]
        assert [row[name] is None for name in TYPES[:9]] == [words < n for n in range(2, 11)]


def test_lines_between_newline_runs():
    names = ("fraction_of_duplicate_lines", "fraction_of_characters_in_duplicate_lines")
    assert measured("\n", *names) == (1.0, 0.0)
    assert measured("a\n\n\na", *names) == (1.0, 1.0)
    assert measured("\nab\ncd\nab\n", *names) == (4 / 5, 4 / 6)
    assert measured("a\r\na", *names) == (0.0, 0.0)
    assert measured(" \n ", *names) == (1.0, 2.0), (
        "without words the characters count whole, as in the toolkit"
    )
    assert measured("\t\n\t\n", *names) == (2 / 3, 2.0)
    assert measured(" \n\t", *names) == (0.0, 0.0)


def test_bullets_and_ellipses_are_of_one_kind_each():
    names = ("fraction_of_lines_starting_with_bullet_point", "fraction_of_lines_ending_with_ellipsis")
    assert measured("- a\n* b\n• c\n - d", *names) == (0.5, 0.0)
    assert measured("a…\nb...\nc… \n…", *names) == (0.0, 0.5)


def test_words():
    assert measured("a bb ccc dddd", "median_word_length", "word_count") == (2.5, 4.0)
    assert measured("#a b# …c d ##", "symbol_to_word_ratio") == (4 / 5,)
    assert measured("1 a1 é ½ 中 Ⅷ", "fraction_of_words_with_alpha_character") == (3 / 6,)
    assert measured("the The be to of and that have with, the\x00 the", "required_word_count") == (8.0,)


def test_required_words_are_compared_whole():
    """Eight bytes and the size are compared in one word, in which a longer word could look like a required one."""
    assert measured("the\0\0\0\0\x08abc to\0 \0\0\0\0 then ofof", "required_word_count") == (0.0,)


def test_most_common_pair_of_a_tie_is_the_first():
    assert measured("aaa b aaa b c d c d", "fraction_of_characters_in_most_common_2grams") == (2 * 4 / 12,)
    assert measured("c d aaa b aaa b c d", "fraction_of_characters_in_most_common_2grams") == (2 * 2 / 12,)


def test_overlapping_pairs_pass_one():
    assert measured("a a a a", "fraction_of_characters_in_most_common_2grams") == (6 / 4,)


def test_duplicate_ngrams_weigh_by_length():
    text = "a bb ccc dd e X a bb ccc dd e"
    assert measured(text, "fraction_of_characters_in_duplicate_5grams") == (18 / 59,)


@pytest.mark.parametrize("words", [1, 100, 5000])
def test_median_of_long_words(words):
    texts = " ".join("x" * (200 + k) for k in range(words))[:2_000_000]
    lengths = sorted(map(len, texts.split()))
    assert measured(texts, "median_word_length") == (float(np.median(lengths)),)


def test_table_grows_within_a_batch():
    long = " ".join(map(str, range(3000)))
    lines = "\n".join("ab")
    rows = tag("a b a b", long, "x\n" * 5000, long, "a b a b", lines)
    assert [row["word_count"] for row in rows] == [4.0, 3000.0, 5000.0, 3000.0, 4.0, 2.0]
    assert rows[0] == rows[4]
    assert rows[1] == rows[3] == tag(long)[0]
    assert rows[2]["fraction_of_duplicate_lines"] == 5000 / 5001


def test_too_long_a_text_is_refused(monkeypatch):
    monkeypatch.setattr(view, "LONGEST_TEXT", 10)
    with pytest.raises(
        DataError, match=r"row 1 of the batch is a text of 11 bytes.*up to 10 bytes. Split"
    ) as caught:
        tag("short", "x" * 11)
    assert caught.value.details["row"] == 1


@pytest.mark.slow
def test_memory_follows_the_words():
    """A text of half a million different words needs less than 100 bytes for each; those of small texts a fifth of that."""
    code = (
        "import numpy as np, pyarrow as pa\n"
        "from dolma_dask.metering import peak_bytes\n"
        "from dolma_dask.taggers.gopher import measure\n"
        "from dolma_dask.text.view import TextView\n"
        "one = TextView(pa.array([' '.join(map(str, range(500_000)))], pa.large_string()))\n"
        "many = TextView(pa.array(['some words in a text '] * 250_000, pa.large_string()))\n"
        "measure(TextView(pa.array(['x'], pa.large_string())))\n"
        "start = peak_bytes(); measure(one); middle = peak_bytes(); measure(many); end = peak_bytes()\n"
        "print((middle - start) / 1e6, (end - start) / 1e6)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    one, both = map(float, done.stdout.split())
    assert one < 50
    columns, words, lines = 19 * 8 * 0.25, 21 * 1.25, 24 * 0.25
    assert both < one + columns + words + lines + 10
