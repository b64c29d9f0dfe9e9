"""What the README and configs/ show is run as it stands."""

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

from dolma_dask import cli
from dolma_dask.testing.tokenizer import train_tokenizer

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def place(tmp_path, monkeypatch):
    texts = [f"Document {number} speaks of the number {number} and of little else." for number in range(40)]
    rows = [{"id": str(number), "text": text} for number, text in enumerate(texts)]
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/a.jsonl.gz").write_bytes(
        gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode())
    )
    train_tokenizer(texts, tmp_path / "tokenizer.json", vocab_size=300)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_python_of_the_readme(place):
    first, second = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    names: dict = {}
    exec(first, names)
    assert len(names["arrays"]) == 40
    assert (place / "reports/wiki.html").stat().st_size > 100_000
    code = f"import dolma_dask as dk\nif __name__ == '__main__':\n    {second.replace(chr(10), chr(10) + '    ')}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_the_guide(place):
    import dolma_dask as dk

    texts = [
        f"Document {number} speaks of {number} things and of " + "little else " * (number % 9)
        for number in range(60)
    ]
    rows = [
        {
            "id": str(n),
            "text": texts[n // 2 if n % 10 == 1 else n],
            "source": ("web", "books")[n % 3 == 0],
            "metadata": {"lang": "en"},
        }
        for n in range(60)
    ]
    (place / "more").mkdir()
    (place / "more/a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    dk.convert("more", to="corpus/v0", progress=False)
    names: dict = {}
    for code in re.findall(r"```python\n(.*?)```", (ROOT / "docs/guide.md").read_text(), re.DOTALL):
        exec(code, names)
    assert 0 < names["v1"].counts["documents_out"] < 60
    assert names["flags"].counts["duplicates"] > 0
    (command,) = re.findall(r"`(dolma-dask mix [^`]*)`", (ROOT / "docs/guide.md").read_text())
    words = [*shlex.split(command)[1:], "--overwrite"]
    before = {path: path.read_bytes() for path in (place / "corpus/v1/documents").rglob("*.gz")}
    subprocess.run([sys.executable, "-m", "dolma_dask", *words], check=True, timeout=120)
    assert {path: path.read_bytes() for path in (place / "corpus/v1/documents").rglob("*.gz")} == before


def test_functions_of_users(place):
    """Blocks that begin with the name of a file are that file; the commands and the pipeline find each other's work done."""
    records = [
        {
            "title": f"Page {number}",
            "revision": {"time": "2024-01-01"},
            "sections": [
                {"heading": "a", "body": f"Home | About\nText {number}"},
                {"body": "SHOUTING" if number % 4 else "two  words"},
            ],
        }
        for number in range(20)
    ]
    shutil.rmtree("raw")
    (place / "raw").mkdir()
    lines = [json.dumps(one) + "\n" for one in [*records, {"title": "moved", "redirect": "Page 1"}]]
    (place / "raw/a.jsonl").write_text("".join(lines))
    text, names = (ROOT / "docs/functions.md").read_text(), {}
    for kind, code in re.findall(r"```(python|sh|yaml)\n(.*?)```", text, re.DOTALL):
        if file := re.match(r"# (\S+)\n", code):
            (place / file[1]).write_text(code)
        elif kind == "python":
            exec(code, names)
        else:
            assert cli.main([*shlex.split(code)[1:], "--scheduler", "synchronous"]) == 0, code
    counts = names["squeezed"].counts
    assert (counts["documents_in"], counts["documents_changed"], counts["documents_unchanged"]) == (25, 5, 20)
    lines = gzip.decompress((place / "corpus/v2/documents/a.jsonl.gz").read_bytes()).splitlines()
    first, second = map(json.loads, lines[:2])
    assert (first["id"], first["text"], first["metadata"]["words"]) == ("a-00000000", "Text 0", 2)
    assert (second["id"], second["text"]) == ("a-00000000-1", "two words")
    assert second["metadata"]["transformed"].startswith("squeeze@")


def test_the_page_on_collections(place):
    import dolma_dask as dk

    dk.convert("raw", to="corpus/v0", source="wiki", progress=False)
    names: dict = {}
    for code in re.findall(r"```python\n(.*?)```", (ROOT / "docs/collections.md").read_text(), re.DOTALL):
        exec(code, names)
    assert 0 < names["v1"].counts["documents_out"] < 40
    assert names["v1"].counts["unproved_attribute_files"] == 0
    assert names["v2"].counts["documents_out"] == names["summary"].counts["documents_out"]
    assert names["packed"].counts["rows"] > 0
    assert dk.validate("corpus/v0", progress=False).exit_status == 0
    assert set(dk.open_dataset("corpus/v0").attributes) == {"mine", "zip", "prices", "shouts"}


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


def test_links_of_the_documents_exist():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_command_is_in_the_readme():
    from dolma_dask.registry import COMMANDS

    text = (ROOT / "README.md").read_text()
    assert all(f"dolma-dask {name}" in text or f"make {name}" in text for name in COMMANDS)
