"""Fixtures shared by all tests."""

import fcntl
import gc
import hashlib
import os
import pickle
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
sys.path.insert(0, str(ROOT / "tests"))

from thorough import examples  # noqa: E402

KERNEL = re.compile(rb"\bnjit\b|@kernel\b|@operation\b")
"""Marks of a source with compiled functions."""


def _kernel_cache() -> str:
    """A folder of compiled kernels for these very sources: numba itself looks only at the file of the outermost kernel."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "dolma_dask").rglob("*.py")):
        if KERNEL.search(source := path.read_bytes()):
            digest.update(source)
    return str(ROOT / "build/kernels" / digest.hexdigest()[:16])


os.environ.setdefault("NUMBA_CACHE_DIR", _kernel_cache())

# how long an example takes says how busy the machine is
settings.register_profile(
    "untimed",
    deadline=None,
    max_examples=examples(40),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("untimed")

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # in the background of a shell; commands would ignore Ctrl-C too
    signal.signal(signal.SIGINT, signal.default_int_handler)


DONT_WRITE, sys.dont_write_bytecode = sys.dont_write_bytecode, False
"""While tests are collected, pytest keeps what it makes of their sources, whatever the environment says: to make it anew takes each process half of its start."""


os.fsync = lambda descriptor: None
"""No test cuts the power: what a process has written is there for all others, also if it is killed. The disk took a third of the time of a short command."""


sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # a check of addresses in notebooks, which takes seconds to import


def shared_folder() -> Path:
    """Return the folder of the outputs of the original tools, if they are on this machine; absolute, since tests change the current folder."""
    return Path(os.environ.get("DOLMA_DASK_SHARED", ROOT.parent / "shared")).absolute()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data; tests that ask for it are skipped where it is missing."""
    folder = shared_folder()
    if not (folder / "conformance").is_dir():
        pytest.skip(f"reference data not found at {folder}; set DOLMA_DASK_SHARED")
    return folder


T = TypeVar("T")
Once = Callable[[str, Callable[[Path], T]], T]


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """A function that returns what another makes in a folder: the first process of this test run makes it, and all look at it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def made(name: str, make: Callable[[Path], T]) -> T:
        known = shared / f"{name}.pickle"
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not known.exists():
                (shared / name).mkdir()
                known.write_bytes(pickle.dumps(make(shared / name)))
        return pickle.loads(known.read_bytes())

    return made


@pytest.fixture(scope="session")
def collected(once: Once) -> Path:
    """The folder of the demo's raw files."""

    from dolma_dask.testing.corpus import collect_corpus

    def make(folder: Path) -> Path:
        collect_corpus(folder)
        return folder

    return once("collected", make)


def pytest_collection_finish() -> None:
    """Leave the nine thousand tests out of garbage collections: they live to the end, and are looked through each time."""
    sys.dont_write_bytecode = DONT_WRITE
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much of the suite needs the reference data and was left out."""
    skipped = [
        report
        for report in terminalreporter.stats.get("skipped", [])
        if "reference data" in str(report.longrepr)
    ]
    if skipped:
        terminalreporter.write_line(
            f"{len(skipped)} tests were skipped: they compare with reference data that is not here"
        )
