"""Where tasks run: an active Dask client, one of Dask's own schedulers, or a LocalCluster started for one command.

Workers are processes with one thread each, because taggers written in Python hold the interpreter lock. Stages only return small
records, so nothing is worth spilling: the thresholds leave the memory to the kernels, and a worker that outgrows its limit is restarted.
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any

from dolma_dask.errors import UsageError
from dolma_dask.settings import DEFAULT_SCHEDULER

if TYPE_CHECKING:
    from distributed import Client

SCHEDULERS = ("synchronous", "threads", "processes", "cluster")

_ALIASES = {
    "sync": "synchronous",
    "single-threaded": "synchronous",
    "threading": "threads",
    "multiprocessing": "processes",
}
"""Further names of Dask's own schedulers."""

CONNECT_SECONDS = 30.0
"""How long a scheduler may take to answer."""

_CONFIG = {
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": 0.85,
    "distributed.worker.memory.terminate": 0.95,
    "distributed.scheduler.worker-saturation": 1.0,  # a task that waits on a worker is blamed when another kills it
    "distributed.comm.timeouts.connect": "60s",
}

WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "ARROW_IO_THREADS": "2",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # Dask's own setting hands every freed block back to the kernel: 1.29 times the CPU of a serial run, against 1.00 (measured)
    "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
}
"""Variables of worker processes, unless the user has set them."""


@dataclass(frozen=True)
class Place:
    """Where tasks run.

    Attributes
    ----------
    client : distributed.Client or None
        Of a cluster.
    scheduler : object
        Without a client: what `dask.compute` takes for this, a name or an executor.
    workers : int
        Threads or processes of that scheduler.
    """

    client: "Client | None" = None
    scheduler: Any = "synchronous"
    workers: int = 1


@contextmanager
def open_place(asked: str | None, workers: int | None, tasks: int) -> Iterator[Place]:
    """Find where to run, and start a cluster if need be, for the length of the block.

    The first of these counts: what is `asked`, a scheduler named by Dask's configuration, the active client, the default of the way of
    calling (`dolma_dask.settings`).

    Parameters
    ----------
    asked : str, optional
        One of `SCHEDULERS` or the address of a scheduler.
    workers : int, optional
        Processes or threads; default: Dask's ``num_workers``, else one per processor.
    tasks : int
        A LocalCluster gets no more workers than this.

    Raises
    ------
    UsageError
        An unknown scheduler, or none answers at the address.
    """
    chosen = _choose(asked)
    count = workers or _configured("num_workers") or cpu_count()
    with ExitStack() as stack:
        if chosen == "cluster":
            in_block = _shared.get() is not None  # later verbs may have more tasks than the first
            yield Place(stack.enter_context(local_client(count if in_block else min(count, tasks))))
        elif isinstance(chosen, str) and "://" in chosen:
            yield Place(stack.enter_context(remote_client(chosen)))
        elif hasattr(chosen, "scheduler_info"):
            yield Place(_usable(chosen))
        else:
            yield Place(scheduler=chosen, workers=count)


def _choose(asked: str | None) -> Any:
    """Return the name of a scheduler, an address, a client, or an executor from Dask's configuration."""
    if asked is not None:
        return check_scheduler(asked)
    configured = _configured("scheduler")
    if isinstance(configured, str):
        configured = _ALIASES.get(configured, configured)
    if configured in (None, "distributed", "dask.distributed"):
        client = active_client()
        if client is None and configured is not None:
            raise UsageError(
                f"Dask's configuration asks for the scheduler {configured!r}, but no client is active. Start one: dk.cluster()."
            )
        return client or DEFAULT_SCHEDULER.get()
    return check_scheduler(configured) if isinstance(configured, str) else configured


def _configured(name: str) -> Any:
    import dask

    return dask.config.get(name, None)


