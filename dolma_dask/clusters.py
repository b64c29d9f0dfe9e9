"""Where tasks run: an active Dask client, one of Dask's own schedulers, or a LocalCluster started for one command.

Workers of a cluster are processes with one thread each, because taggers written in Python hold the interpreter lock. Stages only return small
records, so nothing is worth spilling: the thresholds leave the memory to the kernels, and a worker that outgrows its limit is restarted.
"""

import html
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dolma_dask.display import counted, html_pairs
from dolma_dask.errors import DolmaDaskError, UsageError
from dolma_dask.placement import choose
from dolma_dask.processes import (
    WORKER_ENVIRONMENT,
    Setting,
    environment_kept,
    interrupts_held_back,
    kill_processes,
    process_context,
    start_processes,
)

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

    from distributed import Client

SCHEDULERS = ("auto", "synchronous", "threads", "processes", "cluster")

_ALIASES = {
    "sync": "synchronous",
    "single-threaded": "synchronous",
    "threading": "threads",
    "multiprocessing": "processes",
}
"""Further names of Dask's own schedulers."""

CONNECT_SECONDS = 30.0
"""How long a scheduler may take to answer."""

START_ATTEMPTS = 2
"""How often a LocalCluster is started: a worker may be killed before it answers."""

_SILENT = 50
"""Level of what Dask logs."""

_CONFIG = {
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": 0.85,
    "distributed.worker.memory.terminate": 0.95,
    "distributed.scheduler.worker-saturation": 1.0,  # a task that waits on a worker is blamed when another kills it
    "distributed.comm.timeouts.connect": "60s",
}


@dataclass(frozen=True)
class Placement:
    """Where tasks run."""

    client: "Client | None" = None  # of a cluster
    scheduler: Any = "synchronous"  # without a client: a name, or an executor from Dask's configuration
    workers: int = 1  # threads or processes of that scheduler

    @property
    def is_here(self) -> bool:
        """Whether tasks run in this process."""
        if self.client is not None:
            return str(self.client.scheduler.address).startswith("inproc://")
        return bool(self.scheduler != "processes")


@contextmanager
def open_placement(
    scheduler: str | None,
    workers: int | None,
    sizes: Sequence[int],
    *,
    verb: str = "",
    in_memory: bool = False,
    isolate: bool = False,
) -> Iterator[Placement]:
    """Decide where to run, and start a cluster if need be, for the length of the block.

    The first of these counts: `scheduler`, a scheduler named by Dask's configuration, the active client, the estimate of
    `dolma_dask.placement.choose`.

    Parameters
    ----------
    scheduler : str, optional
        One of `SCHEDULERS` or the address of a scheduler.
    workers : int, optional
        Processes or threads; default: Dask's ``num_workers``, else one per processor.
    sizes : sequence of int
        Stored bytes of each task; a LocalCluster gets no more workers than there are tasks.
    verb : str
        Says what the work costs.
    in_memory : bool
        Whether files lie in the memory of this process, where others do not see them.
    isolate : bool
        Whether the work may have killed the process it was in, and should not run in this one.

    Raises
    ------
    UsageError
        An unknown scheduler, none answers at the address, or it is in other processes although files lie in the memory of this one.
    """
    selected = _select(scheduler)
    count = check_workers(workers or _configured("num_workers")) or cpu_count()
    if selected == "auto":
        may_start = not in_memory and not _is_daemon()
        shared = _shared.get()
        warm = shared is not None and shared.processes is not None
        selected = choose(verb, sizes, count, may_start=may_start, warm=warm, isolate=isolate)
    if _shared.get() is None:  # in a block later verbs may have more tasks than the first
        count = min(count, len(sizes))
    if selected in ("processes", "cluster"):
        _check_may_start()
    with ExitStack() as stack:
        if selected == "cluster":
            place = Placement(stack.enter_context(local_client(count)))
        elif isinstance(selected, str) and "://" in selected:
            place = Placement(stack.enter_context(remote_client(selected)))
        elif hasattr(selected, "scheduler_info"):
            place = Placement(_usable(selected))
        else:
            place = Placement(scheduler=selected, workers=count)
        if in_memory and not place.is_here:
            raise UsageError(
                "files at memory:// lie in the memory of this process; expected files on disk or in a store, since the work goes to other "
                "processes, which do not see them. Use scheduler='threads'."
            )
        yield place


