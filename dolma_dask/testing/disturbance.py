"""Slow disks and sudden deaths, for the processes of tests.

A process that has the folder ``disturbed`` in PYTHONPATH is disturbed as its environment says: with ``SLOW_DISK_S`` each fsync takes so many seconds longer,
so that there are moments worth killing at; with ``KILL_AT`` it and its whole process group get SIGKILL before the n-th operation on files
whose path holds ``KILL_IN``. An operation is a file opened for writing, renamed or removed, so that n counts through all states a disk can be
left in; in one thread it counts the same every time. With ``HOLD_AT`` the first process that comes to its n-th operation on files whose path holds one
of the texts in ``HOLD_IN`` writes its number to a file of that name in the folder ``HOLD_MARKS`` and waits there to be killed, or for the name ``released`` in that folder, so that a test need not
be fast to catch it; with ``HOLD_WORKERS`` the leader of the group is not meant. With ``POWER_FAILS_AT`` the power fails before the n-th operation below the folder
``POWER_IN``, or at the end of the process if it does not come to that (`dolma_dask.testing.power`).
"""

import atexit
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

from dolma_dask.testing.power import Disk

HOLD_S = 3600.0
"""Longer than any test waits for a process that is held."""

RELEASED = "released"
"""File or folder among the marks that lets all processes that are held go on."""


class Operations:
    """Counts operations on files whose path holds a text, while it is active."""

    def __init__(self, within: str = "", at: int = 0, then: Callable[[], None] = lambda: None) -> None:
        self.within = within
        self.count = 0
        self.at = at  # the one before which `then` is called
        self.then = then
        self.opened: list[str] = []  # for writing

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Hear of an event (see `sys.addaudithook`)."""
        if not self.within or event not in ("open", "os.rename", "os.remove", "shutil.rmtree"):
            return
        if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR):
            return
        if self.within in str(arguments[0]):
            self.count += 1
            if event == "open":
                self.opened.append(str(arguments[0]))
            if self.count == self.at:
                self.then()


_counted = Operations()
_hooked: list[Operations] = []


@contextmanager
def counting(within: str | Path) -> Iterator[Operations]:
    """Count the operations of this process on files whose path holds a text."""
    if not _hooked:  # a hook stays for ever
        _hooked.append(_counted)
        sys.addaudithook(_counted)
    _counted.within, _counted.count, _counted.opened = str(within), 0, []
    try:
        yield _counted
    finally:
        _counted.within = ""


def disturb() -> None:
    """Disturb this process as its environment says."""
    if delay := float(os.environ.get("SLOW_DISK_S", "0")):
        fsync = os.fsync

        def slow(file: int) -> None:
            time.sleep(delay)
            fsync(file)

        os.fsync = slow  # type: ignore[assignment]
    if operation := int(os.environ.get("KILL_AT", "0")):
        sys.addaudithook(Operations(os.environ["KILL_IN"], operation, partial(os.killpg, 0, signal.SIGKILL)))
    if operation := int(os.environ.get("POWER_FAILS_AT", "0")):
        _fail_power(Path(os.environ["POWER_IN"]), operation, os.environ["POWER_SEED"])
    if operation := int(os.environ.get("HOLD_AT", "0")):
        for within in os.environ["HOLD_IN"].split(os.pathsep):
            mark = mark_of(Path(os.environ["HOLD_MARKS"]), within)
            sys.addaudithook(Operations(within, operation, partial(_hold, mark)))


def _fail_power(within: Path, operation: int, seed: str) -> None:
    """Let the power fail before an operation, or at the end."""
    disk = Disk(within, operation, seed, partial(os.killpg, 0, signal.SIGKILL))
    disk.install()
    from dolma_dask.io import partial as partial_files

    partial_files.machine_start = lambda: "before the power failed"
    for at_end in (atexit.register, partial(Finalize, None, exitpriority=0)):  # of a command, and of a fork
        at_end(disk.end)


def mark_of(marks: Path, within: str) -> Path:
    """Return the file that tells which process is held at files whose path holds a text."""
    return marks / within.strip("/").replace("/", "_")


def _hold(mark: Path) -> None:
    """Wait to be killed, unless another process has done so here, or this one is not meant."""
    if "HOLD_WORKERS" in os.environ and os.getpid() == os.getpgid(0):
        return
    with suppress(FileExistsError):
        with mark.open("x") as out:
            out.write(f"{os.getpid()}\n")
        end = time.monotonic() + HOLD_S
        while time.monotonic() < end and not (mark.parent / RELEASED).exists():
            time.sleep(0.02)
