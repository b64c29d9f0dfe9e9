"""Tasks on Dask: its own schedulers in this process, threads or processes, or a distributed cluster; big tasks first.

A result reaches the caller as soon as its batch ends. A process that dies is replaced, and the tasks it worked on are tried alone, so that a
shard that kills its worker again and again fails by its own name and takes no neighbour along. However a run ends, nothing goes on behind it.
"""

import ctypes
import inspect
import io
import os
import sys
import threading
import time
import uuid
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from itertools import chain
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from dolma_dask import clusters, placement
from dolma_dask.clusters import OUTLIVED, OWN, Deaths, Placement
from dolma_dask.engine.attempts import Outcome, Stopped, Take
from dolma_dask.engine.batches import BATCH_SECONDS, Outcomes, Quoted, run_all, run_batch
from dolma_dask.engine.plan import Stage, Task, chosen, group_name, outlines
from dolma_dask.errors import Failure, UsageError
from dolma_dask.functions.calls import is_imported
from dolma_dask.io.files import grouped
from dolma_dask.metering import count_cpu
from dolma_dask.processes import keep_freed_memory

if TYPE_CHECKING:
    from distributed import Client, Future

BATCH_BYTES = 32_000_000
"""Stored bytes of small shards that share one Dask task."""

BATCH_TASKS = 2_000
"""Small shards that share one Dask task at most: what is not done of them in `BATCH_SECONDS`, at a millisecond or two each, is made and sent once more."""

BATCHES_PER_WORKER = 4
"""At least so many batches for each worker, so that all are busy to the end."""

IN_FLIGHT_PER_THREAD = 3
"""Batches that a cluster holds per thread: enough to never run dry, few enough to keep the scheduler light."""

MIN_IN_FLIGHT = 16
"""Batches that a cluster holds at least: what makes an adaptive one grow."""

COUNT_THREADS_SECONDS = 2.0
"""Seconds between two counts of a cluster's threads: it may grow and shrink."""

_LOCKING = ("<frozen importlib.", f"{os.sep}numba{os.sep}core{os.sep}")
"""Parts of file names of code that holds locks of the process."""

_STARTS_THREAD = threading.Thread.start.__code__
"""Until a thread that it starts runs, Python may take one for the other (3.11)."""

_IMPORT_SECONDS = 0.01
"""Until a thread that imports, compiles or starts another one is looked at again."""

LIVES = 3
"""Processes that a task may lose, alone in each, before it counts as what killed them. On a cluster, so many times as many as Dask allows: when all workers of a host
die at once, a task may be passed from one to the next of them.
"""

HOPELESS = 2
"""So many tasks that killed processes of their own, and none that did not: the cause is not in the tasks."""


def execute(stage: Stage, tasks: Sequence[Task], place: Placement, take: Take) -> None:
    """Map `stage` over `tasks`, and hand each outcome to `take` in this thread as soon as it is known.

    Parameters
    ----------
    stage : Stage
        The work.
    tasks : sequence of Task
        In any order.
    place : Place
        Where to run.
    take : callable
        Gets each task once, with its records or its `Failure`.
    """
    sizes = array("q", (-task.bytes for task in outlines(tasks)))
    ordered = chosen(tasks, sorted(range(len(tasks)), key=sizes.__getitem__))
    if place.client is not None:
        _Flight(place.client, stage, take).run(ordered)
    else:
        _Local(place, stage, take).run(ordered)


def check_sendable(stage: Stage, task: Task, place: Placement) -> None:
    """Check that a stage can go where the work is done, with a task, whose source may hold a function.

    Raises `UsageError`: it would have to go to another process, and cannot.
    """
    if place.client is None and place.scheduler != "processes":
        return
    try:
        _dump((stage, task))
    except Exception as error:
        raise UsageError(
            f"the work of {stage.verb} cannot be sent to another process ({type(error).__name__}: {error}); expected objects that pickle. "
            "Make such objects inside of the function that uses them, or run in this process: scheduler='threads'."
        ) from error


