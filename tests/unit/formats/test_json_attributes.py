"""Reading attribute rows: kinds, errors, and the finding of keys and forms."""

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dolma_dask.errors import SchemaError
from dolma_dask.formats.json.attributes import (
    AttributeBatch,
    AttributeKind,
    Form,
    guess_form,
    sample_kinds,
    scan_attributes,
)
from dolma_dask.formats.json.strings import line_starts


def scan(data: bytes, keys: dict[str, AttributeKind], form: Form = "nested") -> AttributeBatch:
    block = np.frombuffer(data, np.uint8)
    return scan_attributes(block, line_starts(block), keys, form)


def row(attributes: str) -> bytes:
    return b'{"id":"i","attributes":{' + attributes.encode() + b"}}\n"


def test_every_kind_has_its_column_type() -> None:
    data = row('"d":[[0,9,0.5]],"s":[[1,2,3],[4,5,6.5]],"n":-2e3,"b":true,"t":"\\u00e9","l":{"en":0.25}')
    keys: dict[str, AttributeKind] = {
        "d": "document",
        "s": "spans",
        "n": "number",
        "b": "bool",
        "t": "string",
        "l.en": "dict",
        "l.fr": "dict",
    }
    batch = scan(data, keys)
    assert not batch.errors
    span = pa.struct([("start", pa.int64()), ("end", pa.int64()), ("score", pa.float64())])
    assert [column.type for column in batch.columns.values()] == [
        pa.float64(),
        pa.list_(span),
        pa.float64(),
        pa.bool_(),
        pa.large_string(),
        pa.float64(),
        pa.float64(),
    ]
    assert {key: column[0].as_py() for key, column in batch.columns.items()} == {
        "d": 0.5,
        "s": [{"start": 1, "end": 2, "score": 3.0}, {"start": 4, "end": 5, "score": 6.5}],
        "n": -2000.0,
        "b": True,
        "t": "é",
        "l.en": 0.25,
        "l.fr": None,
    }


def test_both_forms_read_alike_and_sources_may_be_missing() -> None:
    nested = b'{"source":"s","id":"a","attributes":{"toxicity":0.7}}\n{"attributes":{},"id":"b"}\n'
    flat = b'{"source":"s","id":"a","toxicity":0.7}\n{"id":"b"}\n'
    for data, form in ((nested, "nested"), (flat, "flat")):
        batch = scan(data, {"toxicity": "number"}, form)
        assert batch.ids.to_pylist() == ["a", "b"]
        assert batch.sources.to_pylist() == ["s", None]
        assert batch.columns["toxicity"].to_pylist() == [0.7, None]
        assert guess_form([b"no row", *data.splitlines()]) == form


@pytest.mark.parametrize(
    "line, reason, expected",
    [
        (b'{"id":"i"}', "missing_field", "an object in field 'attributes', which is missing"),
        (b'{"id":"i","attributes":[]}', "wrong_type", "an object in field 'attributes', found an array"),
        (b'{"attributes":{}}', "missing_field", "a string in field 'id', which is missing"),
        (b'{"id":null,"attributes":{}}', "wrong_type", "a string in field 'id', found null"),
        (b'{"id":7,"attributes":{}}', "wrong_type", "a string in field 'id', found a number"),
        (
            b'{"id":"i","source":1,"attributes":{}}',
            "wrong_type",
            "a string in field 'source', found a number",
        ),
        (b'{"id":"i","attributes":{}', "invalid_json", "the line ends too early at byte 25"),
    ],
)
def test_a_bad_row_says_what_was_expected(line: bytes, reason: str, expected: str) -> None:
    batch = scan(row('"k":null') + line + b"\n", {"k": "number"})
    [(at, error)] = batch.errors
    assert (at, error.reason) == (1, reason)
    assert error.expected.endswith(expected)
    assert batch.ids.to_pylist() == ["i", None]


