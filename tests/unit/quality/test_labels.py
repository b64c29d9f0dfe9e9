"""Groups by several columns: one label of all, which can be split again."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.errors import UsageError
from dolma_dask.rules import labels
from dolma_dask.rules.labels import Labels, split_label
from dolma_dask.rules.values import Name

texts = st.text("ab/\\é", max_size=4)


@given(st.lists(st.tuples(texts, texts, st.sampled_from([None, "x"])), max_size=5))
def test_labels_can_be_split_again(rows):
    columns = {name: pa.array([row[at] for row in rows], pa.large_string()) for at, name in enumerate("abc")}
    found = Labels((Name("a"), Name("b"), Name("c")), ("string",) * 3).evaluate(columns)
    for label, row in zip(found.data.to_pylist(), rows, strict=True):
        assert label is None if row[2] is None else split_label(label) == list(row)


def test_numbers_bools_and_nothing():
    columns = {"n": pa.array([1.0, None, 2.5]), "b": pa.array([True, False, False]), "none": pa.nulls(3)}
    both = Labels((Name("n"), Name("b")), ("number", "bool"))
    assert both.evaluate(columns).data.to_pylist() == ["1/true", None, "2.5/false"]
    assert both.names == {"n", "b"}
    assert Labels((Name("n"), Name("none")), ("number", "string")).evaluate(columns).data.null_count == 3


def test_a_column_with_many_values_is_named(monkeypatch):
    monkeypatch.setattr(labels, "MAX_GROUPS", 1)
    with pytest.raises(UsageError, match="column n"):
        Labels((Name("n"),), ("number",)).evaluate({"n": pa.array([1.0, 2.0, 3.0])})
