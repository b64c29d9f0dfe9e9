"""A warm-up calls every kernel that runs meet, so that none is compiled later."""

import os
import signal
import subprocess
import sys
import time

import pytest

RARE = {
    "mark_invalid_utf8",  # texts that are not UTF-8
    "_write_numbers",  # attributes in Parquet
    "count_not_above", "match_sorted", "_count", "_count_cells",  # more than fits in memory
    "_count_first", "bin_of", "_cell_of", "_collect_cells", "_append",
    "_longest_of",  # dictionaries in Parquet
    "_character_end",  # texts of characters that are signed in parts
    "_fill_keys",  # dedupe --audit
    "_find_torn",  # tables of text
    "_fill_preferences", "_spell",  # hdf5 of preferences and dialogues
    "_begins_with", "_find", "_hash_all", "_hash_folded",  # lists of words for c4_v2
    "_blank_refused", "_holds_refused", "_is_refused", "_fold",  # languages by CLD2, perplexity
    "_measure_words",  # words as units, and of the toolkit's plug-ins
    "_bits_of", "_find_candidates", "_has_bits", "_hash_ngrams", "_key", "_look_up", "_place_tokens", "_polynomial", "_set_bits", "_shift_to",  # contamination
    "_count_all", "_count_text", "_weigh",  # importance
    "find_texts", "_hash", "_taken", "_turned",  # filters of the Dolma toolkit
    "_hang", "_top", "answer", "ask", "count_members", "follow", "hand_down", "raise_own_matches", "settle", "unlabel",  # more documents than fit in one array
    "_cut_documents", "find_document",  # rows of token shards that have no end tokens
    "_fill_in_order", "_follow", "_merge_backwards",  # packings that are named
}  # fmt: skip
"""Kernels that are compiled when they are first needed."""

SCRIPT = """
import importlib, pkgutil, sys
import dolma_dask
from dolma_dask.pipelines import warming
from dolma_dask.text.kernels import _Kernel, _Lazy

for module in pkgutil.walk_packages(dolma_dask.__path__, "dolma_dask."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
names = {name for name in sys.modules if name.startswith("dolma_dask.")}
lazy = {value for name in names for value in vars(sys.modules[name]).values() if isinstance(value, _Lazy)}
for part in warming.PARTS:
    warming._do(part, f"{sys.argv[1]}/{part.__name__}")
kernels = {one for one in lazy if isinstance(one, _Kernel)}
called = [one for one in kernels if one.calls]
for one in called:  # and what they call
    uses = map(one.py_func.__globals__.get, one.py_func.__code__.co_names)
    called += [other for other in uses if isinstance(other, _Lazy) and other in kernels and other not in called]
print(len(called), *sorted(one.__name__ for one in kernels - set(called)))
"""


@pytest.mark.slow
def test_a_warm_up_calls_all_kernels_but_the_rare(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    called, *others = done.stdout.split()
    assert int(called) > 100
    assert set(others) == RARE


@pytest.mark.slow
def test_ctrl_c_ends_a_warm_up_however_often_it_comes(tmp_path):
    program = [sys.executable, "-m", "dolma_dask", "warm-up", "--workers", "2"]
    running = subprocess.Popen(program, env={**os.environ, "TMPDIR": str(tmp_path)}, stderr=subprocess.PIPE)
    while not list(tmp_path.glob("*/*/v0")) and running.poll() is None:
        time.sleep(0.01)
    for _ in range(100):  # at every moment of its end
        running.send_signal(signal.SIGINT)
        time.sleep(0.003)
    _, told = running.communicate(timeout=60)
    assert (running.returncode, told.count(b"\n")) == (130, 2), "what it does, and that it was stopped"
    assert told.startswith(b"warm-up: compiling all kernels")
    assert not list(tmp_path.iterdir())
