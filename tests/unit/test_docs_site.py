"""Pages of the documentation that are made from the code."""

import importlib.util
import re
from pathlib import Path

import pytest

import dolma_dask
from dolma_dask.registry import COMMANDS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site():
    """The hook that makes the pages."""
    spec = importlib.util.spec_from_file_location("docs_site", ROOT / "tools/docs_site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_is_in_the_reference(site):
    page = site.python_page()
    assert sorted(re.findall(r'heading: "dk\.(\w+)"', page)) == dolma_dask.__all__
    assert "members: true" not in page, "all members, private ones too: filters count only without it"


@pytest.mark.slow
def test_every_command_is_in_the_reference_with_its_options_and_an_example(site):
    listed = re.findall(r"^\| \[`(.*?)`\]\((.*?)\)", site.commands_page(), flags=re.MULTILINE)
    assert dict(listed) == {name: site.page_of(name) for name in (*COMMANDS, "completion")}
    pages = {name: site.command_page(name) for name, _ in listed}
    assert all(text.startswith(f"# `{name}`\n") for name, text in pages.items())
    assert all(f"```bash\ndolma-dask {name}" in text for name, text in pages.items() if name != "completion")
    assert "`--taggers STR...`" in pages["tag"]
    assert "*[default: jsonl.gz]*" in pages["convert"]
    assert r"\<source\>/\<version\>" in pages["tag"]


def test_the_tests_of_all_laws_exist(site):
    """The table is that of ARCHITECTURE.md; a file without a folder lies in that of the file before it."""
    rows = site.laws().splitlines()[2:]
    assert len(rows) > 30
    for row in rows:
        folder, named = ROOT, re.findall(r"`([^`]+)`", row.split("|")[-2])
        for name in named:
            path = ROOT / name if name.startswith("tests/") else folder / name
            folder = path.parent
            assert path.exists(), f"{name} of {row}"
        assert named or "import-linter" in row, row


@pytest.mark.parametrize(
    "target, source, page, link",
    [
        ("../ARCHITECTURE.md", "docs/a.md", "a.md", "architecture.md"),
        ("docs/tutorial.md", "README.md", "index.md", "tutorial.md"),
        ("slurm.md", "docs/a.md", "a.md", "slurm.md"),
        ("../configs/wiki.yaml", "docs/a.md", "a.md", "files.md#configs-wiki-yaml"),
        ("../notebooks/02_duplicates.ipynb", "docs/a.md", "a.md", "notebooks/02_duplicates.md"),
    ],
)
def test_links_to_files_lead_to_their_pages(site, target, source, page, link):
    assert site.link_to(target, "", source, page) == link
