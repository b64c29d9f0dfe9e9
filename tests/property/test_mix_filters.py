"""Filters compiled to columns answer as those that look at each document do."""

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples

from dolma_dask.formats.json.lines import SPAN
from dolma_dask.rules.filter_columns import RowKinds
from dolma_dask.rules.filters import Filter, make_filter

KINDS = RowKinds(
    {"s": "spans", "d": "document", "n": "number", "b": "bool", "t": "string", "o.x": "dict", "o.y": "dict"},
    frozenset({"odd"}),
    {
        "metadata.lang": "string",
        "metadata.n": "number",
        "metadata.o.z": "dict",
        "metadata.o.p.w": "path_string",
        "metadata.o.p.q.b": "path_bool",
    }.get,
)
NUMBERS = st.sampled_from([-1, 0, 0.5, 1, 1.0, 2, 12.25])
WORDS = st.sampled_from(["", "en", "fr", "é😀"])
SPANS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), NUMBERS).map(list), max_size=3)
DEEP = st.fixed_dictionaries(
    {},
    optional={
        "w": st.none() | WORDS,
        "q": st.fixed_dictionaries({}, optional={"b": st.none() | st.booleans()}),
    },
)
ROWS = st.fixed_dictionaries(
    {
        "id": WORDS,
        "attributes": st.fixed_dictionaries(
            {},
            optional={
                "s": SPANS,
                "d": SPANS.filter(lambda spans: len(spans) < 2),
                "n": NUMBERS,
                "b": st.booleans(),
                "t": WORDS,
                "o": st.fixed_dictionaries({}, optional={"x": NUMBERS, "y": NUMBERS}),
                "odd": st.one_of(NUMBERS, WORDS),
            },
        ),
    },
    optional={
        "metadata": st.fixed_dictionaries(
            {},
            optional={
                "lang": st.none() | WORDS,
                "n": st.none() | NUMBERS,
                "o": st.fixed_dictionaries({}, optional={"z": st.none() | NUMBERS, "p": DEEP}),
            },
        )
    },
)

LITERALS = st.sampled_from(
    ["-1", "0", "0.5", "1", "1.0", "2.0", "'en'", "''", "true", "false", "['en', 'fr']", "[0.5, 1]"]
)
SIGNS = st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "in", "nin"])
PATHS = st.sampled_from(
    ["@.s", "@.s[0]", "@.s[0][2]", "@.s[1][2]", "@.s[0][0]", "@.s[-1][1]", "@.d[0][2]", "@.d", "@.n", "@.b", "@.t", "@.o.x", "@.o.z", "@.nope",
     "@.nope[0][2]", "@.odd", "@.s[*][2]", "@.s.length()", "$.metadata.lang", "$.metadata.n", "$.metadata.o.z", "$.metadata.o.p.w",
     "$.metadata.o.p.q.b", "$.id"]
)  # fmt: skip


def joined(conditions: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(conditions, st.sampled_from([" && ", " || "]), conditions).map("".join),
        conditions.map("!({})".format),
        conditions.map("({})".format),
    )


CONDITIONS = st.recursive(
    st.one_of(
        PATHS,
        st.tuples(PATHS, SIGNS, LITERALS).map(" ".join),
        st.tuples(LITERALS, st.sampled_from(["<", ">=", "=="]), PATHS).map(" ".join),
        st.tuples(PATHS, SIGNS, PATHS).map(" ".join),
    ),
    joined,
    max_leaves=6,
)
JSONPATHS = st.one_of(
    CONDITIONS.map("$.attributes[?({})]".format),
    CONDITIONS.map(lambda text: f"$[?({text.replace('@.', '@.attributes.')})]"),
    st.sampled_from(["$.metadata[?(@.lang == 'en')]", "$.metadata[?(@.lang != 'en')]", "$.metadata[?(!@.n)]", "$.metadata[?(@.n < 1)]",
                     "$.metadata[?(@.lang && @.lang == 'en')]", "$.metadata[?(!(!$.id))]", "$.metadata[?($.id in ['en', 'fr'])]",
                     "$.metadata[?(@.o.p.w == 'en')]", "$.metadata[?(@.o.p.q.b && @.o.p.w != 'fr')]", "$.metadata.o[?(@.p.w)]"]),
    PATHS.map(lambda text: text.replace("@.", "$.attributes.")),
)  # fmt: skip

JQ_PATHS = st.sampled_from(
    [".attributes.s", ".attributes.s[0][2]", ".attributes.s[-1][0]", '.attributes["d"][0][2]?', ".attributes.n", ".attributes.b", ".attributes.t",
     ".attributes.o.x", ".attributes.nope", ".attributes.nope[0][2]", ".metadata.lang", ".metadata.n", ".metadata.o.z", ".metadata.o.p.w", ".metadata.o.p.q.b", ".id"]
)  # fmt: skip
JQ_LITERALS = st.sampled_from(["-1", "0", "0.5", "1", "2.0", '"en"', '""', "true", "null"])
JQ_SIGNS = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
JQ = st.recursive(
    st.one_of(
        JQ_PATHS,
        st.tuples(JQ_PATHS, JQ_SIGNS, JQ_LITERALS).map(" ".join),
        st.tuples(JQ_LITERALS, JQ_SIGNS, JQ_PATHS).map(" ".join),
        st.sampled_from(["(.attributes.s | length > 1)", "(.attributes.nope | length == 0)", "(.attributes.d | length)"]),
    ),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([" and ", " or "]), inner).map("".join),
        inner.map("({} | not)".format),
        inner.map("({})".format),
    ),
    max_leaves=6,
)  # fmt: skip

TYPES = {
    "attributes.s": pa.list_(SPAN), "attributes.d": pa.list_(SPAN), "attributes.nope": pa.list_(SPAN), "attributes.n": pa.float64(),
    "attributes.b": pa.bool_(), "attributes.t": pa.large_string(), "attributes.o.x": pa.float64(), "attributes.o.y": pa.float64(),
    "metadata.lang": pa.large_string(), "metadata.n": pa.float64(), "metadata.o.z": pa.float64(),
    "metadata.o.p.w": pa.large_string(), "metadata.o.p.q.b": pa.bool_(), "id": pa.large_string(),
}  # fmt: skip


def value_of(row: dict[str, Any], name: str) -> Any:
    value: Any = row
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    if isinstance(value, list):
        return [{"start": start, "end": end, "score": score} for start, end, score in value]
    return value


def columns_of(rows: list[dict[str, Any]]) -> dict[str, pa.Array]:
    return {name: pa.array([value_of(row, name) for row in rows], of) for name, of in TYPES.items()}


def check(item: Filter, rows: list[dict[str, Any]]) -> None:
    one_by_one = [item.matches(row) for row in rows]
    assert item.rule is not None
    assert item.rule.mask(columns_of(rows)).to_pylist() == one_by_one


@settings(max_examples=examples(60))
@given(JSONPATHS, st.lists(ROWS, min_size=1, max_size=6))
def test_jsonpath(text: str, rows: list[dict[str, Any]]) -> None:
    item = make_filter(text, "jsonpath", KINDS)
    if item.rule is not None:
        check(item, rows)


@settings(max_examples=examples(60))
@given(JQ, st.lists(ROWS, min_size=1, max_size=6))
def test_jq(text: str, rows: list[dict[str, Any]]) -> None:
    item = make_filter(text, "jq", KINDS)
    if item.rule is not None:
        check(item, rows)
