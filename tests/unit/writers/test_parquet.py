"""Documents as Parquet: row groups cut by bytes, and nothing after a failure."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dolma_dask.io import files
from dolma_dask.writers.documents import ParquetWriter

ROWS = [b'{"id":"%d","text":"%s","source":"s"}\n' % (i, b"text " * (i % 50)) for i in range(500)]


def lines(*rows: bytes) -> pa.LargeBinaryArray:
    return pa.array(rows, pa.large_binary())


@pytest.mark.parametrize("size", [1, 7, 500])
def test_bytes_do_not_depend_on_batches(tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dolma_dask.writers.documents.ROW_GROUP_BYTES", 10_000)
    monkeypatch.setattr("dolma_dask.writers.documents.CHUNK_BYTES", 1_000)
    with ParquetWriter(str(tmp_path), "one.parquet") as one:
        one.write(lines(*ROWS))
    with ParquetWriter(str(tmp_path), "many.parquet") as many:
        for start in range(0, len(ROWS), size):
            many.write(lines(*ROWS).slice(start, size))
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "many.parquet").read_bytes()
    assert (one.record.bytes, one.record.checksum, one.record.rows) == (
        many.record.bytes,
        many.record.checksum,
        many.record.rows,
    )
    file = pq.ParquetFile(tmp_path / "one.parquet")
    groups = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
    assert sum(groups) == 500
    assert len(groups) > 5
    start = 0
    for count in groups[:-1]:
        assert 10_000 <= sum(map(len, ROWS[start : start + count])) < 11_500
        start += count


def test_the_columns(root: str) -> None:
    with ParquetWriter(root, "a.parquet") as writer:
        writer.write(
            lines(
                b'{"id":"a","text":"t","source":"s","metadata": {"a":1.0} ,"x":1}\n',
                b'{"id":"b","text":""}\n',
            )
        )
    table = pq.read_table(pa.BufferReader(files.read_bytes(files.join(root, "a.parquet"))))
    assert table.schema.names == ["id", "text", "source", "added", "created", "metadata", "extra"]
    assert set(table.schema.types) == {pa.large_string()}
    assert table.to_pylist() == [
        {
            "id": "a",
            "text": "t",
            "source": "s",
            "added": None,
            "created": None,
            "metadata": '{"a":1.0}',
            "extra": '{"x":1}',
        },
        dict.fromkeys(table.schema.names) | {"id": "b", "text": ""},
    ]
    assert writer.record.path == "a.parquet"
    assert writer.record.checksum == files.checksum(files.join(root, "a.parquet"))
    column = pq.ParquetFile(pa.BufferReader(files.read_bytes(files.join(root, "a.parquet")))).metadata
    assert column.row_group(0).column(1).compression == "ZSTD"


def test_an_empty_table_has_its_columns(root: str) -> None:
    with ParquetWriter(root, "a.parquet") as writer:
        writer.write(lines())
    table = pq.read_table(pa.BufferReader(files.read_bytes(files.join(root, "a.parquet"))))
    assert (table.num_rows, len(table.schema)) == (0, 7)
    assert writer.record.rows == 0


@pytest.mark.parametrize("group_bytes", [10, 1_000_000])
def test_after_an_exception_nothing_is_there(
    tmp_path: Path, group_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dolma_dask.writers.documents.ROW_GROUP_BYTES", group_bytes)
    monkeypatch.setattr("dolma_dask.writers.documents.CHUNK_BYTES", 10)

    def fail() -> None:
        with ParquetWriter(str(tmp_path), "a.parquet") as writer:
            writer.write(lines(*ROWS))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert list(tmp_path.iterdir()) == []
