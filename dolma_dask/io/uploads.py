"""Files on stores while they are written: uploads that appear when they are completed, or hidden objects that are moved to their names."""

from contextlib import suppress
from typing import Any

from dolma_dask.io.stores import filesystem, patiently

_COMPLETES_UPLOADS = {"s3", "s3a", "gs", "gcs"}
"""Stores whose files stay invisible until ``commit``."""

PART_BYTES = 16 << 20
"""Bytes of one part of an upload, held in memory; stores allow 10,000 parts."""


def begin_upload(url: str, temporary: str) -> "Upload | MovedObject":
    """Begin a file on a store, under a `temporary` name where the store shows what is not complete."""
    fs, path = filesystem(url)
    protocols = {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)
    if protocols & _COMPLETES_UPLOADS:
        return Upload(url, fs, path)
    return MovedObject(url, fs, path, temporary)


class _OnStore:
    """Base of objects that are written: what a store has said it has is safe, and so is its name."""

    folder = ""

    def sync(self) -> None:
        """Do nothing: the store has the bytes before the object appears."""

    def sync_name(self) -> None:
        """Do nothing."""


class Upload(_OnStore):
    """An object that appears when it is complete: put at once if it is small, else in parts; each request is made again if it fails."""

    def __init__(self, url: str, fs: Any, path: str) -> None:
        self.url = url
        self.bytes = 0
        self._fs = fs
        self._path = path
        self._held = bytearray()
        self._parts: Any = None

    def begin(self) -> None:
        """Do nothing: the first request is that of the first part."""

    def write(self, view: memoryview) -> None:
        """Append bytes."""
        self._held += view
        self.bytes += len(view)
        while len(self._held) > PART_BYTES:
            part = bytes(memoryview(self._held)[:PART_BYTES])
            del self._held[:PART_BYTES]
            self._send(part)

    def finish(self) -> None:
        """Do nothing: what is held goes with the request that completes the object."""

    def appear(self) -> None:
        """Send what is held, and make the object appear."""
        last = bytes(self._held)
        if self._parts is None:
            patiently(self.url, lambda: self._fs.pipe_file(self._path, last))
            return
        self._send(last, is_last=True)
        parts = self._parts
        patiently(self.url, parts.commit)
        self._parts = None
        parts.closed = True  # or its end would begin the upload again

    def discard(self) -> None:
        """Abort an upload in parts; if the store is away now, its parts stay invisible until the store clears them."""
        parts, self._parts = self._parts, None
        if parts is not None:
            with suppress(Exception):
                parts.discard()
            parts.closed = True

    def _send(self, part: bytes, is_last: bool = False) -> None:
        """Send a part; nothing is visible before all are committed."""
        given = False

        def once() -> None:
            nonlocal given
            if self._parts is None:
                self._begin(part)
            elif not given:
                given = True  # from here on the handle holds the part, also if it could not be sent
                self._parts.write(part)
            self._parts.forced = False
            self._parts.flush(force=is_last)

        patiently(self.url, once)

    def _begin(self, part: bytes) -> None:
        self._parts = self._fs.open(self._path, "wb", autocommit=False, block_size=PART_BYTES)
        try:
            self._parts.write(part)
        except BaseException:
            self.discard()
            raise


class MovedObject(_OnStore):
    """A hidden object that is moved to its name."""

    def __init__(self, url: str, fs: Any, path: str, temporary: str) -> None:
        self.url = url
        self.bytes = 0
        self._fs, self._path = fs, path
        self._folder = path.rpartition("/")[0]
        self._temporary = f"{self._folder}/{temporary}"

    def begin(self) -> None:
        """Open the hidden object."""
        self._fs.makedirs(self._folder, exist_ok=True)
        self._handle = self._fs.open(self._temporary, "wb")

    def write(self, view: memoryview) -> None:
        """Append bytes."""
        self._handle.write(view)
        self.bytes += len(view)

    def finish(self) -> None:
        """Send what is held."""
        self._handle.close()

    def appear(self) -> None:
        """Move the object to its name."""
        rename(self._fs, self._temporary, self._path)

    def discard(self) -> None:
        """Remove the hidden object."""
        with suppress(OSError, AttributeError):
            self._handle.close()
        with suppress(FileNotFoundError):
            self._fs.rm_file(self._temporary)


def rename(fs: Any, old: str, new: str) -> None:
    """Move an object of a store."""
    from fsspec import AbstractFileSystem

    if type(fs).mv is not AbstractFileSystem.mv:
        fs.mv(old, new)
        return
    fs.cp_file(old, new)  # the general mv takes brackets in a name for a pattern
    fs.rm_file(old)
