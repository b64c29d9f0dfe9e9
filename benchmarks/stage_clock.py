"""dolma-dask with a clock at each stage of a pipeline: ``python -m benchmarks.stage_clock FILE run ...``.

The command is the real one, in one process with its workers as children; only the call of each stage is wrapped. FILE gets a line of JSON
when a stage begins and one when it ends: the time, and the CPU-seconds of the process tree up to then. The workers of a pipeline live
from stage to stage, so nobody outside could tell whose CPU-seconds are whose. Cost: 1 ms for each line.
"""

import functools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil


def tree_cpu_seconds() -> float:
    """User and system time of this process and of all that come from it, ended ones included."""
    own = psutil.Process()
    found = 0.0
    for process in (own, *own.children(recursive=True)):
        try:
            found += sum(process.cpu_times()[:4])  # user, system, and those of children that were waited for
        except psutil.NoSuchProcess:
            continue
    return found


def clocked(call: Callable[..., Any], log: Path) -> Callable[..., Any]:
    """Return the method `StagePlan.call` with a line in `log` before and after."""

    def note(stage: str, begins: bool) -> None:
        line = {"stage": stage, "begins": begins, "at": time.monotonic(), "cpu": tree_cpu_seconds()}
        with log.open("a") as out:
            out.write(json.dumps(line) + "\n")

    @functools.wraps(call)
    def noted(plan: Any, **more: Any) -> Any:
        note(plan.name, True)
        try:
            return call(plan, **more)
        finally:
            note(plan.name, False)

    return noted


def main() -> int:
    """Run the command behind the first word."""
    from dolma_dask import cli
    from dolma_dask.pipelines.stages import StagePlan

    StagePlan.call = clocked(StagePlan.call, Path(sys.argv[1]))  # type: ignore[method-assign]
    return cli.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
