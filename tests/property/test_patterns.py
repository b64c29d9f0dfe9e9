"""Personal data and repetitions equal the patterns of their definitions on texts that are full of what these look for, and take no quadratic time."""

import re
import sys

import pyarrow as pa
import pytest
import tagger_oracles as oracles
from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.taggers.pii_patterns import FIRST_DIGITS
from dolma_dask.taggers.registry import get_tagger

PERSONAL = ("pii_regex_v2", "pii_regex_with_counts_v2", "pii_regex_with_counts_fast_v2")
REPEATED = ("repetitions_v1", "paragraph_repetitions_v1")

blanks = st.sampled_from(["", "", " ", "\n", "  ", "\u3000", "\xa0", "\x1c"])
marks = st.text(st.sampled_from("@@@..,?!;:)(ab \né\u3000"), max_size=25)
digits = st.text(st.sampled_from("0123456789٣３½"), min_size=2, max_size=4)
phones = st.tuples(
    blanks, st.sampled_from(["", "("]), digits, st.sampled_from([")", "-.", " "]), digits, digits
).map("".join)
pieces = st.sampled_from(
    ["a@b.c", "(@b.c ", "1.2.3.4", "256.1.1.1.1", " 555-123-4567", "isbn", "doi", "#", "x " * 60]
)
personal = st.lists(st.one_of(marks, phones, pieces, blanks), max_size=8).map("".join)
copies = st.tuples(
    st.text(st.sampled_from("ab \n\t\u3000"), min_size=1, max_size=9), blanks, st.integers(1, 6)
)
repeated = st.lists(copies.map(lambda it: (it[0] + it[1]) * it[2]), max_size=5).map("".join)


def tag(name, texts):
    batch = pa.RecordBatch.from_arrays([pa.array(texts, pa.large_string())], names=["text"])
    return get_tagger(name)(batch).to_pylist()


@pytest.mark.parametrize("name", PERSONAL)
@given(texts=st.lists(personal, min_size=1, max_size=3))
def test_personal_data_are_what_the_patterns_match(name, texts):
    assert repr(tag(name, texts)) == repr([oracles.ORACLES[name](text) for text in texts])


@pytest.mark.parametrize("name", PERSONAL)
@pytest.mark.parametrize("shift", range(0, 128, 7))
def test_personal_data_are_found_wherever_a_window_ends(name, shift):
    pieces = ("a@b.c", "192.168.100.200", "1.2.3.4", "(555) 123-4567", "555 123 4567", "５５５１２３４５６７")
    texts = [f"{'x' * shift}{end}{piece}{end}y" for piece in pieces for end in (" ", "\n")]
    assert repr(tag(name, texts)) == repr([oracles.ORACLES[name](text) for text in texts])


@pytest.mark.parametrize("name", PERSONAL)
def test_all_digits_make_numbers(name):
    digits = [chr(zero + 7) for zero in FIRST_DIGITS]
    texts = [f" {digit * 3} {digit * 3}-{digit * 4} " for digit in digits]
    assert repr(tag(name, texts)) == repr([oracles.ORACLES[name](text) for text in texts])
    assert all(row["PHONE_NUMBER"] for row in tag(name, texts))


def test_letters_of_any_case_make_a_notice():
    letters = re.findall("[copyright]", "".join(map(chr, range(sys.maxunicode))), re.IGNORECASE)
    words = ["copyright".replace(small, letter) for letter in letters for small in "copyright"]
    texts = [f"/* {word} */" for word in words]
    name = "code_copyright_comments_v1"
    assert repr(tag(name, texts)) == repr([oracles.ORACLES[name](text) for text in texts])
    assert len(letters) > 2 * len(set("copyright"))


@pytest.mark.parametrize("name", REPEATED)
@given(texts=st.lists(repeated, min_size=1, max_size=3))
def test_repetitions_are_what_the_pattern_matches(name, texts):
    assert repr(tag(name, texts)) == repr([oracles.ORACLES[name](text) for text in texts])


@pytest.mark.parametrize("name", [*PERSONAL, *REPEATED])
@pytest.mark.parametrize(
    "piece", ["a", "1", "@", "\n", " ", "a@", ".@", " 123 ", "1.", "a@b.c ", "a" * 999 + "b"]
)
def test_long_texts_of_one_piece_take_linear_time(name, piece):
    (found,) = tag(name, [piece * (100_000 // len(piece))])
    assert found.keys() == get_tagger(name).types.keys()


def test_a_text_without_personal_data_has_none_of_its_characters_in_spans():
    texts = ["nothing here", "mail a@b.c\n", "a@b.c", ""]
    assert [row["doc_frac"] for row in tag("pii_regex_with_counts_fast_v2", texts)] == [0, 7 / 11, 1, -1]
    assert [row["doc"] for row in tag("pii_regex_v1", texts)] == [0, 1 / 2, 1, -1]
