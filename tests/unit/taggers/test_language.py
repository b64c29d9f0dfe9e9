"""Languages: what is not seen from the texts of the properties."""

import json
from importlib.util import find_spec

import pyarrow as pa
import pytest

import dolma_dask as dk
from dolma_dask.errors import ExpressionError, UsageError
from dolma_dask.taggers.language import TAGGERS
from dolma_dask.taggers.registry import get_tagger
from dolma_dask.testing.taggers import make_batch
from dolma_dask.text.interchangeable import interchangeable
from dolma_dask.text.view import TextView

EN = "The quick brown fox jumps over the lazy dog.\n"
DE = "Der Hund schläft im Garten und ist sehr müde.\n"


def row(name, text):
    return get_tagger(name)(make_batch(("text",), [text])).to_pylist()[0]


@pytest.mark.parametrize("detector", ["cld2", "langid"])
def test_a_text_of_two_languages_has_a_share_of_each(detector):
    pytest.importorskip(
        {"cld2": "pycld2", "langid": "py3langid"}[detector], reason="the extra language is missing"
    )
    found = row(f"language_{detector}_paragraphs_with_document_v1", EN + DE)
    assert [(span["label"], span["start"]) for span in found["languages"]] == [("en", 0), ("de", len(EN))]
    whole = len(EN) + len(DE)
    assert dict(found["shares"]) == {"doc_en": len(EN) / whole, "doc_de": len(DE) / whole}


def test_german_is_not_georgian():
    pytest.importorskip("pycld2", reason="the extra language is missing")
    assert [name for name, _ in row("cld2_doc_v2", DE)["languages"]] == ["de"]
    assert row("cld2_en_paragraph_with_doc_score_v2", "") == {
        "en": None,
        "not_en": None,
        "doc_en": 0,
        "doc_not_en": 0,
    }


def test_what_detectors_refuse_becomes_spaces():
    texts = pa.array(["a\x00b", "\x85é\ufffe\ufdd0", "\t\n\f\r \U0001f600\U0010ffff", ""], pa.large_string())
    clean = interchangeable(TextView(texts).inner(texts, "x"))
    assert clean.texts.to_pylist() == ["a b", "  é      ", "\t\n\f\r \U0001f600    ", ""]
    plain = TextView(pa.array(["no such thing"], pa.large_string()))
    assert interchangeable(plain) is plain


def test_cld3_names_what_to_use():
    for tagger in TAGGERS:
        if tagger.name.startswith("cld3"):
            with pytest.raises(
                UsageError, match=f"tagger {tagger.name} cannot be used: .* Use cld2_en_doc_v2"
            ):
                tagger(make_batch(("text",), ["a"]))


def test_a_missing_package_names_its_extra(monkeypatch):
    monkeypatch.setattr("dolma_dask.extras.find_spec", lambda package: None)
    for name, extra in (
        ("cld2_doc_v2", "language"),
        ("lingua_1e2", "lingua"),
        ("perplexity_ccnet_v1", "kenlm"),
    ):
        assert f"pip install 'dolma-dask[{extra}]'" in get_tagger(name).lacks()
    assert get_tagger("char_length_v1").lacks() is None


@pytest.mark.skipif(find_spec("pycld2") is None, reason="needs pycld2")
def test_tables_have_a_column_for_each_language(tmp_path):
    (tmp_path / "raw").mkdir()
    texts = [
        "The council has decided that the old bridge stays open.",
        "Der Rat hat beschlossen, dass die alte Brücke offen bleibt.",
        "",
    ]
    rows = [json.dumps({"id": str(k), "text": text, "source": "s"}) + "\n" for k, text in enumerate(texts)]
    (tmp_path / "raw/a.jsonl").write_text("".join(rows))
    dk.convert(str(tmp_path / "raw"), to=str(tmp_path / "v0"), format="parquet")
    dk.tag(str(tmp_path / "v0"), ["language_cld2_v1"], scheduler="synchronous")
    rule = "en > 0.9 and sw is None"
    dk.mix(str(tmp_path / "v0"), where=rule, to=str(tmp_path / "v1"), scheduler="synchronous")
    assert [*dk.read_dataframe(str(tmp_path / "v1"), ["id"]).compute()["id"]] == ["0"]
    with pytest.raises(UsageError, match="Give --format jsonl"):
        dk.tag(str(tmp_path / "v0"), ["cc_re"])


@pytest.mark.skipif(find_spec("pycld2") is None, reason="needs pycld2")
@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_a_label_that_one_shard_has_is_a_name_in_all(tmp_path, format):
    (tmp_path / "raw").mkdir()
    for name, text in (("a", EN * 3), ("b", DE * 3)):
        (tmp_path / f"raw/{name}.jsonl").write_text(
            json.dumps({"id": name, "text": text, "source": "s"}) + "\n"
        )
    root = str(tmp_path / "v0")
    dk.convert(str(tmp_path / "raw"), to=root, format=format)
    dk.tag(root, ["language_cld2_v1"], scheduler="synchronous")
    for share in ("1/2", "2/2"):
        rule = {"where": "de > 0.5", "to": str(tmp_path / f"{format}-v1"), "share": share}
        assert dk.mix(root, **rule, scheduler="synchronous").exit_status == 0
    kept = dk.read_dataframe(str(tmp_path / f"{format}-v1"), ["id"]).compute()
    assert [*kept["id"]] == ["b"]
    none = dk.mix(root, where="fr > 0.5", to=str(tmp_path / f"{format}-fr"), scheduler="synchronous")
    assert none.counts["documents_out"] == 0
    assert any("__fr > 0.5 holds for none of the rows" in note for note in none.notes)
    with pytest.raises(ExpressionError, match="no column is named tlhh"):
        dk.mix(root, where="tlhh > 0.5", to=str(tmp_path / "other"))
