"""Each published tagger equals its plain-Python definition on any text, whatever batch the text is in."""

import io
import itertools
from functools import partial

import pyarrow as pa
import pytest
import regex
import tagger_oracles as oracles
from hypothesis import example, given
from hypothesis import strategies as st
from oracles.tokens import JSON
from redpajama_oracle import rule_signals

from dolma_dask.taggers.registry import built_in, get_tagger, list_taggers
from dolma_dask.taggers.whitespace_tokenizer import count_runs
from dolma_dask.testing.taggers import WILD_TEXTS, can_be_called
from dolma_dask.text.columns import code_point_lengths, string_parts
from dolma_dask.text.tables import code_points, load_tables
from dolma_dask.text.view import TextView
from dolma_dask.text.words import ELLIPSIS, LETTER, NUMBER_SIGN
from dolma_dask.tokens.engine import load_tokenizer


def column(*texts):
    return pa.array(texts, pa.large_string())


def test_every_shipped_tagger_has_an_oracle():
    assert {*filter(can_be_called, built_in())} <= oracles.ORACLES.keys() <= built_in().keys()


metadata = st.sampled_from(
    [
        "{}",
        '{"language":"en"}',
        '{"language":"de","source_domain":"a.example","length":3,"nlines":1,"original_length":4,"original_nlines":2,"language_score":0.5,"perplexity":312.4,'
        '"bucket":"tail"}',
        '{"language":"xx","bucket":"other","perplexity":null}',
    ]
)


FAMILIES: dict[str, list[str]] = {}
for info in list_taggers():
    if info.family and can_be_called(info.name):
        FAMILIES.setdefault(info.family, []).append(info.name)


@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data(), skip=st.integers(0, 2))
def test_taggers_equal_their_definitions(family, data, skip):
    names = FAMILIES[family]
    fields = next((oracles.METADATA[name] for name in names if name in oracles.METADATA), metadata)
    texts = st.one_of(oracles.texts, *(oracles.TEXTS[name] for name in names if name in oracles.TEXTS))
    batch = data.draw(st.lists(st.tuples(texts, fields), min_size=1, max_size=4))
    for name in FAMILIES[family]:
        check_definition(name, batch, skip)


@pytest.mark.parametrize("name", [*filter(can_be_called, built_in())])
def test_tagger_equals_its_definition_on_wild_texts(name):
    check_definition(name, [(text, '{"language":"en"}') for text in WILD_TEXTS], 0)
    check_definition(name, [("", "{}")] * 3, 0)


def check_definition(name, batch, skip):
    tagger = get_tagger(name).with_tokenizer(load_tokenizer(JSON))
    columns = [column(*values) for values in zip(*batch, strict=True)][: len(tagger.reads)]
    documents = pa.RecordBatch.from_arrays(columns, names=list(tagger.reads)).slice(skip)
    tagged = tagger(documents)
    assert tagged.schema.names == list(tagger.types)
    expected = [oracles.ORACLES[name](*document[: len(tagger.reads)]) for document in batch[skip:]]
    assert repr(tagged.to_pylist()) == repr(expected)


def test_a_blank_line_does_not_end_as_the_text_before_it():
    texts = ("It ends.", " \n", "“So?”", "\t", "...", "\n\n")
    tagged = get_tagger("redpajama_v2_lines")(pa.RecordBatch.from_arrays([column(*texts)], names=["text"]))
    assert tagged.to_pylist() == [oracles.ORACLES["redpajama_v2_lines"](text) for text in texts]


phrases = st.lists(
    st.sampled_from(
        ["a", "b", "A", "a b", "b a", "a b a", "the", "lorem ipsum", "é", "e\u0301", "a  b", "to be"]
    ),
    max_size=6,
)


