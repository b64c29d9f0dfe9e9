"""Attribute files: rows of JSON and tables hold the same values."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dolma_dask.errors import DataError, SchemaError
from dolma_dask.formats.attributes import AttributeColumn
from dolma_dask.io import files
from dolma_dask.io.attributes import AttributeFile, sample_keys
from dolma_dask.io.records import FileRecord
from dolma_dask.sinks.attributes import AttributeWriter

SPANS = pa.list_(pa.struct([("start", pa.int64()), ("end", pa.int64()), ("score", pa.float64())]))
NAMES = ["a.jsonl.gz", "a.jsonl.zst", "a.jsonl", "a.parquet"]
KINDS: Mapping[str, Any] = {
    "d": "document",
    "s": "spans",
    "n": "number",
    "flag": "bool",
    "name": "string",
    "lang.en": "dict",
    "lang.de": "dict",
}


def strings(*values: str | None) -> pa.Array:
    return pa.array(values, pa.large_string())


def span(start: int, end: int, score: float) -> dict[str, Any]:
    return {"start": start, "end": end, "score": score}


def columns() -> list[AttributeColumn]:
    return [
        AttributeColumn("d", "document", pa.array([1 / 3, 0.000005, None, 99.0])),
        AttributeColumn("s", "spans", pa.array([[span(0, 2, 2 / 3)], [], None, [span(0, 1, 1.0)]], SPANS)),
        AttributeColumn("n", "scalar", pa.array([1 / 3, 2.0, None, 3.0])),
        AttributeColumn("flag", "scalar", pa.array([True, False, None, True])),
        AttributeColumn("name", "scalar", strings("x", "", None, "bad")),
        AttributeColumn(
            "lang", "dict", pa.array([{"en": 0.9, "de": None}, {"en": 1.0, "de": 1 / 3}, None, {"en": 5.0}])
        ),
    ]


IDS, SOURCES, LENGTHS = strings("a", "b", "c", None), strings("s", "s", "s", None), np.array([5, 0, 7, 1])
ERRORS = {3: "invalid_json: expected ..."}


def write(
    root: str, name: str, given: Sequence[AttributeColumn] | None = None, step: int = 4, times: int = 1
) -> FileRecord:
    given = columns() if given is None else given
    with AttributeWriter(root, name) as writer:
        for _ in range(times):
            for start in range(0, 4, step):
                part = slice(start, start + step)
                cut = [AttributeColumn(c.key, c.kind, c.values[part]) for c in given]
                errors = {row - start: why for row, why in ERRORS.items() if start <= row < start + step}
                writer.write(IDS[part], SOURCES[part], LENGTHS[part], cut, errors)
    return writer.record


def read(url: str, kinds: Mapping[str, Any] = KINDS) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {name: [] for name in ("id", "source", *kinds)}
    for block in AttributeFile(url, kinds):
        for name, column in {"id": block.ids, "source": block.sources, **block.columns}.items():
            found[name] += column.to_pylist()
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_format_holds_the_same_values(root: str, name: str) -> None:
    path = f"attributes/x/{name}"
    record = write(root, path)
    url = files.join(root, path)
    assert read(url) == {
        "id": ["a", "b", "c", None],
        "source": ["s", "s", "s", None],
        "d": [0.33333, 0.00001, None, None],  # scores have 5 decimals
        "s": [[span(0, 2, 0.66667)], [], None, None],
        "n": [1 / 3, 2.0, None, None],
        "flag": [True, False, None, None],
        "name": ["x", "", None, None],
        "lang.en": [0.9, 1.0, None, None],
        "lang.de": [None, 1 / 3, None, None],
    }
    assert (record.path, record.rows, record.checksum) == (path, 4, files.checksum(url))
    sampled = sample_keys(url).kinds
    assert sampled["d"] == "document"
    assert sampled == {**KINDS, "s": sampled["s"]}  # of two rows, both may be document spans by chance
    if name.endswith(".parquet"):
        assert sampled["s"] == "spans"


def test_nested_rows(tmp_path: Path) -> None:
    write(str(tmp_path), "a.jsonl", columns()[:2])
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert rows == [
        {"id": "a", "attributes": {"d": [[0, 5, 0.33333]], "s": [[0, 2, 0.66667]]}, "source": "s"},
        {"id": "b", "attributes": {"d": [[0, 0, 1e-05]], "s": []}, "source": "s"},
        {"id": "c", "attributes": {}, "source": "s"},
        {"id": None, "attributes": {}, "error": "invalid_json: expected ..."},
    ]


def test_tables_are_plain_for_other_tools(tmp_path: Path) -> None:
    write(str(tmp_path), "a.parquet", columns()[:3])
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.schema.names == ["id", "source", "error", "d", "s", "n"]
    assert table.schema.field("d").type == pa.float64()
    assert table.column("error").to_pylist() == [None, None, None, "invalid_json: expected ..."]
    assert table.column("n").to_pylist() == [1 / 3, 2.0, None, None]


@pytest.mark.parametrize("step", [1, 3, 4])
def test_row_groups_end_with_many_spans(tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dolma_dask.sinks.attributes.ROW_GROUP_ROWS", 7)
    monkeypatch.setattr("dolma_dask.sinks.attributes.ROW_GROUP_SPANS", 2)
    each = [span(0, 1, 1.0)]
    spans = pa.array([each * 2, [], each, each * 3], SPANS)
    twice = [AttributeColumn(key, "spans", spans) for key in "st"]
    write(str(tmp_path), "a.parquet", twice, step=step, times=2)
    metadata = pq.ParquetFile(tmp_path / "a.parquet").metadata
    # the last row of four has an error, and no spans
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [1, 2, 2, 2, 1]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("step", [1, 3])
def test_bytes_do_not_depend_on_batches(
    tmp_path: Path, name: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dolma_dask.sinks.attributes.ROW_GROUP_ROWS", 3)
    monkeypatch.setattr("dolma_dask.sinks.jsonl.MEMBER_BYTES", 100)
    one = write(str(tmp_path / "one"), name, times=5)
    many = write(str(tmp_path / "many"), name, times=5, step=step)
    assert one == many
    assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "many" / name).read_bytes()
    if name.endswith(".parquet"):
        metadata = pq.ParquetFile(tmp_path / "one" / name).metadata
        assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [3] * 6 + [2]


@pytest.mark.parametrize("name", NAMES)
def test_no_rows_and_no_keys(root: str, name: str) -> None:
    with AttributeWriter(root, f"empty-{name}") as writer:
        writer.write(strings(), strings(), np.zeros(0, np.int64), [], {})
    assert read(files.join(root, f"empty-{name}"))["id"] == []
    assert sample_keys(files.join(root, f"empty-{name}")).kinds == {}
    assert writer.record.rows == 0
    write(root, name, [])
    assert read(files.join(root, name), {}) == {"id": ["a", "b", "c", None], "source": ["s", "s", "s", None]}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "column, error",
    [
        (AttributeColumn("d", "document", pa.array([1.0, np.nan, 1.0, 1.0])), DataError),
        (AttributeColumn("n", "scalar", pa.array([1.0, np.inf, 1.0, 1.0])), DataError),
        (AttributeColumn("s", "spans", pa.array([[], [span(0, 1, np.inf)], [], []], SPANS)), DataError),
        (AttributeColumn("d", "document", strings("1", "2", "3", "4")), SchemaError),
    ],
)
def test_what_no_format_can_hold_leaves_no_file(
    tmp_path: Path, name: str, column: AttributeColumn, error: type[Exception]
) -> None:
    with pytest.raises(error, match=column.key):
        write(str(tmp_path), name, [column])
    assert list(tmp_path.iterdir()) == []


def test_a_dict_of_any_keys_is_a_map_in_tables(tmp_path: Path) -> None:
    values = pa.array([[("en", 0.5)], [("de", 1.0)], None, [("fr", 1.0)]], pa.map_(pa.string(), pa.float64()))
    for name in ("a.parquet", "a.jsonl"):
        write(str(tmp_path), name, [AttributeColumn("lang", "dict", values)], step=2)
        kinds: Mapping[str, Any] = {"lang.en": "dict", "lang.de": "dict", "lang.fr": "dict"}
        assert read(str(tmp_path / name), kinds) == {
            "id": ["a", "b", "c", None],
            "source": ["s", "s", "s", None],
            "lang.en": [0.5, None, None, None],
            "lang.de": [None, 1.0, None, None],
            "lang.fr": [None] * 4,
        }


def test_a_column_of_nulls_takes_the_type_that_it_has_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dolma_dask.sinks.attributes.ROW_GROUP_ROWS", 4)
    numbers = pa.array([1.0, None, None, None])

    def write_both(first: pa.Array, second: pa.Array) -> None:
        with AttributeWriter(str(tmp_path), "a.parquet") as writer:
            for values in (first, second):
                writer.write(IDS, SOURCES, LENGTHS, [AttributeColumn("n", "scalar", values)], ERRORS)

    write_both(numbers, pa.nulls(4))
    assert read(str(tmp_path / "a.parquet"), {"n": "number"})["n"] == [1.0, *[None] * 7]
    with pytest.raises(SchemaError, match="other columns than those before them"):
        write_both(pa.nulls(4), numbers)  # the first row group is written
    monkeypatch.setattr("dolma_dask.sinks.attributes.ROW_GROUP_ROWS", 5)
    write_both(pa.nulls(4), numbers)
    assert read(str(tmp_path / "a.parquet"), {"n": "number"})["n"] == [*[None] * 4, 1.0, *[None] * 3]


@pytest.mark.parametrize("group_rows", [4, 1000])
@pytest.mark.parametrize(
    "second",
    [
        [AttributeColumn("n", "scalar", strings("a", "b", "c", "d"))],
        [AttributeColumn("other", "scalar", pa.array([1.0] * 4))],
        [],
    ],
)
def test_columns_may_not_change_on_the_way(
    tmp_path: Path, second: list[AttributeColumn], group_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dolma_dask.sinks.attributes.ROW_GROUP_ROWS", group_rows)

    def change() -> None:
        with AttributeWriter(str(tmp_path), "a.parquet") as writer:
            first = [AttributeColumn("n", "scalar", pa.array([1.0] * 4))]
            writer.write(IDS, SOURCES, LENGTHS, first, ERRORS)
            writer.write(IDS, SOURCES, LENGTHS, second, ERRORS)

    with pytest.raises(SchemaError, match=r"a\.parquet: the attributes of some documents have other columns"):
        change()
    assert list(tmp_path.iterdir()) == []


def test_whole_numbers_go_into_tables_as_they_do_through_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, sources = strings("a", "b", "c"), strings("s", None, "\u2028")
    given = [
        AttributeColumn("n", "scalar", pa.array([2**52, None, -1])),
        AttributeColumn("m", "scalar", pa.array([1, 2, 3], pa.uint8())),
    ]
    tables = []
    for name in ("plain.parquet", "json.parquet"):
        with AttributeWriter(str(tmp_path), name) as writer:
            writer.write(ids, sources, np.zeros(3, np.int64), given, {})
        tables.append((tmp_path / name).read_bytes())
        monkeypatch.setattr("dolma_dask.sinks.attributes._is_plain", lambda column: False)
    assert tables[0] == tables[1]
    monkeypatch.undo()
    with (
        pytest.raises(DataError, match="row 1 has a null id"),
        AttributeWriter(str(tmp_path), "x.parquet") as it,
    ):
        it.write(strings("a", None, "c"), sources, np.zeros(3, np.int64), given, {})
