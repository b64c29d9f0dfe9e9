"""Objects of a store or web server, read so that nothing is lost: from where the last connection broke off, as often as it takes.

An `ObjectSource` says what an object is now (`look`) and sends its bytes from any offset on (`open`), together with the version that they are of. What breaks off is a
`BrokenOffError`; `ObjectSource.persistently` tries again. It waits longer and longer, as a server asks where it does, and gives an object up that brings nothing
while its host works. A host that answers nobody for `ObjectSource.patience` seconds is given up as a whole.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from dolma_dask.display import counted
from dolma_dask.errors import StoreError, StoreUnreachableError
from dolma_dask.io import files

MAX_TRIES = 5
"""Attempts in a row without a new byte, at an object whose host answers."""

FIRST_WAIT_SECONDS = 1.0
"""Before the second attempt at most, and half of it at least; it doubles with each."""

MAX_WAIT_SECONDS = 30.0
"""Between two attempts, unless the server asks for more."""

MAX_PAUSE_SECONDS = 3600.0
"""Pauses that a server may ask for, in a row."""

MIN_BYTES_PER_SECOND = 1000
"""A connection that brings less counts as one that brings nothing."""

_SLICE_SECONDS = 0.25
"""Seconds that a thread sleeps at once, so that it can be stopped soon."""

Result = TypeVar("Result")


class Version(msgspec.Struct, frozen=True, omit_defaults=True):
    """Version of an object at the time when its bytes were sent."""

    bytes: int | None = None  # None: its source does not tell
    stamp: str = ""  # as in `dolma_dask.io.files.FileInfo`
    if_range: str = ""  # what a web server takes for the condition of a range; empty: it has nothing strong

    def is_same(self, other: "Version | None") -> bool:
        """Tell whether two versions are known to have the same bytes."""
        return bool(self.stamp) and self == other


class ObjectBytes(Struct, frozen=True):
    """Bytes of an object as they come."""

    version: Version
    start: int  # offset of the first of them
    read: Callable[[], bytes]  # the next of them, as soon as there are some; empty: no more come
    is_proved: bool = True  # False: nothing tells the end of all from a connection that broke off
    host: str = ""  # that sends them, where it is not that of the URL


class BrokenOffError(Exception):
    """An attempt that brought less than all.

    ``refusal``: the host answered with an error (``answer``), asked to come later (``later``), or did not answer or went on (``away``).
    ``wait``: seconds to stay away, as it asked.
    """

    def __init__(
        self, reason: str, refusal: Literal["answer", "later", "away"] = "away", wait: float = 0.0
    ) -> None:
        super().__init__(reason)
        self.refusal = refusal
        self.wait = wait


def shown(url: str) -> str:
    """Return a URL without its query, which may hold a signature or token."""
    return url.partition("?")[0]


class _Host:
    """Knowledge of a host in this process: its free connections, when it last answered, and until when it wants to be left alone."""

    def __init__(self, connections: int) -> None:
        self._free = threading.Semaphore(connections)
        self._quiet_until = 0.0
        self.answered = 0.0

    @contextmanager
    def connection(self) -> Iterator[None]:
        """Hold one of its connections, once it may be asked."""
        with self._free:
            rest(self._quiet_until - time.monotonic())
            yield

    def pause(self, seconds: float) -> None:
        """Leave it alone for so long."""
        self._quiet_until = max(self._quiet_until, time.monotonic() + seconds)


_hosts: dict[tuple[str, int], _Host] = {}


def rest(seconds: float) -> None:
    """Sleep, in slices."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, _SLICE_SECONDS))