def _is_daemon() -> bool:
    """Tell whether this process, say a Dask worker, may not start others."""
    if "multiprocessing" not in sys.modules:
        return False
    from multiprocessing import current_process

    return current_process().daemon


def _check_may_start() -> None:
    """Refuse to start processes from one that multiprocessing does not let start any."""
    if _is_daemon():
        raise UsageError(
            "this process may start no others, since it is one of a multiprocessing.Pool or another daemonic process; expected one that may. "
            "Call it from the main process, from processes with daemon=False or of concurrent.futures, or use scheduler='threads'."
        )


def check_workers(workers: Any) -> int | None:
    """Return a number of processes or threads, None for the default; raise `UsageError` if it is none."""
    if workers is None or (type(workers) is not bool and isinstance(workers, int) and workers > 0):
        return workers
    raise UsageError(f"workers={workers!r}; expected a number of processes or threads from 1 on.")


def _select(scheduler: str | None) -> Any:
    """Return the name of a scheduler, an address, a client, or an executor from Dask's configuration."""
    if scheduler is not None and check_scheduler(scheduler) != "auto":
        return scheduler
    configured = _configured("scheduler")
    if isinstance(configured, str):
        configured = _ALIASES.get(configured, configured)
    if configured in (None, "auto", "distributed", "dask.distributed"):
        client = active_client()
        if client is None and configured not in (None, "auto"):
            raise UsageError(
                f"Dask's configuration asks for the scheduler {configured!r}, but no client is active. Start one: dk.cluster()."
            )
        return client or "auto"
    return check_scheduler(configured) if isinstance(configured, str) else configured


def _configured(name: str) -> Any:
    """Return a value of Dask's configuration; Dask itself (0.1 CPU-seconds) is not imported where there is none."""
    folders = ("/etc/dask", f"{sys.prefix}/etc/dask", "~/.config/dask")
    if (
        "dask" not in sys.modules
        and not any(variable.startswith("DASK_") for variable in os.environ)
        and not any(Path(folder).expanduser().is_dir() for folder in folders)
    ):
        return None
    import dask

    return dask.config.get(name, None)


def _check_has_threads() -> None:
    """Refuse Dask's cluster in a process that lacks its threads."""
    if _fork_of_dask:
        raise UsageError(
            "this process is a fork of one that has used Dask's cluster, whose threads it lacks; expected one that was started afresh. Start it "
            "by multiprocessing's 'spawn' or 'forkserver', or use scheduler='threads'."
        )


def _usable(client: "Client") -> "Client":
    _check_has_threads()
    if client.asynchronous:
        raise UsageError(
            "the active Dask client is asynchronous; expected one that can be waited for. Make it with asynchronous=False."
        )
    return client


def check_scheduler(name: str) -> str:
    """Return `name` if it names a scheduler or an address; raise `UsageError` otherwise."""
    if name in SCHEDULERS or "://" in name:
        return name
    raise UsageError(
        f"unknown scheduler {name!r}; expected one of {', '.join(SCHEDULERS)}, or the address of a Dask scheduler such as "
        "tcp://host:8786."
    )


def cpu_count() -> int:
    """Number of processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def active_client() -> "Client | None":
    """Return the distributed client in force, without importing distributed to find none."""
    if "distributed" not in sys.modules:
        return None
    from distributed import Client

    try:
        return Client.current()
    except ValueError:
        return None


def _has_own_client() -> bool:
    """Tell whether a client of the user's own block counts here before the default one."""
    from distributed import Client

    try:
        return bool(Client.current(allow_global=False))
    except ValueError:
        return False


