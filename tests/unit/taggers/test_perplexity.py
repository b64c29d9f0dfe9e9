"""Perplexity is what the probabilities of the model file say, in plain Python."""

import re
import unicodedata
from functools import partial
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trained import WORDS, perplexity_of, write_language_model

from dolma_dask.errors import CorruptFileError, UsageError
from dolma_dask.taggers.perplexity import TAGGERS, normalise_line
from dolma_dask.taggers.registry import get_tagger
from dolma_dask.testing.taggers import TaggerTests

pytest.importorskip("kenlm", reason="the package of the extra kenlm is not installed")
LINES = [WORDS["en"], "the of and to in is", "is it as it is ?"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "en.arpa"
    return path, *write_language_model(path, LINES)


@pytest.fixture(scope="module")
def given_model(model):
    return lambda tagger: tagger.with_files({"kenlm/en.arpa": partial(open, model[0], "rb")})


class TestWithModel(TaggerTests):
    test_pickling = None  # models are opened where they are asked

    @pytest.fixture(params=TAGGERS, ids=lambda tagger: tagger.name)
    def tagger(self, request, given_model):
        return given_model(request.param)


def perplexity(text, ones, twos):
    return perplexity_of(map(normalise_line, text.split("\n")), ones, twos)


def scores(tagger, *texts):
    batch = pa.RecordBatch.from_arrays([pa.array(texts, pa.large_string())], names=["text"])
    return tagger(batch).column(0).to_pylist()


TEXTS = ["the of and", "The of, and\nis IT\n\nas", "der die das", "is it as it is\uff1f 12 \u00e9"]


def test_it_is_that_of_the_probabilities(model, given_model):
    _, ones, twos = model
    found = scores(given_model(get_tagger("perplexity_ccnet_v1")), *TEXTS, "", " \n")
    assert found[4:] == [[], []]
    for text, ((name, number),) in zip(TEXTS, found[:4], strict=True):
        assert name == "en"
        assert number == pytest.approx(perplexity(text, ones, twos), rel=1e-4)
    assert found[0][0][1] < 20 < 1000 < found[2][0][1]


def test_paragraphs_are_texts_of_their_own(model, given_model):
    _, ones, twos = model
    (spans,) = scores(given_model(get_tagger("perplexity_ccnet_paragraphs_v1")), "the of\n\n der die")
    assert [(span["label"], span["start"], span["end"]) for span in spans] == [("en", 0, 7), ("en", 8, 16)]
    assert spans[0]["score"] == pytest.approx(perplexity("the of", ones, twos), rel=1e-4)
    assert spans[1]["score"] == pytest.approx(perplexity("der die", ones, twos), rel=1e-4)


PLAIN = str.maketrans({"\u201d": '"', "\u2026": "...", "\u2014": " - ", "\uff1f": "?"})


@given(st.text(st.sampled_from("aB\u0130\u00e9\u0301\u0663 1\u201d\u2026\u2014\uff1f\x00\x85\n")))
def test_lines_are_normalised_as_by_ccnet(line):
    expected = "".join(
        char
        for char in unicodedata.normalize("NFD", line.strip().lower())
        if unicodedata.category(char) != "Mn"
    )
    expected = re.sub(r"\d", "0", expected).translate(PLAIN)
    expected = re.sub(r"[\x00-\x1f\x7f-\x9f]", "", expected)
    assert normalise_line(line) == expected


def test_what_is_no_model_is_refused(model, tmp_path):
    broken = tmp_path / "x.arpa"
    broken.write_bytes(model[0].read_bytes()[:200])
    with pytest.raises(
        CorruptFileError, match=r"^kenlm/x\.arpa cannot be opened by the package kenlm: Cannot read model"
    ):
        TAGGERS[0].with_files({"kenlm/x.arpa": partial(open, broken, "rb")})
    files = dict.fromkeys(["kenlm/en.arpa", "kenlm/en.arpa.bin"], partial(open, model[0], "rb"))
    with pytest.raises(UsageError, match="found 2 language models of this name; expected one"):
        TAGGERS[0].with_files(files)
    with pytest.raises(UsageError, match="found 0 language models"):
        TAGGERS[0].with_files({"kenlm/en.sp.model": partial(open, broken, "rb")})


def test_pieces_are_the_words_of_the_model(model, tmp_path):
    sentencepiece = pytest.importorskip(
        "sentencepiece", reason="the package of the extra kenlm is not installed"
    )
    (tmp_path / "t.txt").write_text("\n".join([*LINES] * 20))
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "t.txt"), model_prefix=str(tmp_path / "en"), vocab_size=30, minloglevel=2
    )
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "en.model"))
    text = "The of\nand it"
    line = " ".join(pieces.encode(normalise_line(text), out_type=str))
    _, twos = write_language_model(tmp_path / "en.arpa", [line])
    files = {"kenlm/en.arpa": tmp_path / "en.arpa", "kenlm/en.sp.model": tmp_path / "en.model"}
    tagger = TAGGERS[0].with_files({name: partial(open, path, "rb") for name, path in files.items()})
    (((_, number),),) = scores(tagger, text)
    score = sum(twos[pair] for pair in pairwise(["<s>", *line.split(), "</s>"]))
    assert number == pytest.approx(10 ** (-score / (len(line.split()) + 1)), rel=1e-4)
