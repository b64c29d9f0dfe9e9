"""Pieces of files of a store: read in blocks, neighbouring ones in one request, and the blocks used last stay in memory.

What a batch needs is asked for at once (`RangeReader.ask`), so that a store is sent many requests at a time. Safe in threads and forks: nothing is
locked, and a block that another thread has dropped is read again.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from dolma_dask.errors import CorruptFileError
from dolma_dask.io.stores import filesystem, patiently

BLOCK_BYTES = 1 << 18
"""Bytes of a block: a request takes about as long as its transfer."""

REQUEST_BYTES = 1 << 23
"""Bytes of a request at most."""

KEPT_BYTES = 1 << 27
"""Bytes of blocks that stay in memory, in each process."""

Block = tuple[str, int]
"""A file and the number of a block of it."""


class RangeReader:
    """Reads ranges of files through blocks, of which `kept_bytes` stay in memory."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._most = max(kept_bytes // BLOCK_BYTES, 1)
        self._blocks: dict[Block, bytes] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return RangeReader, (self._most * BLOCK_BYTES,)

    def ask(self, ranges: Iterable[tuple[str, int, int, int]]) -> dict[Block, bytes]:
        """Return the blocks of ranges (URL, size of the file, first byte, end); those that are missing are read at once."""
        wanted = {
            (url, number): size
            for url, size, first, stop in ranges
            for number in range(first // BLOCK_BYTES, -(-stop // BLOCK_BYTES))
        }
        found = {block: content for block in wanted if (content := self._blocks.pop(block, None)) is not None}
        missing = sorted(wanted.keys() - found.keys())
        found.update(self._fetched(list(_runs(missing)), wanted))
        self._blocks.update(found)  # these are the last now
        while len(self._blocks) > self._most:
            with suppress(KeyError, RuntimeError, StopIteration):
                del self._blocks[next(iter(self._blocks))]
        return found

    def read(self, url: str, size: int, first: int, stop: int) -> bytes:
        """Return the bytes of one range."""
        blocks = self.ask([(url, size, first, stop)])
        content = b"".join(blocks[block] for block in sorted(blocks))
        skipped = first - first // BLOCK_BYTES * BLOCK_BYTES
        return content[skipped : skipped + stop - first]

    def _fetched(
        self, runs: list[tuple[str, int, int]], sizes: dict[Block, int]
    ) -> Iterator[tuple[Block, bytes]]:
        if not runs:
            return
        fs = filesystem(runs[0][0])[0]
        paths = [filesystem(url)[1] for url, _, _ in runs]
        starts = [first * BLOCK_BYTES for _, first, _ in runs]
        ends = [min(stop * BLOCK_BYTES, sizes[url, first]) for url, first, stop in runs]
        contents = patiently(runs[0][0], lambda: fs.cat_ranges(paths, starts, ends, on_error="raise"))
        for (url, first, stop), start, end, content in zip(runs, starts, ends, contents, strict=True):
            if len(content) != end - start:
                raise CorruptFileError(
                    f"{url}: {len(content):,} bytes came of {start:,} to {end:,}; expected all of them. The file was written again or cut: open it anew.",
                    url=url,
                )
            for number in range(first, stop):
                at = (number - first) * BLOCK_BYTES
                yield (url, number), content[at : at + BLOCK_BYTES]


def _runs(blocks: list[Block]) -> Iterator[tuple[str, int, int]]:
    """Yield neighbouring blocks as the file, the first one and the one behind the last."""
    at = 0
    while at < len(blocks):
        url, first = blocks[at]
        stop, most = first + 1, first + REQUEST_BYTES // BLOCK_BYTES
        at += 1
        while at < len(blocks) and blocks[at] == (url, stop) and stop < most:
            stop, at = stop + 1, at + 1
        yield url, first, stop


class RemoteItems(Struct, frozen=True):
    """Items of a file of a store, one after another; slices of it are arrays that are read when they are made."""

    reader: RangeReader
    url: str
    dtype: np.dtype[Any]
    count: int
    offset: int  # byte at which the items begin

    def __len__(self) -> int:
        return self.count

    def range(self, first: int, stop: int) -> tuple[str, int, int, int]:
        """Return what `RangeReader.ask` takes, for some items."""
        width = self.dtype.itemsize
        size = self.offset + self.count * width
        return self.url, size, self.offset + first * width, self.offset + stop * width

    def __getitem__(self, items: slice) -> NDArray[Any]:
        first, stop, _ = items.indices(self.count)
        if first >= stop:
            return np.empty(0, self.dtype)
        return np.frombuffer(self.reader.read(*self.range(first, stop)), self.dtype)