def _dump(value: Any) -> None:
    """Pickle as workers get it; raises `TypeError` for structs of a script or a file, which arrive there without their fields."""
    import cloudpickle

    class Checking(cloudpickle.CloudPickler):
        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, type) and issubclass(obj, Struct) and not is_imported(obj):
                own = inspect.get_annotations(obj)
                if any(name in own for name in obj.__struct_fields__):
                    raise TypeError(
                        f"{obj.__qualname__} is a msgspec struct that no module brings; make it a dataclass"
                    )
            return super().reducer_override(obj)

    Checking(io.BytesIO()).dump(value)


_Batch = Sequence[Task]


def _grouped(tasks: Sequence[Task], workers: int, cost: str | placement.Cost) -> list[_Batch]:
    """Group small tasks, so that Dask's millisecond per task vanishes, to batches that should end within `BATCH_SECONDS`."""
    batches = BATCHES_PER_WORKER * max(workers, 1)
    sizes = [task.bytes for task in outlines(tasks)]
    share, most = sum(sizes) // batches, min(BATCH_TASKS, -(-len(tasks) // batches))
    quick = int(BATCH_SECONDS / placement.cost_of(cost).cpu * 1e6)
    # also by number: beside one large shard all small ones are a small share
    groups = grouped(range(len(tasks)), sizes.__getitem__, min(BATCH_BYTES, share, quick), most)
    return [tasks[group[0] : group[-1] + 1] for group in groups]


class _Local:
    """Runs batches under one of Dask's own schedulers; in this process without it, where nobody has imported Dask.

    Parameters
    ----------
    place : Place
        Names the scheduler.
    stage, take
        See `execute`.
    """

    def __init__(self, place: Placement, stage: Stage, take: Take) -> None:
        self._place = place
        self._stage = Quoted(stage)
        self._verb, self._cost = stage.verb, getattr(stage, "cost", stage.verb)
        self._take = take
        self._delivered = self._deadly = 0

    def run(self, tasks: Sequence[Task]) -> None:
        """Run all tasks; when a process dies, those that ran are tried alone before the rest goes on."""
        waiting = _grouped(tasks, self._place.workers, self._cost)
        if self._place.scheduler != "processes":
            keep_freed_memory()
        with clusters.shared_cluster():
            while waiting:
                suspects, waiting = self._compute(waiting, self._place.workers)
                waiting = self._try_alone([[task] for batch in suspects for task in batch]) + waiting
                if self._is_hopeless():
                    self._fail([task for batch in waiting for task in batch], _hopeless(self._deadly))
                    return

    def _try_alone(self, waiting: list[_Batch]) -> list[_Batch]:
        """Run tasks one by one, each in up to `LIVES` processes, so that the one that kills its process is known."""
        deaths: Counter[str] = Counter()
        while waiting and not self._is_hopeless():
            suspects, waiting = self._compute(waiting, 1)
            for (task,) in suspects:
                deaths[task.shard] += 1
                if deaths[task.shard] < LIVES:
                    waiting.insert(0, [task])
                else:
                    self._deadly += 1
                    self._fail([task], _killed(f"{LIVES} processes that worked on it alone were killed"))
        return waiting

    def _is_hopeless(self) -> bool:
        return self._deadly >= HOPELESS and not self._delivered

    def _fail(self, tasks: _Batch, message: str) -> None:
        for task in tasks:
            self._take(task, Failure(task.shard, "WorkerDied", message))

    def _deliver(self, task: Task, outcome: Outcome) -> None:
        self._delivered += 1
        self._take(task, outcome)

    def _compute(self, waiting: list[_Batch], workers: int) -> tuple[list[_Batch], list[_Batch]]:
        """Run batches; return those that ran when a process died, and what is left of the others."""
        if self._place.scheduler == "synchronous" and _has_no_dask():
            run_all(self._stage.value, chain.from_iterable(waiting), self._deliver)
            return [], []
        run = uuid.uuid4().hex[:8]
        names = (
            f"{self._verb}-{run}-{index:08d}" for index in reversed(range(len(waiting)))
        )  # Dask begins with the last
        left = dict(zip(names, waiting, strict=True))
        running: set[str] = set()
        cut: list[_Batch] = []

        def begin(key: str, *_: Any) -> None:
            running.add(key)

        def end(key: str, outcomes: Outcomes, *_: Any) -> None:
            running.discard(key)
            count_cpu(outcomes.process, outcomes.cpu)
            batch = left.pop(key)
            cut.extend([rest] if (rest := batch[len(outcomes) :]) else [])
            for task, outcome in zip(outlines(batch), outcomes, strict=False):
                self._deliver(task, outcome)
            outcomes.clear()  # Dask keeps the list until all batches have ended; records take 3 kB each until a journal packs them

        try:
            with _pool(self._place.scheduler, workers) as (options, call):
                if self._place.scheduler == "threads" and _has_no_dask():
                    submit = options["pool"].submit
                    futures = {submit(call, self._stage, Quoted(batch)): key for key, batch in left.items()}
                    for future in as_completed(futures):
                        end(futures.pop(future), future.result())
                    return [], cut
                from dask.callbacks import Callback

                _get(self._place.scheduler)(
                    {key: (call, self._stage, Quoted(batch)) for key, batch in left.items()},
                    list(left),
                    callbacks=[(None, None, begin, end, None), *Callback.active],
                    optimize_graph=False,
                    chunksize=1,
                    **options,
                )
        except BrokenExecutor:
            rest = [batch for key, batch in left.items() if key not in running]
            return [left[key] for key in sorted(running)], rest + cut
        return [], cut


