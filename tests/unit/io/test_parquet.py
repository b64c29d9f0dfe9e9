"""Documents as Parquet: there and back, and tables that others made."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dolma_dask.errors import CorruptFileError, SchemaError, SourceChangedError
from dolma_dask.formats.documents import documents_table
from dolma_dask.io import files
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.parquet import open_parquet
from dolma_dask.io.records import Block
from dolma_dask.sinks.documents import open_writer

Write = Callable[..., str]

ALL = ("id", "text", "source", "added", "created", "metadata", "raw")

LINES = [
    b'{"id":"a","text":"t","source":"s"}\n',
    b'{"text":"","source":"","id":""}\n',
    b'{"id":"b","text":"\\u0000\\ud83d\\ude00","source":"s","added":"2020","created":"2021","metadata":{}}\n',
    b'{"id":"c","text":"t","source":"s","metadata": {"b" : 1.0,\t"a":[1e400,"\\u00e9"],"a":2} ,"x":{"y":[1.0,1e400]}}\n',
    b'{"id":"d","text":"t","source":"s","metadata":"a string"}\n',
    b'{"id":"e","text":"t","source":"s","metadata":null,"created":null,"added":17}\n',
    b'{"id":"null","text":"t","source":"s","metadata":null}\n',
    b'{"id":"f","text":"t","source":"s","metadata":[12345678901234567890123],"extra":{"extra":1},"raw":"r"}\n',
    b'{"id":"g","text":"t","source":"s","\\u00e9\\"\\n":true,"":[],"big":123456789012345678901234567890}\n',
]


def read(url: str, columns: Sequence[str] = ALL, **options: Any) -> list[Block]:
    return list(DocumentFile(url, columns, **options))


def rows_of(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    return [row for block in blocks for row in block.batch.to_pylist()]


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., str]:
    """Write a table and return its URL."""

    def put(columns: dict[str, Any], **options: Any) -> str:
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table(columns), path, **options)
        return str(path)

    return put


def test_lines_to_parquet_and_back(root: str) -> None:
    with open_writer(root, "documents/a.parquet") as writer:
        writer.write(pa.array(LINES, pa.large_binary()))
    url = files.join(root, "documents/a.parquet")
    assert writer.record.rows == len(LINES)
    assert (writer.record.bytes, writer.record.checksum) == (files.stat(url).bytes, files.checksum(url))  # type: ignore[union-attr]
    (block,) = read(url)
    assert block.bad == ()
    rows = block.batch.to_pylist()
    for line, row in zip(LINES, rows, strict=True):
        assert row["raw"].endswith(b"}\n")
        assert row["raw"].count(b"\n") == 1
        again, original = json.loads(row["raw"]), json.loads(line)
        assert again == original
        for name in ("id", "text", "source"):
            assert row[name] == original[name]
    assert rows[3]["metadata"] == '{"b" : 1.0,\t"a":[1e400,"\\u00e9"],"a":2}'
    assert b'"metadata":{"b" : 1.0,\t"a":[1e400,"\\u00e9"],"a":2}' in rows[3]["raw"]
    assert b'"x":{"y":[1.0,1e400]}' in rows[3]["raw"]
    assert b'"big":123456789012345678901234567890' in rows[-1]["raw"]
    assert rows[4]["metadata"] == '"a string"'


def test_the_same_columns_as_from_lines(write: Write, tmp_path: Path) -> None:
    """Reading Parquet and reading JSON lines cannot be told apart."""
    columns = ("metadata", "source", "text", "id", "created")
    lines = [line for line in LINES if b'"added":17' not in line]
    with open_writer(str(tmp_path), "a.parquet") as writer:
        writer.write(pa.array(lines, pa.large_binary()))
    (expected,) = read(write("a.jsonl", b"".join(lines)), columns)
    (block,) = read(str(tmp_path / "a.parquet"), columns)
    assert block.batch.schema == expected.batch.schema
    assert block.batch.to_pylist() == expected.batch.to_pylist()


def test_a_second_trip_changes_nothing(tmp_path: Path) -> None:
    raw = pa.array(LINES, pa.large_binary())
    for name in ("a.parquet", "b.parquet"):
        with open_writer(str(tmp_path), name) as writer:
            writer.write(raw)
        raw = read(str(tmp_path / name), ("raw",))[0].batch.column("raw")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


@pytest.mark.parametrize("block_bytes", [1, 100, 1 << 20])
def test_blocks_do_not_change_the_rows(table: Callable[..., str], block_bytes: int) -> None:
    ids = [str(i) if i % 7 else None for i in range(100)]
    url = table({"id": ids, "text": ["x" * i for i in range(100)], "source": ["s"] * 100}, row_group_size=30)
    blocks = read(url, ("id", "text"), block_bytes=block_bytes)
    assert [block.first_row for block in blocks] == [
        sum(b.num_rows for b in blocks[:i]) for i in range(len(blocks))
    ]
    rows = rows_of(blocks)
    assert [row["id"] for row in rows] == ids
    assert [row["text"] for row in rows] == ["x" * i if i % 7 else None for i in range(100)]
    bad = [record for block in blocks for record in block.bad]
    assert [record.row for record in bad] == list(range(0, 100, 7))
    assert len(blocks) > 1 or block_bytes > 100


def test_only_asked_columns_are_read(table: Callable[..., str]) -> None:
    url = table({"id": ["a"], "text": ["t"], "n": [1], "source": [None]})
    (block,) = read(url, ("text",))
    assert block.batch.schema == pa.schema([("text", pa.large_string())])
    assert block.bad == ()
    (block,) = read(url, ("metadata", "created"))
    assert block.batch.to_pylist() == [{"metadata": None, "created": None}]


def test_bad_rows_are_null_and_say_why(table: Callable[..., str]) -> None:
    utf8 = pa.array([b"t", b"\xff", b"t", b"t", b"t" * 50, b"t"], pa.binary()).view(pa.string())
    url = table(
        {
            "id": ["a", "b", None, "d", "e", "f"],
            "text": utf8,
            "source": ["s", "s", "s", None, "s", "s"],
            "n": range(6),
        }
    )
    (block,) = read(url, max_record_bytes=40)
    found = [(record.row, record.byte_offset, record.reason, record.expected) for record in block.bad]
    assert found == [
        (1, 0, "invalid_utf8", "UTF-8 in column 'text'"),
        (2, 0, "missing_field", "a string in column 'id', found null"),
        (
            3,
            0,
            "missing_field",
            "a string in column 'source', found null (or give the source once for the whole dataset: source=..., --source)",
        ),
        (
            4,
            0,
            "too_large",
            "at most 40 bytes (max_record_bytes), found 50, for which a worker may need 1.00 kB; raise the limit or drop the record",
        ),
    ]
    assert json.loads(block.bad[0].raw) == {"id": "b", "text": "\ufffd", "source": "s"}
    rows = block.batch.to_pylist()
    assert [row for row in rows[1:5] if row != dict.fromkeys(ALL)] == []
    assert [row["id"] for row in rows] == ["a", None, None, None, None, "f"]
    assert json.loads(rows[5]["raw"]) == {"id": "f", "text": "t", "source": "s", "n": 5}


def test_the_source_may_be_given_once(table: Callable[..., str]) -> None:
    url = table({"id": ["a", "b", None], "text": ["t"] * 3, "source": ["own", None, None]})
    (block,) = read(url, ("id", "source"), source="given")
    assert block.batch.column("source").to_pylist() == ["own", "given", None]
    assert [record.row for record in block.bad] == [2]
    (block,) = read(table({"id": ["a"], "text": ["t"]}), ("id", "source"), source="given")
    assert block.batch.column("source").to_pylist() == ["given"]


def test_metadata_as_a_struct_becomes_json(table: Callable[..., str]) -> None:
    values = [{"n": 1, "x": {"y": [1.5, None]}, "d": "é"}, None]
    url = table({"id": ["a", "b"], "text": ["t", "t"], "source": ["s", "s"], "metadata": values})
    (block,) = read(url)
    rows = block.batch.to_pylist()
    assert json.loads(rows[0]["metadata"]) == values[0]
    assert rows[1]["metadata"] is None
    assert json.loads(rows[0]["raw"])["metadata"] == values[0]
    assert "metadata" not in json.loads(rows[1]["raw"])


@pytest.mark.parametrize(
    "text, expected",
    [
        ('{"a": 1.0}', '{"a": 1.0}'),
        ("{}", "{}"),
        ('{\n  "a": 1.0\n}\n', '{"a":1.0}'),
        ("a string", '"a string"'),
        ("{not json}", '"{not json}"'),
        ("17", '"17"'),
        ("", '""'),
    ],
)
def test_metadata_as_text_of_others_is_json_only_if_it_is_an_object(
    table: Callable[..., str], text: str, expected: str
) -> None:
    (block,) = read(table({"id": ["a"], "text": ["t"], "source": ["s"], "metadata": [text]}))
    (row,) = block.batch.to_pylist()
    assert row["metadata"] == expected
    assert row["raw"] == b'{"id":"a","text":"t","source":"s","metadata":%s}\n' % expected.encode()


@pytest.mark.parametrize(
    "extra, members",
    [
        ('{"x":1,"y":{"z":1e400}}', b',"x":1,"y":{"z":1e400}'),
        ("{}", b""),
        ("more", b',"extra":"more"'),
        ('{"id":"other"}', b',"extra":"{\\"id\\":\\"other\\"}"'),
        (None, b""),
    ],
)
def test_extra_of_others_is_spliced_only_if_it_can_be(
    table: Callable[..., str], extra: str | None, members: bytes
) -> None:
    column = pa.array([extra], pa.string())
    (block,) = read(table({"id": ["a"], "text": ["t"], "source": ["s"], "extra": column}))
    assert block.batch.column("raw").to_pylist() == [b'{"id":"a","text":"t","source":"s"%s}\n' % members]


def test_all_types_of_strings_and_other_columns(table: Callable[..., str]) -> None:
    url = table(
        {
            "id": pa.array(["a", "b"]).dictionary_encode(),
            "text": pa.array(["x", "y"], pa.large_string()),
            "source": pa.array(["s", "s"], pa.string_view()),
            "created": pa.nulls(2),
            "day": pa.array([1, 2], pa.date32()),
            "at": pa.array([1_000_000_001, None], pa.timestamp("ns")),
            "blob": pa.array([b"\xff", b""]),
            "many": [[1], []],
        }
    )
    (block,) = read(url, ("id", "text", "source", "created", "raw"))
    rows = block.batch.to_pylist()
    assert [(row["id"], row["text"], row["source"], row["created"]) for row in rows] == [
        ("a", "x", "s", None),
        ("b", "y", "s", None),
    ]
    assert json.loads(rows[0]["raw"]) == {
        "id": "a",
        "text": "x",
        "source": "s",
        "day": "1970-01-02",
        "at": "1970-01-01T00:00:01.000000001",
        "blob": "/w==",
        "many": [1],
    }


def test_columns_of_a_wrong_type_or_none_at_all(table: Callable[..., str]) -> None:
    with pytest.raises(
        SchemaError,
        match=r"a\.parquet: column 'id' has type int64; expected strings. `--ids-as-text` reads .*, `dolma-dask convert` makes",
    ):
        read(table({"id": [1], "text": ["t"], "source": ["s"]}))
    with pytest.raises(
        SchemaError, match=r"has 0 columns 'text'; its columns are id, body, source. Expected one"
    ):
        read(table({"id": ["a"], "body": ["t"], "source": ["s"]}))
    with pytest.raises(SchemaError, match="has 0 columns 'source'"):
        read(table({"id": ["a"], "text": ["t"]}))


def test_a_table_without_rows(tmp_path: Path, table: Callable[..., str]) -> None:
    with open_writer(str(tmp_path), "empty.parquet"):
        pass
    assert read(str(tmp_path / "empty.parquet")) == []
    assert read(table({name: pa.array([], pa.string()) for name in ("id", "text", "source")})) == []


@pytest.mark.parametrize("data", [b"", b'{"id":"a"}\n', b"PAR1", b"PAR1" + bytes(50) + b"PAR1"])
def test_a_suffix_that_lies(write: Write, data: bytes) -> None:
    with pytest.raises(
        CorruptFileError, match=r"a\.parquet: not a whole Parquet file .* Fetch or write it again"
    ):
        read(write("a.parquet", data))


def test_a_truncated_table(tmp_path: Path) -> None:
    pq.write_table(documents_table(LINES), tmp_path / "a.parquet")
    whole = (tmp_path / "a.parquet").read_bytes()
    for cut in (len(whole) - 1, len(whole) // 2, 10):
        (tmp_path / "a.parquet").write_bytes(whole[:cut])
        with pytest.raises(CorruptFileError, match="not a whole Parquet file"):
            read(str(tmp_path / "a.parquet"))


def test_a_damaged_page_is_found(tmp_path: Path) -> None:
    lines = [b'{"id":"%d","text":"text %d","source":"s"}\n' % (i, i * i) for i in range(1000)]
    with open_writer(str(tmp_path), "a.parquet") as writer:
        writer.write(pa.array(lines, pa.large_binary()))
    whole = (tmp_path / "a.parquet").read_bytes()
    for place in range(200, 2000, 100):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        (tmp_path / "a.parquet").write_bytes(damaged)
        with pytest.raises(CorruptFileError, match=r"damaged Parquet data .* expected the pages"):
            read(str(tmp_path / "a.parquet"), ("id", "text", "source"))


def test_a_table_that_changes_while_it_is_read(table: Callable[..., str]) -> None:
    columns = {"id": ["a"] * 10, "text": ["t"] * 10, "source": ["s"] * 10}
    blocks = iter(DocumentFile(table(columns), block_bytes=1))
    next(blocks)
    table({**columns, "more": range(10)})
    with pytest.raises(
        (SourceChangedError, CorruptFileError), match=r"when reading began|damaged Parquet data"
    ):
        list(blocks)


def test_names_that_are_not_utf_8(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"column_of_names": [1]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"column_of_names", b"column_of_n\xffmes"))
    with pytest.raises(CorruptFileError, match="not a whole Parquet file"), open_parquet(str(path)):
        raise AssertionError("it cannot be opened")
