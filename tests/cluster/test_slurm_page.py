"""docs/slurm.md: its commands are run as they stand, in their order, with sizes and names of this machine in the place of LUMI's."""

import ast
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from small_pipeline import logs_of_jobs, store_profile
from small_world import ORDINARY, WILD, make_documents

from dolma_dask.testing.commands import DEADLINE_S
from dolma_dask.testing.tokenizer import train_tokenizer

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/slurm.md").read_text()
HERE = {"--array=1-16": "--array=1-2", "--nodes=2 --cpus-per-task=16 --mem=32G": "--cpus-per-task=2 --mem=3G"}
"""Replacements of what this machine has less of than the page's."""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The folder in which the page's commands are typed."""
    make_documents(tmp_path / "all", 8)
    (tmp_path / "raw").mkdir()
    for path in sorted((tmp_path / "all/documents").rglob("*.jsonl.gz"))[:4]:
        path.rename(tmp_path / "raw" / path.name)
    train_tokenizer(ORDINARY + WILD, tmp_path / "tokenizer.json", 300)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    store_profile(tmp_path, memory="1600MB").rename(tmp_path / "site.yaml")
    (tmp_path / "interface.yaml").write_text("base: allocation\njobqueue: {interface: lo}\n")
    monkeypatch.setenv("PROFILE", "interface.yaml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def typed() -> str:
    """Return all commands of the page."""
    script = "\n".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL))
    for there, here in HERE.items():
        assert there in script
        script = script.replace(there, here)
    return script


def test_the_commands_of_the_page(slurm, place):
    done = subprocess.run(
        ["bash", "-euxc", typed()], capture_output=True, text=True, check=False, timeout=2 * DEADLINE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr + logs_of_jobs(place)
    slurm.wait_for_end()
    assert len(slurm.end_states()) >= 6
    logs = "".join(path.read_text(errors="replace") for path in place.glob("*.log"))
    assert set(slurm.end_states().values()) <= {"COMPLETED", "CANCELLED"}, logs
    assert "Error" not in logs, logs
    assert (place / "corpus/wiki/report.html").exists()
    status = subprocess.run(
        ["dolma-dask", "status", "corpus/wiki/v0"], capture_output=True, text=True, check=True
    )
    assert all(line.endswith("  done") for line in status.stdout.splitlines()[2:]), status.stdout


def test_the_profile_of_the_page(place):
    """It is printed as a job script with the values that it has."""
    (block,) = re.findall(r"```yaml\n(# site.yaml\n.*?)```", PAGE, re.DOTALL)
    Path("lumi.yaml").write_text(block)
    values = yaml.safe_load(block)["jobqueue"]
    words = ["dolma-dask", "cluster", "script", "lumi.yaml"]
    script = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    for line in (f"-A {values['account']}", f"-t {values['walltime']}", f"--cpus-per-task={values['cores']}"):
        assert line in script


def test_the_messages_of_the_page_are_those_of_the_package():
    """The first column of the table shows parts of messages as they stand in the sources."""
    table = PAGE.partition("## Messages, and what to do")[2].partition("\n## ")[0]
    shown = [
        re.findall(r"`([^`]+)`", line.split(" | ")[0])
        for line in table.splitlines()
        if line.startswith("| `")
    ]
    sources = "\n".join(
        " ".join(
            node.value
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        )
        for path in sorted((ROOT / "dolma_dask").rglob("*.py"))
    )
    parts = [part for spans in shown for span in spans for part in re.split(r"\s*\.\.\.\s*", span) if part]
    assert len(shown) >= 8
    assert [part for part in parts if part not in sources] == []
