"""Tables: what JSON lines give, a table of the same records gives too."""

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.errors import CorruptFileError, SchemaError
from dolma_dask.io.records import QUARANTINE_HEAD, Block
from dolma_dask.sources import documents as sources_of_documents
from dolma_dask.sources.base import SCHEMA
from dolma_dask.sources.jsonl import JsonLines
from dolma_dask.sources.mapping import FieldMapping
from dolma_dask.sources.parquet import ParquetTable

WEB = FieldMapping(source_name="web")


def read(path: Path, table: pa.Table, mapping: FieldMapping = WEB, **limits: int) -> list[Block]:
    pq.write_table(table, path, row_group_size=3)
    return list(ParquetTable(str(path), "t/a.parquet", mapping, **limits).read())


def documents(blocks: list[Block]) -> list[dict[str, Any]]:
    return [
        json.loads(raw) if raw is not None else None
        for block in blocks
        for raw in block.batch.column("raw").to_pylist()
    ]


def test_rows_become_documents_in_order(tmp_path: Path) -> None:
    table = pa.table({"url": [f"u{i}" for i in range(10)], "content": [f"text {i}" for i in range(10)]})
    blocks = read(
        tmp_path / "a.parquet", table, FieldMapping(text="content", source_name="web"), block_bytes=1
    )
    assert len(blocks) > 1
    assert all(block.batch.schema == SCHEMA for block in blocks)
    assert [block.first_row for block in blocks] == [
        sum(other.num_rows for other in blocks[:i]) for i in range(len(blocks))
    ]
    assert documents(blocks) == [
        {"id": f"t/a-{i:08d}", "text": f"text {i}", "source": "web", "metadata": {"url": f"u{i}"}}
        for i in range(10)
    ]


def test_typed_values_become_json_in_metadata(tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": pa.array([7], pa.int64()),
            "text": pa.array(["a"]).dictionary_encode(),
            "date": [datetime.date(2020, 1, 2)],
            "time": pa.array([datetime.datetime(2020, 1, 2, 3, 4, 5)], pa.timestamp("ns")),
            "zone": pa.array([1_000_000], pa.timestamp("us", "UTC")),
            "price": [decimal.Decimal("1.50")],
            "bytes": [b"\x00\xff"],
            "nested": [{"a": [1, None], "b": {"c": "é"}}],
            "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
            "none": pa.array([None], pa.string()),
            "big": pa.array([2**64 - 1], pa.uint64()),
        }
    )
    assert documents(read(tmp_path / "a.parquet", table)) == [
        {
            "id": "7",
            "text": "a",
            "source": "web",
            "metadata": {
                "date": "2020-01-02",
                "time": "2020-01-02T03:04:05",
                "zone": "1970-01-01T00:00:01Z",
                "price": "1.50",
                "bytes": "AP8=",
                "nested": {"a": [1, None], "b": {"c": "é"}},
                "map": [["k", 1]],
                "none": None,
                "big": 2**64 - 1,
            },
        }
    ]


def test_json_text_in_a_metadata_column_becomes_an_object(tmp_path: Path) -> None:
    texts = ['{ "n" : 1.00,\n"deep":{"a":"\\u0041"} } ', "no object", "{broken", None]
    table = pa.table({"text": ["a"] * 4, "metadata": texts, "url": ["u"] * 4})
    blocks = read(tmp_path / "a.parquet", table)
    raws = [raw for block in blocks for raw in block.batch.column("raw").to_pylist()]
    assert raws[0].endswith(b'"metadata":{"n":1.00,"deep":{"a":"\\u0041"},"url":"u"}}\n')
    assert [document["metadata"] for document in documents(blocks)[1:]] == [
        {"url": "u", "metadata": "no object"} if i == 0 else item
        for i, item in enumerate([None, {"url": "u", "metadata": "{broken"}, {"url": "u"}])
    ]


def test_a_table_of_documents_gives_back_their_lines(tmp_path: Path) -> None:
    from dolma_dask.formats.documents import documents_table

    lines = [
        b'{"id":"1","text":"a","source":"s","metadata":{"n": 1.00},"more":[1.0]}\n',
        b'{"id":"2","text":"\xc3\xa9","source":"s","created":"2020"}\n',
    ]
    blocks = read(tmp_path / "a.parquet", documents_table(lines), FieldMapping())
    assert [raw for block in blocks for raw in block.batch.column("raw").to_pylist()] == lines


