"""Identities of documents as 16 bytes each: unique over the dataset, known to an earlier version, and in its order.

The key of a document is xxh3-128 over its source and id. The exchange brings equal keys of all shards together, those of an earlier
version too, which follow within each key; so one walk over the sorted records finds ids that stand twice and ids that stand nowhere
else. Texts are not read. Memory: a block of records per range; for a file and its earlier version 16 bytes per row of both.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.dedup.hashing import keys128
from dolma_dask.engine import Input, Task
from dolma_dask.errors import DataError, SourceChangedError
from dolma_dask.exchange.contract import Emitted, Records
from dolma_dask.io import files
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.files import FileInfo
from dolma_dask.io.records import InputRecord
from dolma_dask.text.kernels import Counts, Int, Words, kernel

EARLIER = 1 << 63
"""Bit of a place that says: of the earlier version. Such records follow the others of their key."""

ROW_BITS = 32

RECORD = np.dtype([("hi", "<u8"), ("lo", "<u8"), ("place", "<u8")])

_KEY_BYTES = 16
_READ_BYTES = _KEY_BYTES << 16

Keys = npt.NDArray[np.uint64]
"""Keys of consecutive rows, (n, 2): high and low half; both 0 for a row that has no identity."""


def row_keys(ids: pa.LargeStringArray, sources: pa.LargeStringArray) -> Keys:
    """Return the keys of rows; rows that could not be read and empty ids have none.

    Parameters
    ----------
    ids, sources : pyarrow.LargeStringArray
        (n,)

    Returns
    -------
    numpy.ndarray of uint64
        (n, 2), C-contiguous.
    """
    high, low = keys128(sources, ids)
    keys = np.stack([high, low], axis=1)
    known = pc.and_(pc.is_valid(ids), pc.fill_null(pc.not_equal(ids, ""), False))
    keys[~np.asarray(known)] = 0
    return keys


@dataclass(frozen=True)
class KeyFile:
    """The documents of one shard, to be read as keys.

    Attributes
    ----------
    url : str
        Of the document file.
    info : FileInfo
        The file as it was listed, by the path under which a record names it.
    number : int
        Of the shard in its listing.
    source : str or None
        Source of documents that lack the field.
    max_record_bytes : int
        Longer records have no key.
    kept : str
        URL of a file with its keys, as an earlier pass wrote it; empty: there is none.
    checksum : str
        Of that file: another one is not used.
    known : InputRecord or None
        The document file that these keys were read from.
    """

    url: str
    info: FileInfo
    number: int
    source: str | None
    max_record_bytes: int
    kept: str = ""
    checksum: str = ""
    known: InputRecord | None = None

    def input(self) -> Input:
        """Return the file as an input of a task."""
        return Input(self.url, self.info)

    def read(self, inputs: list[InputRecord]) -> Iterator[Keys]:
        """Yield the keys of all rows in blocks; at the end, the file as it was read is appended to `inputs`.

        A file that cannot be read to its end is read as far as it goes if an earlier pass has told so; else that is an error.
        """
        if self.known is not None and self._is_kept():
            yield from self._read_kept()
            inputs.append(self.known)
            return
        documents = DocumentFile(
            self.url, ("id", "source"), source=self.source, max_record_bytes=self.max_record_bytes
        )
        try:
            for block in documents:
                yield row_keys(block.batch.column("id"), block.batch.column("source"))
        except DataError as error:
            if self.known is None or isinstance(error, SourceChangedError):
                raise
            inputs.append(self.known)
            return
        stored = documents.stored
        inputs.append(InputRecord(self.info.path, stored.info.bytes, stored.info.stamp, stored.checksum))

    def _is_kept(self) -> bool:
        with suppress(FileNotFoundError):
            return bool(self.kept) and files.checksum(self.kept) == self.checksum
        return False

    def _read_kept(self) -> Iterator[Keys]:
        rest = b""
        with files.open_read(self.kept) as handle:
            while data := handle.read(_READ_BYTES):
                data = rest + data
                cut = len(data) - len(data) % _KEY_BYTES
                rest = data[cut:]
                yield np.frombuffer(data[:cut], np.uint64).reshape(-1, 2)


@dataclass(frozen=True)
class KeyWork:
    """What one task of the exchange reads: a shard, the file of the same name in the earlier version, or both.

    With `is_alone` the earlier version counts as having all documents of the shard, because nobody can tell.
    """

    ours: KeyFile | None
    theirs: KeyFile | None = None
    is_alone: bool = False

    @property
    def files(self) -> tuple[KeyFile, ...]:
        """What is read."""
        return tuple(item for item in (self.ours, self.theirs) if item is not None)

    @property
    def name(self) -> str:
        """Path of the first of them."""
        return self.files[0].info.path

    def inputs(self) -> tuple[Input, ...]:
        """Return the inputs of the task."""
        return tuple(item.input() for item in self.files)

    def blocks(self, inputs: list[InputRecord]) -> Iterator[tuple[int, int, int, Keys]]:
        """Yield number of the shard, first row, side (1: the earlier version) and keys of each block; see `KeyFile.read`."""
        for side, item in enumerate((self.ours, self.theirs)):
            row = 0
            for keys in item.read(inputs) if item else ():
                yield item.number, row, side, keys  # type: ignore[union-attr]
                row += len(keys)


@dataclass(frozen=True)
class KeyEmitter:
    """Gives the exchange the keys of documents; for a file and its earlier version it also compares their order.

    ``info["order"]`` of a task is None, or count, row, its row in the earlier version, and the same of the row before it.
    """

    dtype: np.dtype[Any] = field(default=RECORD)

    def emit(self, task: Task, out: Callable[[Records], None], folder: str) -> Emitted:
        """Read one task; see `dolma_dask.exchange`."""
        work: KeyWork = task.work
        inputs: list[InputRecord] = []
        is_pair = work.ours is not None and work.theirs is not None
        sides: list[list[Keys]] = [[], []]
        rows = 0
        for number, first_row, side, keys in work.blocks(inputs):
            for as_side in (0, 1) if work.is_alone else (side,):
                records = _records(keys, number, first_row, as_side)
                if len(records):
                    out(records)
            rows += len(keys)
            if is_pair:
                sides[side].append(keys)
        order = order_break(*map(_joined, sides)) if is_pair else None
        return Emitted(tuple(inputs), rows, {}, {"order": None if order is None else list(order)})


def _joined(blocks: list[Keys]) -> Keys:
    return np.concatenate(blocks) if blocks else np.empty((0, 2), np.uint64)


def _records(keys: Keys, number: int, first_row: int, side: int) -> Records:
    """Return the records of consecutive rows, without those that have no identity."""
    records = np.empty(len(keys), RECORD)
    records["hi"], records["lo"] = keys[:, 0], keys[:, 1]
    base = (number << ROW_BITS) + first_row + (EARLIER if side else 0)
    records["place"] = np.uint64(base) + np.arange(len(keys), dtype=np.uint64)
    return records[keys.any(axis=1)]


# ------------------------------------------------------------------------------------------------ equal keys


@dataclass(frozen=True)
class KeyReducer:
    """Walks over a range of keys and tells which stand twice in the dataset, and which not in the earlier version.

    Attributes
    ----------
    keep : int
        Places that are told: the first ones.
    has_earlier : bool
        Whether there is an earlier version.
    """

    keep: int
    has_earlier: bool
    dtype: None = None

    def reduce(self, runs: Iterable[Records], out: Callable[[Records], None]) -> dict[str, Any]:
        """Return counts, and the first places: ``duplicates`` with the place of the first of their key, and ``unmatched``."""
        walk = KeyWalk(self.keep)
        for run in runs:
            walk.add(run)
        return walk.end(self.has_earlier)


class KeyWalk:
    """A running walk over sorted records, which may be cut anywhere.

    Parameters
    ----------
    keep : int
        Places that are remembered.
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._state = np.zeros(
            6, np.uint64
        )  # is open, key, first place, rows of ours, rows of the earlier version
        self._counts = np.zeros(2, np.int64)
        self._duplicates = np.empty((0, 2), np.uint64)
        self._unmatched = np.empty((0, 2), np.uint64)
        self._missing = 0

    def add(self, run: Records) -> None:
        """Take the next records."""
        duplicates = np.empty((len(run), 2), np.uint64)
        unmatched = np.empty((len(run), 2), np.uint64)  # first place of a key and its rows
        high, low, place = (np.ascontiguousarray(run[name]) for name in ("hi", "lo", "place"))
        here = np.zeros(2, np.int64)
        _walk_keys(high, low, place, self._state, duplicates, unmatched, here)
        self._counts[0] += here[0]
        self._take_unmatched(unmatched[: here[1]])
        self._duplicates = self._first(self._duplicates, duplicates[: here[0]])

    def _take_unmatched(self, found: Keys) -> None:
        self._missing += int(found[:, 1].sum())
        self._unmatched = self._first(self._unmatched, found)

    def _first(self, known: Keys, more: Keys) -> Keys:
        both = np.concatenate([known, more])
        return both[np.argsort(both[:, 0], kind="stable")[: self._keep]]

    def end(self, has_earlier: bool) -> dict[str, Any]:
        """Return what was found; the last key ends here."""
        is_open, _, _, first, ours, theirs = self._state
        if is_open and ours and not theirs:
            self._take_unmatched(np.array([[first, ours]], np.uint64))
        found: dict[str, Any] = {"duplicates": int(self._counts[0]), "first": self._duplicates.tolist()}
        if has_earlier:
            found |= {"unmatched": self._missing, "first_unmatched": self._unmatched[:, 0].tolist()}
        return found


