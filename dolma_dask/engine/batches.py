"""Tasks done one after another where they run: while the files of some wait for the disk, the next one works.

The thread of the caller works on tasks; a few others wait for the files of those before (`dolma_dask.io.waiting`). An outcome is handed over when its files are
there, in the order of the tasks, so that the journal never names one that is not. Bounded by `MAX_WAITING_FILES` and `MAX_WAITING_BYTES`, unless one task has
more. Cost: work and disk take the longer of the two times; 0.1 ms for each task.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from msgspec.structs import replace

from dolma_dask.engine.attempts import Outcome, Take, attempt, retried
from dolma_dask.engine.plan import Stage, Task
from dolma_dask.io.publish import settled_stamp
from dolma_dask.io.waiting import Waiting
from dolma_dask.journal import Record
from dolma_dask.metering import count_helper, process_name, thread_cpu

BATCH_SECONDS = 5.0
"""After so long a batch hands over what it has done, and what is left of it is another one: a kill costs no more than that."""

MAX_WAITING_FILES = 64
"""Files that wait, each of them open, after which the next task does not begin, unless they are of one task."""

MAX_WAITING_BYTES = 64 << 20
"""Likewise their bytes, which are in memory until the disk or the store has them."""

AT_ONCE = 8
"""Tasks whose files appear at once: disks and stores do several syncs in the time of one."""


class Quoted:
    """Hides a value from Dask, which would look for its own collections in lists and dataclasses."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return Quoted, (self.value,)


class Outcomes(list[Outcome]):
    """Outcomes of a batch, and the CPU-seconds that it took in a process."""

    process = ""
    cpu = 0.0


def run_batch(stage: Quoted, tasks: Quoted) -> Outcomes:
    """Do some tasks one after another, one at least, until `BATCH_SECONDS` have passed; a failing one does not stop the next."""
    cpu = thread_cpu()
    outcomes = Outcomes()
    run_all(stage.value, _in_time(tasks.value), lambda task, outcome: outcomes.append(outcome))
    outcomes.process, outcomes.cpu = process_name(), thread_cpu() - cpu
    return outcomes


def _in_time(tasks: Sequence[Task]) -> Iterator[Task]:
    """Yield tasks until the time of a batch is over."""
    begun = time.monotonic()
    for task in tasks:
        yield task
        if time.monotonic() - begun > BATCH_SECONDS:
            return


def run_all(stage: Stage, tasks: Iterable[Task], take: Take) -> None:
    """Do tasks one after another, and hand each outcome to `take` in this thread, in their order; a failing one does not stop the next.

    What was done is handed over also if the user stops the run.
    """
    with ThreadPoolExecutor(AT_ONCE, "dolma-dask-files") as threads:
        begun: deque[_Begun] = deque()

        def hand_over() -> None:
            outcome = begun[0].outcome
            take(begun.popleft().task, outcome)

        try:
            for task in tasks:
                begun.append(_Begun(stage, task))
                begun[-1].work(threads)
                while begun and (begun[0].is_there or _are_too_many(begun)):
                    hand_over()
        except BaseException:
            if begun and not begun[-1].is_done:
                begun.pop().waiting.discard()
            raise
        finally:
            with ExitStack() as rest:  # each of them, whatever comes of another
                for _ in range(len(begun)):
                    rest.callback(hand_over)


def _are_too_many(begun: "Sequence[_Begun]") -> bool:
    waiting = [one.waiting for one in begun]
    are_many = sum(map(len, waiting)) > MAX_WAITING_FILES
    return len(begun) > 1 and (are_many or sum(one.bytes for one in waiting) > MAX_WAITING_BYTES)


class _Begun:
    """A task that is done but for its files, which appear in another thread."""

    def __init__(self, stage: Stage, task: Task) -> None:
        self._stage, self.task = stage, task
        self.waiting = Waiting()
        self.is_done = False
        self._outcome: Outcome = None
        self._appearing: Future[tuple[Outcome, float]] | None = None

    def work(self, threads: ThreadPoolExecutor) -> None:
        """Do the task."""
        self._outcome = attempt(self._stage, self.task, self.waiting)
        if self.waiting:
            self._appearing = threads.submit(_appeared, self._outcome, self.waiting)
        else:
            self._outcome = _with_stamps(self._outcome)
        self.is_done = True

    @property
    def is_there(self) -> bool:
        """True if nothing is waited for."""
        return self._appearing is None or self._appearing.done()

    @property
    def outcome(self) -> Outcome:
        """What the task came to, once all of its files are there."""
        return retried(self.task, self._settled)

    def _settled(self, number: int) -> Outcome:
        """Wait for the files; after a failure the task is done again as a whole."""
        if number:
            outcome = attempt(self._stage, self.task, self.waiting)
            return _appeared(outcome, self.waiting)[0]
        if self._appearing is None:
            return self._outcome
        outcome, cpu = self._appearing.result()
        count_helper(cpu)
        return outcome


def _appeared(outcome: Outcome, waiting: Waiting) -> tuple[Outcome, float]:
    """Let the files of a task appear; return its outcome with their stamps, and the CPU-seconds of that."""
    begun = time.thread_time()
    waiting.appear()
    return _with_stamps(outcome), time.thread_time() - begun


def _with_stamps(outcome: Outcome) -> Outcome:
    """Return an outcome with the stamps of files that waited when their records were made."""
    if not isinstance(outcome, list):
        return outcome
    return [_stamped(one) if isinstance(one, Record) else one for one in outcome]


def _stamped(record: Record) -> Record:
    stamps = [settled_stamp(file.stamp) for file in record.files]
    if stamps == [file.stamp for file in record.files]:
        return record
    pairs = zip(record.files, stamps, strict=True)
    return replace(record, files=tuple(replace(file, stamp=stamp) for file, stamp in pairs))
