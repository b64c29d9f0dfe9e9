"""Metering: how far running tasks are, seen from another process, by a small shared file with a number for each batch of tasks; the CPU of a run, the memory of a process.

A worker notes the bytes that it has read of its inputs, and that it compiles kernels; the process that shows progress looks when it likes. Nobody
waits for anybody: reading 1 MiB costs one write of 8 bytes. A worker that does not see the file (on another host) notes nothing.
"""

import os
import resource
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

SLOTS = 4096
"""Batches in flight that have a number of their own."""

_WIDTH = 8


class Slot(NamedTuple):
    """Where a batch of tasks notes how far it is; without a path nowhere."""

    path: str = ""
    number: int = 0
    limit: int = 0  # stored bytes of its inputs


class _Count:
    """Bytes that a batch has read, and how many kernels it compiles now, one inside another."""

    def __init__(self, slot: Slot, handle: int | None) -> None:
        self._slot, self._handle = slot, handle
        self.bytes = self.compiling = 0

    def write(self) -> None:
        """Note it where the slot is."""
        if self._handle is not None:
            number = min(self.bytes, self._slot.limit) << 1 | (self.compiling > 0)
            with suppress(OSError):
                os.pwrite(self._handle, number.to_bytes(_WIDTH, sys.byteorder), _WIDTH * self._slot.number)


_outside = _Count(Slot(), None)
"""Count of all threads that run no batch."""

_thread = threading.local()


@contextmanager
def counting(slot: Slot) -> Iterator[None]:
    """Count what this thread reads within the block."""
    handle = None
    with suppress(OSError):
        handle = os.open(slot.path, os.O_WRONLY) if slot.path else None
    outer = getattr(_thread, "count", None)  # a run may start another
    _thread.count = _Count(slot, handle)
    try:
        yield
    finally:
        _thread.count = outer
        if handle is not None:
            os.close(handle)


def count_read(size: int) -> None:
    """Count stored bytes of an input that were read."""
    if count := getattr(_thread, "count", None):
        count.bytes += size
        count.write()


@contextmanager
def compiling() -> Iterator[None]:
    """Mark the time in which this thread compiles a kernel."""
    _totals.compiled += 1
    count = getattr(_thread, "count", None) or _outside
    count.compiling += 1
    count.write()
    try:
        yield
    finally:
        count.compiling -= 1
        count.write()


class Meter:
    """The shared file, for the process that shows how far all batches are; until it is opened nobody notes anything."""

    def __init__(self) -> None:
        self._path, self._handle, self._next = "", 0, 0

    def open(self) -> None:
        """Make the file, once; where there is no place for temporary files, shards count when they are done."""
        if self._path:
            return
        with suppress(OSError):
            self._handle, self._path = tempfile.mkstemp(prefix="dolma-dask-progress-")
            os.truncate(self._handle, _WIDTH * SLOTS)

    def begin(self, size: int) -> Slot:
        """Return the slot of a batch of so many stored bytes."""
        self._next += 1
        return Slot(self._path, self._next % SLOTS, size)

    def end(self, slot: Slot) -> None:
        """Forget what a batch has noted: it is done, or its process has died."""
        if self._path:
            with suppress(OSError):
                os.pwrite(self._handle, bytes(_WIDTH), _WIDTH * slot.number)

    def look(self) -> tuple[int, bool]:
        """Return the bytes that running batches have read, and whether kernels are compiled, there or here."""
        noted = os.pread(self._handle, _WIDTH * SLOTS, 0) if self._path else b""
        numbers = memoryview(noted).cast("q").tolist()
        return sum(number >> 1 for number in numbers), _outside.compiling > 0 or any(
            number & 1 for number in numbers
        )

    def close(self) -> None:
        """Remove the file."""
        if self._path:
            os.close(self._handle)
            with suppress(OSError):
                Path(self._path).unlink()
            self._path = ""


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