@kernel
def _walk_keys(
    high: Words, low: Words, place: Words, state: Words, duplicates: Words, unmatched: Words, counts: Counts
) -> None:
    """Walk over sorted records; `state` carries the key that is open from one call to the next."""
    for i in range(high.size):
        if state[0] == 0 or high[i] != state[1] or low[i] != state[2]:
            if state[0] != 0 and state[4] != 0 and state[5] == 0:
                unmatched[counts[1], 0] = state[3]
                unmatched[counts[1], 1] = state[4]
                counts[1] += 1
            state[0] = 1
            state[1] = high[i]
            state[2] = low[i]
            state[3] = place[i]
            state[4] = 0
            state[5] = 0
        if place[i] >> np.uint64(63):
            state[5] += np.uint64(1)
            continue
        if state[4] != 0:
            duplicates[counts[0], 0] = place[i]
            duplicates[counts[0], 1] = state[3]
            counts[0] += 1
        state[4] += np.uint64(1)


# ------------------------------------------------------------------------------------------------ order


def order_break(ours: Keys, theirs: Keys) -> tuple[int, int, int, int, int] | None:
    """Tell where rows stand in another order than in the earlier file.

    Rows that the earlier file does not have are passed over. Where it has a key several times, any order that fits is taken.

    Parameters
    ----------
    ours, theirs : numpy.ndarray of uint64
        (n, 2) and (m, 2) keys of the rows of both files.

    Returns
    -------
    tuple of int, or None
        None: all rows are in order. Else the number of rows that are not, the first of them, its row in the earlier file, the row
        that it should not follow, and that one's row in the earlier file.
    """
    if _follows(ours, theirs):
        return None
    order = np.lexsort((theirs[:, 1], theirs[:, 0]))
    found = np.zeros(5, np.int64)
    _find_breaks(ours, np.ascontiguousarray(theirs[order]), order, found)
    count, *rest = found.tolist()
    return (count, *rest) if count else None  # type: ignore[return-value]


