"""Where the tasks of a run go: the first of what its call says, Dask's configuration, the active client and an estimate."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dolma_dask.clusters.local import local_client
from dolma_dask.clusters.profiles import Profile, read_profile
from dolma_dask.clusters.remote import remote_client
from dolma_dask.clusters.sharing import shared_client, shared_now
from dolma_dask.clusters.this_process import (
    active_client,
    check_has_threads,
    check_may_start,
    configured,
    cpu_count,
    is_daemon,
)
from dolma_dask.errors import UsageError
from dolma_dask.placement import choose

if TYPE_CHECKING:
    from distributed import Client

SCHEDULERS = ("auto", "synchronous", "threads", "processes", "cluster")

_ALIASES = {
    "sync": "synchronous",
    "single-threaded": "synchronous",
    "threading": "threads",
    "multiprocessing": "processes",
}
"""Further names of Dask's own schedulers."""


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
    profile: str | None = None,
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
    profile : str, optional
        Name or file of a cluster profile; it counts before all others.

    Raises
    ------
    UsageError
        An unknown scheduler, none answers at the address, or it is in other processes although files lie in the memory of this one.
    """
    if profile is not None:
        with shared_client(profile, lambda: profile_client(read_profile(profile, {}))) as client:
            yield _checked_place(Placement(client), in_memory)
        return
    selected = _select(scheduler)
    count = check_workers(workers or configured("num_workers")) or cpu_count()
    if selected == "auto":
        may_start = not in_memory and not is_daemon()
        shared = shared_now.get()
        warm = shared is not None and shared.processes is not None
        selected = choose(verb, sizes, count, may_start=may_start, warm=warm, isolate=isolate)
    if shared_now.get() is None:  # in a block later verbs may have more tasks than the first
        count = min(count, len(sizes))
    if selected in ("processes", "cluster"):
        check_may_start()
    with ExitStack() as stack:
        if selected == "cluster":
            place = Placement(stack.enter_context(local_client(count)))
        elif isinstance(selected, str) and "://" in selected:
            place = Placement(stack.enter_context(remote_client(selected)))
        elif hasattr(selected, "scheduler_info"):
            place = Placement(_usable(selected))
        else:
            place = Placement(scheduler=selected, workers=count)
        yield _checked_place(place, in_memory)


def _checked_place(place: Placement, in_memory: bool) -> Placement:
    """Return a place that sees the files."""
    if in_memory and not place.is_here:
        raise UsageError(
            "files at memory:// lie in the memory of this process; expected files on disk or in a store, since the work goes to other "
            "processes, which do not see them. Use scheduler='threads'."
        )
    return place


def profile_client(profile: Profile, *, dashboard: bool = False) -> "AbstractContextManager[Client]":
    """Start or find the workers of a profile, for a block; with `dashboard` Dask's own calls go there too."""
    if profile.kind == "local":
        return local_client(profile.workers or cpu_count(), dashboard=dashboard)
    if profile.kind == "address":
        return remote_client(profile.address, default=dashboard)
    if profile.kind == "allocation":
        from dolma_dask.clusters.allocation import allocation_client

        return allocation_client(profile, dashboard=dashboard)
    from dolma_dask.clusters.slurm import slurm_client

    return slurm_client(profile, dashboard=dashboard)


def check_workers(workers: Any) -> int | None:
    """Return a number of processes or threads, None for the default; raise `UsageError` if it is none."""
    if workers is None or (type(workers) is not bool and isinstance(workers, int) and workers > 0):
        return workers
    raise UsageError(f"workers={workers!r}; expected a number of processes or threads from 1 on.")


def check_cluster(cluster: str | None, scheduler: str | None, workers: int | None) -> None:
    """Refuse a cluster that cannot be: an unknown or wrong profile, or with something else that says where tasks run."""
    if cluster is None:
        return
    if scheduler is not None:
        raise UsageError(
            f"cluster={cluster!r} and scheduler={scheduler!r} were both given; expected one of them, since each says where the work is done."
        )
    if workers is not None:
        raise UsageError(
            f"cluster={cluster!r} and workers={workers} were both given; expected the number in the profile: `workers` or `jobs`."
        )
    read_profile(cluster)


def _select(scheduler: str | None) -> Any:
    """Return the name of a scheduler, an address, a client, or an executor from Dask's configuration."""
    if scheduler is not None and check_scheduler(scheduler) != "auto":
        return scheduler
    named = configured("scheduler")
    if isinstance(named, str):
        named = _ALIASES.get(named, named)
    if named in (None, "auto", "distributed", "dask.distributed"):
        client = active_client()
        if client is None and named not in (None, "auto"):
            raise UsageError(
                f"Dask's configuration asks for the scheduler {named!r}, but no client is active. Start one: dk.cluster()."
            )
        return client or "auto"
    return check_scheduler(named) if isinstance(named, str) else named


def _usable(client: "Client") -> "Client":
    check_has_threads()
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