@given(batch=st.lists(oracles.texts, min_size=1, max_size=3), stop=phrases, bad=phrases)
def test_texts_are_compared_with_the_lists_of_the_user(batch, stop, bad):
    files = {
        f"{folder}/{language}.txt": partial(io.BytesIO, "\n".join(listed).encode())
        for folder, listed in (("stop_words", stop), ("bad_words", bad))
        for language in ("xx", "de")
    }
    documents = pa.RecordBatch.from_arrays(
        [column(*batch), column(*['{"language":"xx"}'] * len(batch))], names=["text", "metadata"]
    )
    tagged = get_tagger("redpajama_v2_doc").with_files(files)(documents)
    for name in ("rps_doc_stop_word_fraction", "rps_doc_ldnoobw_words"):
        expected = [rule_signals(text, {*stop} - {""}, {*bad} - {""})[name][0][2] for text in batch]
        assert repr(tagged.column(name).to_pylist()) == repr(expected)


naughty = st.sampled_from(
    [
        "ab",
        "a b",
        "b ab a",
        "k ik",
        "i",
        "σας",
        "σα ς",
        "\U0001f595",
        "é a",
        "x1@ [",
        "\u0307 a",
        "a  b",
        "abababababab",
        "AB A",
    ]
)
rude = st.lists(
    naughty
    | st.sampled_from(["A", "B", "K", "\u212a", "\u0130", "Σ", "ς", "\u0307", "`", "{", " ", "\n", "\u3000"]),
    max_size=12,
)


@given(
    batch=st.lists(rude.map("".join) | oracles.texts, min_size=1, max_size=4),
    listed=st.lists(naughty, max_size=5),
)
def test_texts_are_compared_with_the_list_of_naughty_words(batch, listed):
    files = {"bad_words/en.txt": partial(io.BytesIO, "\n".join([*listed, "", " "]).encode())}
    documents = pa.RecordBatch.from_arrays([column(*batch)], names=["text"])
    for name in ("c4_v1", "c4_v2"):
        tagged = get_tagger(name).with_files(files)(documents)
        lowered = {line.lower() for line in listed}
        assert tagged.to_pylist() == [oracles.ORACLES[name](text, lowered) for text in batch]


def split(view, table, row):
    """The bytes of what a table of a view has found in a text."""
    found = range(table.bounds[row], table.bounds[row + 1])
    begins = [int(view.offsets[row] + table.starts[k]) for k in found]
    return [bytes(view.data[at : at + table.sizes[k]]).decode() for k, at in zip(found, begins, strict=True)]


@given(batch=st.lists(oracles.texts, max_size=4), skip=st.integers(0, 2))
@example(batch=list(WILD_TEXTS), skip=0)
def test_words_and_lines_of_a_view_are_those_of_split(batch, skip):
    earlier = TextView(column("an earlier block"))
    assert len(earlier.words.hashes) == 3 * len(earlier.lines.hashes)
    view = TextView(column(*batch).slice(skip), earlier)
    words, lines = view.words, view.lines
    for row, text in enumerate(batch[skip:]):
        assert split(view, words, row) == text.split()
        assert split(view, lines, row) == text.split("\n")
        inside = slice(words.bounds[row], words.bounds[row + 1])
        assert words.chars[inside].tolist() == [len(word) for word in text.split()]
        assert words.kinds[inside].tolist() == [
            LETTER * any(char.isalpha() for char in word)
            | NUMBER_SIGN * ("#" in word)
            | ELLIPSIS * ("\u2026" in word)
            for word in text.split()
        ]
    texts = [word for text in batch[skip:] for word in text.split()]
    assert len(set(words.hashes.tolist())) == len(set(texts))
    assert len(dict(zip(texts, words.hashes.tolist(), strict=True))) == len(set(texts))


@given(text=oracles.texts, after=oracles.wild)
def test_runs_are_the_matches_of_the_pattern(text, after):
    offsets, data = string_parts(column(text, after))
    found = count_runs(data, 0, int(offsets[1]), *load_tables())
    assert found == len(regex.findall(r"\w+|[^\w\s]+", text))


@given(batch=st.lists(oracles.texts, max_size=4), skip=st.integers(0, 2))
def test_lengths_are_in_code_points(batch, skip):
    texts = column(*batch).slice(skip)
    lengths = [len(text) for text in batch[skip:]]
    assert code_point_lengths(texts).tolist() == lengths
    offsets, data = string_parts(texts)
    assert [code_points(data, int(a), int(b)) for a, b in itertools.pairwise(offsets)] == lengths