def _has_no_dask() -> bool:
    """Tell whether nobody in this process uses Dask, whose callbacks would see the work: importing its schedulers takes 0.12 CPU-seconds."""
    return "dask.callbacks" not in sys.modules


def _get(scheduler: Any) -> Any:
    """Return the function of one of Dask's own schedulers; `dask.compute` would import distributed to find it."""
    from dask import base, local, multiprocessing, threaded

    own = {"synchronous": local.get_sync, "threads": threaded.get, "processes": multiprocessing.get}
    return own[scheduler] if isinstance(scheduler, str) else base.get_scheduler(scheduler=scheduler)


def _killed(what: str, setting: str = "") -> str:
    """Say what a task has done to its processes; `setting` is what holds their memory."""
    more = f"Change {setting}" if setting else "Give the workers more memory (fewer workers on a machine)"
    return (
        f"{what}; expected it to fit in a worker's memory and the taggers to stay within Python. {more}, or run the same command with "
        "--scheduler synchronous to see why: it does only what is left."
    )


def _hopeless(deadly: int) -> str:
    return (
        f"worker processes die before they do anything, all that {deadly} shards got; expected them to live. Look for a lack of "
        "memory, or use scheduler='threads'."
    )


@contextmanager
def _pool(scheduler: Any, workers: int) -> Iterator[tuple[dict[str, Any], Callable[..., Any]]]:
    """Yield what Dask's own schedulers need and what to call; an exception stops what still runs."""
    if scheduler == "processes":
        with clusters.process_pool(workers) as processes:
            yield {"pool": processes}, run_batch
    elif scheduler == "threads":
        running = _Stoppable()
        with ThreadPoolExecutor(workers, thread_name_prefix="dolma-dask") as threads:
            try:
                yield {"pool": threads}, running
            except BaseException:
                running.stop()
                threads.shutdown(cancel_futures=True)
                raise
    else:
        yield {}, run_batch


