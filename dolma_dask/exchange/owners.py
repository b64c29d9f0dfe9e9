"""Who works below ``_exchange/<verb>-<name>/``: one run at a time, or two would remove and replace each other's files.

The owner says so in ``.owner.json`` there: host, process and when it started, and every `TOUCH_SECONDS` that it is still alive. On this
host an owner is dead when its process is gone (or another one has its number). Elsewhere, also in another container, it is believed dead when
it has said nothing for `SILENT_SECONDS`, so clocks may differ by minutes. Who is dead is followed by the next run, which goes on from what is
there. Cost: one small file, written twice a minute.
"""

import fcntl
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from dolma_dask.errors import UsageError
from dolma_dask.io import files
from dolma_dask.io.publish import publish, sweep

OWNER = ".owner.json"
"""Hidden, so that listings of results leave it out."""

TOUCH_SECONDS = 30.0

SILENT_SECONDS = 300.0
"""Ten touches."""

_ATTEMPTS = 20
"""Claims of a folder that others remove at the same time."""


class Owner(msgspec.Struct, frozen=True):
    """Who works in a folder.

    Attributes
    ----------
    verb : str
        What it does.
    host, space : str and int
        Where its process number means what it says: a host and, in containers, a space of process numbers.
    pid, born : int
        Its process, and when that started, in ticks of its host; 0 where the system does not tell.
    thread : int
        Which of its threads.
    started, touched : float
        When it began and when it last said so, in seconds since 1970.
    """

    verb: str
    host: str
    space: int
    pid: int
    born: int
    thread: int
    started: float
    touched: float

    def is_here(self) -> bool:
        """Tell whether its process number can be looked up."""
        return (self.host, self.space) == _place()

    def is_me(self) -> bool:
        """Tell whether it is this thread of this process."""
        return self.is_here() and (self.pid, self.born, self.thread) == (
            os.getpid(),
            _born(os.getpid()),
            threading.get_ident(),
        )

    def is_alive(self) -> bool:
        """Tell whether it still works, as far as can be known."""
        if not self.is_here():
            return time.time() - self.touched < SILENT_SECONDS
        if not _runs(self.pid) or (self.born and self.born != _born(self.pid)):
            return False
        return self.pid != os.getpid() or any(one.ident == self.thread for one in threading.enumerate())


@contextmanager
def owned(folder: str, verb: str) -> Iterator[None]:
    """Own a folder ``.../_exchange/<verb>-<name>`` while the block runs; see `claim`."""
    is_new = claim(folder, verb)
    try:
        yield
    finally:
        if is_new:
            release(folder)


def claim(folder: str, verb: str) -> bool:
    """Become the owner of a folder ``.../_exchange/<verb>-<name>`` until `release`; tell whether it is one now that was none before.

    Raises
    ------
    UsageError
        Another run works there.
    """
    for _ in range(_ATTEMPTS):
        with suppress(FileNotFoundError), _alone(folder):  # whoever worked there may remove the folder now
            found = owner_of(folder)
            if found is not None and found.is_me():
                _keep_alive(folder, found)
                return False
            if found is not None and found.is_alive():
                raise _busy(folder, found, verb)
            mine = _me(verb)
            _write(folder, mine)
            _keep_alive(folder, mine)
            return True
    raise UsageError(
        f"{folder} was removed again and again by another {verb}; expected one at a time. Run the same command again."
    )


def release(folder: str) -> None:
    """Stop to own a folder, or clear away that a dead run did; nothing happens if another one works there."""
    with _writing:
        beat = _beats.pop(folder, None)
        if beat is not None:
            beat.set()
    found = owner_of(folder)
    if found is not None and (found.is_me() or not found.is_alive()):
        files.remove(files.join(folder, OWNER))
    sweep(folder)  # of whoever was killed while it wrote that
    _remove_empty(folder)


def _remove_empty(folder: str) -> None:
    """Remove a folder in which nothing is left, and ``_exchange`` if it was the last; object stores have no empty folders."""
    if files.is_local(folder):
        path = files.local_path(folder)
        with suppress(OSError):
            path.rmdir()
            path.parent.rmdir()


def is_taken(folder: str) -> bool:
    """Tell whether another run works in a folder."""
    found = owner_of(folder)
    return found is not None and not found.is_me() and found.is_alive()


def owner_of(folder: str) -> Owner | None:
    """Return who has claimed a folder; None: nobody, or nobody knows."""
    try:
        return msgspec.json.decode(files.read_bytes(files.join(folder, OWNER)), type=Owner)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None


def _write(folder: str, owner: Owner) -> None:
    with publish(files.join(folder, OWNER)) as out:
        out.write(msgspec.json.encode(owner))


def _busy(folder: str, found: Owner, verb: str) -> UsageError:
    said = "" if found.is_here() else f", which was alive {max(time.time() - found.touched, 0):,.0f} s ago"
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found.started))
    return UsageError(
        f"another {found.verb} works in {folder} (process {found.pid} on {found.host}, since {since}{said}); expected one at a time. Wait for "
        f"it and run the same command again, or give this {verb} another name or target.",
        folder=folder,
        pid=found.pid,
        host=found.host,
    )


# ------------------------------------------------------------------------------------------------ this process

_beats: dict[str, threading.Event] = {}
"""What stops the touches of each folder."""

_writing = threading.Lock()
"""Held while a folder is touched, so that it is not after it was left."""


def _me(verb: str) -> Owner:
    host, space = _place()
    pid, now = os.getpid(), time.time()
    return Owner(verb, host, space, pid, _born(pid), threading.get_ident(), now, now)


def _place() -> tuple[str, int]:
    try:
        space = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        space = 0
    return socket.gethostname(), space


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _born(pid: int) -> int:
    """Return when a process started, in ticks since this host did; 0: the system does not tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[19])  # the name in parentheses may hold anything


def _keep_alive(folder: str, owner: Owner) -> None:
    """Touch the file of an owner from now on, unless that is done already."""
    if folder in _beats:
        return
    stop = _beats[folder] = threading.Event()
    threading.Thread(target=_beat, args=(folder, owner, stop), daemon=True, name="dolma-dask-owner").start()


def _beat(folder: str, owner: Owner, stop: threading.Event) -> None:
    while not stop.wait(TOUCH_SECONDS):
        with suppress(Exception):  # a store that is away for a moment; the next touch may do
            found = owner_of(folder)
            if found is None or (found.pid, found.born, found.started) != (
                owner.pid,
                owner.born,
                owner.started,
            ):
                return  # removed, or taken over while this process was asleep
            with _writing, _alone(folder):
                if not stop.is_set():
                    _write(folder, msgspec.structs.replace(found, touched=time.time()))


@contextmanager
def _alone(folder: str) -> Iterator[None]:
    """Keep other processes of this host out of the same block; between hosts nothing does."""
    if not files.is_local(folder):
        yield
        return
    path = files.local_path(folder)
    path.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):  # some file systems lock no folders
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if not path.exists():
            raise FileNotFoundError(path)
        yield
    finally:
        os.close(descriptor)
