"""Rules give what a row-by-row interpreter of Python's own syntax tree gives."""

import ast
import json
import math
import pickle

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples

from dolma_dask.errors import ExpressionError
from dolma_dask.rules.rules import Missing, Not, Rule
from dolma_dask.rules.where import parse

TICKED = "`my-col 1`"
TYPES = {
    "n": pa.int64(),
    "u": pa.uint64(),
    "tiny": pa.int8(),
    "x": pa.float64(),
    "lang.en": pa.float32(),
    "my-col 1": pa.float64(),
    "s": pa.large_string(),
    "source.name": pa.string(),
    "flag": pa.bool_(),
    "nothing": pa.null(),
}
letters = st.text(st.characters(exclude_categories=["Cs"]), max_size=3) | st.sampled_from(
    ["", "a", "b", "ab", "é", "😀"]
)
few = st.sampled_from([0, 1, 2, 3, 100])
VALUES = {
    "n": st.integers(-(2**63), 2**63 - 1) | few | st.integers(2**53 - 2, 2**53 + 2),
    "u": st.integers(0, 2**64 - 1) | few | st.integers(2**63 - 1, 2**63 + 1),
    "tiny": st.integers(-128, 127) | few,
    "x": st.floats() | few.map(float),
    "lang.en": st.floats(width=32) | few.map(float),
    "my-col 1": st.sampled_from([0.0, -0.0, 1.0, math.nan, math.inf, 0.5]),
    "s": letters,
    "source.name": letters,
    "flag": st.booleans(),
    "nothing": st.none(),
}
rows = st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()})
tables = st.lists(rows, max_size=5)

# Expressions as text. Pieces are joined with and without parentheses, so that Python's precedence decides.
whole = st.integers(-5, 5) | st.integers(-(10**38) + 1, 10**38 - 1) | VALUES["n"] | VALUES["u"]
number_literals = (
    whole | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -0.0, 1.0, 1e3])
).map(repr)
string_literals = (letters | st.text("'\"\\`#\n\r\t ()", max_size=4).filter(lambda t: TICKED not in t)).map(
    repr
)
number_names = st.sampled_from(["n", "u", "tiny", "x", "lang.en", " lang . en", TICKED])
number_atoms = number_names | number_names | number_literals | st.sampled_from(["nothing", "(n)"])
strings = st.sampled_from(["s", "source.name"]) | string_literals


def joined(*parts):
    return st.tuples(*parts).map("".join)


def maybe_closed(text):
    return text | text.map("({})".format)


def arithmetic(inner):
    signs = st.sampled_from(["+", " - ", "*", " / ", "/"])
    return maybe_closed(joined(inner, signs, inner)) | joined(
        st.just("-"), inner.filter(lambda t: not t.startswith("-"))
    )


numbers = st.recursive(number_atoms, arithmetic, max_leaves=4)
signs = st.sampled_from(["==", " != ", "<", " <= ", ">", ">=", " == ", "\n<"])
kinds = st.sampled_from([" in ", " not in "])


def lists(literals):
    inner = st.lists(literals, max_size=4).map(lambda items: "".join(f"{item}, " for item in items))
    filled = inner.filter(bool)
    return (
        inner.map(lambda t: f"({t})" if t else "()") | inner.map("[{}]".format) | filled.map("{{{}}}".format)
    )


flags = st.sampled_from(
    ["flag", "flag == True", "False != flag", "flag in (True,)", "flag not in [False]", "True", "nothing"]
)
missing = joined(
    numbers | strings | st.sampled_from(["flag", "nothing"]), st.sampled_from([" is None", " is not None"])
)
comparisons = (
    joined(numbers, signs, numbers)
    | joined(numbers, signs, numbers, signs, numbers)
    | joined(strings, signs, strings)
    | joined(numbers, kinds, lists(number_literals))
    | joined(strings, kinds, lists(string_literals))
    | joined(numbers, signs, number_names, kinds, lists(number_literals))
    | flags
    | missing
)


def logic(inner):
    return maybe_closed(joined(inner, st.sampled_from([" and ", " or ", "\n  and # so\n"]), inner)) | joined(
        st.just("not "), inner
    )


expressions = st.recursive(comparisons, logic, max_leaves=5)


# The oracle


def truth(node, row):
    match node:
        case ast.BoolOp(op=ast.And()):
            return all(truth(part, row) for part in node.values)
        case ast.BoolOp():
            return any(truth(part, row) for part in node.values)
        case ast.UnaryOp(op=ast.Not()):
            return not truth(node.operand, row)
        case ast.Compare():
            operands = [node.left, *node.comparators]
            return all(
                holds(a, sign, b, row) for a, sign, b in zip(operands, node.ops, operands[1:], strict=False)
            )
        case ast.Constant():
            return node.value
    return value(node, row) is True


def holds(left, sign, right, row):
    a = value(left, row)
    if isinstance(sign, ast.Is | ast.IsNot):
        return (a is None) == isinstance(sign, ast.Is)
    if a is None:
        return False
    if isinstance(sign, ast.In | ast.NotIn):
        return any(compare(a, ast.Eq(), value(item, row)) for item in right.elts) == isinstance(sign, ast.In)
    b = value(right, row)
    return b is not None and compare(a, sign, b)


