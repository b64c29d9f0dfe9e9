"""The digest changes with what a function would do, and with nothing else."""

import functools
import re
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from dolma_dask.functions.digest import digest, source_of, surroundings
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


def test_functions_of_other_packages_count_by_name():
    def dumps(text):
        return tagger(text)

    assert surroundings(dumps)["global tagger"] == "dolma_dask.taggers.registry.tagger"


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
