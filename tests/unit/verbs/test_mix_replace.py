"""Replaced spans in documents: their texts, everything else byte for byte, attributes that move with them."""

import json
from pathlib import Path
from typing import Any

import pytest

import dolma_dask as dk
from dolma_dask.errors import StageError, UsageError

from .conftest import read_lines, write_lines

HERE: dict[str, Any] = {"scheduler": "synchronous", "progress": False}


def put(root: Path, lines: list[str], values: list[dict[str, Any]]) -> str:
    write_lines(root / "documents/a.jsonl.gz", lines)
    rows = [
        json.dumps({"id": json.loads(line)["id"], "attributes": each})
        for line, each in zip(lines, values, strict=True)
    ]
    write_lines(root / "attributes/one/a.jsonl.gz", rows)
    return str(root)


def mixed(dataset: str, **options: Any) -> list[str]:
    target = Path(dataset).parent / "mixed"
    dk.mix(dataset, to=str(target), overwrite=True, **options, **HERE)
    return read_lines(target / "documents/a.jsonl.gz")


LINES = [
    '{ "id":"a", "text":"Mail j@x.org or \\u00e9@y.org!", "source":"s", "metadata": {"n": 1e2, "who":"Jo"}, "big": 12345678901234567890 }',
    '{"id":"b","source":"s","text":"日本 k@z.jp 語","extra":[1.0, null]}',
    '{"id":"c","source":"s","text":"none here"}',
]
SPANS: list[dict[str, Any]] = [{"mail": [[5, 12, 1], [16, 23, 0.5]]}, {"mail": [[3, 9, 1.0]]}, {}]
MAIL = {"span": "$.attributes.mail", "replacement": "<{}>"}


def test_texts_change_and_nothing_else(tmp_path: Path) -> None:
    dataset = put(tmp_path / "v0", LINES, SPANS)
    assert mixed(dataset, replace=[MAIL]) == [
        LINES[0].replace('"Mail j@x.org or \\u00e9@y.org!"', '"Mail <j@x.org> or <é@y.org>!"'),
        LINES[1].replace("k@z.jp", "<k@z.jp>"),
        LINES[2],
    ]


@pytest.mark.parametrize(
    "limits, changed",
    [
        ({"min_score": 1}, ["Mail X or é@y.org!", "日本 X 語"]),
        ({"max_score": 1}, ["Mail j@x.org or X!", "日本 k@z.jp 語"]),
        ({"min_score": 0.5, "max_score": 0.6}, ["Mail j@x.org or X!", "日本 k@z.jp 語"]),
        ({}, ["Mail X or X!", "日本 X 語"]),
    ],
)
def test_scores_from_and_below(tmp_path: Path, limits: dict[str, float], changed: list[str]) -> None:
    dataset = put(tmp_path / "v0", LINES, SPANS)
    found = mixed(dataset, replace=json.dumps({"span": "$.attributes.mail", "replacement": "X", **limits}))
    assert [json.loads(line)["text"] for line in found] == [*changed, "none here"]


@pytest.mark.parametrize(
    "replacement, text",
    [
        ("$.id", "Mail a or a!"),
        ("$.metadata.who", "Mail Jo or Jo!"),
        ('$.id + "-" + .metadata.who', "Mail a-Jo or a-Jo!"),
        ("$['metadata']['who']", "Mail Jo or Jo!"),
        ("{}{}", "Mail j@x.orgj@x.org or é@y.orgé@y.org!"),
    ],
)
def test_values_of_the_document(tmp_path: Path, replacement: str, text: str) -> None:
    dataset = put(tmp_path / "v0", LINES[:1], SPANS[:1])
    (line,) = mixed(dataset, replace=[{"span": "$.attributes.mail", "replacement": replacement}])
    assert json.loads(line)["text"] == text


def test_braces_in_values_stay(tmp_path: Path) -> None:
    dataset = put(tmp_path / "v0", ['{"id":"{}","text":"a bc d","source":"s"}'], [{"mail": [[2, 4, 1]]}])
    (line,) = mixed(dataset, replace=[{"span": "$.attributes.mail", "replacement": "$.id"}])
    assert json.loads(line)["text"] == "a {} d"


@pytest.mark.parametrize(
    "rule",
    [
        {"span": ".attributes.mail", "syntax": "jq"},
        {"span": ".attributes.mail[]", "syntax": "jq"},
        {"span": "[.attributes.mail[]? | select(.[2] > 0)]", "syntax": "jq"},
        {"span": "$.attributes.mail[*]"},
        {"span": "$..mail"},
        {"span": "$['attributes']['mail']"},
    ],
)
def test_spans_by_other_expressions(tmp_path: Path, rule: dict[str, str]) -> None:
    dataset = put(tmp_path / "v0", LINES[:2], SPANS[:2])
    found = mixed(dataset, replace=[{**rule, "replacement": "X"}])
    assert [json.loads(line)["text"] for line in found] == ["Mail X or X!", "日本 X 語"]


