"""View of a machine from a process on it: versions, processors, memory, scratch, the shared folder, its clock, compiled kernels.

The same function runs here and on a worker, so that both can be compared. It takes a second on a worker that has not compiled kernels.
"""

import os
import platform
import shutil
import socket
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

PACKAGES = ("dask", "distributed", "numpy", "pyarrow")
"""Whose versions must be the same on both sides."""

_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_MAX_MEMORY = 1 << 60  # larger limits of cgroups mean none


class Side(msgspec.Struct, frozen=True):
    """Findings of one process."""

    host: str
    processors: int  # that it may use
    dask_memory: int | None  # bytes that Dask gives to the worker
    job_memory: int | None  # bytes that SLURM or a cgroup gives to the job
    scratch: str  # folder of temporary files
    scratch_free: int  # bytes
    scratch_kind: str  # of file system
    folder_read: str  # what stands in the other side's file; else what went wrong
    folder_wrote: str  # empty, or what went wrong
    clock: float  # seconds since 1970
    compiled: bool  # whether kernels need no compilation
    versions: dict[str, str]


def look(folder: str, mine: str, theirs: str, token: str) -> Side:
    """Look around; write `token` to the file `mine` of a folder, and read `theirs`."""
    wrote = _write(Path(folder, mine), token)
    scratch = _scratch()
    return Side(
        socket.gethostname(),
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        _dask_memory(),
        _job_memory(),
        scratch,
        shutil.disk_usage(scratch).free,
        kind_of(scratch),
        _read(Path(folder, theirs)) if theirs else "",
        wrote,
        time.time(),
        _is_compiled(),
        {
            "python": platform.python_version(),
            "dolma_dask": _our_version(),
            **{name: _version(name) for name in PACKAGES},
        },
    )


def _write(path: Path, token: str) -> str:
    try:
        path.write_text(token)
    except OSError as error:
        return str(error)
    return ""


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        return str(error)


def _scratch() -> str:
    """Return where a worker keeps temporary files: its own folder, else that of the system."""
    if "distributed.worker" in sys.modules:
        from distributed import get_worker

        try:
            return str(Path(get_worker().local_directory).parents[1])
        except ValueError:
            pass
    return tempfile.gettempdir()


def _dask_memory() -> int | None:
    if "distributed.worker" not in sys.modules:
        return None
    from distributed import get_worker

    try:
        return get_worker().memory_manager.memory_limit  # type: ignore[no-any-return]
    except ValueError:
        return None


def _job_memory() -> int | None:
    """Return what SLURM says that it gives to this job on this node, or the limit of its cgroup."""
    for name, factor in (
        ("SLURM_MEM_PER_NODE", 1),
        ("SLURM_MEM_PER_CPU", int(os.environ.get("SLURM_CPUS_ON_NODE") or 1)),
    ):
        text = os.environ.get(name, "")
        if text.isdigit() and int(text):
            return int(text) * factor * (1 << 20)
    for path in map(Path, _CGROUPS):
        try:
            limit = int(path.read_text())
        except (OSError, ValueError):
            continue
        if limit < _MAX_MEMORY:
            return limit
    return None


def kind_of(folder: str) -> str:
    """Return the kind of the file system that a folder is on."""
    best = ("", "unknown")
    try:
        mounts = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return best[1]
    real = os.path.realpath(folder)
    for line in mounts:
        _, point, kind, *_ = line.split()
        if f"{real}/".startswith(f"{point.rstrip('/')}/") and len(point) >= len(best[0]):
            best = (point, kind)
    return best[1]


def _is_compiled() -> bool:
    """Tell whether machine code of kernels is where numba looks for it: the folder of its variable, else the package or the user's cache."""
    import dolma_dask.text

    named = os.environ.get("NUMBA_CACHE_DIR")
    package = Path(dolma_dask.text.__file__).parent / "__pycache__"
    folders = [Path(named)] if named else [package, Path.home() / ".cache" / "numba"]
    return any(next(folder.rglob("*.nbc"), None) for folder in folders if folder.is_dir())


def _our_version() -> str:
    import dolma_dask

    return dolma_dask.__version__


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
