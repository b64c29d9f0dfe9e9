"""Corpora of nothing, of one document, of empty texts and of bad records: every question has an answer that can be shown, or is refused in words."""

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


REFUSED: dict[str, set[str]] = {
    # no row tells which columns there are
    "nothing": {
        "quantiles", "what_if", "histogram", "filter", "page of what_if", "rule_overlap", "histogram of none",
    },
    "one": set(), "blank": set(), "bad": set(),
}  # fmt: skip
"""Questions that have no answer for such a corpus."""


@pytest.fixture(params=CORPORA)
def corpus(request, tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "v0/documents").mkdir(parents=True)
    for number, lines in enumerate(CORPORA[request.param]):
        (tmp_path / f"v0/documents/{number}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    dk.tag(str(tmp_path / "v0"), ["char_length_v1", "whitespace_tokenizer_v1"], **BAD, **HERE)
    return str(tmp_path / "v0"), request.param


def shown(ask, *arguments, **options) -> bool:
    """Ask, and show the answer wherever it can be shown; False if it is a refusal of ours."""
    try:
        answer = ask(*arguments, **options)
    except DolmaDaskError:
        return False
    assert str(answer)
    for display in ("_repr_html_", "to_json", "to_frame"):
        if hasattr(answer, display):
            getattr(answer, display)()
    if hasattr(answer, "plot"):
        assert answer.plot().svg()
    return True


@pytest.mark.slow
def test_questions_about_next_to_nothing(corpus) -> None:
    root, kind = corpus
    length = "char_length_v1__length"
    by = "metadata.lang" if kind in ("one", "blank") else "none"
    level = {"by": by, "level": "regular", "overwrite": True}
    answered = {
        "dedupe": shown(dk.dedupe, root, **BAD, **HERE),
        "quantiles": shown(dk.quantiles, root, [length], **level, **BAD, **HERE),
        "what_if": shown(dk.what_if, root, "regular", **HERE),
        "histogram": shown(dk.histogram, root, length, by=by if by != "none" else None, **HERE),
        "filter": shown(dk.filter, root, **BAD, **HERE),
        "page of what_if": shown(dk.what_if, root, "regular", to=f"{root}.html", **HERE),
        "rule_overlap": shown(dk.rule_overlap, root, f"exact is None and {length} > 3", **HERE),
        "histogram of none": shown(dk.histogram, root, length, where="source == 'none'", **HERE),
        "status": shown(dk.status, root),
    }
    assert {name for name, is_answered in answered.items() if not is_answered} == REFUSED[kind]


@pytest.mark.slow
def test_a_report_about_next_to_nothing(corpus) -> None:
    root, kind = corpus
    for name, options in {"none": {"where": "source == 'none'"}, "all": {}}.items():
        mixed = dk.mix(root, to=f"{root}-{name}", max_bad_fraction=1, **options, **BAD, **HERE)
        readable = {"nothing": 0, "one": 1, "blank": 2, "bad": 0}[kind]
        assert mixed.counts["documents_out"] == (readable if name == "all" else 0)
    for name, compare in {"none": root, "all": f"{root}-none"}.items():
        page = Path(f"{root}-{name}.html")
        dk.report(f"{root}-{name}", to=str(page), compare=compare, progress=False)
        assert "</html>" in page.read_text()
