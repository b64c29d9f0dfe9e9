"""Metering: CPU of a run with all of its processes, memory of a process, and whether kernels are compiled now.

Whoever compiles a kernel, here or in a process that works for this one, meanwhile locks a small file that the display has made, and appends a byte to it. The system
frees the lock of a process that dies. A worker that does not see the file (on another host) locks nothing.
"""

import gc
import os
import resource
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

CALLER = "DOLMA_DASK_CALLER"
"""Variable of processes that work for another one: its number."""


def caller() -> str:
    """Return the number of the process for which this one works, directly or not: its own, if none of ours has started it."""
    return os.environ.get(CALLER, str(os.getpid()))


_MARK = "dolma-dask-compiling-"


def _mark() -> Path:
    return Path(tempfile.gettempdir(), f"{_MARK}{caller()}")


def _sweep_marks() -> None:
    """Remove the files of processes that were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_MARK}*"):
        with suppress(OSError, ValueError):
            try:
                os.kill(int(path.name.removeprefix(_MARK)), 0)
            except ProcessLookupError:
                path.unlink()


@contextmanager
def compiling() -> Iterator[None]:
    """Mark the time in which this thread compiles a kernel."""
    _totals.compiled += 1
    with ExitStack() as stack:
        with suppress(ImportError, OSError):  # nobody looks, or files cannot be locked there
            import fcntl

            mark = os.open(_mark(), os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
            stack.callback(os.close, mark)
            fcntl.flock(mark, fcntl.LOCK_SH)
            if os.fstat(mark).st_uid == os.getuid():  # not what somebody else has put there
                os.write(mark, b".")
        yield


@contextmanager
def watching_compilers() -> Iterator[None]:
    """Let compilers mark what they do in this block, so that `are_compiling` sees it."""
    _sweep_marks()
    with suppress(OSError):
        _mark().touch(mode=0o600)
    try:
        yield
    finally:
        with suppress(OSError):
            _mark().unlink()


def are_compiling() -> bool:
    """Tell whether kernels are compiled now, here or in processes that work for this one."""
    try:
        import fcntl

        with _mark().open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        return False
    return False


def seen_compilations() -> int:
    """Return how many kernels were compiled since `watching_compilers`, here and in processes that work for this one."""
    try:
        return _mark().stat().st_size
    except OSError:
        return 0


def process_name() -> str:
    """Return what tells this process from all others of a cluster."""
    return f"{socket.gethostname()}:{os.getpid()}"


class _Totals:
    """CPU-seconds of work that other processes have done for this one, and kernels that this one has compiled."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.compiled = 0
        self.lock = threading.Lock()


_totals = _Totals()


def compiled_kernels() -> int:
    """Return how many kernels this process has compiled, in place of loading them."""
    return _totals.compiled


def count_cpu(process: str, seconds: float) -> None:
    """Count CPU-seconds of a batch, unless it ran in this process, whose own clock has them."""
    if process != process_name():
        with _totals.lock:
            _totals.seconds += seconds


_helped = threading.local()


def thread_cpu() -> float:
    """Return the CPU-seconds of this thread, with those of threads that have worked for it."""
    return time.thread_time() + float(getattr(_helped, "seconds", 0.0))


def count_helper(seconds: float) -> None:
    """Count CPU-seconds that another thread has spent for this one."""
    _helped.seconds = getattr(_helped, "seconds", 0.0) + seconds


def peak_bytes() -> int:
    """Return the most resident bytes of this process so far.

    Linux is asked for those of the program itself: its `ru_maxrss` counts those of the process that started it in.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


class CpuClock:
    """CPU-seconds of this process, and of batches that others have done for it, since a moment."""

    def __init__(self) -> None:
        self._mark = self._now()

    @staticmethod
    def _now() -> float:
        return time.process_time() + _totals.seconds

    def take(self) -> float:
        """Return what was spent since the last call, or since the beginning."""
        before, self._mark = self._mark, self._now()
        return self._mark - before


@contextmanager
def without_collection() -> Iterator[None]:
    """Stop the search for cycles in this block: compilers, syntax trees and journals make millions of objects and free few (0.6 to 0.9 times the CPU)."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
