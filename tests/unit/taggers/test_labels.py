"""Columns of labels: each label has the numbers or spans that it has in each document."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.errors import UsageError
from dolma_dask.taggers.base import LABELLED_SPANS, NUMBERS_BY_NAME
from dolma_dask.taggers.labels import by_label, check_names

labels = st.sampled_from(["a", "b", "a-b", "a_b", "2024", "", "\u00e9"])
NAMES = {"a": "a", "b": "b", "a-b": "a_b", "a_b": "a_b", "2024": "2024", "": "_", "\u00e9": "_"}


@given(
    rows=st.lists(
        st.none() | st.lists(st.tuples(labels, st.integers(0, 9), st.integers(10, 20)), max_size=5),
        max_size=6,
    ),
    skip=st.integers(0, 2),
)
def test_spans_of_each_label_stay_in_their_order(rows, skip):
    column = pa.array([row and [(*one, 1.0) for one in row] for row in rows], LABELLED_SPANS).slice(skip)
    expected = {}
    for number, row in enumerate(rows[skip:]):
        for label, start, end in row or ():
            spans = expected.setdefault(NAMES[label], [None] * len(rows[skip:]))
            spans[number] = [*(spans[number] or []), {"start": start, "end": end, "score": 1.0}]
    found = by_label(column)
    assert {name: values.to_pylist() for name, (_, values) in found.items()} == expected
    assert list(found) == sorted(expected)
    assert {kind for kind, _ in found.values()} <= {"spans"}


@given(
    rows=st.lists(
        st.none() | st.dictionaries(st.sampled_from("abc"), st.integers(0, 9), max_size=3), max_size=6
    ),
    skip=st.integers(0, 2),
)
def test_numbers_of_each_label_stand_in_their_rows(rows, skip):
    column = pa.array([row and list(row.items()) for row in rows], NUMBERS_BY_NAME).slice(skip)
    found = by_label(column, ["z", "b"])
    names = ["z", "b", *sorted({name for row in rows[skip:] for name in row or ()} - {"b"})]
    assert list(found) == names
    for name in names:
        assert found[name] == ("document", found[name][1])
        assert found[name][1].to_pylist() == [row.get(name) if row else None for row in rows[skip:]]


def test_labels_of_one_name_are_refused():
    check_names(["a", "b", "a_c"], "labels")
    with pytest.raises(UsageError, match=r"labels 'a-b' and 'a_b' would both be written as 'a_b'"):
        check_names(["a-b", "x", "a_b"], "labels")
    with pytest.raises(UsageError, match="models 'm' and 'm' would both"):
        check_names(["m", "m"], "models")  # of m.bin and m.ftz
