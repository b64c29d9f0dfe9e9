"""Files with taggers of the Dolma toolkit run as they are."""

import json
import sys

import pytest

import dolma_dask as dk
from dolma_dask.cli import main
from dolma_dask.errors import StageError, UsageError

WRITTEN = """
import re
import dolma
from dolma import BaseTagger, add_tagger
from dolma.core.data_types import DocResult, Document, Span, DocumentWithMetadata
from dolma.core.registry import TaggerRegistry
from dolma.core.taggers import BaseTaggerWithMetadata
from dolma.core.utils import split_paragraphs

MARK = re.compile("[!?]")


@add_tagger("marks_v1")
class Marks(BaseTagger):
    def predict(self, doc: Document) -> DocResult:
        "Where marks are."
        spans = [Span(start=m.start(), end=m.end(), type={"!": "bang", "?": "ask"}[m.group()]) for m in MARK.finditer(doc.text)]
        spans.append(Span(0, len(doc.text), type="document", score=len(spans)))
        return DocResult(doc=doc, spans=spans)


@TaggerRegistry.add("paragraphs-of_v1")
class Paragraphs(BaseTaggerWithMetadata):
    def predict(self, doc: DocumentWithMetadata) -> DocResult:
        lang = (doc.metadata or {}).get("lang", "none")
        return DocResult(doc=doc, spans=[Span(p.start, p.end, lang, score=len(p.text)) for p in split_paragraphs(doc.text)])


@dolma.add_tagger("outside_v1")
class Outside(BaseTagger):
    def predict(self, doc):
        return DocResult(doc=doc, spans=[Span(0, 99, "x")])
"""

TEXTS = {"a": "so! what? no!", "b": "", "c": "one\n\ntwo"}


@pytest.fixture
def root(tmp_path):
    (tmp_path / "written.py").write_text(WRITTEN)
    folder = tmp_path / "v0/documents"
    folder.mkdir(parents=True)
    rows = [
        {"id": id, "text": text, "source": "s", "metadata": {"lang": f"l{id}"}} for id, text in TEXTS.items()
    ]
    for name in "xy":
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def rows_of(root, name, shard="x"):
    lines = (root / f"v0/attributes/{name}/{shard}.jsonl").read_text().splitlines()
    return {row["id"]: row["attributes"] for row in map(json.loads, lines)}


@pytest.mark.parametrize("scheduler", ["synchronous", "processes"])
def test_their_spans_are_written_by_type(root, scheduler):
    summary = dk.tag(
        str(root / "v0"),
        ["marks_v1", "paragraphs-of_v1"],
        tagger_modules=str(root / "written.py"),
        scheduler=scheduler,
        workers=2,
    )
    assert summary.exit_status == 0
    assert "dolma" not in sys.modules
    marks = rows_of(root, "marks_v1")
    assert marks["a"] == {
        "marks_v1__marks_v1__ask": [[8, 9, 1.0]],
        "marks_v1__marks_v1__bang": [[2, 3, 1.0], [12, 13, 1.0]],
        "marks_v1__marks_v1__document": [[0, 13, 3.0]],
    }
    assert marks["b"] == {"marks_v1__marks_v1__document": [[0, 0, 0.0]]}
    paragraphs = rows_of(root, "paragraphs-of_v1")
    assert paragraphs["c"] == {"paragraphs_of_v1__paragraphs_of_v1__lc": [[0, 4, 4.0], [5, 8, 3.0]]}
    frame = dk.read_dataframe(str(root / "v0"), ["id"], attributes=["marks_v1"]).compute()
    assert list(frame["marks_v1__marks_v1__document"])[:3] == [3.0, 0.0, 0.0]


def test_one_that_writes_outside_of_the_text_is_told_so(root):
    words = ("tag", str(root / "v0"), "--taggers", "outside_v1", "--tagger-modules", str(root / "written.py"))
    assert main([*words, "--scheduler", "synchronous", "--on-bad-record", "quarantine"]) == 1
    assert rows_of(root, "outside_v1")["a"] == {}
    (listed, *_) = sorted((root / "v0/_quarantine").rglob("*.jsonl"))
    assert "inside a text of 13 characters" in json.loads(listed.read_text().splitlines()[0])["expected"]


@pytest.mark.parametrize(
    ("code", "expected"), [("x = 1", "makes no tagger"), ("import nowhere_at_all", "nowhere_at_all")]
)
def test_other_files_are_refused(root, code, expected):
    (root / "other.py").write_text(code)
    with pytest.raises(UsageError, match=expected):
        dk.tag(str(root / "v0"), "marks_v1", tagger_modules=[str(root / "other.py")])
    with pytest.raises(UsageError, match="no module 'nothing_here'"):
        dk.tag(str(root / "v0"), "marks_v1", tagger_modules=["nothing_here"])


def test_an_edit_changes_the_version(root):
    def versions():
        from dolma_dask.taggers.toolkit import load_taggers

        return {tagger.name: tagger.version for tagger in load_taggers(str(root / "written.py"))}

    before = versions()
    assert versions() == before
    (root / "written.py").write_text(WRITTEN.replace("[!?]", "[!]"))
    assert versions() != before


