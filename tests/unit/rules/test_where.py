"""`where` expressions: what they mean at the edges, how names are found, and what errors say."""

import json
import pickle
import re

import pyarrow as pa
import pytest

from dolma_dask.errors import ExpressionError, SchemaError, UsageError
from dolma_dask.options.kept import rule_of
from dolma_dask.rules.rules import (
    And,
    Compare,
    Constant,
    Flag,
    Membership,
    Missing,
    Not,
    Or,
    all_of,
    any_of,
    duplicates,
    listed,
)
from dolma_dask.rules.values import Arithmetic, Literal, Name, Negative
from dolma_dask.rules.where import parse, resolve

COLUMNS = {
    "a": pa.array([1, None, 3]),
    "x": pa.array([0.0, float("nan"), 2.5]),
    "s": pa.array(["x", None, "y"]),
    "f": pa.array([True, None, False]),
    "none": pa.nulls(3),
    "lang.en": pa.array([0.9, 0.1, None], pa.float32()),
    "spans": pa.array([[1], None, []]),
}


def mask(expression, **columns):
    return parse(expression).mask(columns or COLUMNS).to_pylist()


def error(expression, columns=None):
    with pytest.raises(ExpressionError) as caught:
        parse(expression).mask(COLUMNS if columns is None else columns)
    return str(caught.value)


@pytest.mark.parametrize(
    "expression, expected",
    [
        ("a != 1", [False, False, True]),
        ("not a == 1", [False, True, True]),
        ("a not in (1, 2)", [False, False, True]),
        ("not a in (1, 2)", [False, True, True]),
        ("a in ()", [False, False, False]),
        ("a not in ()", [True, False, True]),
        ("f", [True, False, False]),
        ("not f", [False, True, True]),
        ("f == False", [False, False, True]),
        ("x is None", [False, True, False]),
        ("x != 2.5", [True, False, False]),
        ("a / x > 1", [False, False, True]),
        ("a / x is None", [True, True, False]),
        ("a / 0 is not None", [False, False, False]),
        ("spans is None", [False, True, False]),
        ("none == 1 or none != 'a' or none", [False, False, False]),
        ("none + 1 is None", [True, True, True]),
        ("1 <= a < 3", [True, False, False]),
        ("lang.en > 0.5", [True, False, False]),
        ("s < 'y' and a + 1 == 2", [True, False, False]),
        ("2 < 1", [False, False, False]),
        ("True", [True, True, True]),
        ("x in (0,)", [True, False, False]),
        ("x in (-0.0,)", [True, False, False]),
    ],
)
def test_missing_values_and_zero(expression, expected):
    assert mask(expression) == expected


def test_integers_are_compared_exactly():
    big = pa.array([2**53, 2**53 + 1])
    assert mask(f"n == {2**53 + 1}", n=big) == [False, True]
    assert mask(f"n in ({2**53 + 1}, {2**70})", n=big) == [False, True]
    assert mask("n == m", n=big, m=pa.array([2**53 + 1] * 2, pa.uint64())) == [False, True]
    assert mask(f"n < {10**30} and n > -1", n=pa.array([2**64 - 1, 0], pa.uint64())) == [True, True]
    assert mask("n == 1.0", n=pa.array([1, 2], pa.int8())) == [True, False]


def test_other_arrow_types():
    assert mask("s == 'a'", s=pa.array(["a", "b", None]).dictionary_encode()) == [True, False, False]
    assert mask("s == 'a'", s=pa.array(["a", "b"], pa.large_string())) == [True, False]
    assert mask("s in ('b',)", s=pa.chunked_array([["a"], ["b"]])) == [False, True]
    assert mask("d > 1", d=pa.array([1, 2], pa.decimal128(5, 2))) == [False, True]


