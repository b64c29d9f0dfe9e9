"""The trials of a pipeline: its stages on each sample, in processes of their own, so that what they take is theirs alone."""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from dolma_dask.config.estimate.sample import PARTS
from dolma_dask.config.stages import StagePlan
from dolma_dask.errors import StageError
from dolma_dask.processes import WORKER_ENVIRONMENT

COLD = "cold"
"""The small sample in a process that has not loaded anything; the same again tells what loading costs."""

_ATTEMPTS = 2

_AGAIN = ("tiny", "many", "small", "large", "tiny", "many")
"""Samples that are tried again, since what others do on the machine makes more CPU-seconds of the same work: the least counts."""

_MODULE = "dolma_dask.config.estimate.trial"


@dataclass(frozen=True)
class Trial:
    """A stage on one sample."""

    stage: str
    cpu: float  # seconds
    wall: float
    peak: int  # bytes of resident memory
    scratch: int  # most bytes in work folders
    # what it wrote, but for journals
    files: int
    bytes: int
    journal_files: int
    compiled: int = 0  # kernels, in its time
    counts: dict[str, float] = field(default_factory=dict)


def run_trials(
    stages_of: Mapping[str, Sequence[StagePlan]], folders: Mapping[str, Path], advance: Callable[[], None]
) -> dict[str, dict[str, Trial]]:
    """Run the stages on all samples in one process; return the trials by sample and stage.

    A process that had to compile kernels has figures that are not used: another one does it all again.

    Raises `StageError`: a stage failed on its sample.
    """
    names = [COLD, *PARTS, *_AGAIN]
    for _ in range(_ATTEMPTS):
        told = _run(
            [(folders[name], stages_of[name]) for name in names], folders[COLD] / "runs.pickle", advance
        )
        runs = [
            (name, {trial.stage: trial for trial in islice(told, len(stages_of[name]))}) for name in names
        ]
        if not any(trial.compiled for _, run in runs for trial in run.values()):
            break
    found: dict[str, dict[str, Trial]] = {}
    for name, run in runs:
        known = found.setdefault(name, run)
        found[name] = {
            stage: min(known[stage], trial, key=lambda one: one.cpu) for stage, trial in run.items()
        }
    return found


def _run(
    runs: Sequence[tuple[Path, Sequence[StagePlan]]], file: Path, advance: Callable[[], None]
) -> Iterator[Trial]:
    file.parent.mkdir(parents=True, exist_ok=True)
    plain = [
        (str(folder), [replace(stage, at=None, nodes={}) for stage in stages]) for folder, stages in runs
    ]
    file.write_bytes(pickle.dumps(plain))
    expected = sum(len(stages) for _, stages in runs)
    with _process(file) as process:
        assert process.stdout is not None
        for line in process.stdout:
            told: dict[str, Any] = json.loads(line)
            if error := told.pop("error"):
                raise StageError(
                    f"stage {told['stage']!r} failed on the sample, as it would in the real run: {error}"
                )
            expected -= 1
            advance()
            yield Trial(**told)
        status = process.wait()
    if expected:
        raise StageError(
            f"the process of the trials ended with status {status} before {expected} of its stages; expected it to live. Is there enough memory?"
        )


@contextmanager
def _process(file: Path) -> Iterator[subprocess.Popen[str]]:
    """Start the process of some trials, and end it with the block."""
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**WORKER_ENVIRONMENT, **os.environ, "PYTHONPATH": path}
    process = subprocess.Popen(
        [sys.executable, "-m", _MODULE, str(file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,  # Ctrl-C is for the command, which ends it
    )
    try:
        yield process
    finally:
        with suppress(OSError):
            process.kill()
        process.wait()
        for pipe in process.stdin, process.stdout:
            if pipe is not None:
                pipe.close()
