"""Attribute files in all forms, and what is said of rows that cannot be read."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dolma_dask.errors import BadRecordError, SchemaError, SourceChangedError
from dolma_dask.formats.attributes import AttributeColumn
from dolma_dask.io.attributes import KINDS_KEY, AttributeFile, empty_block, sample_keys, table_kinds
from dolma_dask.io.parquet import row_groups
from dolma_dask.io.stored import Member
from dolma_dask.sinks.attributes import AttributeWriter

Write = Callable[..., str]

SPANS = [{"start": 0, "end": 2, "score": 1.0}, {"start": 3, "end": 9, "score": 0.5}]
KINDS: Mapping[str, Any] = {
    "t__words": "document",
    "t__parts": "spans",
    "n": "number",
    "flag": "bool",
    "name": "string",
    "lang.en": "dict",
    "lang.de": "dict",
}
NESTED = [
    b'{"id":"a","attributes":{"t__words":[[0,9,87.0]],"t__parts":[[0,2,1],[3,9,0.5]],"n":1,"flag":true,"name":"x",'
    b'"lang":{"en":0.9,"de":1}},"source":"s"}\n',
    b'{"id":null,"attributes":{},"error":"invalid_json: expected ..."}\n',
    b'{"attributes":{"t__words":[],"t__parts":[],"n":2.5,"flag":false,"lang":{}},"id":"b"}\n',
    b'{"id":"","attributes":{},"source":""}\n',
]
FLAT = [
    b'{"source":"s","id":"a","n":1,"flag":true,"name":"x","lang":{"en":0.9,"de":1}}\n',
    b'{"id":null,"error":"invalid_json: expected ..."}\n',
    b'{"id":"b","n":2.5,"flag":false,"lang":{}}\n',
    b'{"source":"","id":""}\n',
]
FLAT_KINDS = {key: kind for key, kind in KINDS.items() if not key.startswith("t__")}
COLUMNS = {
    "t__words": [87.0, None, None, None],
    "t__parts": [SPANS, None, [], None],
    "n": [1.0, None, 2.5, None],
    "flag": [True, None, False, None],
    "name": ["x", None, None, None],
    "lang.en": [0.9, None, None, None],
    "lang.de": [1.0, None, None, None],
}


def read(url: str, kinds: Mapping[str, Any], **options: Any) -> dict[str, list[Any]]:
    """Return ids, sources and columns of all blocks."""
    found: dict[str, list[Any]] = {name: [] for name in ("id", "source", *kinds)}
    for block in AttributeFile(url, kinds, **options):
        assert block.first_row == len(found["id"])
        assert len(block.ids) == len(block.sources) > 0
        for name, column in {"id": block.ids, "source": block.sources, **block.columns}.items():
            assert len(column) == len(block.ids)
            found[name] += column.to_pylist()
    return found


def write_table(tmp_path: Path, columns: dict[str, Any]) -> str:
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=2)
    return str(tmp_path / "a.parquet")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.json.zst"])
@pytest.mark.parametrize("block_bytes", [1, 100, 1 << 20])
def test_nested_rows(write: Write, name: str, block_bytes: int) -> None:
    url = write(name, b"".join(NESTED))
    found = read(url, KINDS, block_bytes=block_bytes)
    assert found == {"id": ["a", None, "b", ""], "source": ["s", None, None, ""], **COLUMNS}
    assert sample_keys(url).kinds == KINDS


@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
def test_flat_rows(write: Write, block_bytes: int) -> None:
    url = write("a.jsonl.gz", b"".join(FLAT))
    columns = {key: COLUMNS[key] for key in FLAT_KINDS}
    assert read(url, FLAT_KINDS, block_bytes=block_bytes) == {
        "id": ["a", None, "b", ""],
        "source": ["s", None, None, ""],
        **columns,
    }
    assert sample_keys(url).kinds == FLAT_KINDS


@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
def test_tables(tmp_path: Path, block_bytes: int) -> None:
    columns = {
        "id": ["a", None, "b", ""],
        "source": ["s", None, None, ""],
        "error": [None, "why", None, None],
        "t__words": COLUMNS["t__words"],
        "t__parts": COLUMNS["t__parts"],
        "n": pa.array([1, None, 2, None], pa.int16()),
        "flag": COLUMNS["flag"],
        "name": pa.array(COLUMNS["name"]).dictionary_encode(),
        "lang": [{"en": 0.9, "de": 1}, None, {"en": None, "de": None}, None],
    }
    url = write_table(tmp_path, columns)
    expected = {**COLUMNS, "n": [1.0, None, 2.0, None]}
    assert read(url, KINDS, block_bytes=block_bytes) == {
        "id": columns["id"],
        "source": columns["source"],
        **expected,
    }
    assert sample_keys(url).kinds == {**KINDS, "t__words": "number"}


def test_tables_with_maps_and_other_widths(tmp_path: Path) -> None:
    spans = pa.large_list(pa.struct([("score", pa.float32()), ("end", pa.int32()), ("start", pa.int32())]))
    url = write_table(
        tmp_path,
        {
            "id": pa.array(["a", "b", "c"], pa.large_string()),
            "m": pa.array([[("en", 1), ("de", 2)], None, []], pa.map_(pa.string(), pa.int64())),
            "s": pa.array([[{"start": 1, "end": 2, "score": 0.5}], None, []], spans),
            "big": pa.array([2**63 - 1, None, 0]),
        },
    )
    assert sample_keys(url).kinds == {"m.en": "dict", "m.de": "dict", "s": "spans", "big": "number"}
    assert read(url, {"m.en": "dict", "m.fr": "dict", "s": "spans", "big": "number"}) == {
        "id": ["a", "b", "c"],
        "source": [None] * 3,
        "m.en": [1.0, None, None],
        "m.fr": [None] * 3,
        "s": [[{"start": 1, "end": 2, "score": 0.5}], None, []],
        "big": [2.0**63, None, 0.0],
    }


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_keys_that_a_file_does_not_have_are_null_in_their_type(
    write: Write, name: str, tmp_path: Path
) -> None:
    url = (
        write_table(tmp_path, {"id": ["a"]})
        if name == "a.parquet"
        else write(name, b'{"id":"a","attributes":{}}\n')
    )
    (block,) = AttributeFile(url, KINDS)
    expected = empty_block(KINDS)
    assert {key: column.type for key, column in block.columns.items()} == {
        key: column.type for key, column in expected.columns.items()
    }
    assert all(column.null_count == 1 for column in block.columns.values())
    assert len(expected.ids) == 0


def test_no_keys_are_asked(write: Write, tmp_path: Path) -> None:
    for url in (write("a.jsonl", b"".join(NESTED)), write_table(tmp_path, {"x": [1], "id": ["a"]})):
        assert set(read(url, {})) == {"id", "source"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "line, reason, expected",
    [
        (b"", "blank_line", "one JSON object per line"),
        (b'{"id":"\xff","attributes":{}}', "invalid_utf8", "UTF-8"),
        (b'{"attributes":{}}', "missing_field", "a string in field 'id', which is missing"),
        (b'{"id":"a","attributes":{"n":"1"}}', "wrong_type", "a number in attribute 'n', found a string"),
        (
            b'{"id":"a","attributes":{"lang":{"en":"x"}}}',
            "wrong_type",
            "a number in attribute 'en', found a string",
        ),
    ],
)
@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
def test_a_row_that_cannot_be_read_is_an_error(
    write: Write, line: bytes, reason: str, expected: str, block_bytes: int
) -> None:
    url = write("a.jsonl.gz", NESTED[0] + NESTED[1] + line + b"\n" + NESTED[2])
    offset = len(NESTED[0] + NESTED[1])
    with pytest.raises(BadRecordError) as caught:
        read(url, KINDS, block_bytes=block_bytes)
    message = str(caught.value)
    assert message.startswith(f"{url}, row 2, byte {offset}: {reason.replace('_', ' ')}; expected ")
    assert expected in message
    assert message.endswith(". Make the attributes again.")
    assert caught.value.details == {"url": url, "row": 2, "byte_offset": offset, "reason": reason}


def test_a_first_row_that_cannot_be_read(write: Write) -> None:
    url = write("a.jsonl", b"oops\n" + NESTED[0])
    with pytest.raises(BadRecordError, match=r"a\.jsonl, row 0, byte 0: invalid json"):
        read(url, KINDS)
    assert sample_keys(url).kinds == KINDS


@pytest.mark.slow
@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
def test_a_row_that_is_too_large(write: Write, block_bytes: int) -> None:
    url = write("a.jsonl", NESTED[0] + b'{"id":"' + b"x" * 100_000 + b'","attributes":{}}\n')
    assert read(url, {}, block_bytes=block_bytes)["id"][1] == "x" * 100_000
    with pytest.raises(
        BadRecordError, match=r"row 1, .*: too large; expected at most 1,000 bytes .* found 100,026,"
    ):
        read(url, {}, max_record_bytes=1000, block_bytes=block_bytes)


def test_an_empty_file_has_no_rows_and_no_keys(write: Write, tmp_path: Path) -> None:
    for name in ("a.jsonl", "a.jsonl.gz", "a.jsonl.zst"):
        assert read(write(name, b""), KINDS)["id"] == []
        assert sample_keys(write(name, b"")).kinds == {}
    url = write_table(tmp_path, {"id": pa.array([], pa.string())})
    assert read(url, KINDS)["id"] == []
    assert sample_keys(url).kinds == {}


def test_a_file_that_changes_while_it_is_read(write: Write) -> None:
    url = write("a.jsonl", b"".join(NESTED))
    blocks = iter(AttributeFile(url, KINDS, block_bytes=1))
    next(blocks)
    write("a.jsonl", b"".join(NESTED) + NESTED[0])
    with pytest.raises(SourceChangedError, match="when reading began"):
        list(blocks)


def test_a_file_can_be_read_again(write: Write) -> None:
    file = AttributeFile(write("a.jsonl", b"".join(NESTED)), KINDS)
    (one,), (two,) = file, file
    assert one.ids.equals(two.ids)
    assert one.slice(1, 2).first_row == 1
    assert one.slice(1, 2).columns["n"].to_pylist() == [None, 2.5]


def test_kinds_come_from_the_first_rows(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dolma_dask.io.attributes.SAMPLE_ROWS", 2)
    rows = [b'{"id":"a","attributes":{"x":[[0,5,1.0]]}}\n'] * 2 + [
        b'{"id":"a","attributes":{"x":[[1,2,1.0]],"y":1}}\n'
    ]
    assert sample_keys(write("a.jsonl", b"".join(rows))).kinds == {"x": "document"}
    monkeypatch.setattr("dolma_dask.io.attributes.SAMPLE_ROWS", 3)
    assert sample_keys(write("a.jsonl", b"".join(rows))).kinds == {"x": "spans", "y": "number"}


@pytest.mark.parametrize(
    "columns, kinds, message",
    [
        ({"x": [1]}, {"x": "number"}, "has no column 'id'; its columns are x. Expected ids"),
        ({"id": [1]}, {}, "column 'id' is int64; expected large_string"),
        ({"id": ["a"], "x": ["1"]}, {"x": "number"}, "column 'x' is string; expected double. Make the"),
        ({"id": ["a"], "x": [1]}, {"x": "bool"}, "column 'x' is int64; expected bool"),
        ({"id": ["a"], "x": [1]}, {"x": "string"}, "column 'x' is int64; expected large_string"),
        ({"id": ["a"], "x": [[1]]}, {"x": "spans"}, "column 'x' is list<element: int64>; expected list<"),
        (
            {"id": ["a"], "x": [1]},
            {"x.y": "dict"},
            "column 'x.y' is int64; expected a struct or map of numbers",
        ),
        ({"id": ["a"], "x": [{"y": "z"}]}, {"x.y": "dict"}, "column 'x.y' is string; expected double"),
    ],
)
def test_columns_of_a_wrong_type(
    tmp_path: Path, columns: dict[str, Any], kinds: Mapping[str, Any], message: str
) -> None:
    url = write_table(tmp_path, columns)
    with pytest.raises(SchemaError) as caught:
        read(url, kinds)
    assert message in str(caught.value)
    assert url in str(caught.value)


def test_a_column_that_is_no_attribute(tmp_path: Path) -> None:
    url = write_table(tmp_path, {"id": ["a"], "x": [[1]]})
    with pytest.raises(
        SchemaError, match=r"column 'x' is list<.*; expected numbers, strings, bools, spans or a struct"
    ):
        sample_keys(url)


def test_strings_in_tables_must_be_utf8(tmp_path: Path) -> None:
    url = write_table(tmp_path, {"id": pa.array([b"\xff"], pa.binary()).view(pa.string())})
    with pytest.raises(SchemaError, match=r"column 'id' holds strings that are not UTF-8"):
        read(url, {})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.parquet"])
def test_a_file_is_entered_at_any_of_its_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whatever is passed over, the rows from there on come, and lines before them are not parsed."""
    monkeypatch.setattr("dolma_dask.sinks.jsonl.MEMBER_BYTES", 150)
    monkeypatch.setattr("dolma_dask.sinks.attributes.ROW_GROUP_ROWS", 4)
    ids = pa.array([f"a{i}" for i in range(20)], pa.large_string())
    column = AttributeColumn("n", "scalar", pa.array(range(20), pa.float64()))
    with AttributeWriter(str(tmp_path), name) as writer:
        writer.write(ids, ids, np.ones(20, np.int64), [column], {})
    url = str(tmp_path / name)
    members = [Member(*each) for each in writer.record.members] or row_groups(url)[0]
    assert len(members) > 4
    for start in members:
        for first_row in range(start.row, 21):
            for block_bytes in (1, 200, 1 << 20):
                file = AttributeFile(
                    url, {"n": "number"}, block_bytes=block_bytes, start=start, first_row=first_row
                )
                blocks = [block for _ in range(2) for block in file]
                rows = [block.first_row + at for block in blocks for at in range(len(block.ids))]
                assert rows == [*range(first_row, 20)] * 2
                found = [value for block in blocks for value in block.columns["n"].to_pylist()]
                assert found == rows
                assert [id for block in blocks for id in block.ids.to_pylist()] == [f"a{row}" for row in rows]


@pytest.mark.parametrize("kinds", [b'{"n": "numbxr"}', b'{"n\xff": "number"}', b"", b"[" * 5000])
def test_a_table_whose_kinds_are_damaged(tmp_path: Path, kinds: bytes) -> None:
    table = pa.table({"id": ["a"], "n": [1.0]}).replace_schema_metadata({KINDS_KEY: kinds})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(SchemaError, match="of what kind its attributes are"):
        table_kinds(str(tmp_path / "a.parquet"))
