"""Several small files of lines read as one block, and cut again at the rows where each begins."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Generic, TypeVar

import numpy as np
from msgspec import Struct

from dolma_dask.formats.json.strings import line_starts
from dolma_dask.io.files import join
from dolma_dask.io.records import InputRecord
from dolma_dask.io.stored import StoredFile
from dolma_dask.io.stream import BLOCK_BYTES, LineBlock, compression_of, read_pieces
from dolma_dask.text.bits import WINDOW
from dolma_dask.text.kernels import Counts

Rows = TypeVar("Rows", covariant=True)


class NotJoinedError(Exception):
    """Says why shards cannot be read as one: nobody sees it, since each is read by itself then."""


class Joined(Struct, Generic[Rows], frozen=True):
    """Rows of several shards as one block, which counts its rows from 0 on."""

    rows: Rows
    cuts: Counts  # (shards + 1,) the row with which each begins, and their end

    @property
    def parts(self) -> Iterator[slice]:
        """The rows of each shard."""
        return (slice(start, stop) for start, stop in pairwise(self.cuts.tolist()))


def read_joined_lines(root: str, paths: Sequence[str]) -> tuple[Joined[LineBlock], list[InputRecord]]:
    """Read all of some small files below a root; return their lines, and the files as they were read.

    Raises `CorruptFileError` and `SourceChangedError`, as for each of them alone, and `NotJoinedError`: there is more than a block of text.
    """
    texts, inputs, room = list[bytes](), list[InputRecord](), BLOCK_BYTES
    for path in paths:
        stored = StoredFile(join(root, path))
        with stored.anew():
            texts.append(_text(stored, room))
        room -= len(texts[-1])
        inputs.append(stored.record(path))
    sizes = [0, *map(len, texts)]
    data = np.frombuffer(b"".join([*texts, bytes(WINDOW)]), np.uint8)[:-WINDOW]  # kernels read whole windows
    starts = line_starts(data)
    return Joined(LineBlock(data, starts, 0, 0), np.searchsorted(starts, np.cumsum(sizes))), inputs


def _text(stored: StoredFile, room: int) -> bytes:
    """Return the text of a file, each line with its newline."""
    pieces = list[bytes]()
    for piece in read_pieces(stored, compression_of(stored.url)):
        pieces.append(piece)
        room -= len(piece)
        if room < 0:
            raise NotJoinedError(f"{stored.url} holds more text than a block has room for")
    if pieces and not pieces[-1].endswith(b"\n"):
        pieces.append(b"\n")
    return b"".join(pieces)