@pytest.mark.parametrize(
    "expression, rule",
    [
        ("a.b > 1", Compare(">", Name("a.b"), Literal(1))),
        ("a . b", Flag(Name("a.b"))),
        (
            "`a.b` and `my col` or `tick``ed`",
            Or((And((Flag(Name("a.b")), Flag(Name("my col")))), Flag(Name("tick`ed")))),
        ),
        ("lang.`zh-cn` is not None", Missing(Name("lang.zh-cn"), True)),
        ("`'` == '`' # not `x`", Compare("==", Name("'"), Literal("`"))),
        ("a in [1]", Membership(Name("a"), (Literal(1),))),
        ("a not in {'x', 'y'}", Membership(Name("a"), (Literal("x"), Literal("y")), True)),
        ("- a < -1", Compare("<", Negative(Name("a")), Literal(-1))),
        (
            "a - (b - c) == 1",
            Compare("==", Arithmetic("-", Name("a"), Arithmetic("-", Name("b"), Name("c"))), Literal(1)),
        ),
        ("not not f", Not(Not(Flag(Name("f"))))),
        ("(a and b) and c", all_of(*(Flag(Name(n)) for n in "abc"))),
        ("\n  a  # first\n  or\n  b\n", any_of(Flag(Name("a")), Flag(Name("b")))),
        ("False", Constant(False)),
        ("s == '''a\nb''' and `c d`", And((Compare("==", Name("s"), Literal("a\nb")), Flag(Name("c d"))))),
        ("ﬁ > 0", Compare(">", Name("ﬁ"), Literal(0))),
        (r"s == '\''", Compare("==", Name("s"), Literal("'"))),
    ],
)
def test_what_expressions_are_read_as(expression, rule):
    assert parse(expression) == rule
    assert parse(str(rule)) == rule


def test_literals_of_different_kinds_differ():
    assert parse("a == 1") != parse("a == True")
    assert parse("a == 1") == parse("a == 1.0")
    assert json.dumps(parse("a == 1").canonical()) == json.dumps(parse("a == 1.0").canonical())
    assert parse("a == 1").canonical() == ["compare", "==", ["name", "a"], ["literal", 1]]


def test_names_of_python_words_are_spelled_in_backticks():
    rule = parse("`lang.is` > 1 and `and` and `2x`")
    assert str(rule) == "`lang.is` > 1 and `and` and `2x`"
    assert rule.names == {"lang.is", "and", "2x"}


@pytest.mark.parametrize("name", ["exact", "take-down.2024", "9lives", "not", "ünïcode"])
def test_rules_over_flags_are_like_their_spelling(name):
    assert parse(str(listed(name))) == listed(name) == parse(f"`{name}` is not None")
    assert (~duplicates(name)).mask({name: pa.array([None, 1.0])}).to_pylist() == [True, False]


def test_flags_that_no_set_can_have():
    with pytest.raises(UsageError, match="folder name"):
        duplicates("a/b")


@pytest.mark.parametrize("values", [[1, None, 1], ["en", None, "de"], [1.5, None, 0.5]])
@pytest.mark.parametrize("rule", ["a", "not a", "not not a", "b and not a"])
def test_each_rule_that_is_proposed_for_a_flag_keeps_what_was_meant(rule, values):
    column = {"a": pa.array(values), "b": pa.array([True] * 3)}
    has_one = [value is not None for value in values]
    with pytest.raises(ExpressionError, match="no rule by itself") as caught:
        parse(rule).mask(column)
    written, *proposed = re.findall("`([^`]+)`", str(caught.value).partition("in place of ")[2])
    meant = [not one for one in has_one] if written == "not a" else has_one
    for each in (one for one in proposed if "..." not in one):
        assert parse(each).mask(column).to_pylist() == meant, each
    assert proposed[0] == ("a is None" if written == "not a" else "a is not None")
    assert len(proposed) == 1 or written == "a"


def test_rules_have_no_truth_value():
    with pytest.raises(ExpressionError, match="no truth value"):
        bool(parse("a > 1"))
    with pytest.raises(TypeError):
        parse("a > 1") & 1


def test_rules_join_with_text():
    rule, text = parse("a > 1"), "b > 1 or c"
    assert rule & text == rule & parse(text)
    assert text & rule == parse(text) & rule
    assert rule | text == rule | parse(text)
    assert text | rule == parse(text) | rule
    with pytest.raises(ExpressionError, match="cannot read"):
        rule & "b >"


@pytest.mark.slow
def test_many_rules_and_long_lists_are_fine():
    many = all_of(*(parse(f"a != {k}") for k in range(2000)))
    assert parse(str(many)) == many
    assert many.mask({"a": pa.array([1999, 2000])}).to_pylist() == [False, True]
    rule = parse("s in (" + "".join(f"'{k}'," for k in range(20000)) + ")")
    assert rule.mask({"s": pa.array(["19999", "20000"])}).to_pylist() == [True, False]
    assert pickle.loads(pickle.dumps(rule)) == rule


