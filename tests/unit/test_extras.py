"""Without the packages of an extra everything else works, and what needs one names the extra."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dolma_dask.extras import EXTRAS

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"langdetect", "lingua", "presidio", "trafilatura", "kenlm"}
"""Extras that `all` leaves out: what is compiled when installed, or takes 100 MB and more."""
OPTIONAL = (*EXTRAS, "ipykernel", "IPython")


PROGRAM = f"""
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
sys.modules.update(dict.fromkeys({OPTIONAL}))
from dolma_dask import cli
answers = []
for words in json.loads(sys.argv[1]):
    with redirect_stdout(io.StringIO()) as said, redirect_stderr(io.StringIO()) as told:
        status = cli.main(words)
    answers.append((status, said.getvalue(), told.getvalue()))
print(json.dumps(answers))
"""


def call(place, *commands):
    """Call commands in one process where no optional package is installed; return status, output and messages of each."""
    program = [sys.executable, "-c", PROGRAM, json.dumps(commands)]
    done = subprocess.run(program, cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


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
    tagged, shown, completed = call(
        place,
        ["tag", "v0", "--taggers", "char_length_v1", "--scheduler", "synchronous"],
        ["report", "--help"],
        ["completion", "bash"],
    )
    assert tagged[0] == 0, tagged
    assert shown[0] == 0, shown
    assert "_dolma_dask" in completed[1]


@pytest.mark.slow
def test_what_needs_an_extra_names_it(place):
    cases = [
        (["tag", "s3://bucket/v0", "--taggers", "char_length_v1"], "s3://bucket/v0", "s3"),
        (["report", "v0", "--to", "page.html"], "the report", "report"),
        (["run", "p.yaml"], "p.yaml: stage 'report'", "report"),
        (["demo"], "the demo's report", "report"),
        (["mix", "v0", "--to", "v1", "--syntax", "jq", "--include", ".id"], "a jq filter", "jq"),
    ]
    answers = call(place, *(words for words, _, _ in cases))
    for (words, what, extra), (status, _, told) in zip(cases, answers, strict=True):
        assert status == 2, (words, told)
        assert told.startswith(f"UsageError: {what}")
        assert f"pip install 'dolma-dask[{extra}]'" in told
    assert sorted(path.name for path in place.iterdir()) == ["p.yaml", "v0"], "nothing was done"
    assert not (place / "v0/attributes").exists()


def test_extras_bring_what_they_name():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for package, extra in EXTRAS.items():
        assert any(item.replace("-", "_").startswith(package) for item in extras[extra])
    light = [name for name in extras if name not in {"all", *HEAVY}]
    assert extras["all"][0] == f"dolma-dask[{','.join(light)}]"
