"""Each published tagger, and each unit, equals its definition on very many texts, which are read from files with escapes for what is not ASCII, surrogates for the planes above the first."""

import json
import random
from functools import partial

import pyarrow as pa
import pytest
import tagger_oracles as oracles
from fuzzed import fuzzed_texts, metadata_of
from oracles.tokens import JSON
from test_units import UNITS
from trained import WORDS, perplexity_of, write_fast_text, write_language_model

import dolma_dask as dk
from dolma_dask.taggers.perplexity import normalise_line
from dolma_dask.taggers.registry import built_in, get_tagger
from dolma_dask.testing.taggers import can_be_called
from dolma_dask.text.units import cut
from dolma_dask.text.view import TextView
from dolma_dask.tokens.engine import load_tokenizer

BATCH = 500


@pytest.fixture(scope="session")
def texts():
    return fuzzed_texts()


@pytest.fixture(scope="session")
def batches(texts, tmp_path_factory):
    """Return documents as the reader gives them, in batches that begin anywhere in a column."""
    root, draw = tmp_path_factory.mktemp("fuzzed"), random.Random(1)
    (root / "documents").mkdir()
    with (root / "documents/a.jsonl").open("w") as file:
        for number, text in enumerate(texts):
            file.write(json.dumps({"id": str(number), "text": text, "source": "s"}) + "\n")
    read = dk.read_table(str(root)).column("text").combine_chunks()
    metadata = pa.array([metadata_of(draw, text) for text in texts], pa.large_string())
    whole = pa.RecordBatch.from_arrays([read, metadata], names=["text", "metadata"])
    return [whole.slice(start, BATCH) for start in range(0, len(whole), BATCH)]


def test_texts_are_those_that_were_written(texts, batches):
    assert [text for batch in batches for text in batch.column("text").to_pylist()] == texts


@pytest.mark.parametrize("name", [*filter(can_be_called, built_in())])
def test_taggers_equal_their_definitions_on_fuzzed_texts(name, batches):
    tagger = get_tagger(name).with_tokenizer(load_tokenizer(JSON))
    for batch in batches:
        columns = [batch.column(place) for place in range(len(tagger.reads))]
        tagged = tagger(pa.RecordBatch.from_arrays(columns, names=list(tagger.reads))).to_pylist()
        for row, values in zip(
            tagged, zip(*(column.to_pylist() for column in columns), strict=True), strict=True
        ):
            assert repr(row) == repr(oracles.ORACLES[name](*values)), values


@pytest.mark.parametrize("unit", UNITS)
def test_pieces_are_those_of_plain_python_on_fuzzed_texts(unit, batches):
    for batch in batches:
        pieces = cut(TextView(batch.column("text")), unit)
        places = list(zip(pieces.starts.tolist(), pieces.ends.tolist(), strict=True))
        for row, text in enumerate(batch.column("text").to_pylist()):
            assert places[pieces.bounds[row] : pieces.bounds[row + 1]] == UNITS[unit](text), text


@pytest.mark.parametrize(
    "name, column, unit",
    [
        ("fasttext_document_v1", "labels", "document"),
        ("fasttext_paragraph_v1", "labels", "paragraph"),
        ("ft_lang_id_doc_v1", "languages", "document"),
    ],
)
def test_classifiers_answer_as_the_package_on_fuzzed_texts(name, column, unit, batches, tmp_path):
    fasttext = pytest.importorskip("fasttext", reason="the packages of the extra models are not installed")
    path = tmp_path / "m.bin"
    write_fast_text(path, ("en", "de"))
    tagger, model = (
        get_tagger(name).with_files({"fasttext/m.bin": partial(open, path, "rb")}),
        fasttext.load_model(str(path)),
    )
    prefix = "m__" if column == "labels" else ""

    def answers(text):
        line = (text if prefix else text.lower()).replace("\n", " ").strip()
        return [
            (prefix + label.removeprefix("__label__"), score)
            for label, score in zip(*model.predict(line, k=-1), strict=True)
        ]

    for batch in batches:
        texts = batch.column("text").to_pylist()
        for text, found in zip(texts, tagger(batch).column(column).to_pylist(), strict=True):
            if unit == "document":
                assert found == answers(text), text
            else:
                spans = [
                    (label, start, end, score)
                    for start, end in UNITS[unit](text)
                    for label, score in answers(text[start:end])
                ]
                assert [tuple(span.values()) for span in found or ()] == spans, text


def test_perplexity_is_that_of_the_probabilities_on_fuzzed_texts(batches, tmp_path):
    pytest.importorskip("kenlm", reason="the package of the extra kenlm is not installed")
    path = tmp_path / "en.arpa"
    ones, twos = write_language_model(path, [WORDS["en"], "the of and to in is", "be the to of ."])
    tagger = get_tagger("perplexity_ccnet_v1").with_files({"kenlm/en.arpa": partial(open, path, "rb")})
    for batch in batches:
        texts = batch.column("text").to_pylist()
        for text, found in zip(texts, tagger(batch).column(0).to_pylist(), strict=True):
            lines = [normalise_line(line) for line in text.split("\n")]
            if any(map(str.split, lines)):
                assert found == [("en", pytest.approx(perplexity_of(lines, ones, twos), rel=1e-4))], text
            else:
                assert found == [], text
