"""Recipes of CONTRIBUTING.md, done to the letter: its code, in the places that it names."""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from numba.core.caching import UserProvidedCacheLocator

import dolma_dask as dk
from dolma_dask import cli, registry

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).resolve().parents[2]


def blocks_of(heading: str) -> list[str]:
    """Return the code below a heading."""
    _, _, section = (ROOT / "CONTRIBUTING.md").read_text().partition(f"## {heading}\n")
    blocks = re.findall(r"```python\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
    return [textwrap.dedent("   " + block.lstrip()) for block in blocks]


def call(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=place, env={**os.environ, "PYTHONPATH": str(place)}, capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip


def test_a_tagger_of_ones_own(tmp_path, monkeypatch):
    function, test = blocks_of("Add a tagger of your own")
    (tmp_path / "my_package.py").write_text(function)
    (tmp_path / "test_my_package.py").write_text(test)
    done = call(tmp_path, "pytest", "-q", "-W", "error")
    assert " passed" in done.stdout, done.stdout
    assert done.returncode == 0
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    from my_package import exclamations

    (tmp_path / "v0/documents").mkdir(parents=True)
    (tmp_path / "v0/documents/a.jsonl").write_text('{"id":"1","text":"oh!","source":"s"}\n')
    assert dk.tag("v0", [exclamations], progress=False).done == 1


def insert(path: Path, after: str, line: str) -> None:
    text = path.read_text()
    assert text.count(after) == 1
    path.write_text(text.replace(after, f"{after}    {line}"))


def place_of_kernels(sources: Path) -> str:
    """Return the folder below NUMBA_CACHE_DIR that holds the machine code of a folder of sources."""
    return UserProvidedCacheLocator.get_suitable_cache_subpath(str(sources / "any.py"))


def copy_kernels(to: Path, cache: Path) -> None:
    """Let a copy of the package begin with the kernels that are compiled already: its sources are the same, only their place differs."""
    for folder in (path.parent for path in (ROOT / "dolma_dask").rglob("__init__.py")):
        compiled = Path(os.environ["NUMBA_CACHE_DIR"], place_of_kernels(folder))
        if compiled.exists():
            place = cache / place_of_kernels(to / folder.relative_to(ROOT))
            shutil.copytree(compiled, place, ignore=shutil.ignore_patterns("*.lock"))


@pytest.fixture
def copy(tmp_path, monkeypatch, worlds):
    """The files of the repository that have to do with taggers; all verbs have run before, so that their kernels are compiled."""
    for name in ("dolma_dask", "tests/property", "tests/unit/taggers"):
        shutil.copytree(ROOT / name, tmp_path / name)  # with the byte code
    for name in (
        "pyproject.toml",
        "tests/conftest.py",
        "tests/thorough.py",
        "tests/unit/conftest.py",
        "tests/unit/test_golden.py",
        "tests/unit/golden_taggers.json",
    ):
        shutil.copy(ROOT / name, tmp_path / name)
    copy_kernels(tmp_path, tmp_path / "kernels")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kernels"))
    return tmp_path


def test_a_built_in_tagger(copy, monkeypatch):
    module, oracle = blocks_of("Add a built-in tagger in five steps")
    (copy / "dolma_dask/taggers/exclamations.py").write_text(module)
    properties = "tests/property/test_taggers.py"
    asked = call(copy, "pytest", "-q", properties, "-k", "oracle").stdout
    assert re.search(r"^FAILED tests/property/test_taggers.py::.*oracle", asked, re.MULTILINE), asked
    (copy / "tests/property/oracles/exclamations.py").write_text(oracle)
    monkeypatch.setenv("GOLDEN", "write")
    words = (properties, "tests/unit/taggers/test_registry.py", "tests/unit/test_golden.py")
    done = call(copy, "pytest", "-q", *words, "-k", "exclamations or oracle or unknown")
    assert done.returncode == 0, done.stdout
    assert "exclamations_by_paragraph_v1" in (copy / "tests/unit/golden_taggers.json").read_text()
    assert "Exclamation marks, by" in call(copy, "dolma_dask", "list", "exclamations_v1").stdout
    for words in (("ruff", "check"), ("ruff", "format", "--check")):
        done = call(copy, *words, "dolma_dask")
        assert done.returncode == 0, done.stdout


PRELUDE = """from dataclasses import dataclass
from typing import Annotated, Literal

from dolma_dask.options.base import Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import DatasetOptions, Documents, ShardOptions

"""


@pytest.fixture
def dataset(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "v0/documents").mkdir(parents=True)
    lines = [f'{{"id":"{number}","text":"oh!","source":"{"ab"[number % 2]}"}}\n' for number in range(5)]
    (tmp_path / "v0/documents/a.jsonl").write_text("".join(lines))
    return tmp_path


def test_an_option(dataset):
    (block,) = blocks_of("Add an option in two steps")
    (dataset / "greeting.py").write_text(PRELUDE + block)
    from greeting import greet

    assert greet("v0", style="warm", times=2) == "warm hello to 1 shards" * 2
    for wrong, message in (
        ({"times": 0}, "times=0; expected a whole number, 1 or more"),
        ({"tims": 1}, "did you mean"),
    ):
        with pytest.raises(dk.errors.UsageError, match=message):
            greet("v0", **wrong)
    assert "times : int\n    How often each document is greeted." in greet.__doc__


def test_a_question(dataset, monkeypatch, capsys):
    module, entry = blocks_of("Add a question in three steps")
    (dataset / "sources_of_a_test.py").write_text(module)
    entry = entry.replace("dolma_dask.questions.sources", "sources_of_a_test").strip().rstrip(",")
    monkeypatch.setitem(registry.COMMANDS, "sources", eval(entry, {"Verb": registry.Verb}))
    assert cli.main(["sources", "v0", "--min-documents", "3", "--no-progress"]) == 0
    shown = capsys.readouterr().out
    assert "documents by source" in shown
    assert re.search(r"a +3", shown)
    assert cli.main(["sources", "v0", "--json", "--no-progress"]) == 0
    assert json.loads(capsys.readouterr().out) == {"documents": {"a": 3, "b": 2}, "exit_status": 0}
    assert cli.main(["sources", "v0", "--min-documents", "0"]) == 2


def test_a_kind_of_output(dataset, monkeypatch):
    (entry,) = blocks_of("Add a kind of output in two steps")
    shutil.copy(ROOT / "tests/unit/example_sink.py", dataset / "texts_of_a_test.py")
    entry = entry.replace("dolma_dask.verbs.texts", "texts_of_a_test")
    monkeypatch.setitem(registry.VERBS, "texts", eval(entry, {"Verb": registry.Verb}))
    monkeypatch.setitem(registry.COMMANDS, "texts", registry.VERBS["texts"])
    words = ["texts", "v0", "out", "--where", "source == 'a'", "--no-progress"]
    assert cli.main(words) == 0
    assert (dataset / "out/a.txt").read_text() == "oh!\n---\n" * 3
    assert cli.main([*words, "--between", "=="]) == 2
    assert cli.main([*words, "--between", "==", "--overwrite"]) == 0
    assert (dataset / "out/a.txt").read_text() == "oh!\n==\n" * 3