@pytest.mark.parametrize(
    "spans, text",
    [
        ([[2, 4, 1], [3, 6, 1]], "abRefghij"),
        ([[2, 4, 1], [4, 6, 1]], "abRRghij"),
        ([[2, 6, 1], [2, 4, 1]], "abRghij"),
        ([[5, 6, 1], [2, 3, 1]], "abRdeRghij"),
        ([[8, 20, 1]], "abcdefghR"),
        ([[2, 2, 1]], "abRcdefghij"),
        ([[0, 0, 1]], "Rabcdefghij"),
        ([[10, 10, 1]], "abcdefghijR"),
        ([[8, 10, 1], [10, 10, 1]], "abcdefghR"),
        ([[8, 12, 1], [12, 12, 1]], "abcdefghR"),
        ([[12, 12, 1]], "abcdefghijR"),
    ],
)
def test_overlaps_ends_and_widths(tmp_path: Path, spans: list[list[float]], text: str) -> None:
    dataset = put(tmp_path / "v0", ['{"id":"a","text":"abcdefghij","source":"s"}'], [{"k": spans}])
    (line,) = mixed(dataset, replace=[{"span": "$.attributes.k", "replacement": "R"}])
    assert json.loads(line)["text"] == text


@pytest.mark.parametrize(
    "spans, rule, message",
    [
        ([[-1, 2, 1]], {}, r"documents/a.jsonl.gz, row 0: .*\[-1, 2\]; expected 0 <= start <= end"),
        ([[4, 2, 1]], {}, r"\[4, 2\]; expected 0 <= start <= end"),
        ([[0, 2, 1]], {"replacement": "$.metadata.who"}, "a value that the document does not have"),
        ([[0, 2, 1]], {"replacement": "$.metadata"}, "a value that the document does not have"),
        ([[0, 2, 1]], {"replacement": "$5"}, "a value that the document does not have"),
    ],
)  # fmt: skip
def test_spans_that_cannot_be(tmp_path: Path, spans: list[Any], rule: dict[str, str], message: str) -> None:
    dataset = put(
        tmp_path / "v0", ['{"id":"a","text":"abcdef","source":"s","metadata":{"x":1}}'], [{"k": spans}]
    )
    with pytest.raises(StageError, match=message):
        mixed(dataset, replace=[{"span": "$.attributes.k", **rule}])
    assert not (tmp_path / "mixed/documents/a.jsonl.gz").exists()


@pytest.mark.parametrize(
    "rule, message",
    [
        ({"span": "$.attributes.n"}, "holds no spans"),
        ({"span": "$.attributes.k", "min_scor": 1}, "did you mean 'min_score'"),
        ({"min_score": 1}, "does not say which spans"),
        ({"span": "$.attributes.k", "replacement": "$ |"}, r"begins with \$"),
        ({"span": "$.attributes.k", "min_score": "x"}, "expected a number"),
        ("{span: x}", "cannot read the replacement"),
    ],
)
def test_wrong_rules(tmp_path: Path, rule: Any, message: str) -> None:
    dataset = put(
        tmp_path / "v0", ['{"id":"a","text":"abcdef","source":"s"}'], [{"k": [[0, 1, 1]], "n": 0.7}]
    )
    with pytest.raises(UsageError, match=message):
        mixed(dataset, replace=[rule])


def test_own_attributes_move(tmp_path: Path) -> None:
    line = '{"id":"a","text":"one two three","source":"s","attributes":{"w":[[0,3,1],[4,7,2.50],[8,13,3]],"d":[[0,13,0.5]],"n":7}}'
    dataset = put(tmp_path / "v0", [line], [{"k": [[4, 7, 1]]}])
    (found,) = mixed(dataset, replace=[{"span": "$.attributes.k", "replacement": "zwei!"}])
    assert found == line.replace("one two three", "one zwei! three").replace(
        '"w":[[0,3,1],[4,7,2.50],[8,13,3]],"d":[[0,13,0.5]]', '"w":[[0,3,1],[10,15,3]],"d":[[0,15,0.5]]'
    )


def test_spans_in_objects_move(tmp_path: Path) -> None:
    own = '{"pii":{"email":[[8,13,1]],"more":[{"name":[[4,7,1]]},{"name":[[8,13,1]]}]},"lang":{"en":0.9}}'
    line = f'{{"id":"a","text":"one two three","source":"s","attributes":{own}}}'
    dataset = put(tmp_path / "v0", [line], [{"k": [[4, 7, 1]], "deep": {"w": [[0, 3, 1], [8, 13, 2.0]]}}])
    rule = {"span": "$.attributes.k", "replacement": "zwei!"}
    (found,) = mixed(dataset, replace=[rule])
    moved = own.replace("[8,13,1]", "[10,15,1]").replace("[4,7,1]", "")
    assert found == line.replace("one two three", "one zwei! three").replace(own, moved)
    (found,) = mixed(dataset, replace=[rule], merge_attributes=True, attributes=["one"])
    assert json.loads(found)["attributes"]["deep"] == {"w": [[0, 3, 1], [10, 15, 2.0]]}


