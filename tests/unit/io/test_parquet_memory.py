"""Parquet in bounded pieces: what pages hold is known before they are read, and batches have the same rows whatever their size."""

import io
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dolma_dask.errors import DataError
from dolma_dask.io import files
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.parquet import open_parquet, read_batches
from dolma_dask.io.parquet_pages import ColumnPages, _longest_in, column_pages
from dolma_dask.io.publish import publish
from dolma_dask.sources.mapping import FieldMapping
from dolma_dask.sources.parquet import ParquetTable

BLOCK = 1 << 16
LONG = "abcdefgh " * 6000

TABLES: dict[str, dict[str, Any]] = {
    "one value for all rows": {"id": [f"d{i}" for i in range(300)], "text": [LONG] * 300},
    "a column of categories": {
        "id": pa.array(["a", "b"] * 400),
        "text": pa.array([LONG] * 800).dictionary_encode(),
    },
    "short rows, then long ones": {"text": ["x"] * 5000 + [f"{i} {LONG}" for i in range(40)]},
    "lists, objects and nulls": {
        "a": [[{"b": i, "c": None if i % 3 else "c" * i}] * (i % 4) for i in range(700)],
        "d": pa.array([None, 1.5, 2.5, None] * 175),
    },
    "no row": {"id": pa.array([], pa.string())},
    "no column": {},
}
WAYS: list[dict[str, Any]] = [
    {},
    {"row_group_size": 77, "compression": "none"},
    {"use_dictionary": False, "data_page_version": "2.0", "compression": "zstd"},
]


def write(url: str, table: pa.Table, **options: Any) -> str:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    with publish(url) as out:
        out.write(sink.getvalue().to_pybytes())
    return url


def pages_of(url: str) -> list[list[ColumnPages]]:
    with open_parquet(url) as file, closing(files.open_read(url)) as source:
        nested = [
            file.metadata.schema.column(n).max_repetition_level > 0 for n in range(file.metadata.num_columns)
        ]
        groups = [file.metadata.row_group(n) for n in range(file.num_row_groups)]
        return [
            [column_pages(source, group, n, "", is_nested) for n, is_nested in enumerate(nested)]
            for group in groups
        ]  # type: ignore[arg-type]


