"""A cluster in the user's hands: in force until it is closed, shows itself in a notebook."""

import html
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from dolma_dask.clusters.dashboard import tunnel
from dolma_dask.clusters.places import check_workers, profile_client
from dolma_dask.clusters.profiles import read_profile
from dolma_dask.clusters.this_process import has_own_client, of_default
from dolma_dask.clusters.watching import of_client
from dolma_dask.display import UNKNOWN, byte_size, counted
from dolma_dask.results import notebook

if TYPE_CHECKING:
    from distributed import Client


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
        shown = notebook.pairs("cluster", self.rows())
        if link.startswith("http"):
            shown = shown.replace(link, f"<a href='{link}'>{link}</a>")
        return notebook.fragment(shown)


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
    return Cluster(_in_force(profile_client(read_profile(profile, options), dashboard=True)))


@contextmanager
def _in_force(opened: AbstractContextManager["Client"]) -> Iterator["Client"]:
    """Let all calls go to a client."""
    import dask

    settings = of_default.during(lambda: [dask.config.set(scheduler="dask.distributed")])
    with settings, opened as client, client.as_current() if has_own_client() else nullcontext():
        yield client