MARKED = {
    "len(text) > 5": ("functions cannot be called", "len(text)"),
    "a = 1": ("comparing is written ==", "="),
    "a => 1": ("comparing is written >= or <=", "="),
    "é == 1 and g(2)": ("functions cannot be called", "g(2)"),
    "\n a > 1 and # yes\n g(2)": ("functions cannot be called", "g(2)"),
    "   g(2)": ("functions cannot be called", "g(2)"),
    "s == '''\n''' and g(2)": ("functions cannot be called", "g(2)"),
    "a.b().c > 1": ("only column names may have a dot", "a.b()"),
    "(a).b > 1": ("without parentheses", "(a).b"),
    "'x'.y == 'z'": ("only column names may have a dot", "'x'"),
    "a[0] > 1": ("cannot be indexed", "a[0]"),
    "(lambda: 1) == 1": ("functions cannot be defined", "lambda: 1"),
    "f'{a}' == 's'": ("f-strings are not allowed", None),
    "(y := 3) > 1": ("names cannot be assigned", "y := 3"),
    "a > 1 if f else f": ("if ... else", "a > 1 if f else f"),
    "a & f": ("write and, or, not instead of & | ~", "a & f"),
    "~f": ("write and, or, not instead of & | ~", "~f"),
    "5": ("a value, not a rule", "5"),
    "a + 1": ("a value, not a rule", "a + 1"),
    "f and 'x'": ("a value, not a rule", "'x'"),
    "a > None": ("write x is None", "None"),
    "a is 1": ("stands only None", "1"),
    "a in s": ("stands a list", "s"),
    "a in (1)": ("stands a list", "1"),
    "a in (1, s)": ("holds only numbers", "s"),
    "a in (1, 'x')": ("a number and a string", "'x'"),
    "a == (1, 2)": ("a list stands only to the right of in", "(1, 2)"),
    "a ** 2 > 1": ("combined only by", "a ** 2"),
    "+a > 1": ("combined only by", "+a"),
    "a + 'x' == 'yx'": ("cannot calculate with a string", "'x'"),
    "-True == 1": ("cannot calculate with a bool", "True"),
    "(a > 1) == f": ("this is a rule", "a > 1"),
    "a == 1j": ("a complex is not allowed", "1j"),
    "a == b'x'": ("a bytes is not allowed", "b'x'"),
    "a == 1e999": ("too large", "1e999"),
    f"a == 1{'0' * 38}": ("too large", f"1{'0' * 38}"),
    r"s == '\ud800'": ("surrogate", r"'\ud800'"),
    "a > `b": ("never closed", "`"),
    "a > ``": ("no name between", "``"),
    "a`b` > 1": ("a whole name", "`b`"),
    "lang.is > 1": ("needs backticks", "i"),
}


@pytest.mark.parametrize("expression", MARKED)
def test_errors_mark_the_place(expression):
    expected, marked = MARKED[expression]
    message, line, carets, allowed = error(expression).split("\n")
    assert expected in message
    assert allowed.startswith("allowed: ")
    if marked is not None:
        found = line[carets.index("^") : len(carets)]
        assert found == marked


def test_errors_at_the_end_and_in_the_dark():
    assert "a >\n     ^" in error("a >")
    assert "empty" in error("  \n ")
    assert "nested" in error("not " * 150 + "f")
    assert error("(" * 5000 + "f" + ")" * 5000)
    assert "null byte" in error("a\x00")


def test_long_expressions_are_shown_in_part():
    line, carets = error("a > 1 and " * 50 + "g(2)").split("\n")[1:3]
    assert line.startswith("  ...")
    assert len(line) < 120
    assert line[carets.index("^") :] == "g(2)"


@pytest.mark.parametrize(
    "expression, expected",
    [
        ("s > 1", "cannot compare column s, a string, with 1, a number"),
        ("a == 'x'", "cannot compare column a, a number, with 'x', a string"),
        ("a in ('x',)", "cannot compare column a, a number, with 'x', a string"),
        ("f == 1", "cannot compare column f, a bool, with 1, a number"),
        ("f < True", "bools have no order"),
        ("s + 1 == 2", "cannot calculate with column s, a string"),
        ("-f == 2", "cannot calculate with column f, a bool"),
        ("spans == 1", "column spans, a list<"),
        ("a", "column a is a number and no rule by itself; in place of `a` write `a is not None`"),
        ("s", "such as `s == '...'`"),
        ("spans", "write `spans is not None`"),
        ("lang.n > 1", "no column is named lang.n; near it are: lang.en"),
        ("zzz > 1", "there are: a, f, lang.en, none, s, spans, x"),
    ],
)
def test_types_and_columns_that_do_not_fit(expression, expected):
    assert expected in error(expression)
    empty = {name: column[:0] for name, column in COLUMNS.items()}
    assert expected in error(expression, empty), "an empty table is enough to find out"


