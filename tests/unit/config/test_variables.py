"""Variables stand for values with their types; what is undefined is told with its place."""

import pytest

from dolma_dask.config.variables import settings, variables_of
from dolma_dask.config.yaml_nodes import Items, Mistakes, Pairs, Place, Scalar
from dolma_dask.errors import UsageError

HERE = Place(7, 3)


def block(**values):
    """A block of variables."""
    nodes = {name: Scalar(value) if isinstance(value, str) else value for name, value in values.items()}
    return Pairs(nodes, dict.fromkeys(nodes, Place(1, 1)))


def resolved(text, declared=None, given=None, plain=True):
    """Return what a text stands for; fail on mistakes."""
    mistakes = Mistakes("p.yaml")
    variables = variables_of(block(**(declared or {})), given or {}, mistakes)
    node = variables.resolve(Scalar(text, plain, HERE))
    mistakes.check()
    return node


def told(text, declared=None, given=None):
    with pytest.raises(UsageError) as caught:
        resolved(text, declared, given)
    return str(caught.value)


def test_within_a_text_and_in_each_other():
    names = {"root": "corpus", "out": "${root}/wiki", "n": "3"}
    assert resolved("${out}/v${n}", names).text == "corpus/wiki/v3"
    assert resolved("${out}${out}", {"out": "a"}).text == "aa"


def test_alone_it_is_the_value_with_its_type_at_the_place_of_use():
    assert resolved("${n}", {"n": "3"}) == Scalar("3", True, HERE)
    assert resolved("${n}", {"n": "3"}, plain=False) == Scalar("3", True, HERE)
    assert resolved("${n}", {"n": Scalar("3", False)}) == Scalar("3", False, HERE)
    names = Items((Scalar("a"), Scalar("${b}")))
    assert resolved("${n}", {"n": names, "b": "x"}) == Items((Scalar("a"), Scalar("x")), HERE)


def test_the_command_line_counts_more():
    assert resolved("${out}/v0", {"out": "a", "x": "1"}, {"out": "b"}).text == "b/v0"
    assert resolved("${out}", {"out": ""}, {"out": "b"}).text == "b"
    assert resolved("${deep}", {"out": "a", "deep": "${out}/x"}, {"out": "b"}).text == "b/x"


def test_environment_and_what_stands_in(monkeypatch):
    monkeypatch.setenv("PLACE", "s3://bucket")
    monkeypatch.delenv("NOWHERE", raising=False)
    assert resolved("${env:PLACE}/v0").text == "s3://bucket/v0"
    assert resolved("${env:PLACE:-here}/v0").text == "s3://bucket/v0"
    assert resolved("${env:NOWHERE:-here}/v0").text == "here/v0"
    assert resolved("${name:-a:-b}").text == "a:-b"
    assert resolved("${name:-x}", {"name": ""}).text == "x"
    assert resolved("${env:NOWHERE:-}").is_nothing


def test_a_plain_dollar_brace():
    assert resolved("$${out} costs $5 {x}", {}).text == "${out} costs $5 {x}"


@pytest.mark.parametrize(
    ("text", "declared", "given", "message"),
    [
        ("${otu}/v0", {"out": "a"}, {}, "line 7, column 3: ${otu} is not defined; did you mean 'out'?"),
        ("${out}", {}, {}, "there are none; declare it under variables:"),
        ("${out}", {"out": ""}, {}, "${out} has no value; give it one: --set out=VALUE"),
        ("${a}", {"a": "${b}", "b": "x${a}"}, {}, "${a} is defined by itself: a -> b -> a"),
        ("${out", {"out": "a"}, {}, "expected ${name}"),
        ("${}", {}, {}, "expected ${name}"),
        ("${a-b}", {}, {}, "expected ${name}"),
        ("${env:NOWHERE}", {}, {}, "the environment variable NOWHERE is not set"),
        ("x${list}", {"list": Items((Scalar("a"),))}, {}, "is a list, which cannot be put into a text"),
        ("a", {"out": "a"}, {"otu": "b"}, "--set otu: the file has no such variable; did you mean 'out'?"),
        ("a", {"a-b": "a"}, {}, "'a-b' is no name of a variable"),
        ("a", {"a": Pairs({}, {})}, {}, "variables.a is a map"),
    ],
)
def test_what_is_wrong(text, declared, given, message, monkeypatch):
    monkeypatch.delenv("NOWHERE", raising=False)
    assert message in told(text, declared, given)


def test_settings_of_the_command_line_and_of_python():
    assert settings(["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}
    assert settings({"a": 1, "b": True, "c": None, "d": 0.5}) == {"a": "1", "b": "true", "c": "", "d": "0.5"}
    assert settings("a=1") == {"a": "1"}
    assert settings(()) == {}


@pytest.mark.parametrize("asked", [["a"], ["=1"], ["a b=1"], ["a=1", "a=2"], {"a": [1]}, 5])
def test_no_settings(asked):
    with pytest.raises(UsageError, match="expected"):
        settings(asked)
