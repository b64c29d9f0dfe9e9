"""Objects found by file.py:name and module:name."""

import sys

import pytest

from dolma_dask.errors import UsageError
from dolma_dask.functions.places import find_object, is_place

FILE = """
from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass
class Part:
    kinds: ClassVar[list[str]] = []
    title: str = field(default="{}")


def title(text):
    return Part().title


class Cleaner:
    @staticmethod
    def strip(text):
        return text.strip()
"""


def test_files_of_one_name_do_not_meet_and_leave_nothing(tmp_path, monkeypatch):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "clean.py").write_text(FILE.format(folder))
    before, path = set(sys.modules), list(sys.path)
    monkeypatch.chdir(tmp_path / "b")
    functions = [find_object(f"{tmp_path}/a/clean.py:title"), find_object("clean.py:title")]
    assert [function("x") for function in functions] == ["a", "b"]
    assert find_object("clean.py:title") is functions[1]
    assert find_object("clean.py:Cleaner.strip")(" x ") == "x"
    assert {name for name in set(sys.modules) - before if "clean" in name} == set()
    assert sys.path == path
    (tmp_path / "b/clean.py").write_text(FILE.format("edited"))
    assert find_object("clean.py:title")("x") == "edited"


def test_a_module_is_imported():
    assert find_object("textwrap:dedent")(" x") == "x"
    assert [is_place(text) for text in ("gopher_v2", "a.py", "a.py:b", "a.b:c")] == [False, True, True, True]


@pytest.mark.parametrize(
    "code, place, expected",
    [
        (None, "nope.py:f", r"nope.py: No such file or directory; expected a Python file on this computer"),
        ("def strip(t): return t", "f.py:stripe", r"f.py has no 'stripe': did you mean 'strip'\?"),
        ("def strip(t): return t\n_x = 1", "f.py", r"'f.py' names no object; .* f.py has strip\."),
        ("x = 1", "f.py:y", r"f.py has no 'y': it defines nothing"),
        ("def f(:\n  pass", "f.py:f", r"f.py cannot be used: SyntaxError: .* \(f.py, line 1\)"),
        ("import re\n\nx = 1 / 0", "f.py:f", r"ZeroDivisionError: division by zero \(f.py, line 3\)"),
        ("x = 1\nimport sys; sys.exit(0)", "f.py:f", r"SystemExit: 0 \(f.py, line 2\)"),
        (
            "import nosuch_package",
            "f.py:f",
            r"No module named 'nosuch_package' \(f.py, line 1\)\. Install that package",
        ),
        ("def g(t): return t", "f:g", r"no module 'f' in this environment; .* Write f.py:g for the file"),
        (None, "nosuch.deep:g", r"no module 'nosuch.deep' in this environment"),
        (None, "textwrap:dedant", r"textwrap has no 'dedant': did you mean 'dedent'"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, monkeypatch, code, place, expected):
    monkeypatch.chdir(tmp_path)
    if code is not None:
        (tmp_path / "f.py").write_text(code)
    with pytest.raises(UsageError, match=expected):
        find_object(place)
