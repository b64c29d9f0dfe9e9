"""Kernels come from the cache on disk at little cost, and cost nothing before they are called."""

import os
import subprocess
import sys

CALL = """
import sys
import numpy as np
import dolma_dask.verbs.tag, dolma_dask.verbs.mix.verb
from dolma_dask.formats.json.strings import line_starts
assert "numba" not in sys.modules
print(line_starts(np.frombuffer(b"a\\nbc\\n", np.uint8)).tolist(), "scipy.linalg" in sys.modules, "numba.np.linalg" in sys.modules)
"""


def test_numba_is_imported_by_the_first_call_and_its_typing_registries_only_to_compile(tmp_path):
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
    assert [loaded.split()[1] for _, loaded in answers] == ["True", "False"]
    assert answers[1][1].split() == ["False", "False"]


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
