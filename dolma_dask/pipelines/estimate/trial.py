"""The process in which stages run on samples: ``python -m dolma_dask.pipelines.estimate.trial FILE``; a line of JSON for each stage on standard output.

One stage after another in this process, as a worker would do it, so that the clock of the process is the cost of the work. The file is a pickle of
lists of stages and their folder. It ends with the process that started it, whose end closes its standard input.
"""

import json
import os
import pickle
import resource
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dolma_dask.errors import DolmaDaskError
from dolma_dask.formats import layout
from dolma_dask.metering import compiled_kernels, peak_bytes
from dolma_dask.pipelines.stages import StagePlan

_LOOK_SECONDS = 0.02
"""How often the scratch of a stage is looked at."""


def main() -> None:
    """Run the lists of stages that the file names."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    out, sys.stdout = sys.stdout, sys.stderr
    with Path(sys.argv[1]).open("rb") as file:
        runs: list[tuple[str, Sequence[StagePlan]]] = pickle.load(file)
    for folder, stages in runs:
        shutil.rmtree(Path(folder, "out"), ignore_errors=True)
        for stage in stages:
            told = _try(stage, Path(folder))
            out.write(json.dumps(told) + "\n")
            out.flush()
            if told["error"]:
                return


def _end_with_parent() -> None:
    while os.read(0, 1):  # not sys.stdin, whose lock the end of this process would wait for
        pass
    os._exit(1)


def _try(stage: StagePlan, folder: Path) -> dict[str, Any]:
    """Run a stage and return what it took and wrote."""
    before, error, counts = _listing(folder), "", {}
    _forget_peak()
    cpu, wall, compiled = _cpu(), time.perf_counter(), compiled_kernels()
    with _watched(folder) as scratch:
        try:
            # a dataset that was sampled may have attributes that this stage makes
            summary = stage.call(scheduler="synchronous", progress=False, overwrite=True)
        except (DolmaDaskError, OSError) as failed:
            error = f"{type(failed).__name__}: {failed}"
        else:
            counts = {**getattr(summary, "counts", {})}
            if summary.exit_status and not getattr(summary, "lost", False):
                error = f"it found problems:\n{summary}"
    seconds, wall = _cpu() - cpu - scratch.cpu, time.perf_counter() - wall
    after = _listing(folder)
    written = {path: size for path, (size, stamp) in after.items() if before.get(path) != (size, stamp)}
    kept = {path: size for path, size in written.items() if not _is_of_runs(path)}
    return {
        "stage": stage.name,
        "error": error,
        "cpu": max(seconds, 0.0),
        "wall": wall,
        "peak": peak_bytes(),
        "scratch": scratch.most,
        "files": len(kept),
        "bytes": sum(kept.values()),
        "journal_files": len(written) - len(kept),
        "compiled": compiled_kernels() - compiled,
        "counts": counts,
    }


def _is_of_runs(path: str) -> bool:
    return any(f"/{part}" in f"/{path}" for part in layout.OF_RUNS)


def _listing(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of all files below a folder."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                path = Path(place, name)
                status = path.stat()
                found[str(path.relative_to(folder))] = status.st_size, status.st_mtime_ns
    return found


def _cpu() -> float:
    both = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(one.ru_utime + one.ru_stime for one in both)


def _forget_peak() -> None:
    """Let the peak of memory begin anew, where the system can."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


class _Scratch:
    """Most bytes in work folders, and what looking has cost."""

    most = 0
    cpu = 0.0

    def look(self, folder: Path) -> None:
        sizes = 0
        for place, _, names in os.walk(folder / "out"):
            if f"{os.sep}{layout.WORK}" in place:
                for name in names:
                    with suppress(OSError):
                        sizes += Path(place, name).stat().st_size
        self.most = max(self.most, sizes)


@contextmanager
def _watched(folder: Path) -> Iterator[_Scratch]:
    """Look at the work folders while the block runs."""
    scratch, ended = _Scratch(), threading.Event()

    def look() -> None:
        while not ended.wait(_LOOK_SECONDS):
            scratch.look(folder)
        scratch.cpu = time.thread_time()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield scratch
    finally:
        ended.set()
        thread.join()


if __name__ == "__main__":
    main()
