"""Filters: which of them become rules over columns, which attributes they speak of, what cannot be read."""

from typing import Any

import pytest

from dolma_dask.rules.filter_columns import RowKinds
from dolma_dask.rules.filters import Filter, attributes_in, make_filter

KINDS = RowKinds(
    {"k": "spans", "d": "document", "n": "number", "b": "bool", "t": "string", "lang.en": "dict"},
    frozenset({"odd"}),
    {"metadata.lang": "string", "metadata.n": "number"}.get,
)


COMPILED = {
    "jsonpath": [
        "$.attributes[?(@.k && @.k[0] && @.k[0][2] > 0.5)]",
        "$.attributes[?(@.k && @.k[0][2] >= 200)]",
        "$.attributes[?(@.d[0][2] > 4950)]",
        "$.attributes[?(@.k)]",
        "$.attributes[?(!@.k)]",
        "$.attributes[?(@.k[0][2] > 0.5 || @.d[0][2] < 0.1)]",
        "$.attributes[?(@.k[0][2] > 0.5 && (@.d[0][2] < 0.1 || !@.b))]",
        "$.attributes[?(@.n < 0.5)]",
        "$.attributes[?(@.lang.en > 0.5)]",
        "$.attributes[?(@.t == 'x')]",
        "$.attributes[?(@.not_there__yet[0][2] > 0.5)]",
        "$.attributes.k",
        "$.attributes['k'][0]",
        "$[?(@.metadata.lang == 'en' && @.attributes.k)]",
        "$.metadata[?(@.lang == 'en')]",
        "$[?(@.id == 'a')]",
        "$.attributes[?(@.k.length() > 3)]",
        "$.attributes[?(@.k[0][2] > @.d[0][2])]",
    ],
    "jq": [
        ".attributes.k[0][2] >= 2",
        ".attributes.k[0]?[2]? > 0.5",
        '.metadata.lang == "fr"',
        '.attributes["k"][0][2] > 1 and .metadata.n < 2',
        "(.attributes.k | length > 0) and .attributes.k[0][2] > 0.1",
        ".attributes.k",
        ".attributes.k | length",
        "(.attributes.k | not) or .attributes.n == 1",
        ".attributes.k | not",
        ".attributes.k != null",
    ],
}
SLOW = {
    "jsonpath": [
        "$.attributes[?(@.odd == 1)]",
        "$.attributes[?(@.k[*][2] > 1)]",
        "$..k",
        "$.metadata[?(@.lang != 'en')]",
        "$.attributes[?(@.t ~= 'x')]",
        "$.attributes[?(@.k == null)]",
        "$.metadata.other",
        "$.text",
        "$.attributes[?(@.lang)]",
    ],
    "jq": [
        ".attributes.k[]",
        ".attributes.odd",
        "any(.attributes.k[]; .[2] > 1)",
        "true, false",
        ". | .id",
        ".attributes.k | length > 0 and .id",
        ".id > 1",
    ],
}


@pytest.mark.parametrize("is_slow", [False, True])
@pytest.mark.parametrize("syntax", ["jsonpath", "jq"])
def test_filters_that_are_compiled_and_not(syntax: Any, is_slow: bool) -> None:
    texts = (SLOW if is_slow else COMPILED)[syntax]
    assert [text for text in texts if make_filter(text, syntax, KINDS).is_slow is not is_slow] == []


@pytest.mark.parametrize(
    "program, is_true",
    [("1", True), ("0", False), ('""', False), ('"a"', True), ("[]", False), ("[0]", True), ("{}", False), ("null", False),
     ("true, false", False), ("true, true", True), ("empty", False)],
)  # fmt: skip
def test_outputs_of_jq_count_as_in_the_toolkit(program: str, is_true: bool) -> None:
    assert Filter(program, "jq").matches({}) == is_true


@pytest.mark.parametrize(
    "text, syntax, keys",
    [
        ("$.attributes[?(@.a && @.b[0][2] > $.attributes.c[0][2])]", "jsonpath", {"a", "b", "c"}),
        ("$[?(@.attributes['d'] || @.metadata.x == 1)]", "jsonpath", {"d"}),
        ("$.attributes.e[?(@[2] > 0.5)]", "jsonpath", {"e"}),
        ("$.metadata.attributes", "jsonpath", set()),
        ("$.id", "jsonpath", set()),
        ("$..f", "jsonpath", None),
        ("$.attributes.*", "jsonpath", None),
        ("$.attributes[?(@[0])]", "jsonpath", None),
        ('.attributes.a > 1 and .attributes."b c" and .attributes["d"]', "jq", {"a", "b c", "d"}),
        (".attributes | keys", "jq", None),
        ("..", "jq", None),
        (".id", "jq", set()),
    ],
)
def test_attributes_that_are_named(text: str, syntax: str, keys: set[str] | None) -> None:
    assert attributes_in(text, syntax) == keys
