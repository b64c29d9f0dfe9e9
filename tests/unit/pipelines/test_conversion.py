"""Options get values of their type; nothing is guessed, and advice says how to write what was meant."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import pytest
import yaml

from dolma_dask.errors import UsageError
from dolma_dask.io.yaml_files import FAILED, Mistakes, convert


def written(text):
    """A value in a file: in its second line, at the fifth column."""
    return yaml.compose(f"\nx:  {text}\n", Loader=yaml.SafeLoader).value[0][1]


@pytest.mark.parametrize(
    ("text", "hint", "value"),
    [
        ("no", str, "no"),
        ("1.10", str, "1.10"),
        ("2019", str | None, "2019"),
        ("'true'", str, "true"),
        ("''", str, ""),
        ("'null'", str | None, "null"),
        ("~", str | None, None),
        ("", Sequence[str] | None, None),
        ("-3", int, -3),
        ("1_000_000", int, 1_000_000),
        ("7", int | None, 7),
        ("0.25", float, 0.25),
        ("1e-3", float, 0.001),
        ("3", float, 3.0),
        ("true", bool, True),
        ("False", bool, False),
        ("false", bool | None, False),
        ("jsonl", Literal["jsonl", "parquet"], "jsonl"),
        ("jsonl", Literal["jsonl", "parquet"] | None, "jsonl"),
        ("[a, no]", Sequence[str], ["a", "no"]),
        ("[]", Sequence[str], []),
        ("a", Sequence[str], ["a"]),
        ("[0.1, 1]", Sequence[float] | None, [0.1, 1.0]),
        ("5", int | str, 5),
        ("five", int | str, "five"),
    ],
)
def test_values(text, hint, value):
    mistakes = Mistakes("p.yaml")
    found = convert(written(text), hint, "verb.option", mistakes)
    mistakes.check()
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "hint", "message"),
    [
        ("yes", bool, "yes; expected true or false (write true)"),
        ("off", bool | None, "off; expected true or false (write false)"),
        ("'true'", bool, "'true' in quotes; expected true or false"),
        ("1", bool, "1; expected true or false"),
        ("true", str, 'true; expected a text (in quotes if it is one: "true")'),
        ("~", str, "nothing; expected a text"),
        ("", int, "nothing; expected a whole number"),
        ("1e9", int, "1e9; expected a whole number (write 1000000000)"),
        ("1.5", int, "1.5; expected a whole number."),
        ("010", int, "010; expected a whole number (write 10)"),
        ("0x10", int, "expected a whole number"),
        ("1:30", int, "expected a whole number"),
        ("'5'", int, "'5' in quotes; expected a whole number"),
        (".inf", float, "expected a number"),
        ("1e999", float, "expected a number"),
        ("nan", float, "expected a number"),
        ("quarntine", Literal["fail", "quarantine"], "'quarntine'; did you mean 'quarantine'?"),
        ("x", Literal["fail", "quarantine"], "'x'; expected one of fail, quarantine."),
        ("[a]", str, "a list; expected a text"),
        ("{}", Sequence[str], "a map; expected a text"),
        ("[0.1, x]", Sequence[float], "x; expected a number"),
        ("[[a]]", Sequence[str], "a list; expected a text"),
    ],
)
def test_what_is_refused_and_why(text, hint, message):
    mistakes = Mistakes("p.yaml")
    column = {"": 3, "[0.1, x]": 11, "[[a]]": 6}.get(text, 5)
    assert convert(written(text), hint, "verb.option", mistakes) is FAILED
    with pytest.raises(UsageError) as caught:
        mistakes.check()
    assert str(caught.value).startswith(f"p.yaml, line 2, column {column}: verb.option")
    assert message in str(caught.value)


def test_maps_where_an_option_takes_them():
    rule, many = (
        "{span: $.a, min_score: 0.5, n: 3, on: true, off: no, none: ~}",
        Sequence[str | dict[str, Any]],
    )
    found = {"span": "$.a", "min_score": 0.5, "n": 3, "on": True, "off": "no", "none": None}
    mistakes = Mistakes("p.yaml")
    assert convert(written(f"[{rule}]"), many, "x", mistakes) == [found]
    assert convert(written(rule), many, "x", mistakes) == [found], "one is a list of one"
    assert convert(written(rule), str | None | dict[str, Any], "x", mistakes) == found
    assert convert(written("[a, 5]"), many, "x", mistakes) == ["a", "5"]
    mistakes.check()
    assert convert(written(f"[{rule}]"), Sequence[str], "x", mistakes) is FAILED


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    path: str
    size: int | None = None


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    inner: list[Inner] = []
    truth: bool = True


def test_maps_with_known_keys_and_all_that_is_wrong_in_them():
    lines = (
        "name: [a]",
        "inner:",
        "  - {path: 5, size: ~}",
        "  - {path: a, size: big, sise: 1}",
        "  - {size: 1}",
    )
    mistakes = Mistakes("c.yaml")
    node = yaml.compose("\n".join(lines), Loader=yaml.SafeLoader)
    assert convert(node, Outer, "", mistakes) is FAILED
    with pytest.raises(UsageError) as caught:
        mistakes.check()
    assert str(caught.value).splitlines()[1:] == [
        "  line 1, column 7: name: a list; expected a text.",
        "  line 4, column 21: inner[1].size: big; expected a whole number.",
        "  line 4, column 26: inner[1].sise: there is no such key; did you mean 'size'?",
        "  line 5, column 5: inner[2] needs `path`, which is missing.",
    ]


def test_other_tools_write_truth_and_numbers_freely():
    mistakes = Mistakes("c.yaml")
    node = yaml.compose("name: 5\ntruth: no\ninner: [{path: a, size: '7'}]\n", Loader=yaml.SafeLoader)
    assert convert(node, Outer, "", mistakes, lax=True) == Outer("5", [Inner("a", 7)], False)
    mistakes.check()
