"""Identities of documents as keys of 16 bytes: read from documents or from what the checks of the shards have kept, and emitted to the exchange.

The key of a document is xxh3-128 over its source and id; texts are not made into columns. Memory: a block of keys; for a file and its
earlier version, whose order is compared, 16 bytes per row of both.

The exchange brings equal keys of all shards together, those of an earlier version behind the others; so one walk over the sorted records
finds those that are twice in the dataset and those that the earlier version does not have: 160 M records per CPU-second, also when all have
one key.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from dolma_dask.dataset import Shard
from dolma_dask.engine import Input, Task
from dolma_dask.errors import DataError, SourceChangedError
from dolma_dask.exchange.contract import Emitted, Records, key_dtype, keyed, locations, to_words
from dolma_dask.formats.digests import keys128
from dolma_dask.io import files
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.files import FileInfo
from dolma_dask.io.records import InputRecord
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import for_kernel
from dolma_dask.text.kernels import Counts, Int, Words, kernel

EARLIER = 1 << 63
"""Bit of a location in the earlier version. Such records follow the others of their key."""

Keys = npt.NDArray[np.uint64]
"""Keys of consecutive rows, (n, 2): high and low half; both 0 for a row that has no identity."""

_NO_KEYS: Keys = np.empty((0, 2), np.uint64)
_KEY_BYTES = 16
_READ_BYTES = _KEY_BYTES << 16


def row_keys(ids: pa.LargeStringArray, sources: pa.LargeStringArray) -> Keys:
    """Return the keys (n, 2) of rows, C-contiguous; rows that could not be read and empty ids have none."""
    high, low = keys128(sources, ids)
    keys = np.stack([high, low], axis=1)
    known = pc.and_(pc.is_valid(ids), pc.fill_null(pc.not_equal(ids, ""), False))
    keys[~np.asarray(known)] = 0
    return keys


class KeyFile(Struct, frozen=True):
    """The documents of one shard, to be read as keys."""

    url: str  # of the document file
    shard: Shard
    info: FileInfo  # the file as it was listed, by the path under which a record names it
    number: int  # of the shard in its listing
    source: str | None  # of documents that lack the field
    max_record_bytes: int  # longer records have no key
    kept: str = ""  # URL of a file with its keys, as the check of the shard wrote it; empty: there is none
    checksum: str = ""  # of that file: another one is not used
    known: InputRecord | None = None  # the document file that these keys were read from

    def input(self) -> Input:
        """Return the file as an input of a task."""
        return Input(self.url, self.info)

    def open(self) -> DocumentFile:
        """Return the documents with their identities."""
        return DocumentFile(
            self.url,
            ("id", "source"),
            source=self.source,
            ids_as_text=self.shard.ids_as_text,
            max_record_bytes=self.max_record_bytes,
        )

    def read(self, inputs: list[InputRecord]) -> Iterator[Keys]:
        """Yield the keys of all rows in blocks; at the end, the file as it was read is appended to `inputs`.

        A file that cannot be read to its end is read as far as it goes if the check of the shard has reported that; else it is an error.
        """
        if self.known is not None and self._is_kept():
            yield from self._read_kept()
            inputs.append(self.known)
            return
        documents = self.open()
        try:
            for block in documents:
                yield row_keys(block.batch.column("id"), block.batch.column("source"))
        except DataError as error:
            if self.known is None or isinstance(error, SourceChangedError):
                raise
            inputs.append(self.known)
            return
        stored = documents.stored
        inputs.append(stored.record(self.info.path))

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


class KeyWork(Struct, frozen=True):
    """A shard that the exchange reads, the file of the same name in the earlier version, or both.

    With `is_alone` the earlier version counts as having all documents of the shard, because only the files of the same names are read.
    """

    ours: KeyFile | None
    theirs: KeyFile | None = None
    is_alone: bool = False

    @property
    def sides(self) -> tuple[KeyFile, ...]:
        """Files that are read."""
        return tuple(item for item in (self.ours, self.theirs) if item is not None)

    @property
    def name(self) -> str:
        """Path of the first file."""
        return self.sides[0].info.path

    @property
    def bytes(self) -> int:
        """Stored bytes of what is read."""
        return sum(item.info.bytes for item in self.sides)

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Files as inputs of the task."""
        return tuple(item.input() for item in self.sides)


class IdentityEmitter(Struct, frozen=True):
    """Emits the keys of documents; for a file and its earlier version it also compares their order.

    ``task.work`` is a tuple of `KeyWork`, and ``info["orders"]`` has an item for each: None, or count, row, its row in the earlier version,
    and the same of the row before it.
    """

    dtype: np.dtype[Any] = key_dtype()

    def emit(self, task: Task, out: Callable[[Records], None], folder: str) -> Emitted:
        """Read one task; see `dolma_dask.exchange`."""
        inputs: list[InputRecord] = []
        orders, count = [], 0
        for work in task.work:
            sides: list[list[Keys]] = [[_NO_KEYS], [_NO_KEYS]]
            for side, item in enumerate((work.ours, work.theirs)):
                first = 0
                for keys in item.read(inputs) if item else ():
                    for earlier in (False, True) if work.is_alone else (side == 1,):
                        out(_records(keys, item.number, first, earlier))
                    first += len(keys)
                    if len(work.sides) == 2:
                        sides[side].append(keys)
                count += first
            orders.append(order_break(*map(np.concatenate, sides)))
        return Emitted(tuple(inputs), count, {}, {"orders": orders})


