"""Fixtures shared by all tests."""

import gc
import hashlib
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
KERNEL = re.compile(rb"\bnjit\b|@kernel\b|@operation\b")
"""What a source with compiled functions says."""


def _kernel_cache() -> str:
    """A folder of compiled kernels for these very sources: numba itself looks only at the file of the outermost kernel."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "dolma_dask").rglob("*.py")):
        if KERNEL.search(source := path.read_bytes()):
            digest.update(source)
    return str(ROOT / "build/kernels" / digest.hexdigest()[:16])


os.environ.setdefault("NUMBA_CACHE_DIR", _kernel_cache())

# how long an example takes says how busy the machine is
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # in the background of a shell; commands would ignore Ctrl-C too
    signal.signal(signal.SIGINT, signal.default_int_handler)


def shared_folder() -> Path:
    """Where the outputs of the original tools lie, if they are on this machine; absolute, since tests change the current folder."""
    return Path(os.environ.get("DOLMA_DASK_SHARED", ROOT.parent / "shared")).absolute()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data; tests that ask for it are skipped where it is missing."""
    folder = shared_folder()
    if not (folder / "conformance").is_dir():
        pytest.skip(f"reference data not found at {folder}; set DOLMA_DASK_SHARED")
    return folder


def pytest_collection_finish() -> None:
    """Leave the six thousand tests out of garbage collections: they live to the end, and are looked through each time."""
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
