"""Workers of any cluster: their settings, Dask's settings around them, the way to their dashboard, and why those that are gone have died.

Stages only return small records, so nothing is worth spilling: the memory thresholds leave the memory to the kernels, and a worker that
outgrows its limit is restarted. The engine asks `deaths_of` when Dask gives a task back; only clusters that start workers in jobs
say something of them (`of_client`).
"""

import getpass
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

from dolma_dask.io import publish
from dolma_dask.processes import WORKER_ENVIRONMENT, Setting

if TYPE_CHECKING:
    from distributed import Client

SILENT = 50
"""Level of what Dask logs."""

WRITERS = "dolma-dask-writers"
"""Topic of events in which workers say which writer they are (`dolma_dask.io.publish.writer`)."""

CONFIG = {
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": 0.85,
    "distributed.worker.memory.terminate": 0.95,
    "distributed.scheduler.worker-saturation": 1.0,  # a task that waits on a worker is blamed when another kills it
    "distributed.comm.timeouts.connect": "60s",
}


def taking_over(setting: Setting) -> Any:
    """Return a plugin of workers, also of those that are started again, with which they take over the setting of this process, and say which writer they are."""
    from distributed import WorkerPlugin

    class TakingOver(WorkerPlugin):
        def setup(self, worker: Any) -> None:
            setting.take_over()
            worker.log_event(WRITERS, {"writer": publish.writer()})

    return TakingOver()


def setting_of_user() -> Setting:
    """Return what workers on other machines take over: they have an environment of their own, which the batch system made."""
    here = Setting.here()
    own = {name: os.environ[name] for name in WORKER_ENVIRONMENT if name in os.environ}
    return Setting(own, (), here.umask, here.stores)


def note_lost_writers(client: "Client") -> None:
    """Let this process know which workers of jobs are dead, so that it removes what they have left half written on shared storage."""
    if client not in of_client:
        return  # they are of this host, where one looks
    alive = client.scheduler_info(n_workers=-1)["workers"].keys()
    writers = {event["writer"]: event["worker"] in alive for _, event in client.get_events(WRITERS)}
    publish.gone.update(name for name, is_alive in writers.items() if not is_alive)


class Held:
    """Settings of this process that hold while any block is open that needs them: blocks may overlap, also those of several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks = 0
        self._stack = ExitStack()

    @contextmanager
    def during(self, make: Callable[[], Sequence[AbstractContextManager[Any]]]) -> Iterator[None]:
        """Hold what the first of the open blocks makes."""
        with self._lock:
            for setting in make() if not self._blocks else ():
                self._stack.enter_context(setting)
            self._blocks += 1
        try:
            yield
        finally:
            with self._lock:
                self._blocks -= 1
                if not self._blocks:
                    self._stack.close()


of_workers = Held()
"""Settings that LocalClusters need."""

of_default = Held()
"""Settings with which Dask's own calls go to a cluster."""


def hold_settings(stack: ExitStack, more: Mapping[str, Any] | None = None) -> None:
    """Hold Dask's settings for workers, and `more` of them, until the stack is closed."""
    import dask
    from distributed.utils import silence_logging_cmgr

    options = {**CONFIG, **(more or {})}
    stack.enter_context(of_workers.during(lambda: [dask.config.set(options), silence_logging_cmgr(SILENT)]))


def client_of(started: Any, stack: ExitStack, setting: Setting, *, dashboard: bool) -> "Client":
    """Return a client of a cluster whose workers take over a setting; the stack closes both."""
    from distributed import Client

    stack.callback(stop, started)
    client = Client(started, set_as_default=dashboard)
    stack.callback(client.close)
    client.register_plugin(taking_over(setting), name="setting")
    return client


def stop(started: Any) -> None:
    """Stop a LocalCluster, in a second attempt if a worker that Dask just starts again cannot be waited for."""
    try:
        started.close()
    except (AssertionError, TimeoutError):
        from distributed.core import Status

        started.status = Status.failed  # else the second call would wait for the first
        started.close()


@contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """Raise KeyboardInterrupt in the block on SIGTERM, unless somebody else takes care of it."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def stopped(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stopped)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def tunnel(link: str) -> str:
    """Return the call of ssh that makes a dashboard visible on the user's machine, through the login node, and the address there."""
    host, _, port = link.partition("://")[2].partition("/")[0].rpartition(":")
    login = os.environ.get("SLURM_SUBMIT_HOST") or socket.gethostname()
    return f"ssh -L {port}:{host}:{port} {getpass.getuser()}@{login}, then http://localhost:{port}/status"


PREEMPTIONS = 12
"""So many workers, each of a job, may a task lose that was alone on them, unless they needed too much memory."""

OWN = "dolma-dask-"
"""Begins the last part of the keys of tasks of a run."""


class Watched(Protocol):
    """Knowledge of the jobs or processes behind a client."""

    def check(self) -> None:
        """Raise `ClusterError` if there will be no more workers."""
        ...

    @property
    def memory_setting(self) -> str:
        """Setting to change when workers need more memory."""
        ...

    def died_of_memory(self, worker: Any) -> bool:
        """Tell whether a worker, as the scheduler knew it, was killed for its memory."""
        ...


class Deaths(NamedTuple):
    """Deaths of workers that a task has caused when Dask gives it back."""

    lost: int  # workers that died
    max_lost: int  # with so many, while it was alone, the task is to blame
    by_memory: bool = False


of_client: "WeakKeyDictionary[Any, Watched]" = WeakKeyDictionary()
"""Watcher of the workers of each client."""


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
