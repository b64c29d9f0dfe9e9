"""Tasks done one after another where they run: while the files of some wait for the disk, the next one works.

Small tasks that a stage can do as one (`dolma_dask.engine.plan.JoiningStage`) are done so, which costs each what is its own alone: its files. If anything is unusual, halves of them
are tried, down to the task by itself, in whose outcome nothing of a neighbour shows.

The thread of the caller works on tasks; a few others wait for the files of those before (`dolma_dask.io.waiting`). An outcome is handed over when its files are
there, in the order of the tasks, so that the journal never names one that is not. Bounded by `MAX_WAITING_FILES` and `MAX_WAITING_BYTES`, unless one task has
more. Cost: work and disk take the longer of the two times; 0.1 ms for each task.
"""

import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import cached_property
from threading import Lock
from typing import Any

from msgspec.structs import replace

from dolma_dask import placement
from dolma_dask.engine.attempts import Outcome, Take, attempt, attempt_joined, log_apart, retried
from dolma_dask.engine.plan import Stage, Task, outlines
from dolma_dask.io.files import grouped
from dolma_dask.io.publish import settled_stamp
from dolma_dask.io.waiting import Waiting
from dolma_dask.journal import Record
from dolma_dask.metering import count_helper, process_name, thread_cpu

BATCH_BYTES = 32_000_000
"""Stored bytes of small shards that share one Dask task."""

BATCH_TASKS = 2_000
"""Small shards that share one Dask task at most: what is not done of them in `BATCH_SECONDS`, at a millisecond or two each, is made and sent once more."""

BATCHES_PER_WORKER = 4
"""At least so many batches for each worker, so that all are busy to the end."""

BATCH_SECONDS = 5.0
"""After so long a batch hands over what it has done, and what is left of it is another one: a kill costs no more than that."""

MAX_WAITING_FILES = 128
"""Files that wait, each of them open, after which the next task does not begin, unless they are of one task."""

MAX_WAITING_BYTES = 64 << 20
"""Likewise their bytes, which are in memory until the disk or the store has them."""

SMALL_BYTES = 1 << 16
"""Stored bytes of a task up to which it may be done with others as one: twice that, as text, is a hundredth of what one block holds."""

MOST_JOINED, JOINED_BYTES = 32, 1 << 18
"""Tasks that are done as one at most, and their stored bytes: one block has them all, and a kill costs no more than these."""

AT_ONCE = 8
"""Tasks whose files appear at once: disks and stores do several syncs in the time of one."""


Batch = Sequence[Task]
"""Tasks that are one of Dask's."""


def batches_of(tasks: Sequence[Task], workers: int, cost: str | placement.Cost) -> list[Batch]:
    """Group small tasks, so that Dask's millisecond per task vanishes, to batches that should end within `BATCH_SECONDS`."""
    batches = BATCHES_PER_WORKER * max(workers, 1)
    sizes = [task.bytes for task in outlines(tasks)]
    share, most = sum(sizes) // batches, min(BATCH_TASKS, -(-len(tasks) // batches))
    quick = int(BATCH_SECONDS / placement.cost_of(cost).cpu * 1e6)
    # also by number: beside one large shard all small ones are a small share
    groups = grouped(range(len(tasks)), sizes.__getitem__, min(BATCH_BYTES, share, quick), most)
    return [tasks[group[0] : group[-1] + 1] for group in groups]


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
    groups = _in_time(Groups(stage.value, tasks.value))
    run_all(stage.value, groups, lambda task, outcome: outcomes.append(outcome))
    outcomes.process, outcomes.cpu = process_name(), thread_cpu() - cpu
    return outcomes


def _in_time(groups: Iterable[list[Task]]) -> Iterator[list[Task]]:
    """Yield tasks until the time of a batch is over."""
    begun = time.monotonic()
    for group in groups:
        yield group
        if time.monotonic() - begun > BATCH_SECONDS:
            return


def _groups(stage: Stage, tasks: Iterable[Task]) -> Iterator[list[Task]]:
    group, common, size = list[Task](), None, 0
    for task in tasks:
        own = _common(stage, task) if task.bytes <= SMALL_BYTES else None
        is_full = len(group) == MOST_JOINED or size + task.bytes > JOINED_BYTES
        if group and (own is None or own != common or is_full):
            yield group
            group, size = [], 0
        if own is None:
            yield [task]
            continue
        group.append(task)
        common, size = own, size + task.bytes
    if group:
        yield group


def _common(stage: Stage, task: Task) -> Hashable:
    """Return what tasks must have in common with one to be done with it; None: it is done alone, as one of which the stage cannot tell."""
    joins: Callable[[Task], Hashable] | None = getattr(stage, "joins", None)
    try:
        return joins(task) if joins else None
    except Exception as error:  # noqa: BLE001  a stage must not stop the neighbours of a task
        log_apart(stage.verb, [task.shard], error)
        return None