def test_columns_must_be_of_equal_length():
    with pytest.raises(SchemaError, match=r"\[1, 2\] rows"):
        parse("a > b").mask({"a": pa.array([1]), "b": pa.array([1, 2])})
    with pytest.raises(SchemaError, match="at least one column"):
        parse("True").mask({})


KNOWN = [
    "gopher_v2__gopher_v2__word_count",
    "c4__c4__line_count",
    "x__y__line_count",
    "id",
    "exp__lang__lang.en",
]


def test_unknown_names_come_with_near_ones():
    with pytest.raises(ExpressionError) as caught:
        resolve(parse("id == 'word_cuont' and word_cuont > 3"), KNOWN)
    assert str(caught.value).split("\n") == [
        "no column is named word_cuont; near it are: gopher_v2__gopher_v2__word_count; if it is a field of the metadata, write metadata.word_cuont",
        "  id == 'word_cuont' and word_cuont > 3",
        "                         ^^^^^^^^^^",
    ]


def test_short_names_are_written_in_full():
    rule = resolve(parse("word_count / 2 > 3 and not (lang.en in (1, 2) or id == 'a')"), KNOWN)
    assert str(rule) == (
        "gopher_v2__gopher_v2__word_count / 2 > 3 and not (exp__lang__lang.en in (1, 2) or id == 'a')"
    )
    assert resolve(parse("gopher_v2__word_count > 1"), KNOWN) == parse("gopher_v2__gopher_v2__word_count > 1")
    assert resolve(rule, KNOWN) == rule
    assert resolve(parse("word_count"), [*KNOWN, "word_count"]) == parse("word_count"), (
        "a column goes before a short name"
    )


def test_short_names_that_do_not_help():
    with pytest.raises(
        ExpressionError, match="short for several columns: c4__c4__line_count, x__y__line_count"
    ):
        resolve(parse("line_count > 1"), KNOWN)
    with pytest.raises(ExpressionError, match="no column is named count"):
        resolve(parse("count > 1"), KNOWN)


@pytest.mark.slow
def test_a_list_of_ids_belongs_into_a_file() -> None:
    few = ", ".join("1" for _ in range(200_000))
    for text in (f"x in ({few})", f"x in ({', '.join(map(str, range(200_000)))})"):
        with pytest.raises(ExpressionError, match="--block FILE") as caught:
            parse(text)
        assert len(str(caught.value)) < 500


def test_rules_of_too_many_levels_are_refused() -> None:
    rule = parse("x > 1")
    for _ in range(3000):
        rule = ~(rule & parse("y")) | parse("z")
    with pytest.raises(ExpressionError, match="nested more than 100 levels"):
        rule_of(rule)
    assert rule_of(~parse("x > 1")) == ~parse("x > 1")


def test_a_long_rule_is_shown_by_condition() -> None:
    text = "word_count >= 50 and (symbol_to_word_ratio < 0.1 or source == 'wiki' or mean_word_length > 3) and not exact is not None"
    assert repr(parse(text)).splitlines() == [
        "    word_count >= 50",
        "and (symbol_to_word_ratio < 0.1 or source == 'wiki' or mean_word_length > 3)",
        "and not exact is not None",
    ]
    nested = parse(f"a > 1 and (b > 1 or {text} or c in ('a long name', 'another long name', 'yet another'))")
    assert repr(nested).splitlines()[1:4] == [
        "and (   b > 1",
        "     or (    word_count >= 50",
        "         and (symbol_to_word_ratio < 0.1 or source == 'wiki' or mean_word_length > 3)",
    ]
    assert parse(repr(nested)) == nested
    assert repr(parse("a > 1 and b > 1")) == "a > 1 and b > 1"


def test_a_rule_in_a_notebook_is_escaped() -> None:
    assert "text != &#x27;&lt;script&gt;&#x27;" in parse("a > 1 and text != '<script>'")._repr_html_()
