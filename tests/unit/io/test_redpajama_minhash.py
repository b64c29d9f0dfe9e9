"""MinHash tables of RedPajama-V2 are read as they were written, whatever the batches; others are refused by name."""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dolma_dask.errors import CorruptFileError, DataError, SchemaError, UsageError
from dolma_dask.formats.redpajama import BANDS, GROUP_ROWS, MINHASH_SCHEMA
from dolma_dask.io.files import join, local_path, open_read
from dolma_dask.io.redpajama import read_minhash
from dolma_dask.sinks.redpajama import MinHashTable

SHARD = "2023-06/0000/en_head.json.gz"
NAME = "en_head.minhash.parquet"


def signatures(count):
    rng = np.random.default_rng(count)
    values = rng.integers(0, 1 << 32, (count, 128), np.uint32)
    return np.flatnonzero(rng.random(2 * count + 2) < 0.9)[:count], values, rng.random(count) < 0.8


def table_at(root):
    return MinHashTable(str(root), NAME)


def write(root, count, step=1000):
    rows, values, valid = signatures(count)
    with table_at(root) as table:
        for at in range(0, count, step):
            part = slice(at, at + step)
            table.add(SHARD, rows[part], values[part], valid[part])
    return join(root, NAME)


def read(url, column=None):
    blocks = list(read_minhash(url, column))
    ids = [identity for block in blocks for identity in block.ids.to_pylist()]
    columns = [[getattr(block, name) for block in blocks] for name in ("rows", "values", "valid")]
    return ids, *map(np.concatenate, columns)


@pytest.mark.slow
@pytest.mark.parametrize("column", [None, *BANDS])
def test_what_was_written(root, column):
    rows, values, valid = signatures(50)
    ids, found_rows, found, found_valid = read(write(root, 50, step=7), column)
    bands, rows_per_band = BANDS[column or "signature_sim1.0"]
    assert ids == [f"{SHARD}/{row}" for row in rows]
    np.testing.assert_array_equal(found_rows, rows)
    np.testing.assert_array_equal(found_valid, valid)
    np.testing.assert_array_equal(found, np.where(valid[:, None], values, 0)[:, : bands * rows_per_band])


def test_columns_are_those_of_the_format(tmp_path):
    rows, values, valid = signatures(9)
    table = pq.read_table(write(str(tmp_path), 9))
    assert table.schema.equals(MINHASH_SCHEMA)
    for at, row in enumerate(table.to_pylist()):
        assert row["shard_id"] == SHARD
        assert row["id"] == f"{SHARD}/{rows[at]}"
        assert row["id_int"] == int.from_bytes(hashlib.sha1(row["id"].encode()).digest()[:8], "little")
        for name, (bands, size) in BANDS.items():
            data = values[at].astype(">u4").tobytes()
            expected = [data[4 * size * band : 4 * size * (band + 1)] for band in range(bands)]
            assert row[name] == (expected if valid[at] else None)


@pytest.mark.slow
def test_row_groups_and_bytes_do_not_depend_on_batches(tmp_path):
    files = [write(str(tmp_path / str(step)), 2 * GROUP_ROWS + 3, step) for step in (999, GROUP_ROWS, 20000)]
    contents = [local_path(file).read_bytes() for file in files]
    assert contents[0] == contents[1] == contents[2]
    metadata = pq.read_metadata(files[0])
    groups = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    assert groups == [GROUP_ROWS, GROUP_ROWS, 3]
    rows, values, valid = signatures(2 * GROUP_ROWS + 3)
    _, found_rows, found, found_valid = read(files[0])
    np.testing.assert_array_equal(found_rows, rows)
    np.testing.assert_array_equal(found[valid], values[valid])
    np.testing.assert_array_equal(found_valid, valid)


def test_signatures_of_another_size_are_not_written(tmp_path):
    rows, values, valid = signatures(3)
    for size in (64, 127):
        with (
            pytest.raises(UsageError, match=f"signatures of {size} values; expected 128"),
            table_at(tmp_path) as table,
        ):
            table.add(SHARD, rows, values[:, :size], valid)
        assert list(tmp_path.iterdir()) == []


def test_no_document(root):
    url = write(root, 0)
    assert list(read_minhash(url)) == []
    with open_read(url) as file:
        assert pq.read_schema(file).equals(MINHASH_SCHEMA)


def test_the_widest_column_that_is_there(tmp_path):
    table = pq.read_table(write(str(tmp_path), 20))
    url = str(tmp_path / "part.parquet")
    pq.write_table(table.drop_columns(["signature_sim1.0", "signature_sim0.9", "shard_id", "id_int"]), url)
    _, values, valid = signatures(20)
    _, _, found, _ = read(url)
    np.testing.assert_array_equal(found[valid], values[valid, :126])


def test_types_of_other_writers(tmp_path):
    table = pq.read_table(write(str(tmp_path), 20))
    large = [pa.large_string(), pa.large_string(), pa.uint64(), *[pa.large_list(pa.large_binary())] * 4]
    url = str(tmp_path / "large.parquet")
    pq.write_table(table.cast(pa.schema(list(zip(table.column_names, large, strict=True)))), url)
    for ours, theirs in zip(read(write(str(tmp_path), 20)), read(url), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def changed(tmp_path, **columns):
    """A table of three rows with other columns."""
    table = pq.read_table(write(str(tmp_path), 3))
    for name, column in columns.items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    url = str(tmp_path / "changed.parquet")
    pq.write_table(table, url)
    return url


def test_a_foreign_table(tmp_path):
    url = str(tmp_path / "foreign.parquet")
    pq.write_table(pa.table({"id": ["a"], "text": ["b"]}), url)
    with pytest.raises(
        SchemaError, match=r"foreign.parquet: column 'signature_sim1.0' is missing.*table has id, text"
    ):
        list(read_minhash(url))


def test_a_column_of_another_type(tmp_path):
    url = changed(tmp_path, id=pa.array([1, 2, 3]))
    with pytest.raises(SchemaError, match="column 'id' is int64; expected string"):
        list(read_minhash(url))


def test_an_id_without_a_row(tmp_path):
    for identity in ("b", "b/", "b/x", "b/1/2x", "b/" + "9" * 19, None):
        url = changed(tmp_path, id=pa.array(["a/1", identity, "a/c"], pa.string()))
        with pytest.raises(DataError, match=f"id {identity!r} has no row number"):
            list(read_minhash(url))


@pytest.mark.parametrize("wrong", [[b"x" * 511], [b"x" * 256, b"y" * 256], [None], []])
def test_signatures_of_another_shape(tmp_path, wrong):
    right = [b"x" * 512]
    url = changed(tmp_path, **{"signature_sim1.0": pa.array([right, None, wrong], pa.list_(pa.binary()))})
    with pytest.raises(
        DataError, match=r"signature_sim1.0 has signatures of .* bands of .* bytes; expected 1 of 512"
    ):
        list(read_minhash(url))


def test_a_name_that_is_no_column(tmp_path):
    with pytest.raises(UsageError, match="expected one of signature_sim"):
        list(read_minhash(write(str(tmp_path), 1), "sim0.8"))


def test_damage(tmp_path):
    path = local_path(write(str(tmp_path), 100))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(CorruptFileError, match="not a whole Parquet file"):
        list(read_minhash(str(path)))
    path.write_bytes(content[:200] + b"\xff" * 300 + content[500:])
    with pytest.raises((CorruptFileError, DataError), match=NAME):
        list(read_minhash(str(path)))
