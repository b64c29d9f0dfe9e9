"""Rules over marks: the same as their spelling, whatever the name."""

import pyarrow as pa
import pytest

from dolma_dask.errors import UsageError
from dolma_dask.rules.rules import duplicates, listed
from dolma_dask.rules.where import parse


@pytest.mark.parametrize("name", ["exact", "take-down.2024", "9lives", "not", "None", "ünïcode"])
def test_rules_parse_back(name):
    for rule in (duplicates(name), listed(name), ~duplicates(name)):
        assert parse(str(rule)).canonical() == rule.canonical()
    assert parse(f"`{name}` is not None").canonical() == listed(name).canonical()


def test_marks_hold_where_there_is_a_value():
    columns = {"exact": pa.array([None, 1.0])}
    assert duplicates().mask(columns).to_pylist() == [False, True]
    assert (~duplicates()).mask(columns).to_pylist() == [True, False]


def test_names_that_no_set_can_have_are_refused():
    with pytest.raises(UsageError, match="folder name"):
        duplicates("a/b")
