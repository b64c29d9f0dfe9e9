"""One LocalCluster, one cluster of a profile and one pool of processes for all verbs of a block, started when the first has work."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

from dolma_dask.errors import DolmaDaskError
from dolma_dask.processes import kill_processes, start_processes

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

    from distributed import Client

shared_now: ContextVar["Shared | None"] = ContextVar("shared_cluster", default=None)


@dataclass
class Shared:
    """What has been started for a block."""

    stack: ExitStack
    client: "Client | None" = None
    processes: "ProcessPoolExecutor | None" = None
    profiles: "dict[str, Client]" = field(default_factory=dict)  # clusters by the name of their profile


@contextmanager
def shared_cluster() -> Iterator[None]:
    """Let all verbs of a block that need a LocalCluster or processes use the same; they are started when the first has work, or never.

    Inside of such a block another one changes nothing.
    """
    if shared_now.get() is not None:
        yield
        return
    with ExitStack() as stack:
        token = shared_now.set(Shared(stack))
        try:
            yield
        finally:
            shared_now.reset(token)


def _started(workers: int) -> "ProcessPoolExecutor":
    try:
        return start_processes(workers)
    except (EOFError, ConnectionError) as error:  # all that `multiprocessing` says
        raise DolmaDaskError(
            "the process that forks workers was killed before they had started; expected it to live. Where memory is short the system kills processes: "
            "take fewer workers, or scheduler='threads', and run the same command again. It does only what is left."
        ) from error


@contextmanager
def process_pool(workers: int) -> Iterator["ProcessPoolExecutor"]:
    """Start processes and stop them at the end, or at that of the `shared_cluster` block; an exception kills them."""
    shared = shared_now.get()
    if workers == 1:
        shared = None  # one after another, to find out which task kills its process
    pool = shared.processes if shared is not None else None
    if pool is None:
        pool = _started(workers)
        if shared is not None:
            shared.processes = pool
            shared.stack.callback(pool.shutdown, cancel_futures=True)
    try:
        yield pool
    except BaseException:
        if shared is not None and shared.processes is pool:
            shared.processes = None
        kill_processes(pool)
        raise
    if shared is None:
        pool.shutdown()


@contextmanager
def shared_client(name: str, start: "Callable[[], AbstractContextManager[Client]]") -> "Iterator[Client]":
    """Yield the client of a profile, which is started once for a `shared_cluster` block."""
    shared = shared_now.get()
    if shared is None:
        with start() as client:
            yield client
        return
    if name not in shared.profiles:
        shared.profiles[name] = shared.stack.enter_context(start())
    yield shared.profiles[name]


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


def own_tasks() -> Any:
    """Return a plugin of a scheduler in this process, with which tasks of a run come back after each death of a worker.

    Dask alone would give them to `allowed-failures` other workers first, whatever the reason: jobs of SLURM, each of which has to be queued.
    """
    from distributed.diagnostics.plugin import SchedulerPlugin

    class OwnTasks(SchedulerPlugin):
        async def start(self, scheduler: Any) -> None:
            self.scheduler = scheduler

        def transition(self, key: Any, start: str, finish: str, *args: Any, **more: Any) -> None:
            if finish == "processing" and isinstance(key, tuple) and str(key[-1]).startswith(OWN):
                self.scheduler.tasks[key].suspicious = self.scheduler.allowed_failures

    return OwnTasks()


def memory_setting(client: Any) -> str:
    """Return what to change when workers of a client need more memory; empty where nothing is known."""
    watched = of_client.get(client)
    return watched.memory_setting if watched is not None else ""
