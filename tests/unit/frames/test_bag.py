"""Bags: the same rows as plain Python objects."""

import shutil
from pathlib import Path

import pytest
from partition_worlds import FIELDS, FORMATS, MANY, ROWS, SPANS, expected, rewrite

from dolma_dask.errors import AlignmentError, BadRecordError
from dolma_dask.frames.dataframe import read_bag

COLUMNS = ("id", "text", "source", "added", "metadata", *FIELDS)


@pytest.mark.parametrize("pair", FORMATS)
@pytest.mark.parametrize("partition_bytes", [MANY, None])
def test_rows_are_those_of_plain_python(worlds, pair, partition_bytes):
    bag = read_bag(str(worlds[pair]), COLUMNS, "all", partition_bytes=partition_bytes)
    found = bag.compute()
    for name in found[0]:
        assert [row[name] for row in found] == expected(ROWS, name), name
    assert len(found[0]) == len(COLUMNS) + 7
    types = {type(value) for row in found for value in row.values()}
    assert types == {str, float, bool, dict, list, type(None)}


def test_bags_are_lazy_and_streamed(gz, parsed):
    bag = read_bag(gz, ["id", "metadata"], ["scores_v1"], partition_bytes=None)
    parsed.clear()
    assert bag.npartitions == len(ROWS)
    assert parsed.opened == []
    assert bag.pluck("id").take(2) == ("a-0", "a-1")
    assert not any("z.jsonl" in url for url in parsed.opened)
    assert bag.filter(lambda row: row["metadata"] is None).count().compute() == expected(
        ROWS, "metadata"
    ).count(None)
    assert parsed.documents == {"id", "metadata"}


def test_one_bag_has_one_name(gz):
    assert read_bag(gz, ["id"]).name == read_bag(gz, ["id"]).name != read_bag(gz, ["source"]).name


def test_what_is_wrong_is_told(plain):
    rewrite(plain / "attributes/shape_v1/a.jsonl", lambda lines: lines[:-1])
    with pytest.raises(AlignmentError, match="has 39 rows"):
        read_bag(str(plain), ["id"], ["shape_v1"]).count().compute()
    path = plain / "documents/z.jsonl"
    rewrite(path, lambda lines: [b"[]\n", *lines[1:]])
    with pytest.raises(BadRecordError, match=r"z\.jsonl, row 0"):
        read_bag(str(plain), ["id"]).count().compute()
    assert read_bag(str(plain), ["id"], on_bad_record="null").pluck("id").compute().count(None) == 1


def test_spans_of_whole_documents(worlds, tmp_path):
    root = str(shutil.copytree(worlds["jsonl", None], Path(tmp_path / "v0")))
    row = read_bag(root, [], ["shape_v1"], spans=True).compute()[0]
    assert row[SPANS] is None or len(row[SPANS][0]) == 3
    lengths = [each["shape_v1__shape_v1__length"] for each in read_bag(root, [], ["shape_v1"], spans=True)]
    assert lengths == [
        None if value is None else [[0, len(text), value]]
        for text, value in zip(
            expected(ROWS, "text"), expected(ROWS, "shape_v1__shape_v1__length"), strict=True
        )
    ]