class _Held:
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


_of_local = _Held()
"""Settings that LocalClusters need."""

_of_default = _Held()
"""Settings with which Dask's own calls go to a cluster."""

_fork_of_dask = False
"""Whether this process is a fork of one that has loaded distributed, whose threads it lacks."""


def _look_at_dask() -> None:
    global _fork_of_dask
    _fork_of_dask = "distributed" in sys.modules


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_look_at_dask)


_shared: ContextVar["_Shared | None"] = ContextVar("shared_cluster", default=None)


@dataclass
class _Shared:
    stack: ExitStack
    client: "Client | None" = None
    processes: "ProcessPoolExecutor | None" = None


@contextmanager
def shared_cluster() -> Iterator[None]:
    """Let all verbs of a block that need a LocalCluster or processes use the same; they are started when the first has work, or never.

    Inside of such a block another one changes nothing.
    """
    if _shared.get() is not None:
        yield
        return
    with ExitStack() as stack:
        token = _shared.set(_Shared(stack))
        try:
            yield
        finally:
            _shared.reset(token)


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
    shared = _shared.get()
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
def local_client(workers: int, *, dashboard: bool = False) -> Iterator["Client"]:
    """Start a LocalCluster of `workers` one-thread processes and stop it at the end.

    Parameters
    ----------
    workers : int
        Number of worker processes; inside `shared_cluster` that of the first call holds.
    dashboard : bool
        Whether Dask's dashboard is served, and Dask's own calls go to the cluster; it costs 0.25 CPU-seconds to start.
    """
    shared = _shared.get()
    if shared is None:
        with _start_local(workers, dashboard=dashboard) as client:
            yield client
        return
    shared.client = shared.client or shared.stack.enter_context(_start_local(workers, dashboard=dashboard))
    yield shared.client


@contextmanager
def _start_local(workers: int, *, dashboard: bool) -> Iterator["Client"]:
    _check_may_start()
    _check_has_threads()
    with ExitStack() as stack:
        with interrupts_held_back():
            method = process_context("distributed.nanny", "distributed.worker").get_start_method()

            import dask
            from distributed import Client
            from distributed.utils import silence_logging_cmgr

            environment = {name: os.environ.get(name, value) for name, value in WORKER_ENVIRONMENT.items()}
            before_start = {**(_configured("distributed.nanny.pre-spawn-environ") or {}), **environment}
            options = {
                **_CONFIG,
                "distributed.nanny.pre-spawn-environ": before_start,
                "distributed.worker.multiprocessing-method": method,
            }
            settings = _of_local.during(lambda: [dask.config.set(options), silence_logging_cmgr(_SILENT)])
            stack.enter_context(settings)
            with environment_kept():
                started = _local_cluster(workers, dashboard)
                stack.callback(_stop, started)
            client = Client(started, set_as_default=dashboard)
            stack.callback(client.close)
            client.register_plugin(_taking_over(Setting.here()), name="setting")
        try:
            yield client
        finally:
            with interrupts_held_back():
                stack.close()


def _stop(started: Any) -> None:
    """Stop a LocalCluster, in a second attempt if a worker that Dask just starts again cannot be waited for."""
    try:
        started.close()
    except (AssertionError, TimeoutError):
        from distributed.core import Status

        started.status = Status.failed  # else the second call would wait for the first
        started.close()


def _taking_over(setting: Setting) -> Any:
    """Return a plugin of workers, also of those that are started again, with which they take over the setting of this process."""
    from distributed import WorkerPlugin

    class TakingOver(WorkerPlugin):
        def setup(self, worker: Any) -> None:
            setting.take_over()

    return TakingOver()


