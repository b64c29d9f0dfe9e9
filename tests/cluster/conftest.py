"""Fixtures for tests on a real SLURM: the SLURM, a small pipeline, and what it must leave."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]

from nodes import Node, shared_with_nodes, why_no_nodes, why_not_late  # noqa: E402
from private_slurm import Slurm, missing_programs  # noqa: E402
from small_pipeline import Pipeline  # noqa: E402

TIMEOUT_S = 1200
"""Limit for a test: several waits of `DEADLINE_S`, for a start or an end that takes a minute where nothing is in its way."""

MISSING = missing_programs()
REASON = f"{', '.join(MISSING)} not found; apt-get install slurmctld slurmd slurm-client munge"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, and skip them where SLURM is not installed."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))
            if MISSING:
                item.add_marker(pytest.mark.skip(reason=REASON))


@contextmanager
def started(nodes: int, *shared: Path) -> Iterator[Slurm]:
    """Run a SLURM on some nodes, or on this machine where there are none, for a block; ``late/`` of its folder is what nodes see late, as far as that can be had."""
    with tempfile.TemporaryDirectory(prefix="slurm-tests-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        late = None if why_not_late() else folder / "late"
        (folder / "late").mkdir()
        seen = shared_with_nodes(folder, *shared)
        slurm = Slurm(
            folder, [Node(f"n{each}", folder / f"n{each}", seen, late) for each in range(1, 1 + nodes)]
        )
        try:
            slurm.start()
            yield slurm
        finally:
            slurm.stop()


@pytest.fixture(scope="session")
def running_slurm() -> Iterator[Slurm]:
    """A SLURM that runs as long as the tests."""
    with started(0) as slurm:
        yield slurm


@pytest.fixture(scope="session")
def running_nodes(tmp_path_factory) -> Iterator[Slurm]:
    """A SLURM of three nodes that runs as long as the tests."""
    if reason := why_no_nodes():
        pytest.skip(reason)
    with started(3, tmp_path_factory.getbasetemp()) as slurm:
        yield slurm


def used(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    """Yield a SLURM as that of this process, without jobs before and after, and with all of its nodes."""
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    slurm.begin()
    yield slurm
    slurm.clear()


@pytest.fixture
def slurm(running_slurm, monkeypatch) -> Iterator[Slurm]:
    """The SLURM of one node, this machine."""
    yield from used(running_slurm, monkeypatch)


@pytest.fixture
def nodes(running_nodes, monkeypatch) -> Iterator[Slurm]:
    """The SLURM of three nodes, n1 to n3; those that a test has stopped are started again after it."""
    yield from used(running_nodes, monkeypatch)


@pytest.fixture
def late(running_nodes) -> Path:
    """A folder that nodes see late."""
    if reason := why_not_late():
        pytest.skip(reason)
    return Path(tempfile.mkdtemp(dir=running_nodes.folder / "late"))


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
