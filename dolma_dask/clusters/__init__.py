"""Where tasks run: an active Dask client, one of Dask's own schedulers, a LocalCluster, jobs of SLURM, or a scheduler elsewhere.

Workers of a cluster are processes with one thread each, because taggers written in Python hold the interpreter lock. `places` decides where a
run goes, `sharing` lets several verbs use the same workers, `local`, `slurm`, `allocation` and `remote` start or find them, `profiles` says how
they are described in YAML, `refill` replaces jobs that end, `watching` tells the engine what it knows of them, and `handle` is what `dolma_dask.cluster` returns.
"""

from dolma_dask.clusters.handle import Cluster, cluster
from dolma_dask.clusters.local import local_client
from dolma_dask.clusters.places import (
    SCHEDULERS,
    Placement,
    check_cluster,
    check_scheduler,
    check_workers,
    open_placement,
)
from dolma_dask.clusters.remote import remote_client
from dolma_dask.clusters.sharing import process_pool, shared_cluster
from dolma_dask.clusters.this_process import active_client, cpu_count
from dolma_dask.clusters.watching import (
    OUTLIVED,
    OWN,
    Deaths,
    check_workers_come,
    deaths_of,
    memory_setting,
)

__all__ = [
    "OUTLIVED",
    "OWN",
    "SCHEDULERS",
    "Cluster",
    "Deaths",
    "Placement",
    "active_client",
    "check_cluster",
    "check_scheduler",
    "check_workers",
    "check_workers_come",
    "cluster",
    "cpu_count",
    "deaths_of",
    "local_client",
    "memory_setting",
    "open_placement",
    "process_pool",
    "remote_client",
    "shared_cluster",
]
