"""Batches on a distributed cluster, a bounded number at a time: the scheduler stays light, however many shards there are, and no worker runs dry."""

import time
import uuid
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from dolma_dask import clusters
from dolma_dask.clusters import OUTLIVED, OWN, Deaths
from dolma_dask.engine.attempts import LIVES, Take, killed
from dolma_dask.engine.batches import Batch, Quoted, batches_of, run_batch
from dolma_dask.engine.plan import Stage, Task, group_name, outlines
from dolma_dask.errors import Failure
from dolma_dask.metering import count_cpu

if TYPE_CHECKING:
    from distributed import Client, Future

IN_FLIGHT_PER_THREAD = 3
"""Batches that a cluster holds per thread: enough to never run dry, few enough to keep the scheduler light."""

MIN_IN_FLIGHT = 16
"""Batches that a cluster holds at least: what makes an adaptive one grow."""

COUNT_THREADS_SECONDS = 2.0
"""Seconds between two counts of a cluster's threads: it may grow and shrink."""


class Flight:
    """Runs batches on a distributed cluster.

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
        self._waiting: deque[Batch] = deque()
        self._running: dict[Future, Batch] = {}
        self._completed = as_completed(loop=client.loop)
        self._deaths: Counter[tuple[str, bool]] = (
            Counter()
        )  # of workers of tasks that were alone; for memory?
        self._threads = 1
        self._counted = 0.0

    def run(self, tasks: Sequence[Task]) -> None:
        """Run all tasks."""
        self._waiting.extend(batches_of(tasks, self._count_threads(), self._cost))
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

    def _land(self, future: "Future", batch: Batch) -> None:
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

    def _try_alone(self, batch: Batch, deaths: Deaths) -> None:
        """Try the tasks of a batch that has lost workers again, each alone, until it has lost as many as it may."""
        if len(batch) == 1:
            (task,) = batch
            reason = (task.shard, deaths.by_memory)
            self._deaths[reason] += deaths.lost
            if self._deaths[reason] >= deaths.max_lost:
                lost = f"its workers were killed {self._deaths[reason]} times{' for their memory' * deaths.by_memory}"
                self._fail(batch, "WorkerDied", killed(lost, clusters.memory_setting(self._client)))
                return
        self._waiting.extend([task] for task in batch)

    def _fail(self, tasks: Batch, error: str, message: str) -> None:
        for task in tasks:
            self._take(task, Failure(task.shard, error, message))