def test_two_files_with_one_name_are_refused(root):
    (root / "again.py").write_text(WRITTEN)
    with pytest.raises(UsageError, match=r"written\.py and .*again\.py both make a tagger 'marks_v1'"):
        dk.tag(
            str(root / "v0"), "marks_v1", tagger_modules=[str(root / "written.py"), str(root / "again.py")]
        )


LATER = """
from dolma import BaseTagger, add_tagger
from dolma.core.data_types import DocResult, Span
from dolma.core.utils import split_words


@add_tagger("later_v1")
class Later(BaseTagger):
    def predict(self, doc):
        from dolma.core.loggers import get_logger


@add_tagger("odd_v1")
class Odd(BaseTagger):
    def predict(self, doc):
        spans = [Span(2, 3, "2024"), Span(0, 1, "2024"), Span(0, len(doc.text), "words", score=len(split_words(doc.text)))]
        return DocResult(doc=doc, spans=spans if doc.text else [])
"""


def test_spans_are_sorted_and_words_are_those_of_unicode(root):
    (root / "later.py").write_text(LATER)
    text = "I don't know, really. (See: foo-bar.) \u4e2d\u6587\u5b57"
    line = json.dumps({"id": "a", "text": text, "source": "s"}) + "\n"
    (root / "v0/documents/x.jsonl").write_text(line)
    dk.tag(str(root / "v0"), "odd_v1", tagger_modules=str(root / "later.py"), scheduler="synchronous")
    found = rows_of(root, "odd_v1")["a"]
    assert found["odd_v1__odd_v1__2024"] == [[0, 1, 1.0], [2, 3, 1.0]]
    assert found["odd_v1__odd_v1__words"] == [[0, len(text), 17.0]]  # as the toolkit's own


def test_what_cannot_be_imported_is_named_with_what_can(root):
    (root / "later.py").write_text(LATER)
    with pytest.raises(
        StageError, match=r"No module named 'dolma'.*can be imported, at the top of the file: BaseTagger"
    ):
        dk.tag(str(root / "v0"), "later_v1", tagger_modules=str(root / "later.py"), scheduler="synchronous")
    (root / "top.py").write_text("from dolma.core.loggers import get_logger")
    with pytest.raises(UsageError, match="can be imported, at the top of the file: BaseTagger"):
        dk.tag(str(root / "v0"), "later_v1", tagger_modules=str(root / "top.py"))


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ("None", "predict returned None; expected a DocResult"),
        (
            "DocResult(doc, [Span(0, 1, 'x', score='high')])",
            "returned the span Span.*'high'.*; expected a Span",
        ),
        ("DocResult(doc, [Span(0, None, 'x')])", "returned the span .*; expected a Span"),
        ("1 / 0", r"ZeroDivisionError: division by zero \(wrong.py, line 6\)"),
    ],
)
def test_what_predict_returns_wrongly_is_told_in_words_of_the_toolkit(root, returned, expected):
    (root / "wrong.py").write_text(
        "from dolma import BaseTagger, add_tagger\n"
        "from dolma.core.data_types import DocResult, Span\n"
        "@add_tagger('wrong_v1')\n"
        "class Wrong(BaseTagger):\n"
        "    def predict(self, doc):\n"
        f"        return {returned}\n"
    )
    with pytest.raises(StageError, match=expected) as caught:
        dk.tag(str(root / "v0"), "wrong_v1", tagger_modules=str(root / "wrong.py"), scheduler="synchronous")
    assert "Wrong().predict (wrong.py, line 5)" in str(caught.value)
    assert ".function" not in str(caught.value)


def test_a_tagger_that_cannot_be_made_is_no_fault_of_documents(root):
    (root / "broken.py").write_text(
        "from dolma import BaseTagger, add_tagger\n"
        "@add_tagger('broken_v1')\n"
        "class Broken(BaseTagger):\n"
        "    def __init__(self):\n"
        "        raise ValueError('no model')\n"
    )
    with pytest.raises(
        StageError, match=r"Broken cannot be made: ValueError: no model \(broken.py, line 5\)"
    ):
        dk.tag(
            str(root / "v0"),
            "broken_v1",
            tagger_modules=str(root / "broken.py"),
            on_bad_record="quarantine",
            max_bad_fraction=1.0,
            scheduler="synchronous",
        )
    assert not [path for path in root.rglob("*.jsonl") if "attributes" in path.parts]


def test_plug_ins_are_listed(root, capsys):
    (root / "listed.py").write_text(WRITTEN.replace("_v1", "_v77"))
    assert main(["list", "--tagger-modules", str(root / "listed.py")]) == 0
    assert "marks_v77" in capsys.readouterr().out
    assert main(["list", "marks_v77", "--tagger_modules", str(root / "listed.py")]) == 0
    assert "Tagger Marks, written for the Dolma toolkit" in capsys.readouterr().out
