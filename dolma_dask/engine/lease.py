"""Leases of work folders: one run at a time in ``_work/<verb>-<name>/``, or two would remove and replace each other's files.

The holder says so in ``.lease.json`` there: host, process and when it started, renewed every `RENEW_SECONDS`. On this host a holder is dead when
its process is gone (or another one has its number). Elsewhere, also in another container, it counts as dead when it has not renewed its lease
for `EXPIRE_SECONDS`, so clocks may differ by minutes. The lease of a dead holder is taken over. Cost: one small file, written twice a minute.
"""

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec

from dolma_dask.errors import UsageError
from dolma_dask.io import files
from dolma_dask.io.publish import is_running, process_space, process_state, publish, sweep

LEASE = ".lease.json"
"""Hidden, so that listings of results leave it out."""

RENEW_SECONDS = 30.0

EXPIRE_SECONDS = 300.0
"""Ten renewals."""

LOCK_SECONDS = 10.0

_ATTEMPTS = 20
"""Tries to take the lease of a folder that others remove at the same time."""


class Lease(msgspec.Struct, frozen=True):
    """Holder of a folder, as it stands in the file."""

    verb: str
    host: str
    namespace: int  # of process numbers, in containers
    pid: int
    born: int  # when the process started, in ticks of its host; 0 where the system does not tell
    started: float  # seconds since 1970
    renewed: float

    @property
    def is_here(self) -> bool:
        """Whether the process number can be looked up."""
        return (self.host, self.namespace) == process_space()

    @property
    def is_own(self) -> bool:
        """Whether it belongs to this process."""
        return self.is_here and (self.pid, self.born) == (os.getpid(), _born(os.getpid()))

    def is_held(self, folder: str) -> bool:
        """Tell whether the holder still works, as far as can be known."""
        if not self.is_here:
            return time.time() - self.renewed < EXPIRE_SECONDS
        if self.is_own:
            return folder in _renewals
        return is_running(self.pid) and self.born in (0, _born(self.pid))


@contextmanager
def leased(folder: str, verb: str) -> Iterator[None]:
    """Hold the lease of a folder while the block runs.

    Raises
    ------
    UsageError
        Another run holds it.
    """
    _acquire(folder, verb)
    try:
        yield
    finally:
        release(folder)


def _acquire(folder: str, verb: str) -> None:
    for _ in range(_ATTEMPTS):
        with suppress(FileNotFoundError), _alone(folder):  # an earlier holder may remove the folder now
            lease = read_lease(folder)
            if lease is not None and lease.is_held(folder):
                raise _busy(folder, lease, verb)
            own = _new(verb)
            _write(folder, own)
            _keep_renewing(folder, own)
            return
    raise UsageError(
        f"{folder} was removed again and again by another {verb}; expected one at a time. Run the same command again."
    )


def release(folder: str) -> None:
    """Give up the own lease of a folder, or clear away that of a dead holder."""
    with _writing:
        stop = _renewals.pop(folder, None)
        if stop is not None:
            stop.set()
    lease = read_lease(folder)
    if lease is not None and not lease.is_held(folder):
        files.remove(files.join(folder, LEASE))
    sweep(folder)  # of a holder that was killed while it wrote the file
    if files.is_local(folder):  # object stores have no empty folders
        path = files.local_path(folder)
        with suppress(OSError):
            path.rmdir()
            path.parent.rmdir()


def is_leased(folder: str) -> bool:
    """Tell whether a run works in a folder."""
    lease = read_lease(folder)
    return lease is not None and lease.is_held(folder)


def read_lease(folder: str) -> Lease | None:
    """Return the lease of a folder; None if there is none that can be read."""
    try:
        return msgspec.json.decode(files.read_bytes(files.join(folder, LEASE)), type=Lease)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None


def _write(folder: str, lease: Lease) -> None:
    with publish(files.join(folder, LEASE)) as out:
        out.write(msgspec.json.encode(lease))


def _busy(folder: str, lease: Lease, verb: str) -> UsageError:
    alive = "" if lease.is_here else f", which was alive {max(time.time() - lease.renewed, 0):,.0f} s ago"
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(lease.started))
    return UsageError(
        f"another {lease.verb} works in {folder} (process {lease.pid} on {lease.host}, since {since}{alive}); expected one at a time. Wait for "
        f"it and run the same command again, or give this {verb} another name or target.",
        folder=folder,
        pid=lease.pid,
        host=lease.host,
    )


def _lock(descriptor: int) -> None:
    """Lock a folder; not where the file system cannot, nor for longer than `LOCK_SECONDS` behind a process that stands still."""
    deadline = time.monotonic() + LOCK_SECONDS
    while time.monotonic() < deadline:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05)
        except OSError:
            return
        else:
            return


_renewals: dict[str, threading.Event] = {}
"""Folders held by this process, and what stops the renewal of each."""

_writing = threading.Lock()
"""Held while a lease is renewed, so that it is not after it was released."""


def _new(verb: str) -> Lease:
    host, namespace = process_space()
    pid, now = os.getpid(), time.time()
    return Lease(verb, host, namespace, pid, _born(pid), now, now)


def _born(pid: int) -> int:
    """Return when a process started, in ticks since this host did; 0: the system does not tell."""
    stat = process_state(pid)
    return int(stat[19]) if stat else 0


def _keep_renewing(folder: str, lease: Lease) -> None:
    stop = _renewals[folder] = threading.Event()
    threading.Thread(target=_renew, args=(folder, lease, stop), daemon=True, name="dolma-dask-lease").start()


def _renew(folder: str, own: Lease, stop: threading.Event) -> None:
    while not stop.wait(RENEW_SECONDS):
        with suppress(Exception):  # a store that is away for a moment; the next renewal may succeed
            lease = read_lease(folder)
            if lease is None or (lease.pid, lease.born, lease.started) != (own.pid, own.born, own.started):
                return  # removed, or taken over while this process was asleep
            with _writing, _alone(folder):
                if not stop.is_set():
                    _write(folder, msgspec.structs.replace(lease, renewed=time.time()))


@contextmanager
def _alone(folder: str) -> Iterator[None]:
    """Keep other processes of this host out of the same block; nothing does between hosts."""
    if not files.is_local(folder):
        yield
        return
    path = files.local_path(folder)
    path.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        _lock(descriptor)
        if not path.exists():
            raise FileNotFoundError(path)
        yield
    finally:
        os.close(descriptor)