def test_bad_rows_are_null_and_named(tmp_path: Path) -> None:
    table = pa.table({"id": [1.5, 2.0, None, 4.0], "text": ["a", None, "c", "d" * 190]})
    blocks = read(tmp_path / "a.parquet", table, WEB, max_record_bytes=200)
    bad = [record for block in blocks for record in block.bad]
    assert [(record.row, record.reason) for record in bad] == [
        (0, "wrong_type"),
        (1, "wrong_type"),
        (3, "wrong_type"),
    ]
    assert json.loads(bad[0].raw) == {"id": 1.5, "text": "a"}
    assert [document is None for document in documents(blocks)] == [True, True, False, True]


def test_a_large_row_is_bad(tmp_path: Path) -> None:
    blocks = read(tmp_path / "a.parquet", pa.table({"text": ["a", "b" * 300]}), WEB, max_record_bytes=200)
    assert [(r.row, r.reason) for block in blocks for r in block.bad] == [(1, "too_large")]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_binary(), pa.string_view(), pa.binary_view()])
def test_a_large_row_is_found_before_it_is_copied(tmp_path: Path, kind: pa.DataType) -> None:
    """Of all its strings together; the quarantine has its beginning, and rows around it are documents."""
    texts, long = ["a", "é" * 70_000, "b", "é" * 60_000, "c"], 100_000
    columns = {"text": pa.array(texts).cast(kind), "more": ["x"] * 5, "n": range(5)}
    blocks = read(tmp_path / "a.parquet", pa.table(columns), WEB, max_record_bytes=long)
    bad = [record for block in blocks for record in block.bad]
    assert [(record.row, record.reason) for record in bad] == [(1, "too_large"), (3, "too_large")]
    assert f"found {140_001:,}, for which a worker may need 2.80 MB" in bad[0].expected
    assert (
        bad[0].raw
        == json.dumps({"text": texts[1]}, ensure_ascii=False, separators=(",", ":")).encode()[
            :QUARANTINE_HEAD
        ]
    )
    kept = [None if document is None else document["text"] for document in documents(blocks)]
    assert kept == ["a", None, "b", None, "c"]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(4)])
def test_bytes_are_text_in_mapped_fields_and_metadata(tmp_path: Path, kind: pa.DataType) -> None:
    table = pa.table(
        {
            "text": pa.array([b"some", b"m\xc3\xa9e"], kind),
            "meta": pa.array([{"id": b"id 1"}, {"id": b"id 2"}], pa.struct({"id": kind})),
            "metadata": pa.array([b"{   ", b" {} "], kind)
            if kind == pa.binary(4)
            else pa.array([b'{"n":1}'] * 2, kind),
            "other": pa.array([b"\xff\xff\xff\xff"] * 2, kind),
        }
    )
    found = documents(read(tmp_path / "a.parquet", table, FieldMapping(id="meta.id", source_name="web")))
    assert [each["text"] for each in found] == ["some", "mée"]
    assert found[0]["id"] == "id 1"
    assert found[0]["metadata"]["other"] == "/////w=="
    if kind != pa.binary(4):
        assert [each["metadata"]["n"] for each in found] == [1, 1]


def test_json_text_of_any_type_is_metadata(tmp_path: Path) -> None:
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        table = pa.table({"text": ["a"], "metadata": pa.array(['{"n":1}'], kind)})
        assert documents(read(tmp_path / "a.parquet", table))[0]["metadata"] == {"n": 1}


@pytest.mark.parametrize(
    "kind, value",
    [
        (pa.timestamp("ms"), 2**60),
        (pa.timestamp("us", tz="UTC"), -(2**62)),
        (pa.date32(), 2**31 - 1),
        (pa.duration("s"), 2**62),
        (pa.list_(pa.timestamp("s")), [2**50]),
    ],
)
def test_a_time_beyond_all_calendars_makes_one_bad_row(tmp_path: Path, kind: pa.DataType, value: Any) -> None:
    zero = [0] if pa.types.is_list(kind) else 0
    table = pa.table({"text": ["a", "b", "c"], "when": pa.array([zero, value, zero], kind)})
    blocks = read(tmp_path / "a.parquet", table)
    (bad,) = [record for block in blocks for record in block.bad]
    assert (bad.row, bad.reason) == (1, "wrong_type")
    assert "a value in column 'when' that can be written as JSON" in bad.expected
    assert [row and row["text"] for row in documents(blocks)] == ["a", None, "c"]