@kernel
def _follows(ours: Words, theirs: Words) -> bool:
    """Tell whether all of `ours` stand in `theirs` in this order."""
    at, rows = 0, theirs.shape[0]
    for i in range(ours.shape[0]):
        if ours[i, 0] == 0 and ours[i, 1] == 0:
            continue
        while at < rows and (theirs[at, 0] != ours[i, 0] or theirs[at, 1] != ours[i, 1]):
            at += 1
        if at == rows:
            return False
        at += 1
    return True


@kernel
def _find_breaks(ours: Words, ordered: Words, order: Counts, found: Counts) -> None:
    last, last_row = -1, -1
    rows = ordered.shape[0]
    for i in range(ours.shape[0]):
        high, low = ours[i, 0], ours[i, 1]
        if high == 0 and low == 0:
            continue
        start = _lower_bound(ordered, high, low)
        at = start
        while at < rows and ordered[at, 0] == high and ordered[at, 1] == low and order[at] <= last:
            at += 1
        if at < rows and ordered[at, 0] == high and ordered[at, 1] == low:
            last = order[at]
            last_row = i
        elif at > start:
            if found[0] == 0:
                found[1] = i
                found[2] = order[start]
                found[3] = last_row
                found[4] = last
            found[0] += 1


@kernel
def _lower_bound(ordered: Words, high: Int, low: Int) -> Int:
    start, stop = 0, ordered.shape[0]
    while start < stop:
        middle = (start + stop) // 2
        if ordered[middle, 0] < high or (ordered[middle, 0] == high and ordered[middle, 1] < low):
            start = middle + 1
        else:
            stop = middle
    return start


# ------------------------------------------------------------------------------------------------ names of a few rows


@dataclass(frozen=True)
class IdentityStage:
    """Reads source and id of a few rows of a shard; ``work`` of a task is a `KeyFile` and the rows."""

    verb: str = "validate"

    def run_shard(self, task: Task) -> dict[int, tuple[str, str]]:
        """Return source and id by row; see `dolma_dask.engine.gather`."""
        item, rows = task.work
        return read_identities(item, rows)


def read_identities(item: KeyFile, rows: Iterable[int]) -> dict[int, tuple[str, str]]:
    """Return source and id of rows of a document file; nothing behind the last of them is read."""
    wanted = sorted(rows)
    found: dict[int, tuple[str, str]] = {}
    documents = DocumentFile(
        item.url, ("id", "source"), source=item.source, max_record_bytes=item.max_record_bytes
    )
    for block in documents:
        ids, sources = block.batch.column("id"), block.batch.column("source")
        for row in wanted[len(found) :]:
            if row >= block.first_row + block.num_rows:
                break
            at = row - block.first_row
            found[row] = sources[at].as_py(), ids[at].as_py()
        if len(found) == len(wanted):
            break
    return found


def places(found: Mapping[str, Any]) -> list[int]:
    """Return all places that a reducer's result speaks of."""
    pairs = [place for pair in found["first"] for place in pair]
    return [*pairs, *found.get("first_unmatched", ())]


def merge(infos: Iterable[Mapping[str, Any]], keep: int) -> dict[str, Any]:
    """Put the results of all ranges together: counts, and the first `keep` places."""
    results = list(infos)
    merged: dict[str, Any] = {
        "duplicates": sum(item["duplicates"] for item in results),
        "first": sorted(pair for item in results for pair in item["first"])[:keep],
        "unmatched": sum(item.get("unmatched", 0) for item in results),
        "first_unmatched": sorted(place for item in results for place in item.get("first_unmatched", ()))[
            :keep
        ],
    }
    return merged