class _Row(Struct):
    """Attempts in a row that brought nothing new."""

    best: int  # bytes that were there before
    tries: int = 0
    since: float = 0.0  # when the first of them ended
    asked: float = 0.0  # seconds to stay away, as the host asked meanwhile

    def add(self, reached: int, seconds: float) -> None:
        """Count an attempt that took so long; one that brought something begins a new row."""
        if reached > self.best + MIN_BYTES_PER_SECOND * max(seconds, 1.0) or not self.tries:
            self.best, self.tries, self.since, self.asked = max(reached, self.best), 0, time.monotonic(), 0.0
        self.tries += 1

    @property
    def waited(self) -> float:
        """Seconds that it goes on, without those that the host asked for."""
        return time.monotonic() - self.since - self.asked

    @property
    def wait(self) -> float:
        """Seconds until the next attempt, by chance, so that not all come at once."""
        longest = min(FIRST_WAIT_SECONDS * 2.0 ** (self.tries - 1), MAX_WAIT_SECONDS)
        return longest * random.uniform(0.5, 1)


class ObjectSource(Struct, frozen=True):
    """Origin of objects: by default files of this machine and of stores, read by the package's own functions."""

    connections: int = 8  # at once to one host, in one process
    timeout: float = 30.0  # seconds without a byte after which a connection is given up
    patience: float = 300.0  # seconds without an answer after which a host is given up

    def look(self, url: str) -> Version | None:
        """Return what an object is now; None if there is none."""
        info = files.stat(url)
        return None if info is None else Version(info.bytes, info.stamp)

    @contextmanager
    def open(self, url: str, start: int = 0, held: Version | None = None) -> Iterator[ObjectBytes]:
        """Open an object at an offset; at its start if it is not known to be the version `held` any more, or cannot be read from the middle.

        Raises `FileNotFoundError`: there is none. Raises `BrokenOffError`, also while it is read. Raises `StoreAccessError`: it may not be read.
        """
        version = self.look(url)
        if version is None:
            raise FileNotFoundError(url)
        start = start if version.is_same(held) else 0
        with files.open_read(url) as handle:
            handle.seek(start)
            yield ObjectBytes(version, start, lambda: handle.read(files.READ_BYTES))
        if version != self.look(url):
            raise BrokenOffError("it was written again while it was read")

    def host(self, url: str) -> _Host:
        """Return what is known of the host of a URL."""
        parts = urlsplit(url)
        key = f"{parts.scheme}://{parts.netloc}", self.connections
        return _hosts.setdefault(key, _Host(self.connections))  # at once, so that threads share one

    def persistently(
        self, url: str, attempt: Callable[[], Result], reached: Callable[[], int] = int
    ) -> Result:
        """Return what `attempt` returns; call it again while it breaks off. `reached` tells how many bytes it has brought so far.

        Raises `StoreError`: it breaks off again and again without bringing more, although the host answers. Raises `StoreUnreachableError`: the
        host does not.
        """
        host, row = self.host(url), _Row(reached())
        while True:
            try:
                with host.connection():
                    began = time.monotonic()
                    return attempt()
            except BrokenOffError as error:
                row.add(reached(), time.monotonic() - began)
                self._check_hope(url, error, row)
                if error.wait:
                    row.asked += error.wait
                    host.pause(error.wait)
                else:
                    rest(row.wait)

    def _check_hope(self, url: str, error: BrokenOffError, row: _Row) -> None:
        """Raise an error if another attempt is in vain."""
        answers = error.refusal == "answer" or self.host(url).answered > row.since
        is_late = row.waited > self.patience or row.asked + error.wait > MAX_PAUSE_SECONDS
        if not is_late and (row.tries < MAX_TRIES or not answers or error.refusal == "later"):
            return
        found = f"{shown(url)}: {error} ({counted(row.tries, 'attempt')} in a row, {row.waited + row.asked:.0f} s)"
        if answers:
            raise StoreError(
                f"{found}; expected all of it. Run the same command again later: it goes on where this one stopped.",
                url=shown(url),
            )
        raise StoreUnreachableError(
            f"{found}; expected the host to answer. Look at its address and the network, then run the same command again: it goes on where this "
            "one stopped.",
            url=shown(url),
        )
