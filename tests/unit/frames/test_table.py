"""Tables of Arrow: the rows of the dataframe, read at once, without Dask and pandas."""

import subprocess
import sys

import pyarrow as pa
import pytest
from partition_worlds import ATTRIBUTES, FIELDS, FORMATS, MANY, ROWS, SPANS, expected, make_dataset, rewrite

import dolma_dask as dk
from dolma_dask.errors import AlignmentError, BadRecordError, UsageError

COLUMNS = ("id", "text", "source", "metadata", *FIELDS)


@pytest.mark.parametrize("pair", FORMATS)
@pytest.mark.parametrize("partition_bytes", [1, MANY, None])
def test_rows_and_types_are_those_of_the_dataframe(worlds, pair, partition_bytes):
    given = (str(worlds[pair]), COLUMNS, "all")
    table = dk.read_table(*given, partition_bytes=partition_bytes)
    frame = dk.read_dataframe(*given, partition_bytes=partition_bytes).compute()
    assert table.column_names == [*frame.columns]
    assert {*table.column_names} == {*COLUMNS, *ATTRIBUTES}
    assert table.equals(pa.Table.from_pandas(frame, table.schema, preserve_index=False))
    assert table.column("text").to_pylist() == expected(ROWS, "text")
    assert table.schema.field(SPANS).type == frame[SPANS].dtype.pyarrow_dtype
    assert {pa.large_string(), pa.float64(), pa.bool_()} < {*table.schema.types}


def test_rows_keep_their_order_whoever_reads_first(worlds, monkeypatch):
    monkeypatch.setattr("dolma_dask.frames.table.cpu_count", lambda: 7)
    table = dk.read_table(str(worlds["jsonl.gz", None]), "id", partition_bytes=1)
    assert table.column("id").to_pylist() == expected(ROWS, "id")


def test_a_dataset_without_rows_has_a_table_with_types(tmp_path):
    root = str(make_dataset(tmp_path / "v0", {"a": []}))
    table = dk.read_table(root, ["id"], ["shape_v1"])
    assert table.num_rows == 0
    assert table.schema.field("id").type == pa.large_string()
    assert dk.read_table(root, ["id"], only=["a"]).num_rows == 0


def test_what_is_wrong_is_told(plain):
    with pytest.raises(UsageError, match="partition_bytes"):
        dk.read_table(str(plain), partition_bytes=0)
    rewrite(plain / "attributes/shape_v1/a.jsonl", lambda lines: lines[:-1])
    with pytest.raises(AlignmentError, match="has 39 rows"):
        dk.read_table(str(plain), ["id"], ["shape_v1"])
    rewrite(plain / "documents/z.jsonl", lambda lines: [b"[]\n", *lines[1:]])
    with pytest.raises(BadRecordError, match=r"z\.jsonl, row 0"):
        dk.read_table(str(plain), ["id"])
    assert dk.read_table(str(plain), ["id"], on_bad_record="null").column("id").null_count == 1


WITHOUT = """
import sys
import dolma_dask as dk
dk.read_table(sys.argv[1], attributes=sys.argv[2] or ())
sys.exit(", ".join({"dask", "pandas", "numba", *sys.argv[3:]} & {*sys.modules}))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("attributes", "others"), [("all", []), ("", ["pyarrow.compute"])])
def test_neither_dask_nor_pandas_is_imported(gz, attributes, others):
    dk.read_table(gz, attributes="all")  # compiles
    script = [sys.executable, "-c", WITHOUT, gz, attributes, *others]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""
