"""Thresholds in the JSON form of the chain on LUMI, read and written."""

import json

import pyarrow as pa
import pytest

from dolma_dask.errors import UsageError
from dolma_dask.rules.lumi_thresholds import from_lumi, is_lumi
from dolma_dask.rules.thresholds import Bounds, Thresholds

FORM = {
    "de": {"number_of_words": {">": "62.5"}, "word_repetition": {">": "0.558407868", "<": "0.81896552"}},
    "en": {"number_of_words": {">": "4.0"}, "word_repetition": {">": "0.1", "<": "1.0"}},
}


def test_the_form_is_read_and_written_back():
    cuts = from_lumi(FORM, "t.json")
    assert (cuts.by, cuts.kind, cuts.nulls) == ("metadata.language", "string", "drop")
    assert (cuts.lower("number_of_words", "de"), cuts.upper("number_of_words", "de")) == (62.5, None)
    assert cuts.to_lumi() == FORM
    assert json.loads(json.dumps(cuts.to_lumi())) == FORM


def test_numbers_may_be_numbers_and_words_of_single_lines_are_passed_over():
    cuts = from_lumi({"en": {"perplexity": {"<": 500}, "words_per_line": {">": "0.0"}}}, "t.json")
    assert cuts.signals == ("perplexity",)
    assert cuts.upper("perplexity", "en") == 500.0


def test_bounds_are_inclusive_nulls_and_other_languages_outside():
    columns = {
        "number_of_words": pa.array([62.5, 62.4, None, 62.5, 62.5]),
        "word_repetition": pa.array([0.558407868, 0.6, 0.6, 0.81896553, 0.6]),
        "metadata.language": pa.array(["de", "de", "de", "de", "fr"]),
    }
    assert from_lumi(FORM, "t.json").mask(columns).to_pylist() == [True, False, False, False, False]
    assert from_lumi({"de": FORM["de"]}, "t.json").mask(columns).to_pylist() == [True, *[False] * 4]


def test_a_language_without_bounds_of_a_metric():
    form = {"de": {"perplexity": {"<": "5"}}, "en": {"stop_words": {">": "0.1"}}}
    columns = {
        "perplexity": pa.array([5.0, 9.0, None]),
        "stop_words": pa.array([0.0, 0.2, 0.2]),
        "metadata.language": pa.array(["de", "en", "en"]),
    }
    assert from_lumi(form, "t.json").mask(columns).to_pylist() == [True, True, False]


@pytest.mark.parametrize("value", ["x", True, "nan", [], {}, "1e999", 10**400])
def test_what_is_no_number_is_named(value):
    with pytest.raises(UsageError, match=r"t.json, 'en', 'perplexity': found"):
        from_lumi({"en": {"perplexity": {"<": value}}}, "t.json")


@pytest.mark.parametrize(
    "content",
    [{}, [], {"bounds": {"x": {}}}, {"bounds": {"x": {"all": {"lower": 1}}}}, {"en": 3}, {"en": {"x": 3}}],
)
def test_other_json_is_not_the_form(content):
    assert not is_lumi(content)


def test_signals_are_written_under_the_names_of_the_chain():
    bounds = [
        Bounds("own__redpajama_v2_doc__rps_doc_word_count", (("all", 1.0, None), ("en", 2.0, None))),
        Bounds("short_line_ratio(nl=5.2)", (("en", None, 0.5),)),
        Bounds("x__x__other", (("en", None, None),)),
    ]
    cuts = Thresholds.of(bounds, "strict", "metadata.language", "string")
    assert cuts.to_lumi() == {
        "en": {"number_of_words": {">": "2.0"}, "short_line_ratio": {"<": "0.5"}, "other": {}}
    }
    for by in (None, ("metadata.language", "metadata.bucket")):
        with pytest.raises(UsageError, match="one column of languages"):
            Thresholds.of([Bounds("x", (("en/head", 1.0, 2.0),))], "strict", by, "string").to_lumi()
