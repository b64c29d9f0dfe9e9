"""Options get values of their type; nothing is guessed, and advice says how to write what was meant."""

from collections.abc import Sequence
from typing import Literal

import pytest

from dolma_dask.config.conversion import FAILED, convert_value
from dolma_dask.config.yaml_nodes import Items, Mistakes, Pairs, Place, Scalar
from dolma_dask.errors import UsageError

HERE = Place(2, 5)


def plain(text):
    return Scalar(text, True, HERE)


def quoted(text):
    return Scalar(text, False, HERE)


def items(*texts):
    return Items(tuple(map(plain, texts)), HERE)


@pytest.mark.parametrize(
    ("node", "hint", "value"),
    [
        (plain("no"), str, "no"),
        (plain("1.10"), str, "1.10"),
        (plain("2019"), str | None, "2019"),
        (quoted("true"), str, "true"),
        (quoted(""), str, ""),
        (quoted("null"), str | None, "null"),
        (plain("~"), str | None, None),
        (plain(""), Sequence[str] | None, None),
        (plain("-3"), int, -3),
        (plain("1_000_000"), int, 1_000_000),
        (plain("7"), int | None, 7),
        (plain("0.25"), float, 0.25),
        (plain("1e-3"), float, 0.001),
        (plain("3"), float, 3.0),
        (plain("true"), bool, True),
        (plain("False"), bool, False),
        (plain("false"), bool | None, False),
        (plain("jsonl"), Literal["jsonl", "parquet"], "jsonl"),
        (plain("jsonl"), Literal["jsonl", "parquet"] | None, "jsonl"),
        (items("a", "no"), Sequence[str], ["a", "no"]),
        (items(), Sequence[str], []),
        (plain("a"), Sequence[str], ["a"]),
        (items("0.1", "1"), Sequence[float] | None, [0.1, 1.0]),
        (plain("5"), int | str, 5),
        (plain("five"), int | str, "five"),
    ],
)
def test_values(node, hint, value):
    mistakes = Mistakes("p.yaml")
    found = convert_value(node, hint, "verb.option", mistakes)
    mistakes.check()
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("node", "hint", "message"),
    [
        (plain("yes"), bool, "yes; expected true or false (write true)"),
        (plain("off"), bool | None, "off; expected true or false (write false)"),
        (quoted("true"), bool, "'true' in quotes; expected true or false"),
        (plain("1"), bool, "1; expected true or false"),
        (plain("true"), str, 'true; expected a text (in quotes if it is one: "true")'),
        (plain("~"), str, "nothing; expected a text"),
        (plain(""), int, "nothing; expected a whole number"),
        (plain("1e9"), int, "1e9; expected a whole number (write 1000000000)"),
        (plain("1.5"), int, "1.5; expected a whole number."),
        (plain("010"), int, "010; expected a whole number (write 10)"),
        (plain("0x10"), int, "expected a whole number"),
        (plain("1:30"), int, "expected a whole number"),
        (quoted("5"), int, "'5' in quotes; expected a whole number"),
        (plain(".inf"), float, "expected a number"),
        (plain("1e999"), float, "expected a number"),
        (plain("nan"), float, "expected a number"),
        (plain("quarntine"), Literal["fail", "quarantine"], "'quarntine'; did you mean 'quarantine'?"),
        (plain("x"), Literal["fail", "quarantine"], "'x'; expected one of fail, quarantine."),
        (items("a"), str, "a list; expected a text"),
        (Pairs({}, {}, HERE), Sequence[str], "a map; expected a text"),
        (items("0.1", "x"), Sequence[float], "x; expected a number"),
        (Items((items("a"),), HERE), Sequence[str], "a list; expected a text"),
    ],
)
def test_what_is_refused_and_why(node, hint, message):
    mistakes = Mistakes("p.yaml")
    assert convert_value(node, hint, "verb.option", mistakes) is FAILED
    with pytest.raises(UsageError) as caught:
        mistakes.check()
    assert str(caught.value).startswith("p.yaml, line 2, column 5: verb.option: ")
    assert message in str(caught.value)


def test_maps_where_an_option_takes_them():
    rule = Pairs(
        {
            "span": plain("$.a"),
            "min_score": plain("0.5"),
            "n": plain("3"),
            "on": plain("true"),
            "off": plain("no"),
            "none": plain("~"),
        },
        {},
        HERE,
    )
    mistakes = Mistakes("p.yaml")
    found = {"span": "$.a", "min_score": 0.5, "n": 3, "on": True, "off": "no", "none": None}
    assert convert_value(Items((rule,), HERE), Sequence[str], "x", mistakes, maps=True) == [found]
    assert convert_value(rule, Sequence[str], "x", mistakes, maps=True) == [found], "one is a list of one"
    assert convert_value(rule, str | None, "x", mistakes, maps=True) == found
    assert convert_value(items("a"), Sequence[str], "x", mistakes, maps=True) == ["a"]
    mistakes.check()
    assert convert_value(Items((rule,), HERE), Sequence[str], "x", mistakes) is FAILED