@pytest.mark.parametrize(
    "value, kind, expected",
    [
        ("true", "number", "a number in attribute 'k', found a boolean"),
        ("1e400", "number", "a number that fits a double in attribute 'k', found 1e400"),
        ("1", "bool", "a boolean in attribute 'k', found a number"),
        ("1", "string", "a string in attribute 'k', found a number"),
        ("1", "spans", "a list of spans in attribute 'k', found a number"),
        ("[[0,1]]", "spans", "spans [start, end, score] in attribute 'k', found 2 elements"),
        ("[[0,1.5,1]]", "spans", "a whole number as end of a span in attribute 'k', found 1.5"),
        ("[[0,1,1],[1,2,1]]", "document", "one span [0, n, score] in attribute 'k', found 2 spans"),
        ("[[3,4,1]]", "document", "one span [0, n, score] in attribute 'k', found a span from 3"),
    ],
)
def test_a_value_of_another_kind_says_what_was_expected(
    value: str, kind: AttributeKind, expected: str
) -> None:
    [(_, error)] = scan(row(f'"k":{value}'), {"k": kind}).errors
    assert (error.reason, error.expected) == ("wrong_type", expected)


def test_a_nested_row_in_a_flat_file_is_an_error() -> None:
    batch = scan(b'{"id":"a","attributes":{"n":1}}\n', {"n": "number"}, "flat")
    assert batch.errors[0][1].expected == "attributes among the row's own keys, found a field 'attributes'"


@pytest.mark.parametrize(
    "keys, form",
    [
        ({"lang": "dict"}, "nested"),
        ({"lang": "string", "lang.en": "dict"}, "nested"),
        ({"id": "string"}, "flat"),
        ({"source.x": "dict"}, "flat"),
    ],
)
def test_keys_that_cannot_be_read_are_refused(keys: dict[str, AttributeKind], form: Form) -> None:
    with pytest.raises(SchemaError):
        scan(row(""), keys, form)


def test_an_attribute_may_be_called_as_a_field_of_the_row() -> None:
    batch = scan(row('"id":"inner","source":1,"attributes":2'), {"id": "string", "attributes": "number"})
    assert batch.ids.to_pylist() == ["i"]
    assert [column.to_pylist() for column in batch.columns.values()] == [["inner"], [2.0]]


def kinds(*attributes: str) -> dict[str, AttributeKind]:
    return sample_kinds([row(text) for text in attributes], "nested")


def test_kinds_are_found_in_example_rows() -> None:
    found = kinds(
        '"n":1,"b":true,"s":"x","l":{"en":1,"fr":null},"none":null', '"n":null,"n2":2.5,"l":{"fr":0.5}'
    )
    assert found == {
        "n": "number",
        "b": "bool",
        "s": "string",
        "l.en": "dict",
        "n2": "number",
        "l.fr": "dict",
    }


def test_one_span_over_the_whole_text_in_every_row_is_a_document_value() -> None:
    assert kinds('"d":[[0,9,1]],"p":[[0,4,1],[4,9,1]]', '"d":[],"p":[[0,3,1]]') == {
        "d": "document",
        "p": "spans",
    }
    assert kinds('"d":[[0,9,1]],"p":[[0,4,1]]') == {"d": "document", "p": "spans"}
    assert kinds('"p":[[1,4,1]]') == {"p": "spans"}
    assert kinds('"e":[]', '"e":[]') == {"e": "spans"}


def test_keys_that_no_kind_fits_are_left_out() -> None:
    assert kinds('"m":1,"x":[1,2],"o":{"a":{"b":1},"c":"t","d":1},"d.ot":{"k":1}', '"m":"one"') == {
        "o.d": "dict"
    }


def test_unreadable_rows_are_no_examples() -> None:
    assert sample_kinds([b"", b'{"id":null,"attributes":{"k":1},"error":"x"}', row('"n":1')], "nested") == {
        "n": "number"
    }
    assert sample_kinds([b'{"id":"a","source":"s","n":1}'], "flat") == {"n": "number"}


@pytest.mark.slow
@pytest.mark.conformance
def test_the_rows_of_the_original_tool_read_as_json_reads_them(shared: Path) -> None:
    folder = shared / "conformance" / "dolma" / "in" / "attributes"
    paths = sorted(folder.rglob("*.jsonl.gz"))
    assert paths
    for path in paths:
        data = gzip.decompress(path.read_bytes())
        rows = [json.loads(line) for line in data.splitlines()]
        found = sample_kinds(data.splitlines(), "nested")
        batch = scan(data, found)
        assert not batch.errors
        assert batch.ids.to_pylist() == [row["id"] for row in rows]
        for key, column in batch.columns.items():
            right = [row["attributes"].get(key) for row in rows]
            if found[key] == "document":
                assert column.to_pylist() == [spans[0][2] if spans else None for spans in right]
            else:
                read = [spans and [tuple(span.values()) for span in spans] for spans in column.to_pylist()]
                assert read == [spans and [tuple(span) for span in spans] for spans in right]
