"""Filters: which of them become rules over columns, which attributes they speak of, what cannot be read."""

from typing import Any

import pytest

from dolma_dask.errors import ExpressionError
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
        "$[?(@.metadata && @.metadata.lang && @.metadata.lang == 'en')]",
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
        "$.metadata.lang",
        "$.metadata[?(@.lang)]",
        "$.metadata[?(@.lang nin ['en'])]",
        "$.metadata[?($.id == 'a')]",
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


@pytest.mark.parametrize(
    "text",
    [
        "repeat(.)",
        "[range(1e12)] | length > 0",
        "[range(.metadata.n)]",
        "range(0; 5; 0)",
        "def f: f; f",
        "last(recurse(.))",
        "until(false; .)",
        '"\\( "x" | repeat(.) )"',
        '# "\nrepeat(.) # "',
    ],
)
def test_programs_that_may_never_end_are_refused(text: str) -> None:
    with pytest.raises(ExpressionError, match=r"may go on without end(.|\n)*\^"):
        make_filter(text, "jq", KINDS)


@pytest.mark.parametrize(
    "text", ["env.HOME != null", "$ENV.HOME", "input", "now > 0", 'import "a" as a; .', "halt"]
)
def test_programs_that_look_at_more_than_the_document_are_refused(text: str) -> None:
    with pytest.raises(ExpressionError, match="depends on more than the document"):
        make_filter(text, "jq", KINDS)


@pytest.mark.parametrize(
    "text",
    [
        '.text | test("repeat(while|def)")',
        ".metadata.range > 1 and .metadata.input",
        '{range: 1, "now": 2} | .range == 1',
        "[range(0; length)] | length > 1",
        "any(range(10); . > 8)",
        '.metadata["def"]',
        "[.. | numbers] | length > 1",
        "$__loc__.line == 1",
    ],
)
def test_names_and_strings_are_no_endless_programs(text: str) -> None:
    assert make_filter(text, "jq", KINDS).text == text


def test_deep_programs_are_left_to_jq() -> None:
    deep = make_filter("(" * 2000 + ".id" + ")" * 2000, "jq", KINDS)
    assert deep.is_slow
    assert deep.matches({"id": "a"})


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("!" * 3000 + "@.k", "nested too deeply"),
        ("@.k == " + "[" * 3000 + "]" * 3000, "nested too deeply"),
        ("@.k == " + "9" * 5000, "this number is too large"),
        ("@.k ~= '(a'", "no regular expression"),
    ],
)
def test_paths_that_cannot_be_read(condition: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message) as caught:
        make_filter(f"$.attributes[?({condition})]", "jsonpath", KINDS)
    assert len(str(caught.value)) < 500
