"""Pieces of staging files, one after another: from a disk each by itself, from a store many requests at once.

A piece costs 10 us on a local disk. A store is asked for up to `REQUESTS` pieces at the same time, without asking for the size of a file before; a
request that fails is made again alone, patiently.
"""

import os
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from dolma_dask.errors import CorruptFileError
from dolma_dask.io import files, late
from dolma_dask.io.stores import filesystem

REQUESTS = 64
"""Pieces that a store is asked for at once."""

REQUESTED_BYTES = 16 << 20
"""Bytes that a store is asked for at once, or those of one piece."""


class Piece(NamedTuple):
    """Some bytes of a file."""

    url: str
    offset: int
    bytes: int


def read_pieces(pieces: Sequence[Piece]) -> Iterator[memoryview]:
    """Yield the bytes of each piece; they are overwritten when the next is asked for.

    Raises `CorruptFileError`: a file is gone, or ends before; such a file is removed.
    """
    room = memoryview(bytearray(max((piece.bytes for piece in pieces), default=0)))
    if all(files.is_local(piece.url) for piece in pieces):
        yield from _read_local(pieces, room)
        return
    for group in files.grouped(pieces, lambda piece: piece.bytes, REQUESTED_BYTES, REQUESTS):
        yield from _read_remote(group, room)


def _read_local(pieces: Sequence[Piece], room: memoryview) -> Iterator[memoryview]:
    """Read pieces; a file is opened once for all neighbours that lie in it."""
    for url, group in groupby(pieces, attrgetter("url")):
        path = files.local_path(url) if "://" in url else url  # making paths costs as much as opening files
        try:
            handle = late.opened(url, partial(os.open, path, os.O_RDONLY))
        except FileNotFoundError:
            raise _gone(url) from None
        try:
            for piece in group:
                view, done = room[: piece.bytes], 0
                while done < piece.bytes:
                    count = os.preadv(handle, [view[done:]], piece.offset + done)
                    if not count:
                        raise files.damaged(url, f"its end at byte {piece.offset + done:,}")
                    done += count
                yield view
        finally:
            os.close(handle)


def _read_remote(pieces: Sequence[Piece], room: memoryview) -> Iterator[memoryview]:
    """Read pieces with one request each, all at the same time."""
    fs, _ = filesystem(pieces[0].url)
    paths = [fs._strip_protocol(piece.url) for piece in pieces]
    ends = [piece.offset + piece.bytes for piece in pieces]
    answers = fs.cat_ranges(paths, [piece.offset for piece in pieces], ends, on_error="return")
    for piece, answer in zip(pieces, answers, strict=True):
        view = room[: piece.bytes]
        if isinstance(answer, bytes) and len(answer) == piece.bytes:
            view[:] = answer
        else:
            _read_again(piece, view)
        yield view


def _read_again(piece: Piece, view: memoryview) -> None:
    try:
        with files.open_read(piece.url, scattered=True) as handle:
            files.read_into(handle, piece.offset, view, piece.url)
    except FileNotFoundError:
        raise _gone(piece.url) from None


def _gone(url: str) -> CorruptFileError:
    return CorruptFileError(
        f"{url} is gone; expected a staging file. Run the same command again: it is made anew.{late.waited(url)}",
        url=url,
    )
