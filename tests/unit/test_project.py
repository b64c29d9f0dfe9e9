"""Rules of the project itself: layers, public names, cheap import, no stray words."""

import ast
import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dolma_dask
from dolma_dask import registry
from dolma_dask.pipelines.signatures import arguments_of
from dolma_dask.testing.tokenizer import train_tokenizer

ROOT = Path(__file__).resolve().parents[2]


LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports('pyproject.toml', cache_dir=None))"


def test_layers_are_kept():
    # in a process of its own: it disables the loggers that are there
    done = subprocess.run([sys.executable, "-c", LINT], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_module_stands_in_a_layer():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    named = {
        name.strip(" ()").removeprefix("dolma_dask.") for line in layers for name in re.split("[|:]", line)
    }
    found = {module.name for module in pkgutil.iter_modules(dolma_dask.__path__)} - {"__main__"}
    assert found == named


def test_public_names_work_after_importing_every_module():
    for module in pkgutil.walk_packages(dolma_dask.__path__, "dolma_dask."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in dolma_dask.__all__:
        assert callable(getattr(dolma_dask, name)), name
    modules = {module.name for module in pkgutil.iter_modules(dolma_dask.__path__)}
    assert not modules & set(dolma_dask.__all__)


def test_type_checkers_see_the_public_names(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    stubs = importlib.import_module("stubs")
    text = stubs.STUB.read_text()
    assert text == stubs.stub(), "options or public names have changed: python tools/stubs.py"
    known = {
        alias.asname or alias.name if isinstance(node, ast.ImportFrom) else node.name
        for node in ast.parse(text).body
        for alias in getattr(node, "names", [None])
        if isinstance(node, ast.ImportFrom | ast.FunctionDef)
    }
    assert set(dolma_dask._EXPORTS) <= known


def test_every_entry_of_the_registry_is_true():
    for name, verb in registry.COMMANDS.items():
        function = verb.load()
        takes = arguments_of(function)
        is_stage = name in registry.VERBS
        own = {*verb.reads, *verb.writes, *verb.writes_with} if is_stage else set()
        assert own <= takes.keys(), name
        assert "dataset" not in takes or {"source", "version"} <= takes.keys(), name
        assert (verb.help[-1], function.__module__) == (".", verb.function.partition(":")[0])
        assert not verb.tables or callable(registry.load(verb.tables))
        assert bool(verb.reads) == is_stage


def test_import_and_help_load_nothing_heavy():
    code = (
        "import sys, dolma_dask, dolma_dask.cli as cli\n"
        "status = cli.main(['--help'])\n"
        "heavy = {'numba', 'pyarrow', 'dask', 'distributed', 'pandas', 'numpy', 'bokeh', 'tokenizers'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy or status else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("given", "found"), [({}, "20"), ({"OPENBLAS_THREAD_TIMEOUT": "26"}, "26")])
def test_threads_of_numpy_wait_asleep_unless_users_say_so(given, found):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS")}
    code = "import os, dolma_dask, numpy; print(os.environ['OPENBLAS_THREAD_TIMEOUT'])"
    done = subprocess.run(
        [sys.executable, "-c", code], env=kept | given, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == found


HEAVY = {
    *(
        "numba",
        "scipy",
        "pandas",
        "dask",
        "distributed",
        "fsspec",
        "h5py",
        "tokenizers",
        "bokeh",
        "jinja2",
        "ftfy",
    ),
    *("yaml", "rich", "importlib.metadata"),
}
"""What a command in one process on local JSON does not import, unless `NEEDED` says so."""

NEEDED = {
    "tag v0 --taggers gopher_v2": set(),
    "dedupe v0": set(),
    "dedupe v0 --how fuzzy --name fuzzy": set(),
    "mix v0 --to v1 --where word_count>=9": set(),
    "mix v0 --to v2 --where word_count>=9 --scheduler threads": set(),
    "quantiles v0 --level regular": set(),
    "stat v0": set(),
    "validate v0": set(),
    "status v0": set(),
    "ragged v0 ragged --tokenizer t.json": {"tokenizers", "importlib.metadata"},
    "hdf5 v0 h5 --tokenizer t.json": {"tokenizers", "importlib.metadata", "h5py"},
}
"""Commands, and what each imports of `HEAVY` once its kernels are compiled."""

LOADED = """
import sys, dolma_dask.cli as cli
heavy, *words = sys.argv[1:]
status = cli.main(words)
imported = {*heavy.split()} & {*sys.modules}
sys.exit(status or (f"imports {imported}" if imported else 0))
"""


def _run_in(place: Path, heavy: set[str], command: str) -> None:
    """Run a command that must not import some packages."""
    words = [sys.executable, "-c", LOADED, " ".join(heavy), *command.split()]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=place)
    assert done.returncode == 0, (command, done.stderr)


@pytest.mark.slow
def test_commands_load_what_their_work_needs(tmp_path):
    """In one process with compiled kernels no command imports what only other work needs, nor kernels if it has nothing to do."""
    texts = ["some words " * row for row in range(20)]
    lines = [json.dumps({"id": str(row), "source": "s", "text": text}) for row, text in enumerate(texts)]
    for place in (tmp_path / "cold", tmp_path / "warm"):
        (place / "v0/documents").mkdir(parents=True)
        (place / "v0/documents/a.jsonl").write_text("\n".join(lines) + "\n")
        train_tokenizer(texts, place / "t.json", vocab_size=300)
    for command, needed in NEEDED.items():
        _run_in(tmp_path / "cold", {"pandas", "dask", "distributed", "fsspec"}, command)
        _run_in(tmp_path / "warm", HEAVY - needed, command)
    _run_in(tmp_path / "warm", HEAVY | {"llvmlite"}, "mix v0 --to v1 --where word_count>=9")
    for command in ("tag v0 --taggers gopher_v2", "dedupe v0"):
        _run_in(tmp_path / "warm", HEAVY | {"llvmlite", "pyarrow.compute"}, command)


@pytest.mark.slow
def test_functions_of_arrow_are_found_in_every_process():
    """``pa.compute`` is there only once something has imported it: in a process that reads ids alone nothing has."""
    sources = sorted(Path(dolma_dask.__path__[0]).rglob("*.py"))
    nodes = [(path.name, node) for path in sources for node in ast.walk(ast.parse(path.read_text()))]
    found = [
        name
        for name, node in nodes
        if isinstance(node, ast.Attribute) and node.attr == "compute"
        if isinstance(node.value, ast.Name) and node.value.id == "pa"
    ]
    assert found == []


def test_modules_say_what_they_are_and_no_bare_errors_reach_users():
    for path in (ROOT / "dolma_dask").rglob("*.py"):
        tree = ast.parse(path.read_text())
        if path.read_text().strip():
            assert ast.get_docstring(tree), f"{path} has no docstring"
        raised = {
            node.exc.func.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Raise)
            and isinstance(node.exc, ast.Call)
            and isinstance(node.exc.func, ast.Name)
        }
        assert not raised & {"Exception", "RuntimeError"}, path


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_locks_have_hashes_and_no_addresses(name):
    text = (ROOT / name).read_text()
    assert "--hash=sha256:" in text
    assert not re.search(r"https?://|index-url", text)


def test_version_is_in_the_changelog():
    assert f"## {dolma_dask.__version__}" in (ROOT / "CHANGELOG.md").read_text()