def compare(a, sign, b):
    match sign:
        case ast.Eq():
            return a == b
        case ast.NotEq():
            return a != b
        case ast.Lt():
            return a < b
        case ast.LtE():
            return a <= b
        case ast.Gt():
            return a > b
    return a >= b


def value(node, row):
    match node:
        case ast.Name():
            return None if row[node.id] != row[node.id] else row[node.id]
        case ast.Attribute():
            return value(ast.Name(f"{node.value.id}.{node.attr}"), row)
        case ast.Constant():
            return node.value
        case ast.UnaryOp(operand=ast.Constant()):
            return -node.operand.value
        case ast.UnaryOp():
            operand = value(node.operand, row)
            return (
                None
                if operand is None
                else -operand
                if isinstance(node.operand, ast.UnaryOp)
                else -float(operand)
            )
        case ast.BinOp():
            return calculate(value(node.left, row), node.op, value(node.right, row))
    raise AssertionError(ast.dump(node))


def calculate(a, sign, b):
    if a is None or b is None:
        return None
    a, b = float(a), float(b)
    match sign:
        case ast.Add():
            result = a + b
        case ast.Sub():
            result = a - b
        case ast.Mult():
            result = a * b
        case _:
            result = a / b if b else math.nan
    return None if math.isnan(result) else result


def oracle(expression, table):
    """Row by row; only line breaks and backticks are not Python."""
    lines = expression.replace(TICKED, "ticked").replace("# so", "").replace("\n", " ").strip()
    tree = ast.parse(lines, mode="eval").body
    return [truth(tree, {**row, "ticked": row["my-col 1"]}) for row in table]


def columns_of(table, offset=0):
    """Arrow columns that are slices, with the values that Arrow holds put back into the table."""
    columns = {}
    for name, type in TYPES.items():
        values = [row[name] for row in table]
        column = pa.array(values[:1] * offset + values, type).slice(offset if values else 0)
        columns[name] = column
        for row, held in zip(table, column.to_pylist(), strict=True):
            row[name] = held
    return columns


@given(expressions, tables, st.integers(0, 9))
@settings(max_examples=examples(150))
def test_masks_are_those_of_the_oracle(expression, table, offset):
    columns = columns_of(table, offset)
    mask = parse(expression).mask(columns)
    assert mask.type == pa.bool_()
    assert mask.null_count == 0
    assert mask.to_pylist() == oracle(expression, table)


@given(expressions)
@settings(max_examples=examples(80))
def test_rules_survive_spelling_and_pickling(expression):
    rule = parse(expression)
    again = parse(str(rule))
    assert again == rule
    assert str(again) == str(rule)
    assert hash(again) == hash(rule)
    assert json.dumps(again.canonical()) == json.dumps(rule.canonical())
    assert pickle.loads(pickle.dumps(rule)) == rule
    assert rule.names <= set(TYPES)


@given(expressions, expressions, tables)
def test_operators_of_rules_are_plain_logic(left, right, table):
    columns = columns_of(table)
    a, b = parse(left), parse(right)
    pairs = list(zip(a.mask(columns).to_pylist(), b.mask(columns).to_pylist(), strict=True))
    for rule, expected in (
        (a & b, [x and y for x, y in pairs]),
        (a | b, [x or y for x, y in pairs]),
        (~a, [not x for x, _ in pairs]),
    ):
        assert rule.mask(columns).to_pylist() == expected
        assert parse(str(rule)) == rule
    assert ~a == (Missing(a.operand, not a.negated) if isinstance(a, Missing) else Not(a))


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8))
def test_every_column_has_a_name_that_can_be_written(name):
    rule = parse("`" + name.replace("`", "``") + "` > 1")
    assert rule.names == {name}
    assert parse(str(rule)) == rule


tokens = st.sampled_from(
    [
        "a",
        "b.c",
        "`d",
        "e`",
        "1",
        "2.5",
        "'x'",
        '"y"',
        "True",
        "None",
        "and",
        "or",
        "not",
        "in",
        "is",
        "==",
        "=",
        "<",
        "(",
        ")",
        "[",
        "]",
        ",",
        "+",
        "-",
        "*",
        "/",
        "**",
        "%",
        "&",
        "|",
        "~",
        ":",
        ":=",
        ".",
        "``",
        "`",
        "#",
        "\n",
        "lambda",
        "f'{a}'",
        "if",
        "else",
        "\\",
        "\x00",
        "é",
        "1j",
        "b''",
        "'",
        '"',
    ]
)
noise = st.lists(tokens | st.characters(), max_size=10).map(" ".join) | st.text(max_size=20)


@given(noise)
@settings(max_examples=examples(120))
def test_any_text_is_a_rule_or_an_expression_error(text):
    columns = {"a": pa.array([1, None]), "b.c": pa.array(["x", None]), "d e": pa.array([True, None])}
    try:
        rule = parse(text)
        mask = rule.mask(columns)
    except ExpressionError:
        return
    assert isinstance(rule, Rule)
    assert mask.null_count == 0
    assert parse(str(rule)) == rule
