"""Variables stand for values with their types; what is undefined is reported with its position."""

import pytest
import yaml

from dolma_dask.errors import UsageError
from dolma_dask.io.yaml_files import Mistakes, natural, pairs
from dolma_dask.pipelines.pipeline_file import Variables, variables_of


def resolved(text, variables="{}", **given):
    """Return what a text stands for, as it stands in line 7 of a file; fail on mistakes."""
    mistakes = Mistakes("p.yaml")
    written = f"variables: {variables}" + "\n" * 6 + f"x: {text}\n"
    top = pairs(yaml.compose(written, Loader=yaml.SafeLoader))
    node = Variables(top["variables"][1], given, mistakes).resolve(top["x"][1])
    mistakes.check()
    return natural(node)


def test_within_a_text_and_in_each_other():
    assert resolved("${out}/v${n}", "{root: corpus, out: '${root}/wiki', n: 3}") == "corpus/wiki/v3"
    assert resolved("${out}${out}", "{out: a}") == "aa"


def test_alone_it_is_the_value_with_its_type():
    assert resolved("${n}", "{n: 3}") == 3
    assert resolved("'${n}'", "{n: 3}") == 3
    assert resolved("${n}", "{n: '3'}") == "3"
    assert resolved("${n}", "{n: [a, '${b}'], b: x}") == ["a", "x"]


def test_the_command_line_counts_more():
    assert resolved("${out}/v0", "{out: a, x: 1}", out="b") == "b/v0"
    assert resolved("${out}", "{out: }", out="b") == "b"
    assert resolved("${deep}", "{out: a, deep: '${out}/x'}", out="b") == "b/x"


def test_environment_and_what_stands_in(monkeypatch):
    monkeypatch.setenv("PLACE", "s3://bucket")
    monkeypatch.delenv("NOWHERE", raising=False)
    assert resolved("${env:PLACE}/v0") == "s3://bucket/v0"
    assert resolved("${env:PLACE:-here}/v0") == "s3://bucket/v0"
    assert resolved("${env:NOWHERE:-here}/v0") == "here/v0"
    assert resolved("${name:-a:-b}") == "a:-b"
    assert resolved("${name:-x}", "{name: }") == "x"
    assert resolved("${env:NOWHERE:-}") is None


def test_a_plain_dollar_brace():
    assert resolved("$${out} costs $5 {x}") == "${out} costs $5 {x}"


@pytest.mark.parametrize(
    ("text", "variables", "message"),
    [
        ("${otu}/v0", "{out: a}", "line 7, column 4: ${otu} is not defined; did you mean 'out'?"),
        ("${out}", "{}", "there are none; declare it under variables:"),
        ("${out}", "{out: }", "${out} has no value; give it one: --set out=VALUE"),
        ("${a}", "{a: '${b}', b: 'x${a}'}", "${a} is defined by itself: a -> b -> a"),
        ("${out", "{out: a}", "expected ${name}"),
        ("${}", "{}", "expected ${name}"),
        ("${a-b}", "{}", "expected ${name}"),
        ("${env:NOWHERE}", "{}", "the environment variable NOWHERE is not set"),
        ("x${list}", "{list: [a]}", "line 7, column 4: ${list} is a list or map, which cannot be put into a text"),
        ("a", "{a-b: a}", "line 1, column 13: 'a-b' is no name of a variable"),
        ("a", "{a: {}}", "line 1, column 16: variables.a is a map"),
    ],
)  # fmt: skip
def test_what_is_wrong(text, variables, message, monkeypatch):
    monkeypatch.delenv("NOWHERE", raising=False)
    with pytest.raises(UsageError) as caught:
        resolved(text, variables)
    assert message in str(caught.value)


def test_a_value_for_a_variable_that_the_file_lacks():
    with pytest.raises(UsageError, match="--set otu: the file has no such variable; did you mean 'out'"):
        resolved("a", "{out: a}", otu="b")


def test_values_from_the_command_line_and_from_python():
    assert variables_of(["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}
    expected = {"a": "1", "b": "true", "c": "", "d": "0.5"}
    assert variables_of({"a": 1, "b": True, "c": None, "d": 0.5}) == expected
    assert variables_of("a=1") == {"a": "1"}
    assert variables_of(()) == {}


@pytest.mark.parametrize("given", [["a"], ["=1"], ["a b=1"], ["a=1", "a=2"], {"a": [1]}, 5])
def test_no_values(given):
    with pytest.raises(UsageError, match="expected"):
        variables_of(given)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("'{0}{0}{0}{0}'", "more than 200,000 values"),
        ("['{0}', '{0}', '{0}', '{0}']", "more than 200,000 values"),
        ("'{0}" + "x" * 40_000 + "'", "a text of more than 1,000,000 characters"),
    ],
)
def test_references_that_grow_without_end(value, message):
    variables = [f"a{n + 1}: {value.format(f'${{a{n}}}')}" for n in range(30)]
    with pytest.raises(UsageError, match=message):
        resolved("${a30}", f"{{{', '.join(['a0: x', *variables])}}}")


@pytest.mark.slow
def test_references_that_lead_through_many_others():
    variables = ["a0: x"] + [f"a{n + 1}: '${{a{n}}}'" for n in range(3000)]
    with pytest.raises(UsageError, match="through more than 40 others"):
        resolved("${a3000}", f"{{{', '.join(variables)}}}")
