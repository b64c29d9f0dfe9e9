"""Definition of a document row."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.errors import UsageError
from dolma_dask.formats import documents
from dolma_dask.formats.documents import OURS, documents_table, raw_lines
from dolma_dask.formats.json.lines import unquoted

BATCH = pa.RecordBatch.from_arrays(
    [
        pa.array(["a", None, "ccc"], pa.large_string()),
        pa.array(["s", None, None], pa.large_string()),
        pa.array([b"1", b"2", b"3"], pa.large_binary()),
    ],
    names=["id", "source", "raw"],
)


def test_columns_that_a_reader_can_give() -> None:
    names = ("raw", "id", "text", "source", "added", "created", "metadata")
    assert documents.check_columns(names) == names
    assert documents.check_columns(["id", "text", "id"]) == ("id", "text")
    with pytest.raises(
        UsageError, match="unknown document column 'words'; expected one of id, text, source, added"
    ):
        documents.check_columns(["id", "words"])


def test_a_row_of_nothing() -> None:
    batch = documents.null_row(("id", "raw"))
    assert batch.to_pylist() == [{"id": None, "raw": None}]
    assert batch.schema == documents.schema_of(("id", "raw"))
    assert documents.schema_of(("id", "raw")).types == [pa.large_string(), pa.large_binary()]


def test_hiding_rows() -> None:
    hidden = documents.without_rows(BATCH.slice(0, 3), [0, 2])
    assert hidden.schema == BATCH.schema
    assert hidden.to_pylist() == [
        dict.fromkeys(["id", "source", "raw"]),
        {"id": None, "source": None, "raw": b"2"},
        dict.fromkeys(["id", "source", "raw"]),
    ]
    assert documents.without_rows(BATCH.slice(1, 2), [1]).column("raw").to_pylist() == [b"2", None]


def test_the_source_of_a_dataset_fills_what_is_missing() -> None:
    assert documents.with_source(BATCH, "d").column("source").to_pylist() == ["s", "d", "d"]
    assert documents.with_source(BATCH, None) is BATCH
    assert documents.with_source(BATCH.select(["id"]), "d").schema.names == ["id"]
    assert documents.with_source(BATCH.slice(0, 1), "d").column("source").to_pylist() == ["s"]
    assert documents.with_source(BATCH, "d").schema == BATCH.schema


def test_bytes_of_a_text_column() -> None:
    column = pa.array(["é", None, "", "abc"], pa.large_string())
    assert documents.text_bytes(column) == 5
    assert documents.text_bytes(column.slice(1)) == 3
    assert documents.text_bytes(column.slice(0, 1)) == 2
    assert documents.text_bytes(column.slice(4)) == 0
    assert documents.text_bytes(pa.array([], pa.large_string())) == 0


def test_a_table_of_no_lines() -> None:
    table = documents_table([])
    assert table.schema.names == ["id", "text", "source", "added", "created", "metadata", "extra"]
    assert table.num_rows == 0


def test_raw_lines_of_hidden_rows_are_null() -> None:
    (batch,) = documents_table([b'{"id":"a"}\n', b'{"id":"b"}\n']).to_batches()
    assert raw_lines(batch, {0}).to_pylist() == [None, b'{"id":"b"}\n']


@pytest.mark.parametrize("ours", [True, False])
def test_raw_lines_have_the_members_that_a_row_has(ours: bool) -> None:
    """Which commas stand in a line depends on what the row lacks."""
    fields: list[tuple[str, Any, Any]] = [
        ("id", pa.large_string(), ['a\u2028"\\\x01\x7f', "é😀", None, None, "", "f"]),
        ("n", pa.float64(), [None, 1.5, None, 2.0, None, None]),
        ('t"\n', pa.string(), ["x", None, None, "\n", "y", "z"]),
        ("metadata", pa.large_string(), [None, '{"a": 1}', None, None, "[1]", "{}"]),
        ("extra", pa.large_string(), ['{"b":1}', None, None, "{}", '{"c":[1.0],"d":"é"}', None]),
    ]
    table = pa.record_batch({name: pa.array(values, kind) for name, kind, values in fields})
    table = table.replace_schema_metadata(OURS if ours else None)
    expected = []
    for row in zip(*(values for _, _, values in fields), strict=True):
        strings = zip(("id", "n", 't"\n'), row[:3], strict=True)
        members = [f"{_spelled(name)}:{_spelled(value)}" for name, value in strings if value is not None]
        *_, metadata, extra = row
        of_metadata = metadata if ours or metadata is None or metadata.startswith("{") else _spelled(metadata)
        members += [] if metadata is None else [f'"metadata":{of_metadata}']
        members += [] if extra is None else [extra[1:-1]]
        expected.append("{" + ",".join(filter(None, members)) + "}\n")
    assert [line.decode() for line in raw_lines(table).to_pylist()] == expected


def _spelled(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@given(st.lists(st.one_of(st.none(), st.text(), st.text(min_size=60)), max_size=6))
def test_unquoted_strings_are_what_a_parser_makes_of_them(texts: list[str | None]) -> None:
    valid = [None if text is None else text.encode(errors="replace").decode() for text in texts]
    for is_ascii in (True, False):
        spelled = [
            None if text is None else json.dumps(text, ensure_ascii=is_ascii).encode() for text in valid
        ]
        assert unquoted(spelled).to_pylist() == valid
