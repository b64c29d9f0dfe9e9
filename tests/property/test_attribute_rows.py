"""Attribute rows are what `json.dumps` would have written, for every float, string and shape of column."""

import json
import math
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples

from dolma_dask.formats.attributes import AttributeColumn, encode_rows
from dolma_dask.formats.json.write import number_texts, round_scores, span_texts, string_texts

SPANS = pa.list_(pa.struct([("start", pa.int64()), ("end", pa.int64()), ("score", pa.float64())]))
MAPS = pa.map_(pa.large_string(), pa.float64())
LANGUAGES = pa.struct([("en", pa.float64()), ("n", pa.int64())])

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def neighbours(x, steps):
    for _ in range(abs(steps)):
        x = math.nextafter(x, math.inf if steps > 0 else -math.inf)
    return x


ties = st.builds(
    lambda k, units, steps: neighbours((k + 0.5) / units, steps),
    st.integers(-(10**13), 10**13),
    st.sampled_from([1e5, 1e8]),
    st.integers(-3, 3),
)
exact_ties = st.builds(lambda k, whole: whole + k / 64, st.integers(-64, 64), st.integers(-(2**30), 2**30))
decimals = st.builds(lambda n, k: n / 10**k, st.integers(-(10**15), 10**15), st.integers(0, 12))
small = st.floats(-1e-3, 1e-3)
floats = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False), st.floats(0, 1), small, ties, exact_ties, decimals
)


def as_json(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def scores_of(values, decimals=5):
    """Each as the score of a span."""
    scores, every = np.array(values, np.float64), np.arange(len(values) + 1)
    written = span_texts(every, np.ones(len(values), np.bool_), every[:-1], every[1:], scores, decimals)
    return [text.rpartition(",")[2].rstrip("]") for text in written.to_pylist()]


@pytest.mark.parametrize("decimals", [5, 8])
@given(values=st.lists(floats, max_size=40))
@settings(max_examples=examples(100))
def test_scores_are_rounded_bit_for_bit_as_python_rounds(decimals, values):
    assert scores_of(values, decimals) == [as_json(round(x, decimals)) for x in values]
    rounded = [round(x, decimals) for x in values]
    assert list(map(repr, round_scores(np.array(values), decimals).tolist())) == list(map(repr, rounded))


@pytest.mark.parametrize("decimals", [5, 8])
def test_ties_their_neighbours_and_numbers_of_one_digit(decimals):
    """Too rare for examples that are drawn: what only a few floats in a row decide, and where exponents begin."""
    draw, units = random.Random(1), 10**decimals
    whole = [draw.randrange(10**size) for size in range(1, 14) for _ in range(100)]
    values = [neighbours((k + 0.5) / units, steps) for k in whole for steps in range(-2, 3)]
    values += [sign * k / units for k in range(200) for sign in (1, -1)]
    assert scores_of(values, decimals) == [as_json(round(x, decimals)) for x in values]


@given(st.lists(floats, max_size=40))
@settings(max_examples=examples(60))
def test_numbers_are_written_as_python_writes_them(values):
    written = number_texts(np.array(values, np.float64), np.ones(len(values), np.bool_)).to_pylist()
    assert written == [as_json(x) for x in values]


def test_every_fraction_that_documents_have():
    """Ratios of counts, of which those over multiples of 64 are ties: all with a denominator up to 300."""
    values = [a / b for b in range(1, 301) for a in range(b + 1)]
    for decimals in (5, 8):
        assert scores_of(values, decimals) == [as_json(round(x, decimals)) for x in values]


@given(st.lists(st.none() | texts), st.integers(0, 3))
def test_strings_are_escaped_as_python_escapes_them(values, skipped):
    column = pa.array(values, pa.large_string()).slice(skipped)
    assert string_texts(column).to_pylist() == [None if v is None else as_json(v) for v in values[skipped:]]


def column_of(kind, type, values):
    return st.tuples(st.just(kind), st.just(type), st.none() | values)


bounds = st.integers(-(2**63), 2**63 - 1)
spans = st.lists(st.fixed_dictionaries({"start": bounds, "end": bounds, "score": floats}), max_size=4)
KINDS = {
    "document": ("document", pa.float64(), floats),
    "spans": ("spans", SPANS, spans),
    "large_spans": ("spans", pa.large_list(SPANS.value_type), spans),
    "float": ("scalar", pa.float64(), floats),
    "int": ("scalar", pa.int64(), bounds),
    "bool": ("scalar", pa.bool_(), st.booleans()),
    "string": ("scalar", pa.large_string(), texts),
    "struct": (
        "dict",
        LANGUAGES,
        st.builds(lambda en, n: {"en": en, "n": n}, st.none() | floats, st.none() | bounds),
    ),
    "map": ("dict", MAPS, st.dictionaries(texts, st.none() | floats, max_size=3)),
}


@st.composite
def batches(draw):
    rows = draw(st.integers(0, 6))

    def column(values):
        return draw(st.lists(values, min_size=rows, max_size=rows))

    keys = draw(
        st.lists(
            texts.filter(lambda k: k not in ("id", "source", "attributes", "error")), unique=True, max_size=5
        )
    )
    columns = []
    for key in keys:
        kind, type, values = KINDS[draw(st.sampled_from(sorted(KINDS)))]
        columns.append((key, kind, type, column(st.none() | values)))
    errors = {i: draw(texts) for i in range(rows) if draw(st.integers(0, 5)) == 0}
    return column(texts), column(st.none() | texts), column(st.integers(0, 2**40)), columns, errors


def arrow(values, type, offset):
    """The column as a slice that starts at `offset`, so that no kernel may forget about it."""
    values = [list(v.items()) if type == MAPS and v is not None else v for v in values]
    return pa.array(values[:1] * offset + values, type).slice(offset if values else 0)


def member(kind, value, length):
    if kind == "document":
        return [[0, length, round(value, 5)]]
    if kind == "spans":
        return [[s["start"], s["end"], round(s["score"], 5)] for s in value]
    if kind == "dict":
        return {k: v for k, v in value.items() if v is not None}
    return value


def expected(batch):
    """The slow oracle: one dict per row."""
    ids, sources, lengths, columns, errors = batch
    for i in range(len(ids)):
        members = {k: member(kind, v[i], lengths[i]) for k, kind, _, v in columns if v[i] is not None}
        if i in errors:
            row = {"id": None, "attributes": {}, "error": errors[i]}
        else:
            row = {"id": ids[i], "attributes": members, "source": sources[i] or ""}
        yield as_json(row).encode() + b"\n"


@given(batches(), st.integers(0, 3))
@settings(max_examples=examples(80))
def test_rows_are_what_json_dumps_writes(batch, offset):
    ids, sources, lengths, columns, errors = batch
    rows = encode_rows(
        arrow(ids, pa.large_string(), offset),
        arrow(sources, pa.large_string(), offset),
        np.array(lengths, np.int64),
        [AttributeColumn(key, kind, arrow(values, type, offset)) for key, kind, type, values in columns],
        errors,
    )
    wanted = list(expected(batch))
    assert rows.to_pylist() == wanted
    assert rows.offset == 0
    assert rows.buffers()[2].to_pybytes() == b"".join(wanted), "the data buffer is the file"
