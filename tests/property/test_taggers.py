"""Each published tagger equals its plain-Python definition on any text, whatever batch the text is in."""

import itertools

import pyarrow as pa
import pytest
import regex
import tagger_oracles as oracles
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dolma_dask.taggers.registry import BUILT_IN, get_tagger
from dolma_dask.testing.taggers import WILD_TEXTS
from dolma_dask.text.columns import text_buffers
from dolma_dask.text.lengths import code_point_lengths
from dolma_dask.text.lines import line_end, newlines_end
from dolma_dask.text.runs import count_runs
from dolma_dask.text.tables import code_points, load_tables
from dolma_dask.text.words import word_end, word_start

law = settings(max_examples=150, deadline=None)


def column(*texts):
    return pa.array(texts, pa.large_string())


def test_every_shipped_tagger_has_an_oracle():
    assert oracles.ORACLES.keys() == BUILT_IN.keys()


@pytest.mark.parametrize("name", BUILT_IN)
@law
@given(batch=st.lists(oracles.texts, min_size=1, max_size=4), skip=st.integers(0, 2))
@example(batch=list(WILD_TEXTS), skip=0)
def test_tagger_equals_its_definition(name, batch, skip):
    tagger = get_tagger(name)
    documents = pa.RecordBatch.from_arrays([column(*batch)], names=["text"]).slice(skip)
    tagged = tagger(documents)
    assert tagged.schema.names == list(tagger.types)
    assert tagged.to_pylist() == [oracles.ORACLES[name](text) for text in batch[skip:]]


@law
@given(text=oracles.texts, before=oracles.wild, after=oracles.wild)
def test_words_are_those_of_split(text, before, after):
    data, offsets = text_buffers(column(before, text, after))
    at, end = int(offsets[1]), int(offsets[2])
    found = []
    at = word_start(data, at, end)
    while at < end:
        stop = word_end(data, at, end)
        found.append(bytes(data[at:stop]).decode())
        at = word_start(data, stop, end)
    assert found == text.split()


@law
@given(text=oracles.texts, after=oracles.wild)
def test_lines_are_split_at_newlines_only(text, after):
    data, offsets = text_buffers(column(text, after))
    at, end = 0, int(offsets[1])
    lines = []
    while True:
        stop = line_end(data, at, end)
        lines.append(bytes(data[at:stop]).decode())
        if stop >= end:
            break
        at = newlines_end(data, stop, end)
    assert lines == regex.split("\n+", text)


@law
@given(text=oracles.texts, after=oracles.wild)
def test_runs_are_the_matches_of_the_pattern(text, after):
    data, offsets = text_buffers(column(text, after))
    found = count_runs(data, 0, int(offsets[1]), *load_tables())
    assert found == len(regex.findall(r"\w+|[^\w\s]+", text))


@law
@given(batch=st.lists(oracles.texts, max_size=4), skip=st.integers(0, 2))
def test_lengths_are_in_code_points(batch, skip):
    texts = column(*batch).slice(skip)
    lengths = [len(text) for text in batch[skip:]]
    assert code_point_lengths(texts).tolist() == lengths
    data, offsets = text_buffers(texts)
    assert [code_points(data, int(a), int(b)) for a, b in itertools.pairwise(offsets)] == lengths
