"""Places where tasks run: an active Dask client, one of Dask's own schedulers, a LocalCluster, jobs of SLURM, or a scheduler elsewhere.

Workers of a cluster are processes with one thread each, because taggers written in Python hold the interpreter lock. `places` decides where a
run goes and has what `dolma_dask.cluster` returns; `local` knows what this process may do and starts workers on this machine, `slurm` and `allocation`
elsewhere; `profiles` says how they are described in YAML, `jobs` what a job is, `refill` replaces those that end; `workers` has what all
of them share and what the engine asks of them.
"""

from dolma_dask.clusters.local import active_client, cpu_count, local_client, process_pool, shared_cluster
from dolma_dask.clusters.places import (
    SCHEDULERS,
    Cluster,
    Placement,
    check_cluster,
    check_scheduler,
    check_workers,
    cluster,
    open_placement,
    remote_client,
)
from dolma_dask.clusters.workers import (
    OUTLIVED,
    OWN,
    Deaths,
    check_workers_come,
    deaths_of,
    memory_setting,
    note_lost_writers,
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
    "note_lost_writers",
    "open_placement",
    "process_pool",
    "remote_client",
    "shared_cluster",
]
