"""A LocalCluster: workers are processes of this machine with one thread each, forked from a server that has imported the package."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from dolma_dask.clusters.sharing import shared_now
from dolma_dask.clusters.this_process import check_has_threads, check_may_start, configured, of_workers
from dolma_dask.clusters.workers import CONFIG, SILENT, taking_over
from dolma_dask.errors import UsageError
from dolma_dask.processes import (
    WORKER_ENVIRONMENT,
    Setting,
    environment_kept,
    interrupts_held_back,
    process_context,
)

if TYPE_CHECKING:
    from distributed import Client

START_ATTEMPTS = 2
"""How often a LocalCluster is started: a worker may be killed before it answers."""


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
    shared = shared_now.get()
    if shared is None:
        with _start_local(workers, dashboard=dashboard) as client:
            yield client
        return
    shared.client = shared.client or shared.stack.enter_context(_start_local(workers, dashboard=dashboard))
    yield shared.client


@contextmanager
def _start_local(workers: int, *, dashboard: bool) -> Iterator["Client"]:
    check_may_start()
    check_has_threads()
    with ExitStack() as stack:
        with interrupts_held_back():
            method = process_context("distributed.nanny", "distributed.worker").get_start_method()

            import dask
            from distributed import Client
            from distributed.utils import silence_logging_cmgr

            environment = {name: os.environ.get(name, value) for name, value in WORKER_ENVIRONMENT.items()}
            before_start = {**(configured("distributed.nanny.pre-spawn-environ") or {}), **environment}
            options = {
                **CONFIG,
                "distributed.nanny.pre-spawn-environ": before_start,
                "distributed.worker.multiprocessing-method": method,
            }
            settings = of_workers.during(lambda: [dask.config.set(options), silence_logging_cmgr(SILENT)])
            stack.enter_context(settings)
            with environment_kept():
                started = _local_cluster(workers, dashboard)
                stack.callback(stop, started)
            client = Client(started, set_as_default=dashboard)
            stack.callback(client.close)
            client.register_plugin(taking_over(Setting.here()), name="setting")
        try:
            yield client
        finally:
            with interrupts_held_back():
                stack.close()


def stop(started: Any) -> None:
    """Stop a LocalCluster, in a second attempt if a worker that Dask just starts again cannot be waited for."""
    try:
        started.close()
    except (AssertionError, TimeoutError):
        from distributed.core import Status

        started.status = Status.failed  # else the second call would wait for the first
        started.close()


def _local_cluster(workers: int, dashboard: bool, attempts: int = START_ATTEMPTS) -> Any:
    from distributed import LocalCluster

    try:
        return LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",  # without one it would take a port of its own choice, and warn
            scheduler_kwargs={"dashboard": dashboard},
            silence_logs=SILENT,
        )
    except RuntimeError as error:
        if attempts > 1:
            return _local_cluster(workers, dashboard, attempts - 1)
        raise UsageError(
            f"no worker process could be started ({error}); expected {workers} of them. In a script, which has to be a file, dk.cluster() and scheduler='cluster' "
            "belong below `if __name__ == '__main__':`; else run in this process: scheduler='threads'."
        ) from None
