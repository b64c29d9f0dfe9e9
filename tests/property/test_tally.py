"""A tally gives the counts of plain Python, however documents are cut, added up, put together and recorded."""

import json
from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.rules import tally as module
from dolma_dask.rules.tally import OTHER_GROUPS, Tally


@st.composite
def documents(draw):
    """Return a number of conditions, and documents: group, size, conditions that drop it."""
    conditions = draw(st.sampled_from([0, 1, 2, 5, 8, 70]))
    few = st.integers(0, max(conditions - 1, 0))
    dropped = st.sets(few, max_size=min(conditions, 5)) if conditions else st.just(set())
    row = st.tuples(st.sampled_from([None, "", "a", "ü<"]), st.integers(0, 2**40), dropped)
    return conditions, draw(st.lists(row, max_size=30))


def counted(conditions, rows, *, is_grouped=True):
    found = Tally.with_pairs(conditions)
    dropped = np.zeros((conditions, len(rows)), bool)
    for at, (_, _, dropping) in enumerate(rows):
        dropped[sorted(dropping), at] = True
    groups = pa.array([row[0] for row in rows], pa.large_string()) if is_grouped else None
    found.count(dropped, np.array([row[1] for row in rows], np.int64), groups)
    return found


def amounts(rows):
    return [len(rows), sum(size for _, size, _ in rows)]


def check(found, conditions, rows):
    """Compare all answers about some documents with a loop over them."""
    each = range(conditions)
    assert list(found.total) == amounts(rows)
    assert list(found.kept) == amounts([row for row in rows if not row[2]])
    assert found.dropped.tolist() == [amounts([row for row in rows if one in row[2]]) for one in each]
    assert found.alone.tolist() == [amounts([row for row in rows if row[2] == {one}]) for one in each]
    if found.together.size:
        pairs = [[sum({one, other} <= row[2] for row in rows) for other in each] for one in each]
        assert found.together.tolist() == pairs


def check_groups(found, conditions, rows):
    by_group = {}
    for row in rows:
        by_group.setdefault(row[0] or "", []).append(row)
    assert found.by_group().keys() == by_group.keys()
    for group, of_group in by_group.items():
        check(found.by_group()[group], conditions, of_group)


@given(documents(), st.lists(st.integers(0, 30), max_size=3))
def test_counts_are_those_of_a_loop_however_documents_are_cut(given_rows, cuts):
    conditions, rows = given_rows
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    parts = [counted(conditions, rows[start:stop]) for start, stop in pairwise(edges)]
    sizes = [part.total for part in parts]
    for order in (parts, reversed(parts)):
        found = Tally.with_pairs(conditions)
        for part in order:
            found.add(part)
        check(found, conditions, rows)
        check_groups(found, conditions, rows)
    assert [part.total for part in parts] == sizes, "adding changes no part"
    check(counted(conditions, rows, is_grouped=False), conditions, rows)


@given(documents())
def test_a_journal_gives_them_back(given_rows):
    conditions, rows = given_rows
    recorded = json.loads(json.dumps(counted(conditions, rows).to_json()))
    found = Tally.from_json(conditions, recorded)
    check(found, conditions, rows)
    check_groups(found, conditions, rows)


def test_a_journal_is_bounded_whatever_the_groups():
    rows = [(str(number), number, {number % 2}) for number in range(1000)]
    recorded = counted(2, rows).to_json()
    assert len(recorded) == module.MAX_RECORDED + 1
    assert list(recorded)[-1] == OTHER_GROUPS
    check(Tally.from_json(2, recorded), 2, rows)


def test_many_groups_are_put_together_and_none_is_lost(monkeypatch):
    monkeypatch.setattr(module, "MAX_GROUPS", 4)
    rows = [(f"s{number:02d}", 10, {number % 2}) for number in range(40) for _ in range(number + 1)]
    rows += [("all", 1, set())] * 40
    found = Tally.with_pairs(2)
    for row in rows:
        found.add(counted(2, [row]))
    assert len(found.groups) <= 9
    check(found, 2, rows)
    shown = found.largest(2)
    assert len(shown.groups) == 3
    assert "s39" in shown.groups
    assert list(shown.groups)[-1] == OTHER_GROUPS
    check(shown, 2, rows)
