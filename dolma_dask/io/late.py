"""Files that another machine has written and this one does not see yet: NFS keeps what it knows of a folder for up to a minute.

Names alone are late: a file appears by a rename, once it is whole (`io.publish`). Whoever opens what a listing or a record names waits here if it is not there, and the process that
leads a run waits until it lists all that its workers have reported. On file systems of one machine, and on stores, nothing is late and nothing is waited for.
"""

import os
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from dolma_dask.display import counted
from dolma_dask.errors import StoreAccessError
from dolma_dask.io.files import is_local, join, local_path, stat

T = TypeVar("T")

SECONDS = 120.0
"""Limit of a wait: twice what NFS keeps by default (``acdirmax``)."""

REPLACED_SECONDS = 20.0
"""Limit of a wait for a file that is not there since another run of the same command replaces it."""

POLL_SECONDS = 0.2

_MOUNTS = Path("/proc/self/mountinfo")

_OF_ONE_MACHINE = {
    "bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs", "reiserfs", "rootfs", "squashfs", "tmpfs", "vfat", "xfs", "zfs",
}  # fmt: skip
"""File systems that no other machine writes to."""

_in_vain: set[Path] = set()
"""Folders in which this process has waited for a file that never came: what is missing there is gone."""


def opened(url: str, open_file: Callable[[], T]) -> T:
    """Return what `open_file` returns for a file that should be there, as soon as it is.

    Raises `FileNotFoundError`: it is not there, also not after `SECONDS` where it may be late.
    """
    try:
        return open_file()
    except FileNotFoundError:
        if not is_seen(url):
            raise
        return open_file()


def is_seen(url: str) -> bool:
    """Tell whether a file is there that should be; wait for it where it may be late."""
    path = local_path(url)
    if not may_be_late(url) or path.parent in _in_vain:
        return is_local(url) and path.exists()
    seen = wait_until(path.exists)
    if not seen:
        _in_vain.add(path.parent)
    return seen


def wait_until(condition: Callable[[], bool], seconds: float | None = None) -> bool:
    """Wait until a condition holds, at most so long or `SECONDS`; tell whether it does."""
    end = time.monotonic() + (SECONDS if seconds is None else seconds)
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(POLL_SECONDS)
    return True


def wait_for_all(root: str, missing: Callable[[], Sequence[str]]) -> None:
    """Wait until nothing is missing of what workers have written below a root: whoever lists it next would take what is late for what was never made.

    Raises `StoreAccessError`: something still is after `SECONDS`.
    """
    if not may_be_late(root) or wait_until(lambda: not missing()) or not (left := missing()):
        return
    raise StoreAccessError(
        f"{root}: {counted(len(left), 'file')} that workers have written are not seen on {socket.gethostname()} after {SECONDS:.0f} s, first {left[0]}; expected a folder that all "
        "machines see. Look at how it is mounted here and there, then run the same command again: what is finished is kept.",
        url=root,
    )


def check_shared(root: str, paths: Iterable[str]) -> None:
    """Check that files below a root are here, as a worker says that has written them; those that may be late are checked by `wait_for_all`.

    Raises `StoreAccessError`: the worker has written them into a folder that this machine does not see.
    """
    if not is_local(root):
        return
    missing = [path for path in paths if stat(join(root, path)) is None]
    if not missing or may_be_late(root):
        return
    for path in missing:
        if not wait_until(local_path(join(root, path)).exists, REPLACED_SECONDS):
            raise StoreAccessError(
                f"{root}: {path} was written by a worker, and is not here, on {socket.gethostname()}; expected a folder that all machines see, and from which "
                "nobody takes files meanwhile. Work on shared storage, not in /tmp or on a node's own disk; `dolma-dask cluster check PROFILE --folder FOLDER` tells whether a folder is shared.",
                url=root,
            )


def waited(url: str) -> str:
    """Return a sentence for the message about a file that is not there: that it was waited for; empty where it was not."""
    if not may_be_late(url):
        return ""
    return f" {socket.gethostname()} has waited {SECONDS:.0f} s for it, since other machines may have written it ({_kind_of(local_path(url))})."


def may_be_late(url: str) -> bool:
    """Tell whether this machine may see late what others write at a place."""
    return is_local(url) and _kind_of(local_path(url)) not in {"", *_OF_ONE_MACHINE}


def _kind_of(path: Path) -> str:
    """Return the file system in which a path lies, by its name in Linux; empty where the system does not tell."""
    real, longest, kind = f"{os.path.realpath(path)}/", 0, ""
    with suppress(OSError):
        for line in _MOUNTS.read_text().splitlines():
            fields, _, system = line.partition(" - ")
            place = fields.split()[4].replace("\\040", " ").rstrip("/")
            if real.startswith(f"{place}/") and len(place) >= longest:  # of two at a place, the last
                longest, kind = len(place), system.split()[0]
    return kind
