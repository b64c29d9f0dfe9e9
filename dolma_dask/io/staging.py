"""Staging files of which parts are read: the content, and behind it the xxh3-64 of each block.

What is read is compared with what was written, so that nobody builds on a file that a power failure or a bad disk has left: such files need
not be synced. Cost: 8 bytes per block, and a look at the rest of the blocks in which a part begins and ends.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import xxhash

from dolma_dask.io import files
from dolma_dask.io.publish import PublishedFile, publish

BLOCK = 1 << 17
"""Bytes that are checked together."""

READ_BYTES = 8 << 20
"""Bytes that are read at once: a request of a store."""

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
        super().__init__(out.url, out.handle)
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
        super().write(np.array(self._digests, _DIGEST).tobytes())


class StagingReader:
    """A staging file, open: parts of its content, each as it was written.

    Raises `FileNotFoundError`: the file is gone. Reading raises `CorruptFileError` if it is damaged, and removes it.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._file = files.open_read(url, scattered=True)
        self._stored = self._file.seek(0, os.SEEK_END)
        self.bytes = content_bytes(self._stored)
        self._digests: list[int] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read(self, offset: int, count: int) -> memoryview:
        """Return `count` bytes of the content from `offset` on."""
        if offset + count > self.bytes:
            raise files.damaged(self._url, f"its end at byte {self.bytes:,}, not {offset + count:,}")
        if self._digests is None:
            self._digests = np.frombuffer(self._stored_bytes(self.bytes, self._stored), _DIGEST).tolist()
        first, last = offset // BLOCK, -(-(offset + count) // BLOCK)
        start = first * BLOCK
        data = self._stored_bytes(start, min(last * BLOCK, self.bytes))
        for number in range(first, last):
            at = number * BLOCK - start
            if xxhash.xxh3_64_intdigest(data[at : at + BLOCK]) != self._digests[number]:
                raise files.damaged(self._url, f"another checksum in block {number}")
        return data[offset - start : offset - start + count]

    def parts(self, first: int = 0, stop: int | None = None) -> Iterator[memoryview]:
        """Yield the content, or that of a range, in parts of at most `READ_BYTES`."""
        stop = self.bytes if stop is None else stop
        for at in range(first, stop, READ_BYTES):
            yield self.read(at, min(READ_BYTES, stop - at))

    def _stored_bytes(self, start: int, stop: int) -> memoryview:
        data = memoryview(bytearray(stop - start))
        files.read_into(self._file, start, data, self._url)
        return data
