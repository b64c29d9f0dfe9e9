"""Commands in their own process groups, to be watched and killed (needs psutil)."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar, cast

import psutil

from dolma_dask.processes import interrupts_held_back, process_context, script_left_out
from dolma_dask.registry import load
from dolma_dask.testing.disturbance import disturb, mark_of

DISTURBED = os.pathsep.join(
    [str(Path(__file__).resolve().parent / "disturbed"), *filter(None, [os.environ.get("PYTHONPATH")])]
)
SLOW_DISK = {"PYTHONPATH": DISTURBED, "SLOW_DISK_S": "0.02"}
"""Environment in which each fsync takes longer, so that there are moments worth killing at."""

DEADLINE_S = 300.0
"""Limit for events that must happen some time: far more than they take."""


def killed_at(operation: int, within: str | Path) -> dict[str, str]:
    """Return the environment of a process group that dies before an operation on files whose path holds a text; the first is 1."""
    return {"PYTHONPATH": DISTURBED, "KILL_AT": str(operation), "KILL_IN": str(within)}


def held_at(operation: int, marks: Path, *within: str | Path, workers: bool = False) -> dict[str, str]:
    """Return the environment of a process group of which the first process (of the workers) waits to be killed before an operation on files whose path
    holds a text; one for each text, see `held`. `marks` is an empty folder.
    """
    texts = os.pathsep.join(map(str, within))
    who = {"HOLD_WORKERS": "1"} if workers else {}
    return {
        "PYTHONPATH": DISTURBED,
        "HOLD_AT": str(operation),
        "HOLD_IN": texts,
        "HOLD_MARKS": str(marks),
        **who,
    }


def powerless_at(operation: int, within: str | Path, seed: str) -> dict[str, str]:
    """Return the environment of a process under which the power fails before an operation below a folder, or at its end if it does not come to that; `seed` decides what is lost."""
    return {
        "PYTHONPATH": DISTURBED,
        "POWER_FAILS_AT": str(operation),
        "POWER_IN": str(within),
        "POWER_SEED": seed,
    }


class Command:
    """A running command.

    Parameters
    ----------
    words : sequence of str
        Arguments of ``python -m dolma_dask``, or, where the first ends in ``.py``, of ``python``.
    log : Path
        Gets standard output and standard error.
    prepared : bool
        Fork it from a process that has imported the package: a second less, where the start of a command is not what is tested.
    **environment : str
        Further environment variables, such as `SLOW_DISK`.
    """

    def __init__(self, words: Sequence[str], log: Path, prepared: bool = False, **environment: str) -> None:
        self._log = log
        start = _Forked if prepared and not words[0].endswith(".py") else _started
        self._popen = start(words, log, {**os.environ, **environment})
        self.process = psutil.Process(self._popen.pid)
        self._family: dict[int, psutil.Process] = {self.process.pid: self.process}

    def __enter__(self) -> "Command":
        return self

    def __exit__(self, *_: object) -> None:
        self.family()
        for process in self._family.values():
            if process.is_running():
                process.kill()
        self._popen.wait()

    @property
    def output(self) -> str:
        """Output so far."""
        return self._log.read_text(errors="replace")

    def running(self) -> bool:
        """Tell whether it goes on."""
        return self._popen.poll() is None

    def wait(self) -> int:
        """Return its exit status; negative after a signal."""
        return self._popen.wait(DEADLINE_S)

    def family(self) -> list[psutil.Process]:
        """Return all of its processes that were ever seen and still run."""
        with suppress(psutil.NoSuchProcess):
            self._family |= {child.pid: child for child in self.process.children(recursive=True)}
        return [process for process in self._family.values() if is_alive(process)]

    def workers(self) -> list[psutil.Process]:
        """Return the processes that work on shards: all but the command itself, Python's resource tracker and the server that forks."""
        family = self.family()
        words = {process.pid: " ".join(_answer(process.cmdline, [])) for process in family}
        servers = {pid for pid in words if "multiprocessing.forkserver" in words[pid]}
        forked = {process.pid for process in family if _answer(process.ppid, 0) in servers} & servers
        spawned = {pid for pid in words if "spawn_main" in words[pid]}
        return [process for process in family if process.pid in forked | spawned and process != self.process]

    def interrupt(self, group: bool) -> None:
        """Send what Ctrl-C sends: in a terminal to the whole group, in a script often to the command alone."""
        (os.killpg if group else os.kill)(self.process.pid, signal.SIGINT)

    def kill(self, group: bool) -> None:
        """Send SIGKILL to the command, or to it and all of its workers at once."""
        self.family()
        (os.killpg if group else os.kill)(self.process.pid, signal.SIGKILL)
        self._popen.wait(DEADLINE_S)

    def wait_for_family(self) -> None:
        """Wait until none of its processes is left; they must end by themselves."""
        wait_until(lambda: not self.family(), "its worker processes to end")


