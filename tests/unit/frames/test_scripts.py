"""Collections in scripts: Dask computes bags in processes that import the script; a dataframe takes the scheduler that Dask would take, and loads no client for it."""

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


SCHEDULERS = """
import sys
import dask, dask.local, dolma_dask as dk
df = dk.read_dataframe("corpus", ["id"])
assert len(df) == len(df.compute()) == 1
assert "distributed" not in sys.modules
asked = []
def own(*given, **options):
    asked.append(1)
    return dask.local.get_sync(*given, **options)
with dask.config.set(scheduler=own):
    df.compute()
assert asked == [1]
df.compute(scheduler=own)
assert asked == [1, 1]
from distributed import Client
ask = Client.get
Client.get = lambda *given, **options: asked.append(1) or ask(*given, **options)
with Client(processes=False, n_workers=1, dashboard_address=None, set_as_default=False) as client:
    with client.as_current():
        df.compute()
    assert asked == [1, 1, 1]
    work = lambda: len(dk.read_dataframe("corpus", ["id"]).compute())
    assert client.submit(work).result() == 1
    assert asked == [1, 1, 1, 1]  # of the worker
print("right")
"""


@pytest.mark.slow
def test_a_dataframe_takes_the_scheduler_that_dask_would_take(tmp_path: Path) -> None:
    (tmp_path / "corpus/documents").mkdir(parents=True)
    (tmp_path / "corpus/documents/a.jsonl").write_text('{"id": "1", "text": "x", "source": "s"}\n')
    (tmp_path / "script.py").write_text(SCHEDULERS)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "right\n", done.stderr