def _records(keys: Keys, number: int, first: int, earlier: bool) -> Records:
    """Return the records of consecutive rows, without those that have no identity."""
    where = locations(number, first, len(keys)) + np.uint64(EARLIER if earlier else 0)
    return keyed((keys[:, 0], keys[:, 1]), where)[keys.any(axis=1)]


class IdentityStage(Struct, frozen=True):
    """Reads source and id of a few rows of a shard; ``work`` of a task is a `KeyFile` and the rows."""

    verb: str = "validate"

    def run_shard(self, task: Task) -> dict[int, tuple[str, str]]:
        """Return source and id by row; nothing behind the last of them is read."""
        item, rows = task.work
        requested = sorted(rows)
        found: dict[int, tuple[str, str]] = {}
        for block in item.open():
            ids, sources = block.batch.column("id"), block.batch.column("source")
            for row in requested[len(found) :]:
                if row >= block.first_row + block.num_rows:
                    break
                at = row - block.first_row
                found[row] = sources[at].as_py(), ids[at].as_py()
            if len(found) == len(requested):
                break
        return found


# ------------------------------------------------------------------------------------------------ what is twice, missing or in another order


class KeyReducer(Struct, frozen=True):
    """Walks over a range of keys and finds those that are twice in the dataset, and those that the earlier version does not have."""

    keep: int  # locations that are returned: the first ones
    has_earlier: bool  # whether there is an earlier version
    dtype: None = None

    def reduce(self, runs: Iterable[Records], out: Callable[[Records], None]) -> dict[str, Any]:
        """Return counts, and the first locations: of ``duplicates`` with the location of the first of their key, and of ``unmatched``."""
        # whether a key is open, the key, its first location, its rows of ours and of the earlier version
        state = np.zeros(6, np.uint64)
        duplicates = unmatched = np.empty((0, 2), np.uint64)
        repeated = absent = 0
        for run in runs:
            more, missing = (np.empty((len(run), 2), np.uint64) for _ in range(2))
            counts = np.zeros(2, np.int64)
            _walk_keys(for_kernel(to_words(run, run.dtype)), state, more, missing, counts)
            repeated += int(counts[0])
            duplicates = self._first(duplicates, more[: counts[0]])
            if self.has_earlier:
                absent += int(missing[: counts[1], 1].sum())
                unmatched = self._first(unmatched, missing[: counts[1]])
        *_, first, ours, theirs = state.tolist()
        if self.has_earlier and ours and not theirs:
            absent += ours
            unmatched = self._first(unmatched, np.array([[first, ours]], np.uint64))
        return {
            "duplicates": repeated,
            "first": duplicates.tolist(),
            "unmatched": absent,
            "first_unmatched": unmatched[:, 0].tolist(),
        }

    def _first(self, known: Keys, more: Keys) -> Keys:
        both = np.concatenate([known, more])
        if len(both) > self.keep:
            both = both[np.argpartition(both[:, 0], self.keep)[: self.keep]]
        return both[np.argsort(both[:, 0])]

    def merge(self, results: Iterable[dict[str, Any]]) -> dict[str, Any]:
        """Put the results of all ranges together."""
        results = list(results)
        counts = {name: sum(item[name] for item in results) for name in ("duplicates", "unmatched")}
        firsts = {
            name: sorted(one for item in results for one in item[name])[: self.keep]
            for name in ("first", "first_unmatched")
        }
        return {**counts, **firsts}


@kernel
def _walk_keys(records: Words, state: Words, duplicates: Words, unmatched: Words, counts: Counts) -> None:
    """Walk over sorted records; `state` carries the key that is open from one call to the next."""
    for i in range(records.shape[0]):
        location = records[i, 2]
        if state[0] == 0 or records[i, 0] != state[1] or records[i, 1] != state[2]:
            if state[0] != 0 and state[4] != 0 and state[5] == 0:
                unmatched[counts[1], 0] = state[3]
                unmatched[counts[1], 1] = state[4]
                counts[1] += 1
            state[0] = 1
            state[1] = records[i, 0]
            state[2] = records[i, 1]
            state[3] = location
            state[4] = 0
            state[5] = 0
        if location >> np.uint64(63):
            state[5] += np.uint64(1)
            continue
        if state[4] != 0:
            duplicates[counts[0], 0] = location
            duplicates[counts[0], 1] = state[3]
            counts[0] += 1
        state[4] += np.uint64(1)


def order_break(ours: Keys, theirs: Keys) -> list[int] | None:
    """Find rows that are in another order than in the earlier file; None if all are in order.

    Returns the number of such rows, the first of them, its row in the earlier file, the row that it should not follow, and that one's row in the
    earlier file. Rows that the earlier file does not have are passed over. Where it has a key several times, any order that fits is taken.
    Files in order, which is the rule, cost 2 ns per row; else the earlier keys are sorted, 0.4 s per million and 32 bytes per row.
    """
    if _follows(ours, theirs):
        return None
    order = np.lexsort((theirs[:, 1], theirs[:, 0]))
    result = np.zeros(5, np.int64)
    _find_breaks(ours, np.ascontiguousarray(theirs[order]), order, result)
    return result.tolist() if result[0] else None


@kernel
def _follows(ours: Words, theirs: Words) -> bool:
    """Tell whether `theirs` has all of `ours` in this order."""
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
def _find_breaks(ours: Words, ordered: Words, order: Counts, result: Counts) -> None:
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
            if result[0] == 0:
                result[1] = i
                result[2] = order[start]
                result[3] = last_row
                result[4] = last
            result[0] += 1


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
