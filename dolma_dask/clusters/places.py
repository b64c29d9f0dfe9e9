"""Choice of the place where the tasks of a run go: the first of its call, Dask's configuration, the active client and an estimate.

`cluster` is the way of users to say it for all calls of a block.
"""

import html
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from dolma_dask.clusters.local import (
    active_client,
    check_has_threads,
    check_may_start,
    configured,
    cpu_count,
    has_own_client,
    is_daemon,
    local_client,
    shared_client,
    shared_now,
)
from dolma_dask.clusters.workers import of_client, of_default, tunnel
from dolma_dask.display import UNKNOWN, byte_size, counted
from dolma_dask.errors import UsageError
from dolma_dask.placement import TOKENS, Cost, choose
from dolma_dask.results import notebook as fragments

if TYPE_CHECKING:
    from distributed import Client

    from dolma_dask.clusters.profiles import Profile

SCHEDULERS = ("auto", "synchronous", "threads", "processes", "cluster")

CONNECT_SECONDS = 30.0
"""Seconds that a scheduler may take to answer."""

_ALIASES = {
    "sync": "synchronous",
    "single-threaded": "synchronous",
    "threading": "threads",
    "multiprocessing": "processes",
}
"""Further names of Dask's own schedulers."""


class Placement(Struct, frozen=True):
    """Place where tasks run."""

    client: "Client | None" = None  # of a cluster
    scheduler: Any = "synchronous"  # without a client: a name, or an executor from Dask's configuration
    workers: int = 1  # threads or processes of that scheduler

    @property
    def is_here(self) -> bool:
        """True if tasks run in this process."""
        if self.client is not None:
            return str(self.client.scheduler.address).startswith("inproc://")
        return bool(self.scheduler != "processes")


@contextmanager
def open_placement(
    scheduler: str | None,
    workers: int | None,
    sizes: Sequence[int],
    *,
    verb: str | Cost = "",
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
    verb : str or Cost
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
        with shared_client(profile, lambda: profile_client(_read(profile, {}))) as client:
            yield _checked_place(Placement(client), in_memory)
        return
    selected, is_alone = _select(scheduler), False
    count = check_workers(workers or configured("num_workers")) or cpu_count()
    if selected == "auto":
        may_start = not in_memory and not is_daemon()
        shared = shared_now.get()
        warm = shared is not None and shared.processes is not None
        selected = choose(verb, sizes, count, may_start=may_start, warm=warm, isolate=isolate)
        is_alone = selected == "synchronous" and verb == TOKENS and count > 1
    if shared_now.get() is None:  # in a block later verbs may have more tasks than the first
        count = min(count, len(sizes))
    if selected in ("processes", "cluster"):
        check_may_start()
    with ExitStack() as stack:
        if is_alone:  # loaded already: who encodes has opened a tokenizer
            from dolma_dask.tokens.engine import library_threads

            stack.enter_context(library_threads())
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


def profile_client(profile: "Profile", *, dashboard: bool = False) -> "AbstractContextManager[Client]":
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


def _read(profile: str, options: Mapping[str, Any] | None = None) -> "Profile":
    """Read a profile; most commands have none, and need no YAML."""
    from dolma_dask.clusters.profiles import read_profile

    return read_profile(profile, options)


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
    _read(cluster)


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
        known = self.client.scheduler_info(n_workers=-1)["workers"].values()
        memory = [worker["memory_limit"] for worker in known if worker["memory_limit"]]
        return [
            ("workers", f"{len(threads):,} with {counted(sum(threads.values()), 'thread')}"),
            ("memory", byte_size(sum(memory)) if memory else UNKNOWN),
            ("scheduler", str(self.client.scheduler.address)),
            *([("over ssh", tunnel(self.dashboard_link))] if self.client in of_client else []),
            ("dashboard", self.dashboard_link),
        ]

    def __repr__(self) -> str:
        return "\n".join(["cluster", *(f"  {name:<9}  {value}" for name, value in self.rows())])

    def _repr_html_(self) -> str:
        link = html.escape(self.rows()[-1][1])
        shown = fragments.pairs("cluster", self.rows())
        if link.startswith("http"):
            shown = shown.replace(link, f"<a href='{link}'>{link}</a>")
        return fragments.fragment(shown)


_open_clusters: set[Cluster] = set()
"""Held here until they are closed, whether the caller keeps them or not."""


def cluster(profile: str = "laptop", **options: Any) -> Cluster:
    """Start workers for the verbs that follow, or connect to them.

    Parameters
    ----------
    profile : str
        Name of a profile (``laptop``, ``slurm``, ``lumi``, ``allocation``), the path of one in YAML, or the address of a Dask scheduler.
    **options
        Values that replace those of the profile: ``workers`` (processes of this machine, by default one per processor), ``jobs``, or an option of
        dask-jobqueue, such as ``walltime``.

    Returns
    -------
    Cluster
        Shows itself in a notebook; in force until its `close`, or for a ``with`` block.

    Raises
    ------
    UsageError
        There is no such profile, or it is wrong, or cannot work here.
    ClusterError
        No worker stays.

    Examples
    --------
    >>> with cluster("laptop", workers=2):  # doctest: +SKIP
    ...     tag("corpus/wiki", ["gopher_v2"])
    >>> with cluster("slurm", jobs=8, walltime="02:00:00"):  # doctest: +SKIP
    ...     tag("corpus/wiki", ["gopher_v2"])
    """
    check_workers(options.get("workers"))
    return Cluster(_in_force(profile_client(_read(profile, options), dashboard=True)))


@contextmanager
def _in_force(opened: AbstractContextManager["Client"]) -> Iterator["Client"]:
    """Let all calls go to a client."""
    import dask

    settings = of_default.during(lambda: [dask.config.set(scheduler="dask.distributed")])
    with settings, opened as client, client.as_current() if has_own_client() else nullcontext():
        yield client
