"""Knowledge of a process about itself: Dask is imported for its settings only where there are some, and forks know what they lack."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from dolma_dask.processes import keep_freed_memory


@pytest.mark.parametrize(
    "text, is_loaded",
    [("# jobqueue:\n#   slurm:\n\n  # more\n", False), ("# comment\nscheduler: threads\n", True)],
)
def test_files_of_comments_are_no_settings(tmp_path, monkeypatch, text, is_loaded):
    folder = tmp_path / ".config/dask"
    folder.mkdir(parents=True)
    (folder / "labextension.yaml").write_text(text)
    monkeypatch.setenv("HOME", str(tmp_path))
    code = "import sys\nfrom dolma_dask.clusters.local import configured\nprint(configured('scheduler'), 'dask' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["threads" if is_loaded else "None", str(is_loaded)]


FORKS = """
import os, sys, threading
from dolma_dask.clusters.local import check_has_threads
from dolma_dask.errors import UsageError

def in_fork(look):
    child = os.fork()
    if not child:
        os._exit(look())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def is_refused():
    try:
        check_has_threads()
    except UsageError:
        return 1
    return 0

if sys.argv[1] == "imported":
    import distributed
print(in_fork(is_refused))
threading.Thread(target=threading.Event().wait, daemon=True).start()
print(in_fork(is_refused), in_fork(lambda: in_fork(is_refused)), is_refused())
"""


@pytest.mark.parametrize("loaded, refused", [("imported", "0 1 1 0"), ("not", "0 0 0 0")])
def test_a_fork_lacks_the_threads_that_ran_but_not_what_was_imported(loaded, refused):
    done = subprocess.run([sys.executable, "-c", FORKS, loaded], capture_output=True, text=True, check=True)
    assert done.stdout.split() == refused.split()


@pytest.mark.parametrize("own", [None, "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"])
@pytest.mark.parametrize("has_mallopt", [True, False])
def test_freed_memory_is_kept_as_in_workers_unless_the_user_decides(monkeypatch, own, has_mallopt):
    found = []
    library = SimpleNamespace(mallopt=lambda *words: found.append(words)) if has_mallopt else object()
    monkeypatch.setattr("ctypes.CDLL", lambda _: library)
    monkeypatch.setattr("dolma_dask.processes._FORKS", True)
    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"):
        monkeypatch.delenv(name, raising=False)
    if own:
        monkeypatch.setenv(own, "65536")
    keep_freed_memory.__wrapped__()
    assert found == ([(-1, 64 << 20), (-3, 32 << 20)] if has_mallopt and not own else [])
