"""Staging files of which parts are read: the content, and behind it the xxh3-64 of each block.

What is read is compared with what was written, and with the file that the journal names: the checksum of a staging file is that of its digests.
So nobody builds on what a power failure, a bad disk or another call has left, and such files need not be synced. Cost: 8 bytes per block, which
are read when the file is opened, and a look at the rest of the blocks in which a part begins and ends.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import xxhash

from dolma_dask.io import files, late
from dolma_dask.io.publish import PublishedFile, publish

BLOCK = 1 << 17
"""Bytes that are checked together."""

PART_BYTES = 8 << 20
"""Bytes that are read at once of a long range."""

_DIGEST = np.dtype("<u8")


@contextmanager
def stage(url: str) -> Iterator[PublishedFile]:
    """Write a staging file for `StagingReader`; see `publish`. Its ``bytes`` are those of the content within the block, and of all that is stored after it."""
    with publish(url, synced=False) as out:
        staged = _StagingFile(out)
        yield staged
        staged.finish()


def content_bytes(stored: int) -> int:
    """Return how much content a staging file of this size has."""
    return stored - -(-stored // (BLOCK + _DIGEST.itemsize)) * _DIGEST.itemsize


class _StagingFile(PublishedFile):
    """A staging file that is being written."""

    def __init__(self, out: PublishedFile) -> None:
        super().__init__(out.url, out.unfinished)
        self._digests: list[int] = []
        self._block = xxhash.xxh3_64()

    def write(self, data: Any) -> None:
        view = memoryview(data).cast("B")
        while view:
            piece = view[: BLOCK - self.bytes % BLOCK]
            super().write(piece)
            self._block.update(piece)
            if self.bytes % BLOCK == 0:
                self._end_block()
            view = view[len(piece) :]

    def _end_block(self) -> None:
        self._digests.append(self._block.intdigest())
        self._block.reset()

    def finish(self) -> None:
        """Write the digests."""
        if self.bytes % BLOCK:
            self._end_block()
        super().write(self._table)

    @property
    def _table(self) -> bytes:
        return np.array(self._digests, _DIGEST).tobytes()

    @property
    def checksum(self) -> str:
        """The xxh3-128 hex digest of the digests."""
        return xxhash.xxh3_128_hexdigest(self._table)


class StagingReader:
    """A staging file, open: parts of its content, each as it was written.

    Raises `CorruptFileError`, here and where parts are read: the file is damaged, or not the one with this checksum; it is removed. Raises
    `FileNotFoundError`: it is gone.

    Parameters
    ----------
    url : str
        The file.
    checksum : str
        What its writer said.
    scattered : bool
        See `dolma_dask.io.files.open_read`.
    """

    def __init__(self, url: str, checksum: str, *, scattered: bool = False) -> None:
        self._url = url
        self._file = late.opened(url, lambda: files.open_read(url, scattered=scattered))
        stored = self._file.seek(0, os.SEEK_END)
        self.bytes = max(content_bytes(stored), 0)
        table = self._stored(self.bytes, stored)
        if xxhash.xxh3_128_hexdigest(table) != checksum:
            self.close()
            raise files.damaged(url, "what another call has written, or half of it")
        self._digests: list[int] = np.frombuffer(table, _DIGEST).tolist()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read(self, offset: int, count: int) -> memoryview:
        """Return `count` bytes of the content from `offset` on."""
        first, last = offset // BLOCK, -(-(offset + count) // BLOCK)
        start = first * BLOCK
        data = self._stored(start, min(last * BLOCK, self.bytes))
        for number in range(first, last):
            at = number * BLOCK - start
            if xxhash.xxh3_64_intdigest(data[at : at + BLOCK]) != self._digests[number]:
                raise files.damaged(self._url, f"another checksum in block {number}")
        return data[offset - start : offset - start + count]

    def parts(self, first: int = 0, stop: int | None = None) -> Iterator[memoryview]:
        """Yield the content, or that of a range, in parts of at most `PART_BYTES`."""
        stop = self.bytes if stop is None else stop
        for at in range(first, stop, PART_BYTES):
            yield self.read(at, min(PART_BYTES, stop - at))

    def _stored(self, start: int, stop: int) -> memoryview:
        data = memoryview(bytearray(stop - start))
        files.read_into(self._file, start, data, self._url)
        return data
