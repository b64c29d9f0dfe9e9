"""A tally gives the counts of plain Python, however documents are cut, added up, put together, folded and recorded."""

from itertools import pairwise

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.rules import tally as module
from dolma_dask.rules.tally import OTHER_GROUPS, Tally, sum_tallies


@st.composite
def documents(draw):
    """Return a number of conditions, and documents: group, size, conditions that drop it."""
    conditions = draw(st.sampled_from([0, 1, 2, 5, 8, 9, 64, 70, 130]))
    few = st.integers(0, max(conditions - 1, 0))
    dropped = st.sets(few, max_size=min(conditions, 5)) if conditions else st.just(set())
    row = st.tuples(st.sampled_from([None, "", "a", "ü<"]), st.integers(0, 2**40), dropped)
    return conditions, draw(st.lists(row, max_size=30))


def counted(conditions, rows, *, is_grouped=True):
    found = Tally(conditions)
    dropped = np.zeros((conditions, len(rows)), bool)
    for at, (_, _, dropping) in enumerate(rows):
        dropped[sorted(dropping), at] = True
    groups = pa.array([row[0] for row in rows], pa.large_string()) if is_grouped else None
    found.count(dropped, np.array([row[1] for row in rows], np.int64), groups)
    return found


def amount(rows):
    return [len(rows), sum(size for _, size, _ in rows)]


def check(found, conditions, rows):
    """Compare all answers about some documents with a loop over them."""
    each = range(conditions)
    assert list(found.total) == amount(rows)
    assert list(found.kept) == amount([row for row in rows if not row[2]])
    assert found.dropped.tolist() == [amount([row for row in rows if one in row[2]]) for one in each]
    assert found.alone.tolist() == [amount([row for row in rows if row[2] == {one}]) for one in each]
    pairs = {one for row in rows for one in row[2]}
    assert found.together.shape == (conditions, conditions, 2)
    for one in pairs:
        for other in pairs:
            both = amount([row for row in rows if {one, other} <= row[2]])
            assert found.together[one, other].tolist() == both


def check_groups(found, conditions, rows):
    by_group = {}
    for row in rows:
        by_group.setdefault(row[0] or "", []).append(row)
    assert found.by_group().keys() == by_group.keys()
    for group, of_group in by_group.items():
        check(found.by_group()[group], conditions, of_group)


@pytest.mark.parametrize("max_sets", [1000, 3, 0])
@given(documents(), st.lists(st.integers(0, 30), max_size=3))
def test_counts_are_those_of_a_loop_however_documents_are_cut(max_sets, given_rows, cuts):
    conditions, rows = given_rows
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_SETS", max_sets)
        edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
        parts = [counted(conditions, rows[start:stop]) for start, stop in pairwise(edges)]
        sizes = [part.total for part in parts]
        for found in (sum_tallies(parts), sum(reversed(parts), Tally())):
            check(found, conditions, rows)
            check_groups(found, conditions, rows)
        assert [part.total for part in parts] == sizes, "adding changes no part"


@given(documents())
def test_without_groups_the_counts_are_the_same(given_rows):
    conditions, rows = given_rows
    check(counted(conditions, rows, is_grouped=False), conditions, rows)


@pytest.mark.parametrize("max_sets", [1000, 2])
@given(documents(), documents())
def test_a_journal_gives_them_back(max_sets, one, other):
    conditions, rows = one
    more = [row for row in other[1] if max(row[2], default=-1) < conditions]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_SETS", max_sets)
        parts = [counted(conditions, part).compact() for part in (rows, more)]
        texts = [msgspec.json.encode(part) for part in parts]
        found = sum_tallies(msgspec.json.decode(text, type=Tally) for text in texts)
    check(found, conditions, [*rows, *more])
    if found.has_groups:
        check_groups(found, conditions, [*rows, *more])
    else:
        assert max_sets == 2


def test_a_journal_is_bounded_whatever_the_documents(monkeypatch):
    monkeypatch.setattr(module, "MAX_SETS", 20)
    rows = [(str(number), number, {number % 5, number % 7, number % 3}) for number in range(1000)]
    found = counted(7, rows).compact()
    check(found, 7, rows)
    assert not found.has_groups
    assert len(found.sets[""]) + len(found.folded.get("", ())) <= 20 + 7 + 7 * 8 / 2 + 1


def test_many_groups_are_put_together_and_none_is_lost(monkeypatch):
    monkeypatch.setattr(module, "MAX_GROUPS", 4)
    rows = [(f"s{number:02d}", 10, {number % 2}) for number in range(40) for _ in range(number + 1)]
    rows += [("all", 1, set())] * 40
    found = sum_tallies(counted(2, [row]) for row in rows)
    assert len(found.sets) <= 9
    check(found, 2, rows)
    shown = found.largest(2).by_group()
    assert len(shown) == 3
    assert {"s39", OTHER_GROUPS} < shown.keys()
    check(found.largest(2), 2, rows)
