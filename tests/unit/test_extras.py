"""Without the packages of an extra everything else works, and what needs one names the extra."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dolma_dask.extras import EXTRAS

ROOT = Path(__file__).resolve().parents[2]
OPTIONAL = (*EXTRAS, "ipykernel", "IPython")


def call(place, *words):
    """Call a command where no optional package is installed."""
    code = f"import sys\nsys.modules.update(dict.fromkeys({OPTIONAL}))\nfrom dolma_dask import cli\nsys.exit(cli.main())"
    return subprocess.run(
        [sys.executable, "-c", code, *words], cwd=place, capture_output=True, text=True, check=False
    )


@pytest.fixture
def place(tmp_path):
    (tmp_path / "v0/documents").mkdir(parents=True)
    (tmp_path / "v0/documents/a.jsonl").write_text('{"id":"1","text":"one two","source":"s"}\n')
    (tmp_path / "p.yaml").write_text(
        "stages:\n  - tag: {dataset: v0, taggers: [char_length_v1]}\nreport: {dataset: v0, to: page.html}\n"
    )
    return tmp_path


@pytest.mark.slow
def test_the_rest_works(place):
    done = call(place, "tag", "v0", "--taggers", "char_length_v1", "--scheduler", "synchronous")
    assert done.returncode == 0, done.stderr
    assert call(place, "report", "--help").returncode == 0
    assert "_dolma_dask" in call(place, "completion", "bash").stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "what", "extra"),
    [
        (("tag", "s3://bucket/v0", "--taggers", "char_length_v1"), "s3://bucket/v0", "s3"),
        (("report", "v0", "--to", "page.html"), "the report", "report"),
        (("run", "p.yaml"), "p.yaml: stage 'report'", "report"),
        (("demo",), "the demo's report", "report"),
    ],
)
def test_what_needs_an_extra_names_it(words, what, extra, place):
    done = call(place, *words)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"UsageError: {what}")
    assert f"pip install 'dolma-dask[{extra}]'" in done.stderr
    assert sorted(path.name for path in place.iterdir()) == ["p.yaml", "v0"], "nothing was done"
    assert not (place / "v0/attributes").exists()


def test_extras_bring_what_they_name():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert all(any(item.startswith(package) for item in extras[extra]) for package, extra in EXTRAS.items())
    assert extras["all"] == [f"dolma-dask[{','.join(name for name in extras if name != 'all')}]"]
