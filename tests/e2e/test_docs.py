"""Commands and code of the README, docs/ and configs/, run as they stand."""

import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pages import blocks_of, run_page, store_outputs

from dolma_dask import cli
from dolma_dask.testing.tokenizer import train_tokenizer

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def start(tmp_path_factory) -> Path:
    """Make the files that pages begin with: raw files, a tokenizer, and a dataset of two sources with some copies."""
    place = tmp_path_factory.mktemp("start")
    texts = [f"Document {number} speaks of the number {number} and of little else." for number in range(40)]
    (place / "raw").mkdir()
    lines = [json.dumps({"id": str(number), "text": text}) + "\n" for number, text in enumerate(texts)]
    (place / "raw/a.jsonl.gz").write_bytes(gzip.compress("".join(lines).encode()))
    train_tokenizer(texts, place / "tokenizer.json", vocab_size=300)
    (place / "configs").symlink_to(ROOT / "configs")
    (place / "corpus/v0/documents").mkdir(parents=True)
    (place / "corpus/v0/documents/a.jsonl").write_text("".join(map(line_of, range(60))))
    return place


def line_of(number: int) -> str:
    """Return a document; every tenth has the text of an earlier one."""
    copied = number // 2 if number % 10 == 1 else number
    text = f"Document {copied} speaks of {copied} things and of " + "little else " * (copied % 9)
    source = ("web", "books")[number % 3 == 0]
    row = {"id": str(number), "text": text, "source": source, "metadata": {"lang": "en"}}
    return json.dumps(row) + "\n"


@pytest.fixture
def place(start, tmp_path, monkeypatch):
    shutil.copytree(start, tmp_path, symlinks=True, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


FROM_NOTHING = {"tutorial.md": ("raw", "corpus", "tokenizer.json"), "own_source.md": ("raw", "corpus")}
"""Files that pages make themselves, so that they must begin without them."""

RUN_ELSEWHERE = {
    "slurm.md": "tests/cluster/test_slurm_page.py",
    "object_stores.md": "tests/e2e/test_s3.py",
}
"""Pages that need more than a folder, and the tests that run them."""

NOT_RUN = {
    "README.md": 2,
    "create_hdf5_dataset.md": 1,
    "dolma_toolkit.md": 1,
    "estimate.md": 1,
    "formats.md": 1,
    "new_version.md": 3,
    "redpajama.md": 5,
    "thresholds.md": 1,
    "training.md": 1,
    "tutorial.md": 2,
}
"""Blocks that are not run, each with its reason above it."""

PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
WITH_CODE = [
    page for page in PAGES if page.name not in RUN_ELSEWHERE and any(one.is_run for one in blocks_of(page))
]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs_and_prints_what_it_shows(page, place):
    """With STORE_OUTPUTS=1 pages get the outputs in place of being compared with them."""
    for path in map(Path, FROM_NOTHING.get(page.name, ())):
        path.unlink() if path.is_file() else shutil.rmtree(path)
    if page.name == "README.md":
        shutil.rmtree("corpus")
    if "STORE_OUTPUTS" in os.environ:
        store_outputs(page)
        return
    names = run_page(page)
    CHECKS.get(page.name, lambda names: None)(names)


def test_blocks_that_are_not_run_are_counted():
    found = {page.name: sum(bool(one.reason) for one in blocks_of(page)) for page in PAGES}
    assert {name: number for name, number in found.items() if number} == NOT_RUN
    for page, test in RUN_ELSEWHERE.items():
        assert f"docs/{page}" in (ROOT / test).read_text()


def test_the_loop_of_torch_gives_what_its_page_says(place, capsys):
    pytest.importorskip("torch")
    page = ROOT / "docs/training.md"
    (loop,) = (one for one in blocks_of(page) if one.reason)
    exec(loop.code, run_page(page))
    shapes = capsys.readouterr().out.splitlines()
    assert len(shapes) > 3
    assert set(shapes) == {
        str(dict.fromkeys(("input_ids", "labels", "segment_ids", "position_ids"), (4, 32)))
    }


def check_new_version(names):
    """The command that the page gives as the same writes the same bytes."""
    assert 0 < names["v1"].counts["documents_out"] < 60
    import dolma_dask as dk

    valid, train = (
        set(dk.read_dataframe(f"corpus/{part}", ["id"]).compute()["id"]) for part in ("valid", "train")
    )
    assert valid
    assert train
    assert not valid & train
    assert len(valid | train) == 54, "the copies are in neither part"
    (command,) = re.findall(r"`(dolma-dask mix [^`]*)`", (ROOT / "docs/new_version.md").read_text())
    before = {path: path.read_bytes() for path in Path("corpus/v1/documents").rglob("*.gz")}
    assert cli.main([*shlex.split(command)[1:], "--overwrite"]) == 0
    assert {path: path.read_bytes() for path in Path("corpus/v1/documents").rglob("*.gz")} == before


def check_own_cleaning(names):
    counts = names["squeezed"].counts
    assert counts["documents_in"] == names["labelled"].counts["documents_out"] > 0
    lines = Path("corpus/v2/documents/a.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["metadata"]["words"] > 4


def check_collections(names):
    import dolma_dask as dk

    assert 0 < names["v1"].counts["documents_out"] <= 60
    assert names["v1"].counts["unproved_attribute_files"] == 0
    assert names["v2"].counts["documents_out"] == names["summary"].counts["documents_out"]
    assert names["packed"].counts["rows"] > 0
    assert dk.validate("corpus/v0", progress=False).exit_status == 0
    assert {"mine", "zip", "prices", "shouts"} <= set(dk.open_dataset("corpus/v0").attributes)


CHECKS = {
    "new_version.md": check_new_version,
    "own_cleaning.md": check_own_cleaning,
    "collections.md": check_collections,
    "duplicates.md": lambda names: names["flags"].counts["duplicates"] or pytest.fail("no duplicates"),
    "README.md": lambda names: len(names["arrays"]) == 40 or pytest.fail("not all documents have tokens"),
}
"""Further conditions when a page has run, on the names that it bound."""


def test_the_example_of_configs(place):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    words = [str(ROOT / "configs/wiki.sh"), "raw", "out", "tokenizer.json"]
    for _ in range(2):
        done = subprocess.run(
            words, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False, timeout=280
        )
        assert done.returncode == 0, done.stderr
    assert "1 done before" in done.stdout
    assert (place / "out/report.html").exists()


def test_files_of_a_page_are_named_above_their_blocks():
    """The title of a block is not shown where the repository is browsed."""
    for page in PAGES:
        for block in re.finditer(r'^```\w+ title="([^"]+)"', page.read_text(), re.MULTILINE):
            above = page.read_text()[: block.start()].rstrip().rpartition("\n\n")[2]
            assert f"`{block[1]}`" in above, f"{page.name}: the text above the block does not name {block[1]}"


def test_links_of_the_documents_exist():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
