"""The trials of a pipeline: its stages on each sample, in processes of their own, so that what they take is theirs alone."""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dolma_dask.config.estimate.sample import PARTS
from dolma_dask.config.stages import StagePlan
from dolma_dask.errors import StageError
from dolma_dask.processes import WORKER_ENVIRONMENT

COLD = "cold"
"""The tiny sample in a process that has not loaded anything."""

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
    counts: dict[str, float] = field(default_factory=dict)


def run_trials(
    stages_of: dict[str, Sequence[StagePlan]], folders: dict[str, Path], advance: Callable[[], None]
) -> dict[str, dict[str, Trial]]:
    """Run the stages on all samples; return the trials by sample and stage.

    The tiny sample comes first in a process whose figures are not used: it compiles what is not compiled yet.

    Raises `StageError`: a stage failed on its sample.
    """
    tiny = PARTS[0]
    first = [stages_of["first"]]
    list(_run([(folders["first"], first[0])], folders["first"] / "first.pickle", advance))
    order = [COLD, *PARTS]
    told = _run([(folders[name], stages_of[name]) for name in order], folders[tiny] / "runs.pickle", advance)
    trials: dict[str, dict[str, Trial]] = {name: {} for name in order}
    for name in order:
        for _ in stages_of[name]:
            trial = next(told)
            trials[name][trial.stage] = trial
    return trials


def _run(
    runs: Sequence[tuple[Path, Sequence[StagePlan]]], file: Path, advance: Callable[[], None]
) -> Iterator[Trial]:
    file.parent.mkdir(parents=True, exist_ok=True)
    plain = [(str(folder), [replace(stage, at=None, nodes={}) for stage in stages]) for folder, stages in runs]
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
