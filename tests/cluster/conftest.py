"""Fixtures for tests on a real SLURM: the SLURM, a small pipeline, and what it must leave."""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]

from private_slurm import Slurm, missing_programs  # noqa: E402
from small_pipeline import Pipeline  # noqa: E402

MISSING = missing_programs()
REASON = f"{', '.join(MISSING)} not found; apt-get install slurmctld slurmd slurm-client munge"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, and skip them where SLURM is not installed."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.cluster)
            if MISSING:
                item.add_marker(pytest.mark.skip(reason=REASON))


@pytest.fixture(scope="session")
def running_slurm() -> Iterator[Slurm]:
    """A SLURM that runs as long as the tests."""
    with tempfile.TemporaryDirectory(prefix="slurm-tests-", ignore_cleanup_errors=True) as folder:
        slurm = Slurm(Path(folder))
        try:
            slurm.start()
            yield slurm
        finally:
            slurm.stop()


@pytest.fixture
def slurm(running_slurm) -> Iterator[Slurm]:
    """The SLURM, without jobs before and after the test."""
    running_slurm.begin()
    yield running_slurm
    running_slurm.cancel_all()


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """Jobs find the command of these sources, as after `source .venv/bin/activate`."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture(scope="session")
def before(tmp_path_factory) -> Pipeline:
    """The pipeline before it ran; it has run in one process elsewhere, so that its bytes are known."""
    return Pipeline.make(tmp_path_factory.mktemp("pipeline") / "world")


@pytest.fixture
def pipeline(before, tmp_path) -> Pipeline:
    """The pipeline in a folder of the test."""
    return before.copy(tmp_path)