def _local_cluster(workers: int, dashboard: bool, attempts: int = START_ATTEMPTS) -> Any:
    from distributed import LocalCluster

    try:
        return LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",  # without one it would take a port of its own choice, and warn
            scheduler_kwargs={"dashboard": dashboard},
            silence_logs=_SILENT,
        )
    except RuntimeError as error:
        if attempts > 1:
            return _local_cluster(workers, dashboard, attempts - 1)
        raise UsageError(
            f"no worker process could be started ({error}); expected {workers} of them. In a script, which has to be a file, dk.cluster() and scheduler='cluster' "
            "belong below `if __name__ == '__main__':`; else run in this process: scheduler='threads'."
        ) from error


class Cluster:
    """Workers for all verbs that are called until `close`, or until the end of its ``with`` block, which gives Dask's client.

    Attributes
    ----------
    client : distributed.Client
        Dask's own handle.
    """

    def __init__(self, opened: AbstractContextManager["Client"]) -> None:
        self._stack = ExitStack()
        self.client = self._stack.enter_context(opened)
        _open_clusters.add(self)

    def __enter__(self) -> "Client":
        return self.client

    def __exit__(self, *error: Any) -> None:
        _open_clusters.discard(self)
        self._stack.__exit__(*error)

    def close(self) -> None:
        """Stop the workers, or disconnect from them; a second call does nothing."""
        self.__exit__(None, None, None)

    @property
    def dashboard_link(self) -> str:
        """Address of Dask's dashboard."""
        return str(self.client.dashboard_link)

    def rows(self) -> list[tuple[str, str]]:
        """Return the lines of its table: a label and a value each."""
        if self not in _open_clusters:
            return [("state", "closed")]
        threads = self.client.nthreads()
        return [
            ("workers", f"{len(threads):,} with {counted(sum(threads.values()), 'thread')}"),
            ("scheduler", str(self.client.scheduler.address)),
            ("dashboard", self.dashboard_link),
        ]

    def __repr__(self) -> str:
        return "\n".join(["cluster", *(f"  {name:<9}  {value}" for name, value in self.rows())])

    def _repr_html_(self) -> str:
        rows = self.rows()
        link = html.escape(rows[-1][1])
        table = html_pairs("cluster", rows)
        return table.replace(link, f"<a href='{link}'>{link}</a>") if link.startswith("http") else table


_open_clusters: set[Cluster] = set()
"""Held here until they are closed, whether the caller keeps them or not."""


def cluster(profile: str = "laptop", *, workers: int | None = None) -> Cluster:
    """Start workers for the verbs that follow, or connect to them.

    Parameters
    ----------
    profile : str
        ``laptop`` for a LocalCluster, or the address of a Dask scheduler.
    workers : int, optional
        Processes of a LocalCluster; default: one per processor.

    Returns
    -------
    Cluster
        Shows itself in a notebook; in force until its `close`, or for a ``with`` block.

    Examples
    --------
    >>> with cluster("laptop", workers=2):  # doctest: +SKIP
    ...     tag("corpus/wiki", ["gopher_v2"])
    """
    if profile != "laptop" and "://" not in profile:
        raise UsageError(
            f"unknown cluster profile {profile!r}; expected 'laptop' or an address such as tcp://host:8786."
        )
    count = check_workers(workers) or cpu_count()
    return Cluster(
        _in_force(
            local_client(count, dashboard=True)
            if profile == "laptop"
            else remote_client(profile, default=True)
        )
    )


@contextmanager
def _in_force(opened: AbstractContextManager["Client"]) -> Iterator["Client"]:
    """Let all calls go to a client."""
    import dask

    settings = _of_default.during(lambda: [dask.config.set(scheduler="dask.distributed")])
    with settings, opened as client, client.as_current() if _has_own_client() else nullcontext():
        yield client


@contextmanager
def remote_client(address: str, *, default: bool = False) -> Iterator["Client"]:
    """Connect to the scheduler at `address`; with `default` Dask's own calls go there too."""
    from distributed import Client

    try:
        client = Client(address, set_as_default=default, timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"no Dask scheduler answers at {address} ({error}); expected one that is running. Start it, or leave --scheduler out."
        ) from error
    with closing(client):
        yield client
