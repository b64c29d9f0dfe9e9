"""Leases: runs that would remove or replace each other's files exclude each other.

A job leases its work folder; every run leases what it writes, an attribute set, a prefix of documents or of token shards, by a folder
``_work/<prefix>/`` beside it. Runs with the same options may share an output, as the jobs of an array do.

A holder has a file in ``.leases/`` of the folder: host, process and when it started, renewed every `RENEW_SECONDS`. Whoever wants the folder writes
its file first and then looks for others; who finds one withdraws its own, and tries again after a moment of random length. So two at once never both
go on, on any file system or store that lists what has been written; there are no locks. On this host a holder is dead when its process is gone (or
another one has its number). Elsewhere, also in another container, it counts as dead when it has not renewed its lease for `EXPIRE_SECONDS`, so clocks
may differ by minutes. Leases of dead holders are removed. Cost: one small file, written twice a minute, and a listing.
"""

import os
import random
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec
from msgspec.structs import replace

from dolma_dask.errors import UsageError
from dolma_dask.formats.json import NOT_JSON
from dolma_dask.io import files
from dolma_dask.io.publish import is_running, process_space, process_state, publish, sweep

LEASES = ".leases"
"""Hidden, so that listings of results leave it out."""

RENEW_SECONDS = 30.0

EXPIRE_SECONDS = 300.0
"""Ten renewals."""

_ATTEMPTS = 8
"""Tries to take a folder that another one holds, wants at the same time, or removes."""

_PAUSE_SECONDS = 0.05
"""Between two tries, on average."""


class Lease(msgspec.Struct, frozen=True):
    """Holder of a folder, as it stands in its file."""

    id: str  # name of the file
    verb: str
    key: str  # digest of the options; holders with the same may share the folder, with none nobody
    host: str
    namespace: int  # of process numbers, in containers
    pid: int
    born: int  # when the process started, in ticks of its host; 0 where the system does not tell
    started: float  # seconds since 1970
    renewed: float

    @property
    def is_here(self) -> bool:
        """True if the process number can be looked up."""
        return (self.host, self.namespace) == process_space()

    @property
    def is_held(self) -> bool:
        """True if the holder still works, as far as can be known."""
        if not self.is_here:
            return time.time() - self.renewed < EXPIRE_SECONDS
        if (self.pid, self.born) == (os.getpid(), _born(os.getpid())):
            return self.id in _renewals
        return is_running(self.pid) and self.born in (0, _born(self.pid))


@contextmanager
def leased(folder: str, verb: str, key: str = "", output: str = "") -> Iterator[None]:
    """Hold the lease of a folder while the block runs; `output` is what a person knows it by.

    Raises
    ------
    UsageError
        Another run holds it, and may not share it.
    """
    own = _acquire(folder, verb, key, output or folder)
    try:
        yield
    finally:
        _withdraw(folder, own)


def _acquire(folder: str, verb: str, key: str, output: str) -> Lease:
    others: list[Lease] = []
    for _ in range(_ATTEMPTS):
        own = _new(verb, key)
        stop = _renewals[own.id] = threading.Event()
        try:
            _write(folder, own)
            working = {lease.id: lease for lease in holders(folder)}
            others = [
                lease for name, lease in working.items() if name != own.id and not (key and lease.key == key)
            ]
            if own.id in working and not others:
                threading.Thread(target=_renew, args=(folder, own, stop), daemon=True).start()
                return own
        except (FileNotFoundError, FileExistsError):
            pass  # an earlier holder removes the folder now
        except BaseException:
            _withdraw(folder, own)
            raise
        _withdraw(folder, own)
        time.sleep(random.uniform(0, 2 * _PAUSE_SECONDS))
    if others:
        raise _busy(output, others[0], verb)
    raise UsageError(
        f"{folder} was removed again and again by another {verb}; expected one at a time. Run the same command again."
    )


def _withdraw(folder: str, own: Lease) -> None:
    with _writing:
        _renewals.pop(own.id).set()
        files.remove(_url(folder, own.id))
    remove_dead(folder)


def holders(folder: str) -> list[Lease]:
    """Return the leases of those who work in a folder."""
    return [lease for lease in _read_all(folder).values() if lease is not None and lease.is_held]


def remove_dead(folder: str) -> None:
    """Remove the leases of dead holders; of a local folder also itself and the one above it, if nothing else is in them."""
    for name, lease in _read_all(folder).items():
        if lease is None or not lease.is_held:
            files.remove(_url(folder, name))
    with suppress(FileNotFoundError):
        sweep(_url(folder))  # of a holder that was killed while it wrote its file
    if files.is_local(folder):
        path = files.local_path(_url(folder))
        for each in (path, path.parent, path.parent.parent):
            with suppress(OSError):
                each.rmdir()


def _url(folder: str, name: str = "") -> str:
    return files.join(files.join(folder, LEASES), name)


def _read_all(folder: str) -> dict[str, Lease | None]:
    """Return the leases of a folder by name of their file; None for one that cannot be read."""
    try:
        names = [info.path for info in files.list_files(_url(folder))]
    except FileNotFoundError:  # removed while it was listed
        names = []
    return {name: _read(_url(folder, name)) for name in names}


def _read(url: str) -> Lease | None:
    try:
        return msgspec.json.decode(files.read_bytes(url), type=Lease)
    except (FileNotFoundError, *NOT_JSON):
        return None


def _write(folder: str, lease: Lease) -> None:
    with publish(_url(folder, lease.id), synced=False) as out:  # after a power failure nobody holds it
        out.write(msgspec.json.encode(lease))


def _busy(output: str, lease: Lease, verb: str) -> UsageError:
    alive = "" if lease.is_here else f", which was alive {max(time.time() - lease.renewed, 0):,.0f} s ago"
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(lease.started))
    other = f"another {lease.verb} with other options" if lease.key else f"another {lease.verb}"
    return UsageError(
        f"{other} works in {output} (process {lease.pid} on {lease.host}, since {since}{alive}); expected one at a time. Wait for "
        f"it and run the same command again, or give this {verb} another name or target.",
        output=output,
        pid=lease.pid,
        host=lease.host,
    )


_renewals: dict[str, threading.Event] = {}
"""Leases of this process by their id, and what stops the renewal of each."""

_writing = threading.Lock()
"""Held while a lease is renewed, so that it is not after it was given up."""


def _new(verb: str, key: str) -> Lease:
    host, namespace = process_space()
    pid, now = os.getpid(), time.time()
    return Lease(f"{uuid.uuid4().hex}.json", verb, key, host, namespace, pid, _born(pid), now, now)


def _born(pid: int) -> int:
    """Return when a process started, in ticks since this host did; 0: the system does not tell."""
    stat = process_state(pid)
    return int(stat[19]) if stat else 0


def _renew(folder: str, own: Lease, stop: threading.Event) -> None:
    while not stop.wait(RENEW_SECONDS):
        with suppress(Exception), _writing:  # a store may be away for a moment; the next renewal may succeed
            if not stop.is_set() and _read(_url(folder, own.id)) is not None:  # else it was taken for dead
                _write(folder, replace(own, renewed=time.time()))
