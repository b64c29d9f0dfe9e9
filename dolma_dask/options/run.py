"""How a stage is run: nothing of it changes a byte of an output."""

from dataclasses import dataclass

from dolma_dask.clusters import check_cluster, check_workers


@dataclass(frozen=True)
class RunOptions:
    """How a stage is run; none of this changes a byte of the output."""

    overwrite: bool = False  # do everything again, and replace files that this tool did not make
    dry_run: bool = False  # say what would be done, and do nothing
    # ``synchronous``, ``threads``, ``processes``, ``cluster`` (a LocalCluster) or the address of a scheduler. Default: see
    # `dolma_dask.clusters.open_placement`.
    scheduler: str | None = None
    workers: int | None = None  # processes or threads; default: one per processor
    cluster: str | None = None  # name or file of a profile of workers, instead of a scheduler
    progress: bool = True  # show a bar

    def __post_init__(self) -> None:
        check_workers(self.workers)
        check_cluster(self.cluster, self.scheduler, self.workers)
