"""Batches under one of Dask's own schedulers: in processes, or in this process where a callback of Dask looks on.

Cost: a millisecond of Dask for each batch, and the import of its schedulers.
"""

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from typing import Any

from dolma_dask import clusters
from dolma_dask.clusters import Placement
from dolma_dask.engine.attempts import LIVES, Outcome, Take, killed
from dolma_dask.engine.batches import Batch, Outcomes, Quoted, batches_of, run_batch
from dolma_dask.engine.in_process import stoppable_threads
from dolma_dask.engine.plan import Stage, Task, outlines
from dolma_dask.errors import Failure
from dolma_dask.metering import count_cpu

HOPELESS = 2
"""So many tasks that killed processes of their own, and none that did not: the cause is not in the tasks."""


class Local:
    """Runs batches under one of Dask's own schedulers.

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
        waiting = batches_of(tasks, self._place.workers, self._cost)
        while waiting:
            suspects, waiting = self._compute(waiting, self._place.workers)
            waiting = self._try_alone([[task] for batch in suspects for task in batch]) + waiting
            if self._is_hopeless():
                self._fail([task for batch in waiting for task in batch], _hopeless(self._deadly))
                return

    def _try_alone(self, waiting: list[Batch]) -> list[Batch]:
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
                    self._fail([task], killed(f"{LIVES} processes that worked on it alone were killed"))
        return waiting

    def _is_hopeless(self) -> bool:
        return self._deadly >= HOPELESS and not self._delivered

    def _fail(self, tasks: Batch, message: str) -> None:
        for task in tasks:
            self._take(task, Failure(task.shard, "WorkerDied", message))

    def _deliver(self, task: Task, outcome: Outcome) -> None:
        self._delivered += 1
        self._take(task, outcome)

    def _compute(self, waiting: list[Batch], workers: int) -> tuple[list[Batch], list[Batch]]:
        """Run batches; return those that ran when a process died, and what is left of the others."""
        from dask.callbacks import Callback

        run = uuid.uuid4().hex[:8]
        names = (
            f"{self._verb}-{run}-{index:08d}" for index in reversed(range(len(waiting)))
        )  # Dask begins with the last
        left = dict(zip(names, waiting, strict=True))
        running: set[str] = set()
        cut: list[Batch] = []

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


def _get(scheduler: Any) -> Any:
    """Return the function of one of Dask's own schedulers; `dask.compute` would import distributed to find it."""
    from dask import base, local, multiprocessing, threaded

    own = {"synchronous": local.get_sync, "threads": threaded.get, "processes": multiprocessing.get}
    return own[scheduler] if isinstance(scheduler, str) else base.get_scheduler(scheduler=scheduler)


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
        with stoppable_threads(workers, run_batch) as (threads, running):
            yield {"pool": threads}, running
    else:
        yield {}, run_batch
