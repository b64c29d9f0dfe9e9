"""Findings of one pass, against plain Python: counts, sources, values, nearest documents; and that the cut into blocks does not matter."""

import math
import operator
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.figures.histogram import Histogram, quantiles
from dolma_dask.pages.content import rule_rows, signal_rows, source_rows
from dolma_dask.pages.model import SIDES
from dolma_dask.pages.survey import (
    EXCERPT_CHARACTERS,
    Bound,
    Survey,
    bounds_of,
    excerpt,
    survey_block,
)
from dolma_dask.reading.selection import conjuncts
from dolma_dask.rules.rules import all_of
from dolma_dask.rules.where import parse

OPERATORS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
numbers = st.one_of(
    st.none(),
    st.integers(-3, 3).map(float),
    st.floats(-1e300, 1e300, allow_nan=False),
    st.sampled_from([math.inf, -math.inf, -0.0, 1e308, -1e308]),
)
words = st.text(max_size=12)
rows = st.tuples(st.booleans(), st.sampled_from(["a", "b", "ü<"]), words, numbers, numbers)
conditions = st.lists(
    st.tuples(
        st.sampled_from("xy"),
        st.sampled_from(list(OPERATORS)),
        st.sampled_from([-1e308, -1.0, 0.0, 0.5, 2.0]),
    ),
    min_size=1,
    max_size=3,
)


def batch_of(part):
    ids = [f"d{number}" if good else None for number, (good, *_) in part]
    columns = {
        "id": pa.array(ids, pa.large_string()),
        "source": pa.array([row[1] if row[0] else None for _, row in part], pa.large_string()),
        "text": pa.array([row[2] if row[0] else None for _, row in part], pa.large_string()),
    }
    signals = {
        "x": pa.array([row[3] for _, row in part], pa.float64()),
        "y": pa.array([row[4] for _, row in part], pa.float64()),
    }
    return pa.RecordBatch.from_pydict(columns), {**columns, **signals}


def found_in(survey, table, shards, blocks):
    """Look at rows cut into shards and blocks, and add up in a shuffled order."""
    parts = []
    for shard, (start, stop) in enumerate(zip([0, *shards], [*shards, len(table)], strict=True)):
        cuts = sorted({start, stop, *(cut for cut in blocks if start < cut < stop)})
        for first, last in pairwise(cuts):
            batch, columns = batch_of(list(enumerate(table))[first:last])
            parts.append(survey_block(survey, f"s{shard}", first - start, batch, columns))
    return sum(reversed(parts), survey.start())


def oracle(table, shards, rule, count):
    """The tables of the page, one document at a time."""
    starts = [0, *shards]
    documents = []
    for number, (good, source, text, x, y) in enumerate(table):
        if good:
            shard = max(index for index, start in enumerate(starts) if start <= number)
            values = {"x": x, "y": y}
            holds = [
                values[key] is not None and OPERATORS[sign](values[key], bound) for key, sign, bound in rule
            ]
            documents.append((f"s{shard}", number - starts[shard], f"d{number}", source, text, values, holds))
    sources = {}
    for _, _, _, source, text, _, holds in documents:
        size = len(text.encode())
        row = sources.setdefault(source, [0, 0, 0, 0])
        for index, value in enumerate((1, size, all(holds), size * all(holds))):
            row[index] += value
    examples = []
    for part, (key, _, bound) in enumerate(rule):
        for side in ("just inside", "just outside"):
            near = []
            for shard, row, identity, _, text, values, holds in documents:
                others = all(held for index, held in enumerate(holds) if index != part)
                value = values[key]
                if others and value is not None and holds[part] == (side == "just inside"):
                    near.append((abs(value - bound), shard, row, identity, value, text))
            examples += [(side, part, *item[1:]) for item in sorted(near)[:count]]
    matched = [sum(document[6][part] for document in documents) for part in range(len(rule))]
    return len(documents), matched, sources, examples, documents


