"""Sorted keys of ids, each with the place of a row that has it: a file that is mapped and searched without being read.

    magic
    blocks of `BLOCK` records: their keys (uint64, rising), then their places (uint64, rising where keys are equal)
    first key and checksum of each block (uint64)
    head: the files that places name, as JSON
    checksum and size of the head, records, magic

A key is half of the 128 bits of `dolma_dask.formats.digests.keys128`: 20 million ids have two of one key with a probability of 10**-5, so that hits are compared with the id itself.
A place is the number of a file and a row in it. A search reads one block, and checks it. Memory of a merge: `MERGED` records.
"""

import mmap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash
from msgspec import Struct

from dolma_dask.errors import CorruptFileError, UsageError
from dolma_dask.formats.digests import keys128
from dolma_dask.io.publish import publish
from dolma_dask.text import compute as pc
from dolma_dask.text.kernels import Words

ROW_BITS = 40
MAX_FILES = 1 << (64 - ROW_BITS)

BLOCK = 4096
"""Records that are read and checked together: 64 KiB."""

MERGED = 1 << 20
"""Records that a merge holds in memory."""

_MAGIC = b"dolma_dask ids 1"
_TAIL = 3 * 8 + len(_MAGIC)
_BYTES = 16
_KEYS = 1 << 64


class Places(Struct, frozen=True, eq=False):
    """Records in their order."""

    keys: Words  # (n,)
    places: Words  # (n,)

    def __len__(self) -> int:
        return len(self.keys)

    @classmethod
    def of(cls, ids: pa.LargeStringArray, file: int, rows: npt.NDArray[np.int64]) -> "Places":
        """Return the records of rows (n,) of a file, in no order; those without an id have none."""
        valid = np.asarray(pc.is_valid(ids))
        places = (np.uint64(file) << np.uint64(ROW_BITS)) | rows.astype(np.uint64)
        return cls(keys128(ids)[1][valid], places[valid])

    @classmethod
    def joined(cls, parts: "Sequence[Places]") -> "Places":
        """Return all records in order."""
        none = np.empty(0, np.uint64)
        keys = np.concatenate([none, *(part.keys for part in parts)])
        places = np.concatenate([none, *(part.places for part in parts)])
        order = np.argsort(keys, kind="stable")  # which joins runs that are in order at the speed of memory
        keys, places = keys[order], places[order]
        if np.any((keys[1:] == keys[:-1]) & (places[1:] < places[:-1])):
            order = np.lexsort((places, keys))
            keys, places = keys[order], places[order]
        return cls(keys, places)

    def cut(self, key: int) -> int:
        """Return the number of records with smaller keys."""
        return len(self) if key >= _KEYS else int(np.searchsorted(self.keys, np.uint64(key)))

    def slice(self, low: int, high: int) -> "Places":
        """Return some of the records."""
        return Places(self.keys[low:high], self.places[low:high])


