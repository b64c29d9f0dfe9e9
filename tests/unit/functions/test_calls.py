"""Functions of users: versions, travels, and what they raise."""

import functools
import importlib
import pickle
import subprocess
import sys

import cloudpickle
import pytest

from dolma_dask.errors import DataError, UsageError
from dolma_dask.functions.calls import CallError, user_function
from dolma_dask.sources.functions import FunctionConverter
from dolma_dask.sources.mapping import FieldMapping

FILE = """import functools
import re

WORDS = {words}


class Rules:
    least = {least}

    def fits(self, text):
        return len(text) {sign} self.least


@functools.cache
def known(text):
    return text {operator} "x"


def clean(text):
    return text + str([known(text), Rules().fits(text), WORDS])
"""
VALUES = {"words": "['a']", "least": "3", "sign": ">", "operator": "!="}


def version(folder, **changed) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "clean.py").write_text(FILE.format(**{**VALUES, **changed}))
    return user_function(f"{folder}/clean.py:clean", ("text",)).version


def test_an_edit_anywhere_that_counts_gives_another_version(tmp_path):
    """In constants, classes and cached functions that it uses; where the file lies does not matter."""
    versions = [
        version(tmp_path / "a"),
        version(tmp_path / "a", words="['b']"),
        version(tmp_path / "a", least="4"),
        version(tmp_path / "a", sign="<"),
        version(tmp_path / "a", operator="=="),
    ]
    assert len(set(versions)) == 5
    assert version(tmp_path / "b") == versions[0]


class Callable:
    def __call__(self, text):
        return text


async def later(text):
    return text


@pytest.mark.parametrize(
    "function, expected",
    [
        (lambda: "x", r"<lambda> takes \(\); expected a function that can be called with one text"),
        (lambda text, other: "x", r"takes \(text, other\)"),
        (later, "later is declared with `async`"),
        (Callable, "Callable is a class; expected a function of one text"),
        (
            Callable(),
            "what Callable objects do is not known by their source; expected a function, or an attribute `version`",
        ),
        (3, "is of type int; expected a function"),
    ],
)
def test_what_cannot_be_called_is_refused(function, expected):
    with pytest.raises(UsageError, match=expected):
        user_function(function, ("text",))


def test_an_object_may_say_its_version():
    known = Callable()
    known.version = 7
    assert user_function(known, ("text",)).version == "7"
    partial = functools.partial(lambda text, end: text + end, end="!")
    other = functools.partial(partial.func, end="?")
    assert user_function(partial, ("text",)).version != user_function(other, ("text",)).version
    assert user_function(str.strip, ("text",))(" x ") == "x"


ELSEWHERE = """
import pickle, sys
function = pickle.loads(sys.stdin.buffer.read())
print(function("abcd"))
try:
    function(3)
except Exception as error:
    print(error)
"""


@pytest.mark.slow
def test_it_works_where_nobody_has_the_file(tmp_path):
    version(tmp_path)
    sent = cloudpickle.dumps(user_function(f"{tmp_path}/clean.py:clean", ("text",)))
    (tmp_path / "clean.py").unlink()
    done = subprocess.run([sys.executable, "-c", ELSEWHERE], input=sent, capture_output=True, check=True)
    assert done.stdout.decode().splitlines() == [
        "abcd[True, True, ['a']]",
        "TypeError: object of type 'int' has no len() (clean.py, line 11)",
    ]


def test_a_module_that_differs_elsewhere_is_refused(tmp_path, monkeypatch):
    (tmp_path / "module_of_a_user.py").write_text("K = 1\ndef add(text):\n    return text + str(K)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("module_of_a_user")
    sent = cloudpickle.dumps(user_function("module_of_a_user:add", ("text",)))
    assert pickle.loads(sent)("x") == "x1"
    module.K = 2
    with pytest.raises(DataError, match="module_of_a_user:add would do something else in this process"):
        pickle.loads(sent)("x")


def test_what_stops_python_stops_one_call_alone():
    with pytest.raises(CallError, match=r"SystemExit: 0 \(test_calls.py, line \d+\)"):
        user_function(lambda text: sys.exit(0), ("text",))("x")


def raising(error):
    def run(record):
        yield {"text": "x"}
        raise error

    return user_function(run, ("record",))


@pytest.mark.parametrize(
    "error", [GeneratorExit("no"), SystemExit(0), KeyError("k"), ValueError("x" * 10**6)]
)
def test_code_that_runs_later_is_blamed_too_in_a_line(error):
    with pytest.raises(CallError, match=rf"^{type(error).__name__}: .{{1,500}} \(test_calls.py, line \d+\)$"):
        raising(error).finished(list, {})


@pytest.mark.parametrize("error", [MemoryError(), KeyboardInterrupt(), DataError("not of the record")])
def test_what_says_nothing_about_a_record_is_raised_as_it_is(error):
    converter = FunctionConverter(raising(error), FieldMapping(source="s"), "a.jsonl")
    with pytest.raises(type(error)):
        converter.convert_line(b"{}", 0)
