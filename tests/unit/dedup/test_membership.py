"""Keys of a list: the table and the pass over sorted records, against dictionaries."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.exchange.contract import key_dtype
from dolma_dask.rules.membership import LOCATIONS, KeyTable, MembershipReducer

KEYS = st.lists(st.tuples(st.sampled_from([0, 1, 2**63, 2**64 - 1]), st.integers(0, 3)), max_size=40)
FIRST_DOCUMENT = 1000


def halves(keys):
    return tuple(np.array([key[i] for key in keys], np.uint64) for i in (0, 1))


@given(KEYS, KEYS)
def test_table_equals_a_dictionary(listed, asked):
    first = {}
    for number, key in enumerate(listed):
        first.setdefault(key, number)
    table = KeyTable(*halves(listed))
    assert table.repeated == len(listed) - len(first)
    assert table.find(*halves(asked)).tolist() == [first.get(key, -1) for key in asked]


def test_table_of_many_keys():
    draw = np.random.default_rng(5)
    keys = draw.integers(0, 2**64, (2, 100_000), np.uint64)
    table = KeyTable(*keys)
    assert table.repeated == 0
    assert (table.find(*keys) == np.arange(100_000)).all()
    assert (table.find(*draw.integers(0, 2**64, (2, 1000), np.uint64)) == -1).all()


@pytest.mark.slow
@given(KEYS, KEYS, st.lists(st.integers(0, 80), max_size=5))
def test_sorted_pass_equals_sets(listed, asked, cuts):
    records = np.zeros(len(listed) + len(asked), key_dtype())
    records["hi"], records["lo"] = halves([*listed, *asked])
    records["location"] = [*range(len(listed)), *range(FIRST_DOCUMENT, FIRST_DOCUMENT + len(asked))]
    records = np.sort(records, order=["hi", "lo", "location"])
    runs = [run for run in np.split(records, sorted(min(cut, len(records)) for cut in cuts)) if len(run)]
    given_out = [np.empty(0, LOCATIONS)]
    info = MembershipReducer(FIRST_DOCUMENT).reduce(runs, lambda part: given_out.append(part.copy()))
    matched = [FIRST_DOCUMENT + i for i, key in enumerate(asked) if key in listed]
    unmatched = [i for i, key in enumerate(listed) if key not in asked and key not in listed[:i]]
    assert sorted(np.concatenate(given_out)["location"].tolist()) == sorted([*unmatched, *matched])
    repeated = sum(count - 1 for count in Counter(listed).values())
    assert info == {"repeated": repeated, "unmatched": len(unmatched)}
