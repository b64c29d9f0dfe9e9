"""Workers on this machine: a pool of processes, or a LocalCluster; forked from a server that has imported the package, with one thread each.

All verbs of a `shared_cluster` block use the same; they are started when the first has work.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dolma_dask.clusters.this_process import check_has_threads, check_may_start, configured
from dolma_dask.clusters.workers import SILENT, client_of, hold_settings
from dolma_dask.errors import DolmaDaskError, UsageError
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

START_ATTEMPTS = 2
"""Attempts to start a LocalCluster: a worker may be killed before it answers."""

shared_now: ContextVar["Shared | None"] = ContextVar("shared_cluster", default=None)


@dataclass
class Shared:
    """Workers that have been started for a block."""

    stack: ExitStack
    client: "Client | None" = None
    processes: "ProcessPoolExecutor | None" = None
    profiles: "dict[str, Client]" = field(default_factory=dict)  # clusters by the name of their profile


@contextmanager
def shared_cluster() -> Iterator[None]:
    """Let all verbs of a block that need a LocalCluster or processes use the same; they are started when the first has work, or never.

    Inside of such a block another one changes nothing.
    """
    if shared_now.get() is not None:
        yield
        return
    with ExitStack() as stack:
        token = shared_now.set(Shared(stack))
        try:
            yield
        finally:
            shared_now.reset(token)


def _started(workers: int) -> "ProcessPoolExecutor":
    try:
        return start_processes(workers)
    except (EOFError, ConnectionError) as error:  # all that `multiprocessing` says
        from dolma_dask import fork_server

        fork_server.wait_for_end()  # the next pool gets another
        raise DolmaDaskError(
            "the process that forks workers was killed before they had started; expected it to live. Where memory is short the system kills processes: "
            "take fewer workers, or scheduler='threads', and run the same command again. It does only what is left."
        ) from error


@contextmanager
def process_pool(workers: int) -> Iterator["ProcessPoolExecutor"]:
    """Start processes and stop them at the end, or at that of the `shared_cluster` block; an exception kills them."""
    shared = shared_now.get()
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
def shared_client(name: str, start: "Callable[[], AbstractContextManager[Client]]") -> "Iterator[Client]":
    """Yield the client of a profile, which is started once for a `shared_cluster` block."""
    shared = shared_now.get()
    if shared is None:
        with start() as client:
            yield client
        return
    if name not in shared.profiles:
        shared.profiles[name] = shared.stack.enter_context(start())
    yield shared.profiles[name]


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
            environment = {name: os.environ.get(name, value) for name, value in WORKER_ENVIRONMENT.items()}
            before_start = {**(configured("distributed.nanny.pre-spawn-environ") or {}), **environment}
            options = {
                "distributed.nanny.pre-spawn-environ": before_start,
                "distributed.worker.multiprocessing-method": method,
            }
            hold_settings(stack, options)
            with environment_kept():
                started = _local_cluster(workers, dashboard)
            client = client_of(started, stack, Setting.here(), dashboard=dashboard)
        try:
            yield client
        finally:
            with interrupts_held_back():
                stack.close()


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
