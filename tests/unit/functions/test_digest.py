"""The digest changes with what a function would do, and with nothing else."""

import functools
import importlib
import linecache
import re
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from dolma_dask.functions.digest import digest, source_of, surroundings
from dolma_dask.functions.places import find_object
from dolma_dask.taggers.registry import tagger

LIMIT = 5


def above(text):
    return len(text) > LIMIT


def in_comprehension(text):
    return [word for word in text.split() if any(len(word) > LIMIT for _ in word)]


def by_helper(text):
    return above(text)


def version(function, **options):
    return tagger(**{"name": "digest_test_v1", "types": {"x": bool}, **options})(function).version


def counter(letter):
    def count(text):
        return text.count(letter)

    return count


@pytest.mark.parametrize("function", [above, in_comprehension, by_helper])
def test_globals_count(function, monkeypatch):
    made = tagger(name="digest_test_v1", types={"x": bool})(function)
    before = made.version
    monkeypatch.setitem(globals(), "LIMIT", 6)
    assert made.version != before, "a notebook cell with a constant may be run again after the tagger's own"
    monkeypatch.setitem(globals(), "LIMIT", 5)
    assert made.version == before


def test_bound_values_and_defaults_count():
    assert version(counter("a")) == version(counter("a"))
    assert version(counter("a")) != version(counter("b"))
    functions = [lambda text, k=k: len(text) > k for k in (1, 2)]
    assert version(functions[0]) != version(functions[1])
    assert version(functools.partial(max, 1)) != version(functools.partial(max, 2))


def test_types_and_columns_count():
    assert version(above) != version(above, types="x")
    assert version(above) != version(above, reads="id")


def test_source_counts():
    plain = "def f(text):\n    return 1\n"
    versions = set()
    for source in (
        plain,
        plain.replace("1", "2"),
        plain.replace("text", "t"),
        "def f(text):\n    return [1 for _ in '1']\n",
    ):
        names = {}
        exec(source, names)
        versions.add(version(names["f"]))
        names = {}
        exec(source, names)
        versions.add(version(names["f"]))
    assert len(versions) == 4, "without source, the byte code and constants are compared"


@dataclass
class Settings:
    limit: int


class Model:
    pass


@pytest.mark.parametrize(
    "one, same, other",
    [
        (1, 1, 1.0),
        ("1", "1", 1),
        ([1, 2], [1, 2], [2, 1]),
        ((1,), (1,), [1]),
        ({"b": 1, "a": 2}, {"a": 2, "b": 1}, {"a": 1, "b": 2}),
        ({"x", "y", "z"}, {"z", "y", "x"}, {"x", "y"}),
        (re.compile("a"), re.compile("a"), re.compile("a", re.IGNORECASE)),
        (np.arange(3), np.arange(3), np.arange(3.0)),
        (Settings(1), Settings(1), Settings(2)),
        (re, re, functools),
        (len, len, max),
        (Model(), Model(), Settings),
        (above, above, by_helper),
    ],
)
def test_values(one, same, other):
    assert digest(one) == digest(same)
    assert digest(one) != digest(other)


def test_cycles_end():
    loop = []
    loop.append(loop)
    assert digest(loop) == digest(loop)

    def calls_itself(text):
        return calls_itself(text[1:]) if text else 0

    assert version(calls_itself) == version(calls_itself)


def test_functions_of_other_packages_count_by_name(monkeypatch):
    def dumps(text):
        return tagger(text)

    def other():
        return None

    before = digest(surroundings(dumps))
    other.__module__, other.__qualname__ = tagger.__module__, tagger.__qualname__
    monkeypatch.setitem(globals(), "tagger", other)
    assert digest(surroundings(dumps)) == before


MEANT = """
class Cleaner:
    def __init__(self, ending):
        self.ending = ending
    def clean(self, text):
        return text + self.ending
CLEANER = Cleaner("x")
"""


@pytest.mark.parametrize(
    "code, old, new",
    [
        ("from datetime import date\nSINCE = date(2020, 1, 1)\ndef f(text): return str(SINCE)", "2020", "2021"),
        ("from decimal import Decimal\nD = Decimal('0.5')\ndef f(text): return str(D)", "0.5", "0.6"),
        ("import numpy as np\nD = np.int64(5)\ndef f(text): return text * D", "5", "6"),
        ("from collections import deque\nD = deque('ab')\ndef f(text): return D[0]", "ab", "ba"),
        ("from operator import methodcaller\nD = methodcaller('upper')\ndef f(text): return D(text)", "upper", "lower"),
        (MEANT + "def f(text): return CLEANER.clean(text)", '"x"', '"y"'),
        (MEANT + "def f(text): return CLEANER.clean(text)", "text + self", "self"),
        (MEANT + "STEPS = [CLEANER.clean]\ndef f(text): return STEPS[0](text)", "text + self", "self"),
        (MEANT + "KINDS = {'x': Cleaner}\ndef f(text): return KINDS['x']('')", "text + self", "self"),
        ("BOTH = lambda t: t.upper(), lambda t: t.lower()\nf = BOTH[0]", "[0]", "[1]"),
    ],
)  # fmt: skip
def test_what_a_function_names_counts(tmp_path, code, old, new):
    def version_of_file(text):
        (tmp_path / "mine.py").write_text(text)
        return digest(find_object(f"{tmp_path}/mine.py:f"))

    before = version_of_file(code)
    assert version_of_file(code.replace(old, new)) != before
    assert version_of_file(code + "\nELSEWHERE = 1\n") == before


def test_a_module_that_was_edited_after_its_import_is_not_known_by_its_new_source(tmp_path, monkeypatch):
    """Its old code runs; with the digest of the new, the work of the old would count as done."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "edited_later.py").write_text("def f(text):\n    return text\n")
    module = importlib.import_module("edited_later")
    (tmp_path / "edited_later.py").write_text("def f(text):\n    return text.upper()\n")
    meanwhile = digest(module.f)
    linecache.clearcache()
    assert digest(find_object(f"{tmp_path}/edited_later.py:f")) != meanwhile


def test_many_functions_that_use_each_other_take_no_time():
    code = "".join(f"def f{n}(t): return f{n + 1}(t) + f{n + 2}(t)\n" for n in range(60))
    names = {}
    exec(code + "def f60(t): return t\ndef f61(t): return t\n", names)
    assert digest(names["f0"]) != digest(names["f1"])


def test_same_in_every_process():
    code = (
        "from dolma_dask.taggers.registry import tagger\n"
        "WORDS = {'the', 'of', 'and', 'to', 'in'}\n"
        "f = tagger(name='f', types='n')(lambda text: sum(word in WORDS for word in text.split()))\n"
        "print(f.version)\n"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        )
        for seed in ("1", "2")
    ]
    assert len({run.stdout for run in runs}) == 1


def test_source_is_that_of_the_function():
    assert source_of(above) == "def above(text):\n    return len(text) > LIMIT\n"
