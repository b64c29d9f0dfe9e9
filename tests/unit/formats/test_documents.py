"""Definition of a document row."""

import pyarrow as pa
import pytest

from dolma_dask.errors import UsageError
from dolma_dask.formats import documents
from dolma_dask.formats.documents import documents_table, raw_lines

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
    assert raw_lines(batch, {0}) == [None, b'{"id":"b"}\n']
