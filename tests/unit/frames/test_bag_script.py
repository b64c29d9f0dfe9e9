"""Bags in scripts: Dask computes them in processes that import the script."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import dolma_dask as dk
bag = dk.read_bag("corpus", ["id"])
{guard}print("documents:", bag.count().compute(num_workers=1))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("guard", "is_right"), [("", False), ('if __name__ == "__main__": ', True)], ids=["without", "with"]
)
def test_a_script_with_and_without_a_main_guard(tmp_path: Path, guard: str, is_right: bool) -> None:
    (tmp_path / "corpus/documents").mkdir(parents=True)
    (tmp_path / "corpus/documents/a.jsonl").write_text('{"id": "1", "text": "x", "source": "s"}\n')
    (tmp_path / "script.py").write_text(SCRIPT.format(guard=guard))
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert ("documents: 1" in done.stdout) is is_right
    assert ("below `if __name__ == '__main__':`" in done.stderr) is not is_right