def test_an_unknown_time_zone_is_named_as_such(tmp_path: Path) -> None:
    table = pa.table({"text": ["a"], "when": pa.array([0], pa.timestamp("us", tz="Mars/Olympus"))})
    ((bad,),) = [block.bad for block in read(tmp_path / "a.parquet", table)]
    assert bad.reason == "wrong_type"
    assert "Mars/Olympus" in bad.expected


def test_invalid_utf8_makes_one_bad_row(tmp_path: Path) -> None:
    binary = pa.array([b"good", b"\xff\xfe", "é".encode()], pa.binary())
    blocks = read(tmp_path / "a.parquet", pa.table({"text": binary}))
    assert [(r.row, r.reason) for block in blocks for r in block.bad] == [(1, "invalid_utf8")]
    assert [text for block in blocks for text in block.batch.column("text").to_pylist()] == [
        "good",
        None,
        "é",
    ]


@pytest.mark.parametrize(
    "mapping, words",
    [
        (FieldMapping(), "'source'"),
        (FieldMapping(text="body", source_name="w"), "'body'"),
        (FieldMapping(id="meta.id", source_name="w"), "'meta.id'"),
        (FieldMapping(source="origin"), "'origin'"),
    ],
)
def test_a_mapping_of_columns_that_are_not_there_fails_at_once(
    tmp_path: Path, mapping: FieldMapping, words: str
) -> None:
    with pytest.raises(SchemaError, match=words) as caught:
        read(tmp_path / "a.parquet", pa.table({"text": ["a"], "url": ["u"]}), mapping)
    assert "text, url" in str(caught.value)


def test_damage_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [f"{i}" * 50 for i in range(1000)]}), path)
    data = path.read_bytes()
    path.write_bytes(data[:-10])
    with pytest.raises(CorruptFileError, match="not a whole Parquet file"):
        list(ParquetTable(str(path), "a.parquet", WEB).read())
    path.write_bytes(data[:4] + b"\0" * 200 + data[204:])
    with pytest.raises(CorruptFileError, match="damaged"):
        list(ParquetTable(str(path), "a.parquet", WEB).read())


values = st.none() | st.text(max_size=5) | st.characters(codec="utf-8")
table_rows = st.lists(
    st.fixed_dictionaries(
        {
            "text": st.text(max_size=8),
            "id": st.integers(-9, 9) | st.none(),
            "url": values,
            "meta": st.fixed_dictionaries({"a": values, "n": st.integers(0, 3) | st.booleans().map(int)}),
        }
    ),
    min_size=1,
    max_size=5,
)
JSON_SCHEMA = pa.schema(
    {
        "text": pa.string(),
        "id": pa.int64(),
        "url": pa.string(),
        "meta": pa.struct({"a": pa.string(), "n": pa.int64()}),
    }
)


@pytest.mark.slow
@given(
    table_rows, st.sampled_from([WEB, FieldMapping(id="meta.a", source_name="w"), FieldMapping(source="url")])
)
def test_a_table_gives_what_json_lines_of_its_rows_give(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], mapping: FieldMapping
) -> None:
    folder = tmp_path_factory.mktemp("table")
    lines = folder / "a.jsonl"
    lines.write_text(
        "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows),
        encoding="utf-8",
        newline="",
    )
    wanted = list(JsonLines(str(lines), "t/a.jsonl", mapping).read())
    found = read(folder / "a.parquet", pa.Table.from_pylist(rows, schema=JSON_SCHEMA), mapping)
    merged = [
        pa.Table.from_batches([block.batch for block in blocks]).to_pylist() for blocks in (wanted, found)
    ]
    for one, other in zip(*merged, strict=True):
        assert {**one, "raw": one["raw"] and json.loads(one["raw"])} == {
            **other,
            "raw": other["raw"] and json.loads(other["raw"]),
        }
    assert [(r.row, r.reason) for block in wanted for r in block.bad] == [
        (r.row, r.reason) for block in found for r in block.bad
    ]


def test_long_texts_are_those_of_short_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long text is no object of Python on its way."""
    table = pa.table({"text": ['a\\"\n\u2028😀é' * 3, "", "b" * 7, None]})
    expected = read(tmp_path / "a.parquet", table)
    monkeypatch.setattr(sources_of_documents, "LONG_TEXT", 5)
    assert read(tmp_path / "a.parquet", table) == expected
