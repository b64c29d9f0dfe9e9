"""Processes of this machine: forked from a server that has imported the package, with the environment of now, and deaf to Ctrl-C.

They never import the script that calls a verb, and never outlive it.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from dolma_dask.metering import CALLER, caller

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "ARROW_IO_THREADS": "2",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # Dask's own setting hands every freed block back to the kernel: 1.29 times the CPU of a serial run, against 1.00 (measured)
    "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
}
"""Variables of worker processes, unless the user has set them."""

_FORKS = sys.platform == "linux"
"""Elsewhere a process that has loaded the system's libraries must not fork; processes then import everything themselves."""

_ALLOCATION = {"MALLOC_TRIM_THRESHOLD_": -1, "MALLOC_MMAP_THRESHOLD_": -3}
"""Variables of glibc, and the numbers that its ``mallopt`` knows them by."""

_starting = threading.Lock()
"""Held while processes are started."""


@cache
def keep_freed_memory() -> None:
    """Let this process keep blocks that it frees, as workers do: glibc learns it only from many of them, for which the system clears every page again.

    Nothing changes where the user has set one of the variables, or with another library.
    """
    if not _FORKS or _ALLOCATION.keys() & os.environ.keys():
        return
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for name, number in _ALLOCATION.items():
            mallopt(number, int(WORKER_ENVIRONMENT[name]))


class Setting(Struct, frozen=True):
    """State of this process that those it starts take over, however old the server is that forks them."""

    environment: dict[str, str]
    gone: tuple[str, ...]  # variables that the server had
    umask: int
    stores: dict[str, Any]  # fsspec's configuration

    @classmethod
    def here(cls) -> "Setting":
        """Return that of this process."""
        umask = os.umask(0o077)
        os.umask(umask)
        config = sys.modules.get("fsspec.config")
        server = sys.modules.get("dolma_dask.fork_server")
        gone = tuple(server.served - os.environ.keys()) if server else ()
        environment = {**os.environ, CALLER: caller()}
        return cls(environment, gone, umask, dict(config.conf) if config else {})

    def take_over(self) -> None:
        """Make it that of this process."""
        for name in self.gone:
            os.environ.pop(name, None)
        os.environ.update({**WORKER_ENVIRONMENT, **self.environment})
        os.umask(self.umask)
        if self.stores:
            from fsspec.config import conf

            conf.clear()
            conf.update(self.stores)


def process_context(*modules: str) -> Any:
    """Return how processes are started: forked from a server that has imported `modules` and what this process has of the package, where that is safe.

    Beyond one process, two from a server cost 0.5 CPU-seconds before their first byte, a LocalCluster of two 0.8 (medians of four, in turn); without the
    server twice that. Call it before starting them, with interrupts held back.
    """
    import multiprocessing

    if not _FORKS:
        return multiprocessing.get_context("spawn")
    from dolma_dask import fork_server

    ours = sorted(name for name in sys.modules if name.partition(".")[0] == "dolma_dask")
    with _environment(WORKER_ENVIRONMENT):
        fork_server.start([*ours, "pyarrow.compute", "numba.core.typing", *modules])
    return multiprocessing.get_context(fork_server.METHOD)


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set those of the variables that are not set, for what is started in the block."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


@contextmanager
def environment_kept() -> Iterator[None]:
    """Restore the environment at the end: Dask sets that of its workers in this process, which starts others too."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def start_processes(workers: int) -> "ProcessPoolExecutor":
    """Return a pool whose processes have been started."""
    from concurrent.futures import ProcessPoolExecutor

    pool: Any = None
    try:
        with _starting, interrupts_held_back(), script_left_out():
            context = process_context()
            pool = ProcessPoolExecutor(
                workers, context, initializer=_prepare_process, initargs=(Setting.here(),)
            )
            pool._safe_to_dynamically_spawn_children = False  # all now: later ones would import the script
            pool.submit(int)
    except BaseException:  # Ctrl-C that was held back, too
        if pool is not None:
            kill_processes(pool)
        raise
    return cast("ProcessPoolExecutor", pool)


def kill_processes(pool: "ProcessPoolExecutor") -> None:
    """End a pool and all of its processes, whatever they do; a further Ctrl-C waits."""
    with interrupts_held_back():
        for process in list((getattr(pool, "_processes", None) or {}).values()):
            process.kill()  # there is no public way before Python 3.14
        pool.shutdown(cancel_futures=True)


@contextmanager
def script_left_out() -> Iterator[None]:
    """Keep processes started in this block from importing the script that runs in this one: without a ``__main__`` guard it would run again.

    What the script defines reaches them all the same: cloudpickle sends it.
    """
    main = vars(sys.modules["__main__"])
    hidden = {str(name): main.pop(name) for name in ("__file__", "__spec__") if name in main}
    main["__spec__"] = None
    try:
        yield
    finally:
        main.update(hidden)


def _prepare_process(setting: Setting) -> None:
    """Ready a process of Dask's own scheduler: settings as in the command, libraries use one thread, and it never outlives the command."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    setting.take_over()
    threading.Thread(target=_end_with_parent, name="end-with-parent", daemon=True).start()


def _end_with_parent() -> None:
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Keep Ctrl-C from processes started in this block, for good, and from this process until the block ends.

    In a terminal Ctrl-C reaches every process of a command. Only the command itself may act on it: it ends its workers. What starts
    and stops processes cannot be interrupted half way.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets signals
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # started later, it would undo the mask
    pending: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: pending.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # threads and processes inherit it
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, signal.SIG_DFL if handler is None else handler)
    if pending and callable(handler):
        handler(signal.SIGINT, None)