@pytest.mark.parametrize("value", ["1e999", "9" * 5000, "[" * 900 + "]" * 900])
def test_spans_beside_what_cannot_be_read_stay_unmoved(tmp_path: Path, value: str) -> None:
    dataset = put(tmp_path / "v0", LINES, [{**each, "odd": ["VALUE"]} for each in SPANS])
    attributes = tmp_path / "v0/attributes/one/a.jsonl.gz"
    write_lines(attributes, [line.replace('"VALUE"', value) for line in read_lines(attributes)])
    with pytest.raises(StageError, match=r"a\.jsonl\.gz, row 0: spans in attributes with a number that"):
        mixed(dataset, replace=[MAIL], merge_attributes=True, attributes=["one"])


def test_short_texts_fields_and_provenance(tmp_path: Path) -> None:
    lines = [
        '{"id":"a","text":"\\u3000 ab \\n","source":"s","x":1,"metadata":"none"}',
        '{"id":"b","text":"\\u00e9","source":"s"}',
        '{"id":"c","text":"x","source":"s"}',
    ]
    dataset = put(tmp_path / "v0", lines, [{}, {}, {}])
    found = mixed(dataset, min_text_length=2, discard_fields=["x", "absent"], provenance=True)
    assert found == [
        '{"id":"a","text":"\\u3000 ab \\n","source":"s","metadata":{"provenance":"a.jsonl.gz:1"}}',
        '{"id":"b","text":"\\u00e9","source":"s","metadata":{"provenance":"a.jsonl.gz:2"}}',
    ]


def test_more_fields_are_discarded_than_one_pass_can(tmp_path: Path) -> None:
    fields = [f"k{number}" for number in range(70)]
    dataset = put(tmp_path / "v0", ['{"id":"a","text":"t","source":"s","k6":1}'], [{}])
    (line,) = mixed(dataset, discard_fields=fields, provenance=True)
    assert line == '{"id":"a","text":"t","source":"s","metadata":{"provenance":"a.jsonl.gz:1"}}'


def test_length_is_that_after_replacement(tmp_path: Path) -> None:
    dataset = put(tmp_path / "v0", LINES, [{"mail": [[0, 20, 1]]}, *SPANS[1:]])
    found = mixed(dataset, replace=[{"span": "$.attributes.mail", "replacement": ""}], min_text_length=5)
    assert [json.loads(line)["id"] for line in found] == ["b", "c"]


def test_where_and_replace_read_one_key(tmp_path: Path) -> None:
    dataset = put(tmp_path / "v0", LINES[:2], [{"k": [[0, 24, 1.0]]}, {"k": [[0, 11, 0.2]]}])
    (line,) = mixed(dataset, where="k > 0.5", replace=[{"span": "$.attributes.k", "replacement": "all"}])
    assert json.loads(line)["text"] == "all"


@pytest.mark.parametrize("file_format", ["jsonl", "jsonl.zst", "parquet"])
def test_documents_of_all_formats(tmp_path: Path, file_format: str) -> None:
    dataset = put(tmp_path / "v0", LINES, SPANS)
    dk.mix(dataset, to=str(tmp_path / "other"), format=file_format, **HERE)
    lines = [
        json.dumps({"id": json.loads(line)["id"], "attributes": each})
        for line, each in zip(LINES, SPANS, strict=True)
    ]
    write_lines(tmp_path / "other/attributes/one/a.jsonl.gz", lines)
    dk.mix(
        str(tmp_path / "other"),
        to=str(tmp_path / "gz"),
        format="jsonl.gz",
        replace=[MAIL],
        provenance=True,
        **HERE,
    )
    dk.mix(str(tmp_path / "other"), to=str(tmp_path / "same"), replace=[MAIL], **HERE)
    found = [json.loads(line) for line in read_lines(tmp_path / "gz/documents/a.jsonl.gz")]
    assert [row["text"] for row in found] == ["Mail <j@x.org> or <é@y.org>!", "日本 <k@z.jp> 語", "none here"]
    assert found[0]["metadata"] == {"n": 100.0, "who": "Jo", "provenance": f"a.{file_format}:1"}
    assert found[0]["big"] == 12345678901234567890
    again = dk.mix(str(tmp_path / "same"), to=str(tmp_path / "last"), format="jsonl.gz", **HERE)
    assert again.counts["documents_out"] == 3
    texts = [json.loads(line)["text"] for line in read_lines(tmp_path / "last/documents/a.jsonl.gz")]
    assert texts == [row["text"] for row in found]