@pytest.mark.slow
@given(
    st.lists(rows, max_size=30),
    st.lists(st.integers(0, 30), max_size=3),
    st.lists(st.integers(0, 30), max_size=5),
    conditions,
    st.integers(0, 3),
)
def test_findings_are_those_of_plain_python_however_rows_are_cut(table, shards, blocks, rule, count):
    shards = sorted(min(cut, len(table)) for cut in shards)
    rule = list(dict.fromkeys(rule))  # equal conditions count once
    written = [f"{key} {sign} {bound!r}" for key, sign, bound in rule]
    parts = conjuncts(all_of(*map(parse, written)))
    survey = Survey(("x", "y"), parts, tuple(written), (), bounds_of(parts), examples=count)
    assert [(bound.key, bound.sign, bound.value) for bound in survey.bounds] == rule
    found = found_in(survey, table, shards, blocks)
    documents, matched, sources, examples, read = oracle(table, shards, rule, count)

    assert (found.rows, found.documents) == (len(table), documents)
    assert found.drops.kept[0] == sum(all(document[6]) for document in read)
    assert [row.matched_documents for row in rule_rows(survey, found.drops)] == matched
    assert {
        row.source: [row.documents, row.text_bytes, row.kept_documents, row.kept_text_bytes]
        for row in source_rows(survey, found.drops)
    } == sources
    assert [
        (side, bound.part, row.shard, row.row, row.id, row.value, row.excerpt)
        for bound in survey.bounds
        for side in SIDES
        for row in found.near.get((bound, side), ())
        if (row.kind, row.rule, row.signal) == (side, written[bound.part], bound.key)
    ] == examples
    for signal in signal_rows(survey, found):
        known = [document[5][signal.key] for document in read if document[5][signal.key] is not None]
        kept = [d[5][signal.key] for d in read if all(d[6]) and d[5][signal.key] is not None]
        finite = [value for value in known if math.isfinite(value)]
        assert (signal.n, signal.nulls, signal.infinite) == (
            len(known),
            documents - len(known),
            len(known) - len(finite),
        )
        assert (signal.min, signal.max) == (min(finite, default=None), max(finite, default=None))
        assert signal.counts.sum() == len(finite)
        assert signal.kept_counts.sum() == sum(map(math.isfinite, kept))
        lines = dict.fromkeys((sign, bound) for key, sign, bound in rule if key == signal.key)
        assert list(signal.threshold) == list(lines)


def test_without_a_rule_nothing_counts_as_kept():
    survey = Survey(("x",))
    batch, columns = batch_of([(0, (True, "a", "t", 1.0, None))])
    found = survey_block(survey, "s", 0, batch, columns)
    assert source_rows(survey, found.drops)[0].kept_documents is None
    assert signal_rows(survey, found)[0].kept_counts is None
    assert rule_rows(survey, found.drops) == []


@pytest.mark.parametrize(
    "written, expected",
    [
        ("50 <= a < 100.5", [Bound(0, "a", ">=", 50.0), Bound(1, "a", "<", 100.5)]),
        ("3 > a and b == -2", [Bound(0, "a", "<", 3.0), Bound(1, "b", "==", -2.0)]),
        ("source == 'x' and not a > 1 and (a > 1 or b > 2) and a != 0", [Bound(3, "a", "!=", 0.0)]),
        ("a + 1 > 2 and a > b and a is None and 1 < 2", []),
    ],
)
def test_bounds_are_read_either_way_round(written, expected):
    assert list(bounds_of(conjuncts(parse(written)))) == expected


@given(st.lists(st.integers(-8000, 8000), min_size=1, max_size=50), st.floats(0, 1))
def test_quantiles_of_whole_numbers_are_exact(values, probability):
    expected = sorted(values)[max(1, math.ceil(probability * len(values))) - 1]
    assert quantiles(Histogram.of(values), [probability]) == {probability: expected}


def test_quantiles_of_nothing():
    assert quantiles(Histogram.of([math.nan, math.inf])) == {}


def test_excerpts_end_between_code_points():
    text = "🎈" * EXCERPT_CHARACTERS
    assert excerpt(pa.array([text], pa.large_string())) == text
    assert excerpt(pa.array([text + "é"], pa.large_string())) == text + "…"
