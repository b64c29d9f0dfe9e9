"""Tasks in this process, without Dask: one after another, or in threads, each of which takes the next as soon as the one before only waits for its files.

Here nobody has to import Dask (0.12 CPU-seconds), and each outcome is handed over by itself, so that a kill costs no more than what is being worked on.
"""

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue
from typing import Any

from dolma_dask.engine.attempts import Outcome, Stopped, Take
from dolma_dask.engine.batches import Groups, run_all
from dolma_dask.engine.plan import Stage, Task

_LOCKING = ("<frozen importlib.", f"{os.sep}numba{os.sep}core{os.sep}")
"""Parts of file names of code that holds locks of the process."""

_STARTS_THREAD = threading.Thread.start.__code__
"""Until a thread that it starts runs, Python may take one for the other (3.11)."""

_IMPORT_SECONDS = 0.01
"""Until a thread that imports, compiles or starts another one is looked at again."""


def run_here(stage: Stage, tasks: Sequence[Task], threads: int, take: Take) -> None:
    """Do tasks in so many threads, for 0 in this one, and hand each outcome to `take` in this thread as soon as it is known."""
    groups = Groups(stage, tasks)
    if not threads:
        run_all(stage, groups, take)
        return
    done = SimpleQueue[tuple[Task, Outcome] | Future[None]]()
    try:
        with stoppable_threads(threads, run_all, groups.end) as (pool, work):
            working = {
                pool.submit(work, stage, groups, lambda *known: done.put(known)) for _ in range(threads)
            }
            for future in [*working]:
                future.add_done_callback(done.put)
            while working:
                match done.get():
                    case Future() as future:
                        working.remove(future)
                        future.result()
                    case task, outcome:
                        take(task, outcome)
    finally:
        with ExitStack() as rest:  # what was done is kept also if the run is stopped
            while not done.empty():
                match done.get():
                    case task, outcome:
                        rest.callback(take, task, outcome)


@contextmanager
def stoppable_threads(
    threads: int, work: Callable[..., Any], end: Callable[[], None] = lambda: None
) -> Iterator[tuple[ThreadPoolExecutor, "Stoppable"]]:
    """Yield threads, and the work for them; an exception in the block stops what still runs, and calls `end`, after which nothing more may begin."""
    stoppable = Stoppable(work)
    with ThreadPoolExecutor(threads, thread_name_prefix="dolma-dask") as pool:
        try:
            yield pool, stoppable
        except BaseException:
            end()  # for work that catches what stops it
            # in a thread, so that a second Ctrl-C does not keep this one from threads that are waited for
            stopping = threading.Thread(target=stoppable.stop, name="dolma-dask-stop")
            stopping.start()
            pool.shutdown(cancel_futures=True)
            stopping.join()
            raise


class Stoppable:
    """Work that several threads do, and that can be stopped between two byte codes; without it Ctrl-C would wait for whole shards."""

    def __init__(self, work: Callable[..., Any]) -> None:
        self._work = work
        self._threads: set[int] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def __call__(self, *args: Any) -> Any:
        identity = threading.get_ident()
        with self._lock:
            if self._stopped:
                raise Stopped
            self._threads.add(identity)
        try:
            return self._work(*args)
        finally:
            with self._lock:
                self._threads.discard(identity)

    def stop(self) -> None:
        """Raise `Stopped` in every thread that works; its writers then remove what they have begun.

        A thread that imports, compiles or starts another one is let finish that: cut off it may keep a lock, for which all others would wait for ever, or
        the new thread would die instead, for whose start it waits for ever.
        """
        told: set[int] = set()
        while True:
            with self._lock:
                self._stopped = True
                left = self._threads - told
                for identity in left:
                    if not _may_hold_lock(identity):
                        ctypes.pythonapi.PyThreadState_SetAsyncExc(
                            ctypes.c_ulong(identity), ctypes.py_object(Stopped)
                        )
                        told.add(identity)
            if left <= told:
                return
            time.sleep(_IMPORT_SECONDS)


def _may_hold_lock(identity: int) -> bool:
    """Tell whether a thread is within an import, compiles or loads a kernel, or starts another thread."""
    frame = sys._current_frames().get(identity)
    while frame is not None:
        if frame.f_code is _STARTS_THREAD or any(place in frame.f_code.co_filename for place in _LOCKING):
            return True
        frame = frame.f_back
    return False
