"""What is known of the jobs or processes behind a client: whether more workers will come, and why those that are gone have died.

The engine asks for it when Dask gives a task back. Who starts workers in jobs says so here (`of_client`); of other clusters nothing is known.
"""

import time
from collections import Counter
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

PREEMPTIONS = 12
"""So many workers, each of a job, may a task lose that was alone on them, unless they needed too much memory."""

OWN = "dolma-dask-"
"""Begins the last part of the keys of tasks of a run."""


class Watched(Protocol):
    """What is known of the jobs or processes behind a client."""

    def check(self) -> None:
        """Raise `ClusterError` if there will be no more workers."""
        ...

    @property
    def memory_setting(self) -> str:
        """What to change when workers need more memory."""
        ...

    def died_of_memory(self, worker: Any) -> bool:
        """Tell whether a worker, as the scheduler knew it, was killed for its memory."""
        ...


class Deaths(NamedTuple):
    """What a task has done to workers when Dask gives it back."""

    lost: int  # workers that died
    most: int  # with so many, while it was alone, the task is to blame
    by_memory: bool = False


of_client: "WeakKeyDictionary[Any, Watched]" = WeakKeyDictionary()
"""What watches the workers of a client."""


def check_workers_come(client: Any) -> None:
    """Raise `ClusterError` if the jobs of a client were given up."""
    watched = of_client.get(client)
    if watched is not None:
        watched.check()


def deaths_of(client: Any, killed: Any, lives: int) -> Deaths:
    """Return what is known of the death that Dask's KilledWorker tells; `lives` is how many a task may cause.

    Tasks on jobs come back after each death (see `own_tasks`), and may outlive many of them: a preempted job says nothing about a shard.
    """
    watched = of_client.get(client)
    each = killed.allowed_failures + 1
    if watched is None:
        return Deaths(each, lives * each)
    if watched.died_of_memory(killed.last_worker):
        return Deaths(1, lives, by_memory=True)
    return Deaths(1, PREEMPTIONS)


LIFETIMES = 3
"""So many lifetimes of a worker a task may take, in attempts that ended because its worker left."""

OUTLIVED = "outlived its workers"
"""Reason for which a task comes back that takes longer than workers live."""


def own_tasks(lifetime: float | None = None, too_long: str = "") -> Any:
    """Return a plugin of a scheduler in this process, with which tasks of a run come back after each death of a worker.

    Dask alone would give them to `allowed-failures` other workers first, whatever the reason: jobs of SLURM, each of which has to be queued. And
    what a worker hands over when it leaves it would begin anew for ever: with the `lifetime` of a worker in seconds it comes back as
    cancelled, for the reason `OUTLIVED` with the message `too_long`.
    """
    from distributed.diagnostics.plugin import SchedulerPlugin

    class OwnTasks(SchedulerPlugin):
        async def start(self, scheduler: Any) -> None:
            self.scheduler = scheduler
            self.begun: dict[Any, float] = {}
            self.spent: Counter[Any] = Counter()  # seconds of attempts that were cut off

        def transition(self, key: Any, start: str, finish: str, *args: Any, **more: Any) -> None:
            if not (isinstance(key, tuple) and str(key[-1]).startswith(OWN)):
                return
            if start == "processing":
                self.spent[key] += time.monotonic() - self.begun.pop(key, time.monotonic())  # type: ignore[assignment]
            if finish in ("memory", "erred", "forgotten"):
                self.spent.pop(key, None)
            elif finish == "processing":
                self.scheduler.tasks[key].suspicious = self.scheduler.allowed_failures
                self.begun[key] = time.monotonic()
                if lifetime is not None and self.spent[key] >= LIFETIMES * lifetime:
                    self.scheduler.loop.add_callback(self.give_back, key)

        def give_back(self, key: Any) -> None:
            if (task := self.scheduler.tasks.get(key)) is not None:
                for client in list(task.who_wants or ()):
                    self.scheduler.stimulus_cancel(
                        [key], client.client_key, force=True, reason=OUTLIVED, msg=too_long
                    )

    return OwnTasks()


def memory_setting(client: Any) -> str:
    """Return what to change when workers of a client need more memory; empty where nothing is known."""
    watched = of_client.get(client)
    return watched.memory_setting if watched is not None else ""
