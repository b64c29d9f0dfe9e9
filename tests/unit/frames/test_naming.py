"""Names of columns: what can be requested, in which order it comes, and which names cannot be."""

import shutil
from pathlib import Path

import pytest
from partition_worlds import ATTRIBUTES, COUNT, FIRST, LENGTH, SCORES, SHORT, SPANS, rewrite

import dolma_dask as dk
from dolma_dask.errors import ExpressionError, UsageError
from dolma_dask.frames.naming import select_columns


def names_of(root: str, columns=None, attributes=(), **options: bool) -> list[str]:
    selected, _ = select_columns(dk.open_dataset(root), columns, attributes, **options)
    return [column.name for column in selected]


def test_columns_come_first_then_the_keys_of_the_sets(gz):
    assert names_of(gz) == ["id", "source", "text"]
    assert names_of(gz, "id") == ["id"]
    assert names_of(gz, [], "scores_v1") == [f"{SCORES}.de", f"{SCORES}.en"]
    assert names_of(gz, ["short", "id"], ["shape_v1"]) == [SHORT, "id", COUNT, LENGTH, SPANS]
    assert set(names_of(gz, ["added", "metadata.n"], "all")) == {"added", "metadata.n", *ATTRIBUTES}


def test_single_keys_may_come_from_any_set(gz):
    assert names_of(gz, ["count"]) == [COUNT]
    assert names_of(gz, ["id", "first_v1/word", "shape_v1/count"], ["scores_v1"])[1:3] == [FIRST, COUNT]
    assert names_of(gz, ["id", "word"], ["scores_v1"])[1] == FIRST
    _, sets = select_columns(dk.open_dataset(gz), ["count"], ())
    assert list(sets.files) == ["shape_v1"], "no other set is read"


def test_a_key_in_two_sets_needs_a_prefix(plain):
    shutil.copytree(plain / "attributes/shape_v1", plain / "attributes/copy")
    root = str(plain)
    with pytest.raises(
        UsageError, match=r"stands in attribute set copy and in attribute set shape_v1.*prefix=True"
    ):
        names_of(root, ["id"], ["copy", "shape_v1"])
    with pytest.raises(UsageError, match="short for several columns"):
        names_of(root, ["count"])
    assert names_of(root, ["count"], ["copy"])[0] == COUNT
    assert names_of(root, ["copy/count"]) == [COUNT]
    both = names_of(root, ["id", "copy/count"], ["copy", "shape_v1"], prefix=True)
    assert both[:2] == ["id", f"copy/{COUNT}"]
    assert f"shape_v1/{COUNT}" in both
    assert len(both) == 9


def test_a_key_with_the_name_of_a_document_column_needs_a_prefix(plain):
    for path in (plain / "attributes/first_v1").rglob("*.jsonl"):
        rewrite(path, lambda lines: [line.replace(FIRST.encode(), b"source") for line in lines])
    shutil.rmtree(plain / "_journal")  # which knows their keys
    with pytest.raises(UsageError, match="'source' stands in the documents and in attribute set first_v1"):
        names_of(str(plain), ["source"], ["first_v1"])
    assert names_of(str(plain), ["source"], ["first_v1"], prefix=True) == ["source", "first_v1/source"]


@pytest.mark.parametrize(
    "columns, attributes, error, message",
    [
        (["cuont"], (), ExpressionError, "near it are"),
        (["raw"], (), ExpressionError, "raw"),
        (["metadata.none"], (), ExpressionError, "metadata.lang"),
        (["shape_v1/none"], (), ExpressionError, "none"),
        (["id", "id"], (), UsageError, "requested twice"),
        (["count", COUNT], (), UsageError, r"requested twice \(also as 'count'\)"),
        ([], (), UsageError, "no columns and no attributes"),
        (["id"], ["nowhere"], UsageError, "no attribute set 'nowhere'"),
        (["id"], ["shape_v1", "shape_v1"], UsageError, "requested twice"),
        ([7], (), UsageError, r"columns=\[7\]"),
        (["id"], [""], UsageError, "attributes="),
    ],
)
def test_wrong_names(gz, columns, attributes, error, message):
    with pytest.raises(error, match=message):
        names_of(gz, columns, attributes)


def test_attributes_made_since_the_dataset_was_opened_are_found(plain):
    Path(shutil.move(plain / "attributes/shape_v1", plain / "later"))
    dataset = dk.open_dataset(str(plain))
    shutil.move(plain / "later", plain / "attributes/shape_v1")
    assert [column.name for column in select_columns(dataset, ["count"], ())[0]] == [COUNT]
    assert len(select_columns(dataset, (), "all")[0]) == len(ATTRIBUTES)


def test_short_names(plain):
    short = names_of(str(plain), ["id", "count"], ["shape_v1"], short=True)
    assert short == ["id", *(key.rpartition("__")[2] for key in (COUNT, LENGTH, SHORT, SPANS))]
    assert names_of(str(plain), ["id"], ["first_v1"], prefix=True, short=True) == ["id", "first_v1/word"]
    shutil.copytree(plain / "attributes/shape_v1", plain / "attributes/copy")
    for path in (plain / "attributes/copy").rglob("*.jsonl"):
        rewrite(path, lambda lines: [line.replace(b"shape_v1__count", b"other__count") for line in lines])
    with pytest.raises(
        UsageError, match=r"'count' is short for '.*other__count' of attribute set copy and for '.*count' of"
    ):
        names_of(str(plain), [], ["copy", "shape_v1"], short=True)


def test_an_unknown_column_of_a_dataframe_names_those_like_it(gz):
    df = dk.read_dataframe(gz, ["id"], ["shape_v1"])
    for wrong in ("count", ["id", "count"]):
        with pytest.raises(KeyError, match=f"no column is named count; near it are: {COUNT}.*short=True"):
            df[wrong]
    assert list(df[[COUNT]].columns) == [COUNT]
    assert len(df[df[COUNT] > 1]) < len(df)
    assert dk.read_dataframe(gz, ["id"], ["shape_v1"], short=True)["count"].sum().compute() > 0