CASES = [(name, way) for name in TABLES for way in WAYS]
CASES.append(("short rows, then long ones", {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"}))


@pytest.mark.parametrize("name, options", CASES)
def test_the_same_rows_in_small_batches(root: str, name: str, options: dict[str, Any]) -> None:
    table = pa.table(TABLES[name])
    url = write(files.join(root, "a.parquet"), table, **options)
    with open_parquet(url) as file:
        batches = list(read_batches(url, file, None, BLOCK))
    assert [row for batch in batches for row in batch.to_pylist()] == table.to_pylist()
    assert all(batch.num_rows == 1 or batch.nbytes <= 4 * BLOCK for batch in batches)


def test_pages_are_those_of_the_file(root: str) -> None:
    """Without compression the sizes of pages and their headers are the size of a column."""
    table = pa.table(
        {"text": [f"{i} {'x' * i}" for i in range(3000)], "many": [[i] * (i % 5) for i in range(3000)]}
    )
    for options in (
        {"use_dictionary": False},
        {"data_page_version": "2.0", "use_dictionary": ["many.list.element"]},
    ):
        url = write(
            files.join(root, "a.parquet"),
            table,
            compression="none",
            data_page_size=20_000,
            write_statistics=False,
            **options,
        )
        footer = pq.read_metadata(pa.BufferReader(files.read_bytes(url)))
        for group, found in enumerate(pages_of(url)):
            for number, column in enumerate(found):
                chunk = footer.row_group(group).column(number)
                assert column.rows[-1] == 3000
                if not chunk.has_dictionary_page:
                    assert len(column.sizes) > 2
                    headers = chunk.total_uncompressed_size - column.sizes.sum()
                    assert 10 * len(column.sizes) < headers < 200 * len(column.sizes)


@pytest.mark.parametrize("codec", ["snappy", "zstd", "gzip", "lz4", "brotli", "none"])
def test_rows_that_unfold_are_counted(root: str, codec: str) -> None:
    url = write(files.join(root, "a.parquet"), pa.table(TABLES["one value for all rows"]), compression=codec)
    ((ids, text),) = pages_of(url)
    assert text.unfolded == len(LONG)
    assert text.bytes_of(10) >= 10 * len(LONG) > ids.bytes_of(1)


@pytest.mark.parametrize(
    "damage", [b"", b"\0", b"\x15", b"\xff" * 40, b"\x1c" * 40, b"\x18\xff\xff\xff\xff\x7f"]
)
def test_damaged_headers_end_the_walk(damage: bytes) -> None:
    table = pa.table({"text": [LONG]})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, use_dictionary=False)
    data = bytearray(sink.getvalue().to_pybytes())
    group = pq.read_metadata(pa.BufferReader(bytes(data))).row_group(0)
    data[group.column(0).data_page_offset :] = damage
    found = column_pages(io.BytesIO(data), group, 0, "text", False)  # type: ignore[arg-type]
    assert not found.sizes.sum()
    assert found.bytes_of(5) < 1000


def test_any_damage_ends_the_walk() -> None:
    draw = np.random.default_rng(0)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": [LONG, "a", None]}), sink)
    data = sink.getvalue().to_pybytes()
    group = pq.read_metadata(pa.BufferReader(data)).row_group(0)
    for _ in range(300):
        broken = np.frombuffer(data, np.uint8).copy()
        broken[draw.integers(0, 200, 5)] = draw.integers(0, 256, 5)
        found = column_pages(io.BytesIO(broken.tobytes()), group, 0, "text", False)  # type: ignore[arg-type]
        assert len(found.rows) == len(found.sizes) + 1 <= 4
        assert min(found.held, found.bytes_of(3), found.sizes.min(initial=0)) >= 0


@pytest.mark.slow
@pytest.mark.parametrize("strings", [[b"a"], [b""], [b"", b"abc", b"x" * 70_000, b"de"], []])
def test_the_longest_string_of_a_dictionary(strings: list[bytes]) -> None:
    data = b"".join(len(one).to_bytes(4, "little") + one for one in strings)
    assert _longest_in(data, len(strings)) == max(map(len, strings), default=0)
    assert _longest_in(data + b"x", len(strings)) == _longest_in(data, len(strings) + 1) == 0
    assert _longest_in(data[:-1] + b"\xff", len(strings) + 1) == _longest_in(b"\xff" * 4, 1) == 0


@pytest.mark.slow
def test_a_page_that_does_not_fit_is_named_with_a_way_out(root: str) -> None:
    table = pa.table({"id": ["a"], "text": ["x" * 70_000_000], "source": ["s"]})
    url = write(files.join(root, "a.parquet"), table, use_dictionary=False)
    with pytest.raises(
        DataError,
        match=r"pages of row group 0 need 7\d,\d+,\d+ bytes at once .*'text'.*dolma-dask convert .*--max-record-bytes 7",
    ) as caught:
        list(DocumentFile(url))
    needed = caught.value.details["bytes"]
    assert isinstance(needed, int)
    (block,) = DocumentFile(url, max_record_bytes=needed)
    assert (block.batch.num_rows, block.bad) == (1, ())
    (block,) = ParquetTable(url, "a.parquet", FieldMapping(), max_record_bytes=needed).read()
    assert (block.batch.num_rows, block.bad) == (1, ())


def test_damage_anywhere_is_an_error_of_ours(tmp_path: Path) -> None:
    """Footers too, whose parts pyarrow hands out unchecked: asked for the name of an unknown codec it ends the process."""
    table = pa.table(
        {
            "id": [f"d{i}" for i in range(200)],
            "text": ["abc " * (i % 50) for i in range(200)],
            "source": ["s"] * 200,
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=90, compression="zstd", write_page_checksum=True)
    data = np.frombuffer(sink.getvalue(), np.uint8)
    draw, read, refused = np.random.default_rng(1), 0, 0
    for _ in range(150):
        broken = data.copy()
        broken[draw.integers(0, len(data), 3)] = draw.integers(0, 256, 3)
        (tmp_path / "a.parquet").write_bytes(broken.tobytes())
        try:
            read += sum(block.num_rows for block in DocumentFile(str(tmp_path / "a.parquet")))
        except DataError:
            refused += 1
    assert refused > 20
    assert read % 200 == 0
