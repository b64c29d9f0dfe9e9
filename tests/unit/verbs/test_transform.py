"""transform: texts rewritten by a function of the user; everything else stays byte for byte."""

import json

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import dolma_dask as dk
from dolma_dask.errors import StageError, UsageError

RUN = {"scheduler": "synchronous", "progress": False}
LINES = [
    b'{"id": "0", "text": "Men\\u00fc | body", "source":"web", "metadata": { "n" :1.10 }, "x": 12345678901234567890}\n',
    b'{"text":"stays","source":"web","id":"1","metadata":{}}\n',
    b'{"id":"2","text":"drop me","source":"web"}\n',
    b'{"id":"3","text":"Menu | \xc3\xa9\\n","source":"books","metadata":null}\n',
]


@pytest.fixture
def root(tmp_path):
    path = tmp_path / "v0/documents/a.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(LINES))
    return tmp_path


def rewrite(root, function, to="v1", **options):
    done = dk.transform(f"{root}/v0", function, to=f"{root}/{to}", **{**RUN, **options})
    return done, (root / to / "documents/a.jsonl").read_bytes().splitlines(keepends=True)


def of_text(text):
    return None if text.startswith("drop") else text.removeprefix("Menü | ").removeprefix("Menu | ")


def of_document(document):
    document["text"] = of_text(document["text"])
    return document if document["text"] else None


def of_block(texts: pa.Array) -> pa.Array:
    kept = pc.replace_substring_regex(texts, "^Men[uü] \\| ", "")
    return pc.if_else(pc.starts_with(texts, "drop"), pa.scalar(None, kept.type), kept)


@pytest.mark.parametrize("function", [of_text, of_document, of_block])
def test_only_the_text_changes(root, function):
    done, lines = rewrite(root, function)
    assert lines == [
        LINES[0].replace(b"Men\\u00fc | body", b"body"),
        LINES[1],
        LINES[3].replace(b"Menu | \xc3\xa9\\n", b"\xc3\xa9\\n"),
    ]
    names = ("documents_in", "documents_out", "documents_changed", "documents_unchanged", "documents_dropped")
    assert [done.counts[name] for name in names] == [4, 3, 2, 1, 1]
    assert (done.counts["characters_in"], done.counts["characters_out"]) == (32, 11)
    assert rewrite(root, function)[0].done == 0


def test_a_rule_chooses_and_provenance_names_the_function(root):
    (root / "mine.py").write_text("def lower(text):\n    return text.lower()\n")
    done, lines = rewrite(
        root, f"{root}/mine.py:lower", where="source == 'web' and id != '2'", provenance=True
    )
    first, second = (json.loads(line) for line in lines)
    label = first["metadata"].pop("transformed")
    assert (first["text"], first["metadata"]) == ("menü | body", {"n": 1.1, "provenance": "a.jsonl:1"})
    assert label.startswith("mine.py:lower@")
    assert len(label) == len("mine.py:lower@") + 16
    assert second["metadata"] == {"provenance": "a.jsonl:2"}
    assert done.counts["documents_unchanged"] == 1
    assert dk.validate(f"{root}/v1", **RUN).exit_status == 0


def test_a_document_may_change_but_for_its_id(root):
    def change(document):
        if document["id"] == "1":
            return {name: value for name, value in document.items() if name != "metadata"}
        return {**document, "metadata": {"n": True}, "é": [1, "\u2028"]}

    _, lines = rewrite(root, change)
    assert lines[0] == LINES[0].replace(b'{ "n" :1.10 }', b'{"n":true}').replace(
        b"}\n", ',"é":[1,"\u2028"]}\n'.encode()
    )
    assert lines[1] == b'{"text":"stays","source":"web","id":"1"}\n'
    with pytest.raises(
        StageError,
        match=r"row 0: wrong document; expected the same 'id' from .*, found str '00' for the document '0'",
    ):
        rewrite(root, lambda document: {**document, "id": document["id"] + "0"}, to="v2")


def test_a_function_neither_sees_nor_loses_provenance(root):
    def bare(document):
        assert "provenance" not in (document.get("metadata") or {})
        return {name: value for name, value in document.items() if name != "metadata"}

    _, lines = rewrite(root, bare, provenance=True)
    assert all(json.loads(line)["metadata"]["provenance"].startswith("a.jsonl:") for line in lines)


@pytest.mark.parametrize(
    "function, expected",
    [
        (
            lambda text: 3,
            r"row 0: wrong document; expected a text \(str\), or None to drop the document .*, found int 3",
        ),
        (lambda text: (yield text), "found generator"),
        (lambda text: "\ud800", "expected characters from .*, found a lone surrogate"),
        (
            lambda text: 1 / 0,
            r"row 0: function failed; .* which raised ZeroDivisionError: division by zero \(test_transform.py, line \d+\)",
        ),
        (lambda document: {**document, "n": float("inf")}, "values that JSON has .*, found inf in field 'n'"),
        (lambda document: {"id": "0", "source": "web"}, "a string in field 'text' .*, found none"),
        (
            lambda texts: texts[:1],
            r"rows 0 to 3: .* returned 1 values of large_string; expected an array of 4 strings",
        ),
        (lambda texts: 1 / 0, r"rows 0 to 3: .* raised ZeroDivisionError"),
        (
            lambda texts: pa.array([b"", b"", b"\xff", b""], pa.large_binary()).view(pa.large_string()),
            r"row 2: .* returned a text that is no UTF-8; expected strings",
        ),
    ],
)
def test_what_is_no_text_fails_with_its_place(root, function, expected):
    with pytest.raises(StageError, match=rf"v0/documents/a.jsonl, .*{expected}|{expected}"):
        rewrite(root, function)
    assert not (root / "v1/documents/a.jsonl").exists()


def test_bad_records_go_to_quarantine_and_an_edit_does_the_work_again(root):
    code = "def f(text):\n    return text[{}] + text\n"
    (root / "mine.py").write_text(code.format(12))
    call = {"on_bad_record": "quarantine", "max_bad_fraction": 1}
    done, lines = rewrite(root, f"{root}/mine.py:f", **call)
    assert (len(lines), done.counts["bad_records"]) == (0, 4)
    kept = (root / "v1/_quarantine/transform/a.jsonl.jsonl").read_text().splitlines()
    assert [json.loads(line)["row"] for line in kept] == [0, 1, 2, 3]
    (root / "mine.py").write_text(code.format(5))
    done, lines = rewrite(root, f"{root}/mine.py:f", **call)
    assert (len(lines), done.counts["bad_records"], done.counts["documents_dropped"]) == (3, 1, 0)
    with pytest.raises(UsageError, match=r"with other options: function 'mine\.py:f', now"):
        rewrite(root, of_text, **call)
    with pytest.raises(UsageError, match=r"transform to .* would write over its own input"):
        rewrite(root, of_text, to="v0")
