"""Attempts at a task, where it runs: tried again where that may help, timed, and never allowed to stop its neighbours."""

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from typing import Any, cast

from msgspec.structs import replace

from dolma_dask.engine.plan import JoiningStage, Stage, Task, group_name
from dolma_dask.errors import (
    DiskFullError,
    DolmaDaskError,
    Failure,
    StoreAccessError,
    StoreError,
    StoreUnreachableError,
)
from dolma_dask.io import late, stores
from dolma_dask.io.joined import NotJoinedError
from dolma_dask.io.waiting import Waiting
from dolma_dask.journal import Record

RETRIES = 2
RETRY_SECONDS = 0.5

LIVES = 3
"""Processes that a task may lose, alone in each, before it counts as what killed them. On a cluster, so many times as many as Dask allows: when all workers of a host
die at once, a task may be passed from one to the next of them.
"""

MAX_CALLS = 6
"""Calls that the message of an unforeseen error names, the innermost last."""

_FORESEEN = (DolmaDaskError, OSError, MemoryError)
"""Errors that speak for themselves; others are of a plug-in, or a mistake of ours."""

_log = logging.getLogger(__name__)

Outcome = Any
"""Result of a task: the records of its units (for a stage that only reads, what it returns), or a `Failure`."""

Take = Callable[[Task, Outcome], None]
"""Gets each task once, with what it came to."""


class Stopped(KeyboardInterrupt):
    """Ctrl-C as threads get it that work for the one that got it."""


def attempt(stage: Stage, task: Task, waiting: Waiting) -> Outcome:
    """Do one task; return its records, whose files may wait to appear, or its failure."""

    def once(number: int) -> Outcome:
        with waiting:
            return _timed(stage, task)

    return retried(task, once)


def attempt_joined(stage: Stage, tasks: Sequence[Task], waiting: Waiting) -> list[Outcome] | None:
    """Do several tasks as one; return the records of each, or None if that does not go, for whatever reason; the log has what nobody foresaw, at level debug."""
    started = time.perf_counter()
    try:
        with waiting:
            outcomes = cast(JoiningStage, stage).run_joined(tasks)
    except BaseException as error:  # noqa: BLE001  as said above
        _raise_ctrl_c(error)
        log_apart(stage.verb, [task.shard for task in tasks], error)
        return None
    return [_finished(records, time.perf_counter() - started, len(tasks)) for records in outcomes]


def retried(task: Task, work: Callable[[int], Outcome]) -> Outcome:
    """Return what comes of some work on a task, called with the number of tries before; its failure if it does not help to try again.

    It is tried at most ``1 + RETRIES`` times, and once more for each file that was late.
    """
    tries, retries, were_late = 0, 0, set[str]()
    while True:
        try:
            return work(tries)
        except BaseException as error:  # noqa: BLE001  every failure is reported with its shard at the end
            _raise_ctrl_c(error)
            tries += 1
            if _was_late(error, were_late):
                continue
            if retries == RETRIES or not is_transient(error):
                return failure(task, error)
            time.sleep(RETRY_SECONDS * 2**retries)
            retries += 1


def _was_late(error: BaseException, before: set[str]) -> bool:
    """Tell whether a file that was missing is there now, for the first time."""
    name = error.filename if isinstance(error, FileNotFoundError) else None
    if not isinstance(name, str) or name in before:
        return False
    before.add(name)
    return late.may_be_late(name) and late.is_seen(name)


def log_apart(verb: str, shards: Sequence[str], error: BaseException) -> None:
    """Log, at level debug, why shards do not go as one, if nobody foresaw it: a mistake there only costs time, and would stay unseen."""
    if not isinstance(error, (NotJoinedError, *_FORESEEN)):
        _log.debug("%s of %s does not go as one", verb, group_name(shards), exc_info=error)


def _raise_ctrl_c(error: BaseException) -> None:
    """Raise what stops the run, if an error is it, or came up while it passed by."""
    found: BaseException | None = error
    while found is not None and not _is_ctrl_c(found):
        found = found.__context__
    if found is not None:
        raise found


def _is_ctrl_c(error: BaseException) -> bool:
    """Tell whether the user stops the run; a tagger may raise KeyboardInterrupt too, which would kill a worker in silence."""
    if isinstance(error, Stopped) or not isinstance(error, KeyboardInterrupt):
        return isinstance(error, Stopped)
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and callable(signal.getsignal(signal.SIGINT))  # processes that we start ignore Ctrl-C


def failure(task: Task, error: BaseException) -> Failure:
    """Return the failure of `task` by `error`, with the notes that were added on its way."""
    notes = getattr(error, "__notes__", ())
    if isinstance(error, OSError) and error.errno in stores.FULL:
        notes = (*notes, "make room and run the same command again: what is finished is kept")
    return Failure(task.shard, type(error).__name__, "; ".join([str(error) or repr(error), *notes]))


def killed(what: str, setting: str = "") -> str:
    """Say what a task has done to its processes; `setting` is what holds their memory."""
    more = f"Change {setting}" if setting else "Give the workers more memory (fewer workers on a machine)"
    return (
        f"{what}; expected it to fit in a worker's memory and the taggers to stay within Python. {more}, or run the same command with "
        "--scheduler synchronous to see why: it does only what is left."
    )


def is_transient(error: BaseException) -> bool:
    """Tell whether trying again may help: a connection, not a missing file; a store that is away was waited for already."""
    if isinstance(error, DolmaDaskError):
        return isinstance(error, StoreError) and not isinstance(
            error, (DiskFullError, StoreAccessError, StoreUnreachableError)
        )
    return stores.is_transient(error)


@contextmanager
def placed(verb: str, shard: str) -> Iterator[None]:
    """Add to an error that nobody foresaw, such as one of a sink of a plug-in, where it was raised: the failure of a shard keeps no traceback."""
    try:
        yield
    except _FORESEEN:
        raise
    except Exception as error:
        calls = [
            f"{frame.f_code.co_qualname} ({Path(frame.f_code.co_filename).name}, line {line})"
            for frame, line in walk_tb(error.__traceback__)
            if not str(frame.f_globals.get("__name__")).startswith(__package__)
        ]
        if calls:
            error.add_note(f"raised by {verb} of {shard} in {', '.join(calls[-MAX_CALLS:])}")
        raise


def _timed(stage: Stage, task: Task) -> Outcome:
    started = time.perf_counter()
    with placed(stage.verb, task.shard):
        result = stage.run_shard(task)
    if not _is_records(result):
        return result
    return _finished(result, time.perf_counter() - started)


def _finished(records: Sequence[Record], seconds: float, tasks: int = 1) -> list[Record]:
    """Return the records of a task with the time that it took, or its share of the time of several."""
    each = seconds / max(len(records), 1) / tasks  # added to what earlier passes have taken
    now = time.time()
    return [replace(record, seconds=round(record.seconds + each, 4), finished=now) for record in records]


def _is_records(result: Any) -> bool:
    return isinstance(result, list) and all(isinstance(item, Record) for item in result)