class IdIndex:
    """An index in a file; see the module."""

    def __init__(self, path: Path) -> None:
        """Map a file.

        Raises `CorruptFileError`: it is damaged. Raises `OSError`: there is none.
        """
        self.path = path
        with path.open("rb") as file:
            self._data = memoryview(
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if _size(file) else b""
            )
        tail = self._data[-_TAIL:]
        if len(tail) < _TAIL or tail[-len(_MAGIC) :] != _MAGIC:
            raise self.damaged("no end")
        digest, size, self.count = np.frombuffer(tail, "<u8", 3).tolist()
        blocks = -(-self.count // BLOCK)
        tables = len(_MAGIC) + self.count * _BYTES
        head = self._data[tables:-_TAIL]
        if len(head) != 2 * 8 * blocks + size or xxhash.xxh3_64_intdigest(head) != digest:
            raise self.damaged("another head")
        self._firsts, self._sums = np.frombuffer(head, "<u8", 2 * blocks).reshape(2, blocks)
        self.head = bytes(head[len(head) - size :])

    def damaged(self, found: str) -> CorruptFileError:
        """Return the error of a file that is not as it was written."""
        return CorruptFileError(
            f"{self.path} is damaged: {found}; expected the index as it was written. Remove it: it is made anew.",
            url=str(self.path),
        )

    def __len__(self) -> int:
        return int(self.count)

    def find(self, key: int) -> list[int]:
        """Return the places of a key, rising."""
        number = self._first_block(key)
        found: list[int] = []
        while number < len(self._firsts) and self._firsts[number] <= key:
            block = self._block(number)
            found += block.slice(block.cut(key), block.cut(key + 1)).places.tolist()
            number += 1
        return found

    def cut(self, key: int) -> int:
        """See `Places.cut`."""
        number = self._first_block(key)
        return number * BLOCK + self._block(number).cut(key) if len(self) else 0

    def _first_block(self, key: int) -> int:
        """Return the block in which the first record of a key stands, if there is one."""
        if key >= _KEYS:
            return max(len(self._firsts) - 1, 0)
        return max(int(np.searchsorted(self._firsts, np.uint64(key))) - 1, 0)

    def slice(self, low: int, high: int) -> Places:
        """See `Places.slice`."""
        numbers = range(low // BLOCK, -(-high // BLOCK))
        parts = [*map(self._block, numbers)] or [Places(*np.empty((2, 0), np.uint64))]
        keys = np.concatenate([part.keys for part in parts])
        places = np.concatenate([part.places for part in parts])
        first = numbers.start * BLOCK
        return Places(keys, places).slice(low - first, high - first)

    def _block(self, number: int) -> Places:
        count = min(BLOCK, len(self) - number * BLOCK)
        start = len(_MAGIC) + number * BLOCK * _BYTES
        data = self._data[start : start + count * _BYTES]
        if xxhash.xxh3_64_intdigest(data) != self._sums[number]:
            raise self.damaged(f"another block {number:,}")
        return Places(*np.frombuffer(data, "<u8").reshape(2, count))


def _size(file: Any) -> int:
    return int(file.seek(0, 2))


def key_of(id: str) -> int:
    """Return the key of an id."""
    return int(keys128(pa.array([id], pa.large_string()))[1][0])


def place_of(place: int) -> tuple[int, int]:
    """Return the number of the file and the row of a place."""
    return place >> ROW_BITS, place & ((1 << ROW_BITS) - 1)


def check_files(count: int, root: str) -> None:
    """Refuse more files than places can name."""
    if count > MAX_FILES:
        raise UsageError(
            f"{root} holds {count:,} files with ids; expected at most {MAX_FILES:,}. Ask for the folders in it."
        )


class Renumbered(Struct, frozen=True):
    """Records of an index whose files have other numbers now; those of files without one are gone."""

    index: IdIndex
    numbers: npt.NDArray[np.int64]  # (files,) -1: gone; rising else

    def __len__(self) -> int:
        return len(self.index)

    def cut(self, key: int) -> int:
        """See `Places.cut`."""
        return self.index.cut(key)

    def slice(self, low: int, high: int) -> Places:
        """Return some of the records as they are now."""
        found = self.index.slice(low, high)
        new = self.numbers[(found.places >> np.uint64(ROW_BITS)).astype(np.int64)]
        kept = new >= 0
        rows = found.places & np.uint64((1 << ROW_BITS) - 1)
        places = (new.astype(np.uint64) << np.uint64(ROW_BITS)) | rows
        return Places(found.keys[kept], places[kept])


def write_index(path: Path, parts: "Sequence[Places | IdIndex | Renumbered]", head: bytes = b"{}") -> None:
    """Write the records of some parts, each in its order, as one index."""
    firsts, sums, count = list[int](), list[int](), 0
    with publish(str(path), synced=False) as out:
        out.write(_MAGIC)
        for records in _blocks(_merged(parts, 0, _KEYS)):
            data = records.keys.tobytes() + records.places.tobytes()
            firsts.append(int(records.keys[0]))
            sums.append(xxhash.xxh3_64_intdigest(data))
            count += len(records)
            out.write(data)
        tables = np.array([firsts, sums], "<u8").tobytes() + head
        out.write(tables)
        out.write(np.array([xxhash.xxh3_64_intdigest(tables), len(head), count], "<u8").tobytes() + _MAGIC)


def _merged(parts: "Sequence[Places | IdIndex | Renumbered]", low: int, high: int) -> Iterator[Places]:
    """Yield the records of a range of keys, some at a time: where there are too many, those of each half; those of one key stay together."""
    bounds = [(part.cut(low), part.cut(high)) for part in parts]
    if sum(end - start for start, end in bounds) > MERGED and high - low > 1:
        middle = (low + high) // 2
        yield from _merged(parts, low, middle)
        yield from _merged(parts, middle, high)
        return
    yield Places.joined([part.slice(*bound) for part, bound in zip(parts, bounds, strict=True)])


def _blocks(pieces: Iterator[Places]) -> Iterator[Places]:
    """Cut records into blocks of one size; the last one may be smaller."""
    rest: list[Places] = []
    for piece in pieces:
        whole = _together([*rest, piece])
        full = len(whole) - len(whole) % BLOCK
        yield from (whole.slice(at, at + BLOCK) for at in range(0, full, BLOCK))
        rest = [whole.slice(full, len(whole))]
    yield from (part for part in rest if len(part))


def _together(parts: Sequence[Places]) -> Places:
    keys = np.concatenate([part.keys for part in parts])
    return Places(keys, np.concatenate([part.places for part in parts]))
