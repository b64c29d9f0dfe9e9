"""`c4_v1` and `c4_v2`: what lies across the windows of a kernel, and lists of naughty words."""

import io
from functools import partial

import pyarrow as pa
import pytest

from dolma_dask.errors import DataError
from dolma_dask.taggers.registry import get_tagger


def tag(name, *texts, bad_words=None):
    files = {} if bad_words is None else {"bad_words/en.txt": partial(io.BytesIO, bad_words)}
    batch = pa.RecordBatch.from_arrays([pa.array(texts, pa.large_string())], names=["text"])
    return get_tagger(name).with_files(files)(batch).to_pydict()


@pytest.mark.parametrize(
    "found, flag",
    [("JavaScript", "has_javascript"), ("Lorem Ipsum", "has_lorem_ipsum"), ("{", "has_curly_brace")],
)
def test_a_flag_is_found_at_every_place_of_a_window(found, flag):
    texts = [f"{'é' * (place % 2)}{'j' * place} {found}" for place in range(130)]
    assert tag("c4_v1", *texts)[flag] == [1.0] * 130
    cut_short = [text[:-1] for text in texts]
    assert tag("c4_v1", *cut_short)[flag] == tag("c4_v2", *cut_short)[flag] == [None] * 130


def test_javascript_is_a_word_or_part_of_one():
    texts = ("\u3000JAVASCRIPT\u2028", "a-javascript", "javascripts", "jav\u0430script", "java\u017fcript")
    assert tag("c4_v1", *texts)["has_javascript"] == [1.0, None, None, None, None]
    assert tag("c4_v2", *texts)["has_javascript"] == [1.0, 1.0, 1.0, None, None]


def test_spans_are_places_in_the_text_not_in_its_lower_case():
    lines = tag("c4_v2", "\u0130\u0130\u0130 is one.\nshort")["lines_with_too_few_words"]
    assert lines == [[{"start": 12, "end": 17, "score": 1.0}]]


def test_a_list_of_the_user_is_compared_in_lower_case():
    listed = "\ufeffDarned\r\n\r\nat all\n\U0001f595\nblin\u212a\n".encode()
    texts = ("DARNED it", "darned.", "what alloy", "at\nall", "a\U0001f595", "\U0001f595", "BLINK", "x")
    assert tag("c4_v1", *texts, bad_words=listed)["has_naughty_word"] == [
        1.0, None, 1.0, None, None, 1.0, 1.0, None,
    ]  # fmt: skip
    assert tag("c4_v2", *texts)["has_naughty_word"] == [None] * 8


def test_a_list_that_is_no_text_is_named():
    with pytest.raises(DataError, match=r"bad_words/en.txt: not UTF-8 at byte 3"):
        tag("c4_v1", "x", bad_words=b"abc\xff")
