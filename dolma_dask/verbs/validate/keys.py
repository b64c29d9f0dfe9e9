"""Identities of documents as keys of 16 bytes: read from documents or from what the checks of the shards have kept, and emitted to the exchange.

The key of a document is xxh3-128 over its source and id; texts are not made into columns. Memory: a block of keys; for a file and its
earlier version, whose order is compared, 16 bytes per row of both.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.engine import Input, Task
from dolma_dask.errors import DataError, SourceChangedError
from dolma_dask.exchange.contract import Emitted, Records
from dolma_dask.formats.keys import keys128
from dolma_dask.io import files
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.files import FileInfo
from dolma_dask.io.records import InputRecord
from dolma_dask.verbs.validate.walk import Keys, order_break

EARLIER = 1 << 63
"""Bit of a location in the earlier version. Such records follow the others of their key."""

ROW_BITS = 32

RECORD = np.dtype([("hi", "<u8"), ("lo", "<u8"), ("location", "<u8")])

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


@dataclass(frozen=True)
class KeyFile:
    """The documents of one shard, to be read as keys."""

    url: str  # of the document file
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

    def read(self, inputs: list[InputRecord]) -> Iterator[Keys]:
        """Yield the keys of all rows in blocks; at the end, the file as it was read is appended to `inputs`.

        A file that cannot be read to its end is read as far as it goes if the check of the shard has reported that; else it is an error.
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
    """A shard that the exchange reads, the file of the same name in the earlier version, or both.

    With `is_alone` the earlier version counts as having all documents of the shard, because only the files of the same names are read.
    """

    ours: KeyFile | None
    theirs: KeyFile | None = None
    is_alone: bool = False

    @property
    def files(self) -> tuple[KeyFile, ...]:
        """Files that are read."""
        return tuple(item for item in (self.ours, self.theirs) if item is not None)

    @property
    def bytes(self) -> int:
        """Stored bytes of what is read."""
        return sum(item.info.bytes for item in self.files)

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
    """Emits the keys of documents; for a file and its earlier version it also compares their order.

    ``task.work`` is a tuple of `KeyWork`, and ``info["orders"]`` has an item for each: None, or count, row, its row in the earlier version,
    and the same of the row before it.
    """

    dtype: np.dtype[Any] = field(default=RECORD)

    def emit(self, task: Task, out: Callable[[Records], None], folder: str) -> Emitted:
        """Read one task; see `dolma_dask.exchange`."""
        works: Iterable[KeyWork] = task.work
        inputs: list[InputRecord] = []
        results = [_emit(work, out, inputs) for work in works]
        orders = [None if order is None else list(order) for _, order in results]
        return Emitted(tuple(inputs), sum(rows for rows, _ in results), {}, {"orders": orders})


def _emit(
    work: KeyWork, out: Callable[[Records], None], inputs: list[InputRecord]
) -> tuple[int, tuple[int, ...] | None]:
    """Emit the keys of a shard and its earlier version; return their number and what is wrong with their order."""
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
    return rows, order_break(*(np.concatenate([_NO_KEYS, *side]) for side in sides)) if is_pair else None


def _records(keys: Keys, number: int, first_row: int, side: int) -> Records:
    """Return the records of consecutive rows, without those that have no identity."""
    records = np.empty(len(keys), RECORD)
    records["hi"], records["lo"] = keys[:, 0], keys[:, 1]
    base = (number << ROW_BITS) + first_row + (EARLIER if side else 0)
    records["location"] = np.uint64(base) + np.arange(len(keys), dtype=np.uint64)
    return records[keys.any(axis=1)]


@dataclass(frozen=True)
class IdentityStage:
    """Reads source and id of a few rows of a shard; ``work`` of a task is a `KeyFile` and the rows."""

    verb: str = "validate"

    def run_shard(self, task: Task) -> dict[int, tuple[str, str]]:
        """Return source and id by row; nothing behind the last of them is read."""
        item, rows = task.work
        requested = sorted(rows)
        found: dict[int, tuple[str, str]] = {}
        documents = DocumentFile(
            item.url, ("id", "source"), source=item.source, max_record_bytes=item.max_record_bytes
        )
        for block in documents:
            ids, sources = block.batch.column("id"), block.batch.column("source")
            for row in requested[len(found) :]:
                if row >= block.first_row + block.num_rows:
                    break
                at = row - block.first_row
                found[row] = sources[at].as_py(), ids[at].as_py()
            if len(found) == len(requested):
                break
        return found
