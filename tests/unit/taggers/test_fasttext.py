"""Taggers that ask a classifier of the user's: laws of every tagger, names of labels, and messages where the model is another one or missing."""

import json
import math
from functools import partial

import fsspec
import pyarrow as pa
import pytest
from trained import write_fast_text

import dolma_dask as dk
from dolma_dask.errors import ExpressionError, UsageError
from dolma_dask.taggers.fasttext import TAGGERS
from dolma_dask.taggers.language import TAGGERS as LANGUAGES
from dolma_dask.taggers.registry import get_tagger
from dolma_dask.testing.taggers import TaggerTests

pytest.importorskip("fasttext", reason="the packages of the extra models are not installed")
pytest.importorskip("sentencex", reason="the packages of the extra models are not installed")

LABELS = {
    "code_composition": ("prose", "code"),
    "dclm-oh-eli5": ("hq", "cc"),
    "redpajama": ("wiki", "cc"),
    "jigsaw": ("toxic", "non_toxic"),
}
ROWS = [*TAGGERS, *(tagger for tagger in LANGUAGES if tagger.extra == "fasttext")]
EN, DE = "the of and to in is that for", "der die und das in zu den nicht"


def batch(*texts):
    return pa.RecordBatch.from_arrays([pa.array(texts, pa.large_string())], names=["text"])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Give the file of a model for a tagger."""
    made = {}

    def give(name):
        labels = next((labels for prefix, labels in LABELS.items() if name.startswith(prefix)), ("en", "de"))
        if labels not in made:
            made[labels] = tmp_path_factory.mktemp("models") / "m.bin"
            write_fast_text(made[labels], labels)
        return made[labels]

    return give


@pytest.fixture(scope="module")
def given(model):
    """Give a tagger with its model."""
    return lambda tagger: tagger.with_files({"fasttext/2m.bin": partial(open, model(tagger.name), "rb")})


class TestWithModel(TaggerTests):
    test_pickling = None  # models are opened where they are asked

    @pytest.fixture(params=ROWS, ids=lambda tagger: tagger.name)
    def tagger(self, request, given):
        return given(request.param)


@pytest.mark.parametrize("tagger", ROWS, ids=lambda tagger: tagger.name)
def test_without_a_model_it_says_where_to_get_it(tagger):
    with pytest.raises(
        UsageError, match=rf"the tagger {tagger.name} needs a file of yours.*--artifacts.*publish"
    ):
        tagger(batch("a"))


def found(given, name, *texts):
    tagger = given(get_tagger(name))
    return [list(row.values()) for row in tagger(batch(*texts)).to_pylist()]


def test_labels_have_the_name_of_the_model(given):
    (((first, _), (second, _)),), *_ = found(given, "fasttext_document_v1", EN)
    assert (first, second) == ("_2m__en", "_2m__de")


def test_sentences_are_spans_of_the_text(given):
    ((spans,),) = found(given, "jigsaw_hatespeech_sentence_v2", "Is it? The é of.\n\n Was it so. ")
    assert {(span["start"], span["end"]) for span in spans} == {(0, 7), (7, 16), (18, 30)}
    assert {span["label"] for span in spans} == {"__label__toxic", "__label__non_toxic"}


def test_the_quality_of_either_label_is_that_of_one(given):
    (good,), (bad,) = found(given, "dclm-oh-eli5", EN, DE)
    assert 0.5 < good < 1.001
    assert -0.001 < bad < 0.5


def test_likeness_is_of_the_models_that_are_there(model):
    files = {"fasttext/palm.bin": partial(open, model("redpajama"), "rb")}
    tagged = (
        get_tagger("redpajama_v2_ml").with_files(files)(batch(f"\n{EN}\u2028{EN} ", DE, " \n")).to_pylist()
    )
    palm = [row["rps_doc_ml_palm_score"] for row in tagged]
    assert palm[0] > 0.5 > palm[1]
    assert palm[2] is None
    assert {row["rps_doc_ml_wikiref_score"] for row in tagged} == {None}


def test_a_text_without_words_has_no_quality(given):
    assert found(given, "dolma17-quality", " \n\u3000") == [[[]]]


def test_lines_are_code_or_prose(given):
    """English is prose to this model, and German code."""
    lines = [EN, f" {DE}\t", "", "}", EN, EN, "\u3000", DE, "the"]
    ((numbers,),) = found(given, "code_composition", "\r\n".join(lines))
    composition = dict(numbers)
    assert list(composition) == [
        "boundaries", *(f"{label}{key}" for label in ("prose", "code", "other") for key in ("_pct", "", "_entropy"))
    ]  # fmt: skip
    assert composition["boundaries"] == 2
    assert [composition[label] for label in ("prose", "code", "other")] == [3, 2, 2]
    assert [composition[f"{label}_pct"] for label in ("prose", "code", "other")] == [0.43, 0.29, 0.29]
    assert composition["other_entropy"] == 0
    (((_, sure), (_, rest)),) = (scores for (scores,) in found(given, "ft_lang_id_doc_v1", EN))
    bits = -sure * math.log2(sure) - rest * math.log2(rest)
    assert composition["prose_entropy"] == pytest.approx(bits, abs=1e-5)
    assert 0 < bits < 0.5
    assert found(given, "code_composition", " \n\n") == [[[("boundaries", 0)]]]


def test_a_model_with_other_labels_is_refused(model):
    for name, expected in (("dclm-oh-eli5", "labels hq and cc"),):
        with pytest.raises(UsageError, match=rf"m\.bin has 2 labels \(.*\); expected the {expected}"):
            get_tagger(name).with_files({"m.bin": partial(open, model("any"), "rb")})


def test_tag_takes_models_from_a_folder_anywhere(tmp_path, root, model):
    (tmp_path / "v0/documents").mkdir(parents=True)
    (tmp_path / "v0/documents/a.jsonl").write_text(json.dumps({"id": "1", "text": EN, "source": "s"}) + "\n")
    with fsspec.open(f"{root}/fasttext/lid.176.bin", "wb", auto_mkdir=True) as file:
        file.write(model("any").read_bytes())
    dk.tag(f"{tmp_path}/v0", ["ft_lang_id_en_doc_v2"], artifacts=root, scheduler="synchronous")
    row = json.loads((tmp_path / "v0/attributes/ft_lang_id_en_doc_v2/a.jsonl").read_text())
    ((start, end, score),) = row["attributes"]["ft_lang_id_en_doc_v2__ft_lang_id_en_doc_v2__en"]
    assert (start, end) == (0, len(EN))
    assert score > 0.5
    dk.tag(f"{tmp_path}/v0", ["ft_lang_id_doc_v1"], artifacts=root, scheduler="synchronous")
    rule = "ft_lang_id_doc_v1__fr > 0.5 or ft_lang_id_doc_v1__de > 0.5"  # languages that nothing is in
    assert dk.mix(f"{tmp_path}/v0", where=rule, to=f"{tmp_path}/v1").counts["documents_out"] == 0
    with pytest.raises(ExpressionError, match="no column is named fr"):
        dk.mix(f"{tmp_path}/v0", where="fr > 0.5", to=f"{tmp_path}/v2")
