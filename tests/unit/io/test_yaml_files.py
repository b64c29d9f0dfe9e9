"""YAML is read as it was written, and what is wrong with it is told with line and column."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.errors import UsageError
from dolma_dask.io.yaml_files import Mistakes, convert, natural, read_yaml


def read(folder, text):
    """Read a file with this text; return its tree and what is wrong."""
    path = folder / "p.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    mistakes = Mistakes("p.yaml")
    return read_yaml(str(path), mistakes), mistakes


def told(folder, text):
    """Return the message about a file that is wrong."""
    with pytest.raises(UsageError) as caught:
        read(folder, text)[1].check()
    return str(caught.value).removeprefix(str(folder)).removeprefix("/")


LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 10)}]\n" for n in range(20))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3, column 1: 'a' stands twice; first in line 1. Remove one of them."),
        ("a:\n\tb: 1\n", "line 2, column 1: a tab before the text"),
        ("a:\n  b: 1\n \tc: 2\n", "line 3"),
        ("a: {b: ${x}/v0}\n", "line 1, column 9: inside of [ ] or { } a variable needs quotes"),
        ("a: [${x}]\n", "inside of [ ] or { } a variable needs quotes"),
        ("a: b: c\n", "line 1, column 5: a colon where none can be"),
        ("a: [1\n", "Look at the indentation, quotes and brackets here"),
        ("a: 1\n---\nb: 2\n", "line 2, column 1: a second document begins here"),
        ("", "the file is empty"),
        ("# only a comment\n", "the file is empty"),
        ("a: !!python/object:os.system x\n", "the tag 'tag:yaml.org,2002:python/object:os.system'"),
        ("a: !mine x\n", "the tag '!mine'"),
        ("a: &x [*x]\n", "a list or map that contains itself"),
        ("a: *x\n", "undefined alias"),
        ("a: &x {<<: *x}\n", "a list or map that contains itself"),
        ("a: &x {b: {<<: *x}}\n", "a list or map that contains itself"),
        ("b: 1\na:\n  <<: b\n", "line 3, column 7: << merges maps; expected one, such as *name"),
        ("? [a]\n: 1\n", "a list or map as a key"),
        ('a: "x\\ude00\\ud83d"\n', r"line 1, column 4: 'x\ude00\ud83d': half of a character"),
        (b"a: \xff\n", "byte 3 is not UTF-8"),
        ("a: \x00\n", "special characters are not allowed"),
        ("a: " + "[" * 3000 + "]" * 3000, "in more than 40 levels"),
        ("a: " + "[" * 60 + "]" * 60, "in more than 40 levels"),
        (LAUGHS, "more than 200,000 values"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path, text, message):
    assert message in told(tmp_path, text)


def test_merged_maps_lie_behind_what_a_map_says_itself(tmp_path):
    text = "a: &a {k: 1, l: 1}\nb: &b {<<: *a, l: 2, m: 2}\nc: {m: 3, <<: [*a, *b], n: 3}\nd: {<<: *b, '<<': 4}\n"
    merged = natural(read(tmp_path, text)[0])
    assert merged["b"] == {"k": 1, "l": 2, "m": 2}
    assert merged["c"] == {"k": 1, "l": 1, "m": 3, "n": 3}
    assert merged["d"] == {"k": 1, "l": 2, "m": 2, "<<": 4}


def test_characters_that_json_writes_as_two_escapes(tmp_path):
    values = {"a\U0001f600": ["é\U0001f600{}", "\u2028"]}
    assert natural(read(tmp_path, json.dumps(values))[0]) == values


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file(tmp_path):
    shown = told(tmp_path, "a: 1\nb: !x 2\na: 3\n").splitlines()
    assert shown[0] == "p.yaml has 2 mistakes:"
    assert [line.split(":")[0] for line in shown[1:]] == ["  line 2, column 4", "  line 3, column 1"]


def test_no_file_and_too_large_a_file(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="there is no such file"):
        read_yaml(str(tmp_path / "none.yaml"), Mistakes("none.yaml"))
    with pytest.raises(UsageError, match="it is a folder"):
        read_yaml(str(tmp_path), Mistakes("folder"))
    monkeypatch.setattr("dolma_dask.io.yaml_files.MAX_BYTES", 3)
    with pytest.raises(UsageError, match=r"expected a pipeline in YAML, .*, with a few lines"):
        read(tmp_path, "a: 1\n")


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(
    st.one_of(
        TEXTS, st.sampled_from(["no", "true", "~", "null", "1.10", "0x1f", "1:30", "2019-01-01", "<<", "="])
    )
)
def test_any_text_that_yaml_writes_is_read_back(tmp_path_factory, text):
    written = yaml.safe_dump(
        {"x": text}, allow_unicode="\x85" not in text
    )  # PyYAML itself loses it if it is not escaped
    tree, mistakes = read(tmp_path_factory.mktemp("yaml", numbered=True), written)
    assert convert(tree.value[0][1], str, "x", mistakes) == text
    mistakes.check()


@given(st.one_of(st.integers(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False)))
def test_any_number_that_yaml_writes_is_read_back(tmp_path_factory, value):
    tree, mistakes = read(tmp_path_factory.mktemp("yaml", numbered=True), yaml.safe_dump({"x": value}))
    found = convert(tree.value[0][1], type(value), "x", mistakes)
    mistakes.check()
    assert (found, type(found)) == (value, type(value))
