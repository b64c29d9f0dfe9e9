"""Kernels come from the cache on disk at little cost, and cost nothing before they are called."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CALL = """
import sys
import numpy as np
import dolma_dask.verbs.tag.verb, dolma_dask.verbs.mix.verb
from dolma_dask.formats.json.strings import line_starts
assert "numba" not in sys.modules
print(line_starts(np.frombuffer(b"a\\nbc\\n", np.uint8)).tolist(), *(name in sys.modules for name in ("numba", "scipy", "numba.np.linalg")))
"""


@pytest.mark.slow
def test_numba_is_imported_by_the_first_call_and_not_for_machine_code_that_is_kept(tmp_path):
    answers = [
        subprocess.run(
            [sys.executable, "-c", CALL],
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split("]")
        for _ in range(2)
    ]
    assert [starts for starts, _ in answers] == ["[0, 2, 5"] * 2
    assert [loaded.split() for _, loaded in answers] == [["True"] * 3, ["False"] * 3]


TOGETHER = """
import sys, time
from pathlib import Path
import numpy as np
import numba
from dolma_dask.formats.json import strings
print(flush=True)
sys.stdin.readline()
strings.line_starts(np.frombuffer(b"a\\nbc\\n", np.uint8))
print(sum(sum(kernel.compiled.stats.cache_misses.values()) for kernel in (strings._count_newlines, strings._list_newlines)))
"""


@pytest.mark.slow
def test_processes_that_start_together_on_a_cold_cache_compile_each_kernel_once(tmp_path):
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", TOGETHER],
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for process in processes:
        process.stdout.readline()
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate()[0] for process in processes]
    assert sum(map(int, answers)) == 2
    assert not list(tmp_path.rglob("*.lock"))


PLACED = """
import os, sys, tempfile
import numba
from numba.core import caching

numba.njit(lambda n: n + 1)(2)  # what compiling needs is imported; `one` is new to each child

def refused(dir):
    raise PermissionError(dir)

def compiled(how, cache):
    if how == "installed":
        caching.tempfile = type("", (), {"TemporaryFile": lambda dir: refused(dir) if dir.endswith("__pycache__") else tempfile.TemporaryFile(dir=dir)})
    os.environ["XDG_CACHE_HOME"] = cache
    from one import one
    assert one(2) == 3
    print(sum(one.compiled.stats.cache_misses.values()), flush=True)

for line in sys.stdin:
    if (child := os.fork()) == 0:
        compiled(*line.split())
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(1)
"""


@pytest.mark.slow
def test_kernels_of_an_installation_that_may_not_be_written_are_used(tmp_path):
    (tmp_path / "one.py").write_text(
        "from dolma_dask.text.kernels import kernel\n\n@kernel\ndef one(n):\n    return n + 1\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    del environment["NUMBA_CACHE_DIR"]

    nowhere = Path(os.devnull)
    program = [sys.executable, "-c", PLACED]
    with subprocess.Popen(
        program, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def compiled(how: str, cache: Path) -> str:
            process.stdin.write(f"{how} {cache}\n")
            process.stdin.flush()
            return process.stdout.readline().strip()

        assert [compiled("installed", tmp_path), compiled("installed", tmp_path)] == ["1", "0"], (
            "the user's cache"
        )
        (tmp_path / "__pycache__").rmdir()
        (tmp_path / "__pycache__").write_text("")
        assert compiled("nowhere", nowhere) == "1", "not kept at all"
        (tmp_path / "__pycache__").unlink()
        assert compiled("writable", nowhere) == "1"
        assert [compiled("installed", nowhere), compiled("installed", tmp_path / "new")] == ["0", "0"]
        process.stdin.close()
    assert process.returncode == 0
