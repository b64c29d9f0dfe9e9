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

from dolma_dask.errors import TrialError
from dolma_dask.pipelines.estimate.sample import PARTS
from dolma_dask.pipelines.stages import StagePlan
from dolma_dask.processes import WORKER_ENVIRONMENT

COLD = "cold"
"""The tiny sample in a process that has not loaded anything; the same again tells what loading costs."""

_ROUNDS = 2
"""How often each sample is tried, since what others do on the machine makes more CPU-seconds of the same work: the least counts."""

TRIES = 1 + len(PARTS) * _ROUNDS
"""How often the stages are run."""

_MODULE = "dolma_dask.pipelines.estimate.trial"


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
    noise: float = 0.0  # CPU-seconds that another trial of the same took more


def run_trials(
    stages_of: Mapping[str, Sequence[StagePlan]], folders: Mapping[str, Path], advance: Callable[[], None]
) -> dict[str, dict[str, Trial]]:
    """Run the stages on all samples in one process; return the trials by sample and stage.

    What compiled kernels is not used: each sample is tried again, and the cold one in another process.

    Raises `TrialError`: a stage failed on its sample.
    """
    file = folders[PARTS[0]] / "runs.pickle"

    def told(names: Sequence[str]) -> list[dict[str, Trial]]:
        trials = _run([(folders[name], stages_of[name]) for name in names], file, advance)
        return [{trial.stage: trial for trial in islice(trials, len(stages_of[name]))} for name in names]

    cold, *rest = told([PARTS[0], *PARTS * _ROUNDS])
    if any(trial.compiled for trial in cold.values()):
        (cold,) = told([PARTS[0]])
    found = {COLD: cold}
    for at, name in enumerate(PARTS):
        rounds = rest[at :: len(PARTS)]
        found[name] = {stage: _least([one[stage] for one in rounds]) for stage in rounds[0]}
    return found


def _least(rounds: Sequence[Trial]) -> Trial:
    """Return the trial that took the least, and how much more others took."""
    ordered = sorted(rounds, key=lambda trial: (trial.compiled > 0, trial.cpu))
    warm = [trial.cpu for trial in ordered if not trial.compiled] or [0.0]
    return replace(ordered[0], noise=warm[min(1, len(warm) - 1)] - warm[0])


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
                raise TrialError(
                    f"stage {told['stage']!r} failed on the sample, as it would in the real run: {error}"
                )
            expected -= 1
            advance()
            yield Trial(**told)
        status = process.wait()
    if expected:
        raise TrialError(
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