class _Stoppable:
    """Runs batches in threads, and can stop them between two byte codes; without it Ctrl-C would wait for whole shards."""

    def __init__(self) -> None:
        self._threads: set[int] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def __call__(self, stage: Quoted, tasks: Quoted) -> Outcomes:
        identity = threading.get_ident()
        with self._lock:
            if self._stopped:
                return Outcomes()
            self._threads.add(identity)
        try:
            return run_batch(stage, tasks)
        finally:
            with self._lock:
                self._threads.discard(identity)

    def stop(self) -> None:
        """Raise `Stopped` in every thread that runs a batch; its writers then remove what they have begun.

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


class _Flight:
    """Runs batches on a distributed cluster, a bounded number at a time.

    Parameters
    ----------
    client : distributed.Client
        Connected.
    stage, take
        See `execute`.
    """

    def __init__(self, client: "Client", stage: Stage, take: Take) -> None:
        from distributed import as_completed

        self._client = client
        self._stage = Quoted(stage)
        self._verb, self._cost = stage.verb, getattr(stage, "cost", stage.verb)
        self._take = take
        self._waiting: deque[_Batch] = deque()
        self._running: dict[Future, _Batch] = {}
        self._completed = as_completed(loop=client.loop)
        self._deaths: Counter[tuple[str, bool]] = (
            Counter()
        )  # of workers of tasks that were alone; for memory?
        self._threads = 1
        self._counted = 0.0

    def run(self, tasks: Sequence[Task]) -> None:
        """Run all tasks."""
        self._waiting.extend(_grouped(tasks, self._count_threads(), self._cost))
        try:
            self._fill()
            for future in self._completed:
                batch = self._running.pop(future)
                self._land(future, batch)
                future.release()  # a frame that an error holds would keep it, and Dask makes again what a dead worker held
                self._fill()
        except BaseException:
            with suppress(Exception):
                self._client.cancel(list(self._running), force=True)
            raise
        finally:
            with suppress(Exception):
                clusters.note_lost_writers(self._client)

    def _count_threads(self) -> int:
        if time.monotonic() - self._counted > COUNT_THREADS_SECONDS:
            self._threads = max(sum(self._client.nthreads().values()), 1)
            self._counted = time.monotonic()
        return self._threads

    def _fill(self) -> None:
        while self._waiting and len(self._running) < max(
            MIN_IN_FLIGHT, IN_FLIGHT_PER_THREAD * self._count_threads()
        ):
            batch = self._waiting.popleft()
            # on the dashboard: Dask groups tasks by the first part
            key = (
                self._verb,
                group_name([task.shard for task in outlines(batch)]),
                f"{OWN}{uuid.uuid4().hex}",
            )
            future = self._client.submit(run_batch, self._stage, Quoted(batch), key=key, pure=False)
            self._running[future] = batch
            self._completed.add(future)

    def _land(self, future: "Future", batch: _Batch) -> None:
        """Take the outcomes of a batch; one that killed its workers is tried again, each of its tasks alone."""
        from distributed import CancelledError, KilledWorker

        try:
            outcomes = future.result()
        except KilledWorker as error:
            self._try_alone(batch, clusters.deaths_of(self._client, error, LIVES))
        except CancelledError as error:
            clusters.check_workers_come(self._client)
            if getattr(error, "reason", "") == OUTLIVED:
                if len(batch) == 1:
                    self._fail(batch, "WalltimeTooShort", error.msg)
                else:
                    self._waiting.extend([task] for task in batch)
                return
            lost = [*batch, *(task for waiting in self._waiting for task in waiting)]
            self._waiting.clear()
            self._fail(
                lost,
                "SchedulerLost",
                "the connection to the Dask scheduler was lost; expected it to last. Start it again.",
            )
        except Exception as error:  # noqa: BLE001  every failure is reported with its shard at the end
            self._fail(batch, type(error).__name__, f"{error} (on its way to or from a worker)")
        else:
            count_cpu(outcomes.process, outcomes.cpu)
            for task, outcome in zip(outlines(batch), outcomes, strict=False):
                self._take(task, outcome)
            if rest := batch[len(outcomes) :]:
                self._waiting.appendleft(rest)

    def _try_alone(self, batch: _Batch, deaths: Deaths) -> None:
        """Try the tasks of a batch that has lost workers again, each alone, until it has lost as many as it may."""
        if len(batch) == 1:
            (task,) = batch
            reason = (task.shard, deaths.by_memory)
            self._deaths[reason] += deaths.lost
            if self._deaths[reason] >= deaths.max_lost:
                lost = f"its workers were killed {self._deaths[reason]} times{' for their memory' * deaths.by_memory}"
                self._fail(batch, "WorkerDied", _killed(lost, clusters.memory_setting(self._client)))
                return
        self._waiting.extend([task] for task in batch)

    def _fail(self, tasks: _Batch, error: str, message: str) -> None:
        for task in tasks:
            self._take(task, Failure(task.shard, error, message))
