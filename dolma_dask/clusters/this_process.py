"""Limits and state of this process: processors, daemons, forks, Dask's configuration, the active client."""

import multiprocessing
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dolma_dask.errors import UsageError

if TYPE_CHECKING:
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
