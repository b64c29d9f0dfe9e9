"""This machine: limits and state of this process, and workers that it starts.

Workers are a pool of processes, or a LocalCluster; forked from a server that has imported the package, with one thread each.

All verbs of a `shared_cluster` block use the same; they are started when the first has work.
"""

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

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


def is_daemon() -> bool:
    """Tell whether this process, say a Dask worker, may not start others."""
    if "multiprocessing" not in sys.modules:
        return False
    from multiprocessing import current_process

    return current_process().daemon


def check_may_start() -> None:
    """Refuse to start processes from one that multiprocessing does not let start any.

    A worker that still imports a script without a ``__main__`` guard ends in silence: the process that runs the script says what is missing.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SystemExit(1)
    if is_daemon():
        raise UsageError(
            "this process may start no others, since it is one of a multiprocessing.Pool or another daemonic process; expected one that may. "
            "Call it from the main process, from processes with daemon=False or of concurrent.futures, or use scheduler='threads'."
        )


def configured(name: str) -> Any:
    """Return a value of Dask's configuration; Dask itself (0.1 CPU-seconds) is not imported where there is none."""
    folders = ("/etc/dask", f"{sys.prefix}/etc/dask", "~/.config/dask")
    if (
        "dask" not in sys.modules
        and not any(variable.startswith("DASK_") for variable in os.environ)
        and not any(map(_says_something, folders))
    ):
        return None
    import dask

    return dask.config.get(name, None)


def _says_something(folder: str) -> bool:
    """Tell whether a folder has settings of Dask; packages put files there that are all comments."""
    path = Path(folder).expanduser()
    return path.is_dir() and any(map(_has_settings, path.iterdir()))


def _has_settings(file: Path) -> bool:
    try:
        lines = file.read_bytes().splitlines()
    except OSError:
        return True  # what it is, Dask will tell
    return any(line.strip() and not line.lstrip().startswith(b"#") for line in lines)


def check_has_threads() -> None:
    """Refuse Dask's cluster in a process that lacks its threads."""
    if _fork_of_dask:
        raise UsageError(
            "this process is a fork of one that has used Dask's cluster, whose threads it lacks; expected one that was started afresh. Start it "
            "by multiprocessing's 'spawn' or 'forkserver', or use scheduler='threads'."
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


def has_own_client() -> bool:
    """Tell whether a client of the user's own block counts here before the default one."""
    from distributed import Client

    try:
        return bool(Client.current(allow_global=False))
    except ValueError:
        return False


_fork_of_dask = False
"""True if this process is a fork of one that has used distributed, whose threads it lacks; to have imported it starts none."""

_has_threads = False
"""True if the process that forks runs other threads."""


def _look_at_threads() -> None:
    global _has_threads
    _has_threads = threading.active_count() > 1


def _look_at_dask() -> None:
    global _fork_of_dask
    _fork_of_dask |= _has_threads and "distributed" in sys.modules


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_look_at_threads, after_in_child=_look_at_dask)


START_ATTEMPTS = 2
"""Attempts to start a LocalCluster: a worker may be killed before it answers."""

shared_now: ContextVar["Shared | None"] = ContextVar("shared_cluster", default=None)


class Shared(Struct):
    """Workers that have been started for a block."""

    stack: ExitStack
    client: "Client | None" = None
    processes: "ProcessPoolExecutor | None" = None
    profiles: "dict[str, Client]" = {}  # clusters by the name of their profile


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
