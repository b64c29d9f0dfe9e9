"""One LocalCluster, one cluster of a profile and one pool of processes for all verbs of a block, started when the first has work."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dolma_dask.errors import DolmaDaskError
from dolma_dask.processes import kill_processes, start_processes

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

    from distributed import Client

shared_now: ContextVar["Shared | None"] = ContextVar("shared_cluster", default=None)


@dataclass
class Shared:
    """What has been started for a block."""

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