class Groups:
    """Tasks in their order: neighbours together that a stage can do as one, the others alone. Several threads may take from them."""

    def __init__(self, stage: Stage, tasks: Iterable[Task]) -> None:
        self._left = _groups(stage, tasks)
        self._lock = Lock()

    def __iter__(self) -> Iterator[list[Task]]:
        return self

    def __next__(self) -> list[Task]:
        with self._lock:
            return next(self._left)

    def end(self) -> None:
        """Leave out the others."""
        self._left = iter(())


def run_all(stage: Stage, groups: Iterable[list[Task]], take: Take) -> None:
    """Do tasks one after another, and hand each outcome to `take` in this thread, in their order; a failing one does not stop the next.

    What was done is handed over also if the user stops the run.
    """
    with ThreadPoolExecutor(AT_ONCE, "dolma-dask-files") as threads:
        begun: deque[_Begun] = deque()

        def hand_over() -> None:
            task, outcome = begun[0].next()
            if not begun[0].left:
                begun.popleft()
            take(task, outcome)

        try:
            for group in groups:
                left: list[Sequence[Task]] = [group]
                while left:
                    begun.append(_Begun(stage, left.pop()))
                    if begun[-1].work(threads):
                        while begun and (begun[0].is_there or _are_too_many(begun)):
                            hand_over()
                    else:
                        left += begun.pop().halves()  # what is wrong is mostly in one of them
        except BaseException:
            if begun and not begun[-1].is_done:
                begun.pop().waiting.discard()
            raise
        finally:
            with ExitStack() as rest:  # each of them, whatever comes of another
                for _ in range(sum(len(one.left) for one in begun)):
                    rest.callback(hand_over)


def _are_too_many(begun: "Sequence[_Begun]") -> bool:
    waiting = [one.waiting for one in begun]
    are_many = sum(map(len, waiting)) > MAX_WAITING_FILES
    return len(begun) > 1 and (are_many or sum(one.bytes for one in waiting) > MAX_WAITING_BYTES)


class _Begun:
    """A task, or several that are done as one, done but for the files, which appear in another thread."""

    def __init__(self, stage: Stage, tasks: Sequence[Task]) -> None:
        self._stage, self._tasks = stage, tasks
        self.left = deque(tasks)  # whose outcomes nobody has yet
        self.waiting = Waiting()
        self.is_done = False
        self._done: list[Outcome] = []
        self._appearing: Future[tuple[list[Outcome], float]] | None = None

    def work(self, threads: ThreadPoolExecutor) -> bool:
        """Do the work; tell whether it is done, as that of one task always is."""
        one, *others = self._tasks
        if not others:
            self._done = [attempt(self._stage, one, self.waiting)]
        elif (joined := attempt_joined(self._stage, self._tasks, self.waiting)) is not None:
            self._done = joined
        else:
            return False
        if self.waiting:
            self._appearing = threads.submit(_appeared, self._done, self.waiting)
        else:
            self._done = _with_stamps(self._done)
        self.is_done = True
        return True

    def halves(self) -> tuple[Sequence[Task], Sequence[Task]]:
        """Return the two halves of the tasks, that which is next behind the other."""
        half = len(self._tasks) // 2
        return self._tasks[half:], self._tasks[:half]

    @property
    def is_there(self) -> bool:
        """True if nothing is waited for."""
        return self._appearing is None or self._appearing.done()

    def next(self) -> tuple[Task, Outcome]:
        """Return the next task with what it came to, once all files are there."""
        outcome = self._outcomes[len(self._tasks) - len(self.left)]
        return self.left.popleft(), outcome

    @cached_property
    def _outcomes(self) -> list[Outcome]:
        """What each task came to; after a failure it is done again as a whole."""
        one, *others = self._tasks
        if not others:
            return [retried(one, lambda number: self._again(one) if number else self._settled()[0])]
        try:
            return self._settled()
        except Exception:  # noqa: BLE001  whose it is shows when each is done by itself
            return [self._alone(task) for task in self._tasks]

    def _alone(self, task: Task) -> Outcome:
        return retried(task, lambda number: self._again(task))

    def _settled(self) -> list[Outcome]:
        """Wait for the files."""
        if self._appearing is None:
            return self._done
        outcomes, cpu = self._appearing.result()
        count_helper(cpu)
        return outcomes

    def _again(self, task: Task) -> Outcome:
        outcome = attempt(self._stage, task, self.waiting)
        return _appeared([outcome], self.waiting)[0][0]


def _appeared(outcomes: list[Outcome], waiting: Waiting) -> tuple[list[Outcome], float]:
    """Let files of tasks appear; return the outcomes with their stamps, and the CPU-seconds of that."""
    begun = time.thread_time()
    waiting.appear()
    return _with_stamps(outcomes), time.thread_time() - begun


def _with_stamps(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return outcomes with the stamps of files that waited when their records were made."""
    return [
        [_stamped(one) if isinstance(one, Record) else one for one in outcome]
        if isinstance(outcome, list)
        else outcome
        for outcome in outcomes
    ]


def _stamped(record: Record) -> Record:
    stamps = [settled_stamp(file.stamp) for file in record.files]
    if stamps == [file.stamp for file in record.files]:
        return record
    pairs = zip(record.files, stamps, strict=True)
    return replace(record, files=tuple(replace(file, stamp=stamp) for file, stamp in pairs))
