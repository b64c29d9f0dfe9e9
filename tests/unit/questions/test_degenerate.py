"""Corpora of nothing, of one document, of empty texts and of bad records: every question and every display has an answer, or one sentence."""

import json
from pathlib import Path

import pytest

import dolma_dask as dk
from dolma_dask.errors import DolmaDaskError

HERE = {"scheduler": "synchronous", "progress": False}
BAD = {"on_bad_record": "quarantine"}


def document(number: int, text: str) -> str:
    return json.dumps({"id": str(number), "source": "s", "text": text, "metadata": {"lang": "en"}})


CORPORA = {
    "nothing": [[], []],
    "one": [[document(0, "one two three")]],
    "blank": [[document(0, ""), document(1, "")], []],
    "bad": [["nonsense", "more"]],
}


@pytest.fixture(params=CORPORA)
def corpus(request, tmp_path: Path) -> str:
    (tmp_path / "v0/documents").mkdir(parents=True)
    for number, lines in enumerate(CORPORA[request.param]):
        (tmp_path / f"v0/documents/{number}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    dk.tag(str(tmp_path / "v0"), ["char_length_v1", "whitespace_tokenizer_v1"], **BAD, **HERE)
    return str(tmp_path / "v0")


def show(ask, *arguments, **options) -> None:
    """Ask, and show the answer wherever it can be shown; a refusal of ours is an answer too."""
    try:
        answer = ask(*arguments, **options)
    except DolmaDaskError:
        return
    assert str(answer)
    for display in ("_repr_html_", "to_json", "plot", "to_frame"):
        if hasattr(answer, display):
            shown = getattr(answer, display)()
            if display == "plot":
                assert shown.svg()


@pytest.mark.slow
def test_questions_about_next_to_nothing(corpus) -> None:
    show(dk.dedupe, corpus, **BAD, **HERE)
    for by in ("metadata.lang",):
        show(
            dk.quantiles,
            corpus,
            ["char_length_v1__length"],
            by=by,
            level="regular",
            overwrite=True,
            **BAD,
            **HERE,
        )
        show(dk.what_if, corpus, "regular", **HERE)
        show(dk.histogram, corpus, "char_length_v1__length", by=by, **HERE)
    show(dk.filter, corpus, **BAD, **HERE)
    show(dk.what_if, corpus, "strictest", to=f"{corpus}.html", **HERE)
    show(dk.rule_overlap, corpus, "exact is None and char_length_v1__length > 3", **HERE)
    show(dk.histogram, corpus, "char_length_v1__length", where="source == 'none'", **HERE)
    show(dk.status, corpus)


@pytest.mark.slow
def test_a_report_about_next_to_nothing(corpus) -> None:
    show(dk.mix, corpus, to=f"{corpus}-none", where="source == 'none'", max_bad_fraction=1, **BAD, **HERE)
    show(dk.mix, corpus, to=f"{corpus}-all", max_bad_fraction=1, **BAD, **HERE)
    dk.report(f"{corpus}-none", to=f"{corpus}-1.html", compare=corpus, progress=False)
    dk.report(f"{corpus}-all", to=f"{corpus}-2.html", compare=f"{corpus}-none", progress=False)
