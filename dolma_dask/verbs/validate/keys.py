"""Identities of documents as keys of 16 bytes: read from documents or from what an earlier pass has kept, and given to the exchange.

The key of a document is xxh3-128 over its source and id; texts are not made into columns. Memory: a block of keys; for a file and its
earlier version, whose order is compared, 16 bytes per row of both.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.engine import Input, Task
from dolma_dask.errors import DataError, SourceChangedError
from dolma_dask.formats.keys import keys128
from dolma_dask.io import files
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.files import FileInfo
from dolma_dask.io.records import InputRecord

EARLIER = 1 << 63
"""Bit of a place that says: of the earlier version. Such records follow the others of their key."""

ROW_BITS = 32

RECORD = np.dtype([("hi", "<u8"), ("lo", "<u8"), ("location", "<u8")])

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
