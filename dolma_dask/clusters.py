"""Where tasks run: an active Dask client, one of Dask's own schedulers, or a LocalCluster started for one command.

Workers are processes with one thread each, because taggers written in Python hold the interpreter lock. Stages only return small
records, so nothing is worth spilling: the thresholds leave the memory to the kernels, and a worker that outgrows its limit is restarted.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dolma_dask.errors import UsageError

if TYPE_CHECKING:
    from distributed import Client

SCHEDULERS = ("synchronous", "threads", "processes", "cluster")

_CONFIG = {
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": 0.85,
    "distributed.worker.memory.terminate": 0.95,
    "distributed.scheduler.allowed-failures": 3,
    "distributed.comm.timeouts.connect": "60s",
}

_WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "ARROW_IO_THREADS": "2",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


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


def configured_scheduler() -> str | None:
    """Return the scheduler name that Dask's configuration asks for, if any."""
    import dask

    name = dask.config.get("scheduler", None)
    aliases = {
        "sync": "synchronous",
        "single-threaded": "synchronous",
        "threading": "threads",
        "multiprocessing": "processes",
    }
    return aliases.get(name, name) if isinstance(name, str) else None


def check_scheduler(name: str) -> str:
    """Return `name` if it names a scheduler or an address; raise `UsageError` otherwise."""
    if name in SCHEDULERS or "://" in name:
        return name
    raise UsageError(
        f"unknown scheduler {name!r}; expected one of {', '.join(SCHEDULERS)}, or the address of a Dask scheduler such as "
        "tcp://host:8786."
    )


_shared: ContextVar["_Shared | None"] = ContextVar("shared_cluster", default=None)


@dataclass
class _Shared:
    stack: ExitStack
    client: "Client | None" = None


@contextmanager
def shared_cluster() -> Iterator[None]:
    """Let all verbs of a block that need a LocalCluster use one; it is started when the first has work, or never."""
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
        Number of worker processes; inside `shared_cluster` there is one per processor.
    """
    shared = _shared.get()
    if shared is None:
        with _start_local(workers) as client:
            yield client
        return
    shared.client = shared.client or shared.stack.enter_context(_start_local(cpu_count()))
    yield shared.client


@contextmanager
def _start_local(workers: int) -> Iterator["Client"]:
    import dask
    from distributed import Client, LocalCluster

    environment = {name: os.environ.get(name, value) for name, value in _WORKER_ENVIRONMENT.items()}
    config: dict[str, Any] = {
        **_CONFIG,
        "distributed.nanny.pre-spawn-environ": {**_nanny_defaults(), **environment},
    }
    with (
        dask.config.set(config),
        LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def _nanny_defaults() -> dict[str, Any]:
    import dask

    return dict(dask.config.get("distributed.nanny.pre-spawn-environ", {}))


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
        client = Client(address, set_as_default=False, timeout="30s")
    except OSError as error:
        raise UsageError(
            f"no Dask scheduler answers at {address} ({error}); expected one that is running. Start it, or leave --scheduler out."
        ) from error
    with client:
        yield client
