"""Groups: labels of strings, bools and numbers, codes over batches, the name "all"."""

import math

import pyarrow as pa
import pytest

from dolma_dask.errors import UsageError
from dolma_dask.rules import groups
from dolma_dask.rules.groups import Groups, label_of, spelled, unspelled, value_of


def test_codes_go_on_over_batches_and_missing_is_0():
    found = Groups("source")
    assert found.codes(pa.array(["b", None, "a", "b"], pa.large_string())).tolist() == [1, 0, 2, 1]
    assert found.codes(pa.array(["a", "c", ""], pa.large_string())).tolist() == [2, 3, 4]
    assert found.codes(pa.array([], pa.large_string())).tolist() == []
    assert found.codes(pa.nulls(2, pa.large_string())).tolist() == [0, 0]
    assert found.labels == ["b", "a", "c", ""]


def test_numbers_and_bools_have_labels():
    found = Groups("bucket")
    assert found.codes(pa.array([1.0, -0.0, math.nan, 0.0, 0.5, None])).tolist() == [1, 2, 0, 2, 3, 0]
    assert found.labels == ["1", "0", "0.5"]
    assert Groups("flag").codes(pa.array([True, None, False])).tolist() == [1, 0, 2]


@pytest.mark.parametrize("value", ["x", "", "1", True, False, 3.0, -0.25, 1e300, 2.0**60])
def test_a_label_leads_back_to_its_value(value):
    kind = "bool" if isinstance(value, bool) else "number" if isinstance(value, float) else "string"
    assert value_of(label_of(value), kind) == value


def test_whole_numbers_of_any_type_have_one_label():
    assert label_of(3) == label_of(3.0) == "3"


def test_too_many_groups_are_an_error_that_names_the_column(monkeypatch):
    monkeypatch.setattr(groups, "MAX_GROUPS", 4)
    found = Groups("perplexity")
    found.codes(pa.array([1.0, 2.0, 3.0, 4.0]))
    with pytest.raises(UsageError, match="perplexity"):
        found.codes(pa.array([5.0]))
    with pytest.raises(UsageError, match="perplexity"):
        Groups("perplexity").codes(pa.array([float(number) for number in range(9)]))


@pytest.mark.parametrize("label", ["all", "=all", "==all", "=", "", "=x", "All", "all=", "a"])
def test_the_name_all_is_free_for_all_rows(label):
    assert spelled(label) != "all"
    assert unspelled(spelled(label)) == label
    assert len({spelled(name) for name in ("all", "=all", "==all", "=al")}) == 4