def _started(words: Sequence[str], log: Path, environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    """Start a command as a user does."""
    program = () if words[0].endswith(".py") else ("-m", "dolma_dask")
    with log.open("wb") as out:
        return subprocess.Popen(
            [sys.executable, *program, *words],
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
        )


class _Forked:
    """A command in a fork of a process that has imported the package, with what `Command` needs of `subprocess.Popen`."""

    def __init__(self, words: Sequence[str], log: Path, environment: dict[str, str]) -> None:
        with interrupts_held_back(), script_left_out():
            context = process_context("dolma_dask.cli", "dolma_dask.testing.commands")
            self._process = context.Process(target=_run_forked, args=(list(words), str(log), environment))
            self._process.start()
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        self._process.join(0)
        return cast("int | None", self._process.exitcode)

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("dolma-dask", timeout or 0.0)
        return int(self._process.exitcode)


def _run_forked(words: list[str], log: str, environment: dict[str, str]) -> None:
    """Run a command in this process as if it had been started for it."""
    os.setsid()
    with Path(log).open("wb") as out:
        for standard in (1, 2):
            os.dup2(out.fileno(), standard)
    os.environ.clear()
    os.environ.update(environment)
    more = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [path for path in more if path and path not in sys.path]
    sys.argv[1:] = words
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, signal.default_int_handler)
    disturb()
    load("dolma_dask.__main__:entry")()


def held(command: Command, marks: Path, within: str | Path) -> psutil.Process:
    """Return the process that waits to be killed (see `held_at`), once it does."""
    mark = mark_of(marks, str(within))
    wait_until(
        lambda: (mark.exists() and mark.read_text().endswith("\n")) or not command.running(), str(within)
    )
    assert mark.exists(), f"it ended before it came there: {command.output}"
    return psutil.Process(int(mark.read_text()))


T = TypeVar("T")


def _answer(question: Callable[[], T], otherwise: T) -> T:
    """Return the answer of a process; `otherwise` if it is gone."""
    try:
        return question()
    except psutil.Error:
        return otherwise


def is_alive(process: psutil.Process) -> bool:
    """Tell whether a process can still do anything."""
    status = _answer(process.status, psutil.STATUS_ZOMBIE)
    return bool(process.is_running() and status != psutil.STATUS_ZOMBIE)


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Poll until `condition` holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {DEADLINE_S} s for {what}"
        time.sleep(0.01)  # what is asked may look at every process of the host


class WatchedFiles:
    """Counts the files that ever appeared below some folders, temporary ones included.

    Parameters
    ----------
    folder : Path
        What to watch; files that are there already do not count.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known = set(self._walk())
        self.new: set[str] = set()

    def _walk(self) -> list[str]:
        every = (os.path.join(where, name) for where, _, names in os.walk(self._folder) for name in names)  # noqa: PTH118
        return [path for path in every if "/.leases/" not in path]  # they come before any work

    def count(self) -> int:
        """Return how many files have appeared."""
        self.new |= set(self._walk()) - self._known
        return len(self.new)