def _usable(client: "Client") -> "Client":
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


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Keep Ctrl-C from processes started in this block, for good, and from this process until the block ends.

    In a terminal Ctrl-C reaches every process of a command. Only the command itself may act on it: it ends its workers. What starts
    and stops processes cannot be interrupted half way.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets signals
        return
    resource_tracker.ensure_running()  # started later, it would undo the mask
    pending: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: pending.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # threads and processes inherit it
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, signal.SIG_DFL if handler is None else handler)
    if pending and callable(handler):
        handler(signal.SIGINT, None)


def prepare_process() -> None:
    """Ready a process of Dask's own scheduler: libraries use one thread, and it never outlives the command."""
    for name, value in WORKER_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    threading.Thread(target=_end_with_parent, name="end-with-parent", daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


_shared: ContextVar["_Shared | None"] = ContextVar("shared_cluster", default=None)


@dataclass
class _Shared:
    stack: ExitStack
    client: "Client | None" = None


@contextmanager
def shared_cluster() -> Iterator[None]:
    """Let all verbs of a block that need a LocalCluster use one; it is started when the first has work, or never.

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


@contextmanager
def local_client(workers: int) -> Iterator["Client"]:
    """Start a LocalCluster of `workers` one-thread processes and stop it at the end.

    Parameters
    ----------
    workers : int
        Number of worker processes; inside `shared_cluster` that of the first call holds.
    """
    shared = _shared.get()
    if shared is None:
        with _start_local(workers) as client:
            yield client
        return
    shared.client = shared.client or shared.stack.enter_context(_start_local(workers))
    yield shared.client


@contextmanager
def _start_local(workers: int) -> Iterator["Client"]:
    import dask
    from distributed import Client

    environment = {name: os.environ.get(name, value) for name, value in WORKER_ENVIRONMENT.items()}
    before_start = {**(_configured("distributed.nanny.pre-spawn-environ") or {}), **environment}
    with ExitStack() as stack:
        with interrupts_held_back():
            stack.enter_context(
                dask.config.set({**_CONFIG, "distributed.nanny.pre-spawn-environ": before_start})
            )
            started = stack.enter_context(_local_cluster(workers))
            client = stack.enter_context(Client(started, set_as_default=False))
        try:
            yield client
        finally:
            with interrupts_held_back():
                stack.close()


def _local_cluster(workers: int) -> Any:
    from distributed import LocalCluster

    try:
        return LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",
            silence_logs=50,
        )
    except RuntimeError as error:
        raise UsageError(
            f"no worker process could be started ({error}); expected {workers} of them. In a script, verbs that start processes must be "
            "called below `if __name__ == '__main__':`; else run in this process: scheduler='threads'."
        ) from error


@contextmanager
def cluster(profile: str = "laptop", *, workers: int | None = None) -> Iterator["Client"]:
    """Start workers for a block of verbs, or connect to them.

    Parameters
    ----------
    profile : str
        ``laptop`` for a LocalCluster, or the address of a Dask scheduler.
    workers : int, optional
        Processes of a LocalCluster; default: one per processor.

    Yields
    ------
    distributed.Client
        Active inside the block.

    Examples
    --------
    >>> with cluster("laptop", workers=2):  # doctest: +SKIP
    ...     tag("corpus/wiki", ["gopher_v2"])
    """
    if profile != "laptop" and "://" not in profile:
        raise UsageError(
            f"unknown cluster profile {profile!r}; expected 'laptop' or an address such as tcp://host:8786."
        )
    opened = local_client(workers or cpu_count()) if profile == "laptop" else remote_client(profile)
    with opened as client, client.as_current():
        yield client


@contextmanager
def remote_client(address: str) -> Iterator["Client"]:
    """Connect to the scheduler at `address`."""
    from distributed import Client

    try:
        client = Client(address, set_as_default=False, timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"no Dask scheduler answers at {address} ({error}); expected one that is running. Start it, or leave --scheduler out."
        ) from error
    with client:
        yield client
