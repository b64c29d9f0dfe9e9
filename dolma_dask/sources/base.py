"""Sources: raw files in, blocks of Dolma documents out.

A source is a description of raw files; `read` does the work, streaming: memory is a few blocks, whatever the size of the file.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import msgspec
import pyarrow as pa
from msgspec import Struct

from dolma_dask.formats.documents import RAW, REQUIRED, schema_of
from dolma_dask.functions.calls import UserFunction
from dolma_dask.io.records import QUARANTINE_HEAD, TOO_LARGE, BadRecord, Block, InputRecord, too_large
from dolma_dask.io.stream import BLOCK_BYTES, MAX_RECORD_BYTES, LineBlock, StoredFile
from dolma_dask.sources.mapping import FieldMapping
from dolma_dask.sources.pages import Pages

SCHEMA = schema_of((*REQUIRED, RAW))
"""Columns of every block: the mandatory fields, and the document's complete JSON line with its newline."""

CONVERTER_VERSION = 2
"""Raised whenever some raw record becomes another document than before; part of the key of finished work."""


class LineConverter(Protocol):
    """Turns the lines of one raw file into rows."""

    @property
    def schema(self) -> pa.Schema: ...  # columns of a row; the last one says about how large it is

    def scan(self, lines: LineBlock) -> pa.RecordBatch | None:
        """Return the rows of a block at the speed of a kernel; None if any line is unusual."""
        ...

    def convert_line(self, line: bytes, row: int) -> Sequence[Any] | None:
        """Return the row of one line, None for one that is passed over; raises `LineError`. `row` counts from 0 in the raw file."""
        ...


class Source(Protocol):
    """A description of raw files that can be read; `dolma_dask.sources.open_sources` makes one by file name."""

    def read(self, inputs: list[InputRecord] | None = None) -> Iterator[Block]:
        """Yield the documents in file order, columns as in `SCHEMA`, a row per record of the raw file.

        Adds to `inputs` a record of each raw file that was read to its end; their paths are relative to the raw folder. Raises `CorruptFileError`
        if a file is truncated, damaged, or of another kind than its suffix says, `SchemaError` if the columns of a table cannot be mapped,
        `SourceChangedError` if a file was written while it was read.
        """
        ...


class Cut(Struct, frozen=True):
    """A part of a raw file by its stored bytes: the records that begin in it."""

    start: int
    stop: int


class RawFile(Struct, frozen=True):
    """One raw file and how it is read."""

    url: str
    path: str  # the same relative to the raw folder; ids are made from it
    mapping: FieldMapping = msgspec.field(default_factory=FieldMapping)
    block_bytes: int = BLOCK_BYTES  # about
    max_record_bytes: int = (
        MAX_RECORD_BYTES  # a longer record is bad (``too_large``); one of lines or text is not held in memory
    )
    lines: LineConverter | None = None  # of JSON; None: documents by the mapping
    function: UserFunction | None = None  # that makes documents of records, in place of the mapping
    encoding: str | None = None  # of its text; ``auto``: to be found; None: UTF-8
    skip: tuple[str, ...] = ()  # members of an archive that are left out, by name, folder or pattern
    pages: Pages = Pages()  # how text is made of web pages
    cut: Cut | None = None  # of an archive of the web: the part that is read; None: all


class BlockBuilder:
    """Collects rows, the first with the number `first_row`, until they are cut off as a block; `size` counts their bytes, about."""

    def __init__(self, first_row: int = 0, schema: pa.Schema = SCHEMA) -> None:
        self._first_row = first_row
        self._schema = schema
        self._rows: list[Sequence[Any] | None] = []
        self._bad: list[BadRecord] = []
        self.encodings: list[str] = []  # other than UTF-8, of files whose rows were added
        self.passed: Counter[str] = Counter()  # records that are no documents, by what they are
        self.size = 0

    @property
    def row(self) -> int:
        """Number of the next row."""
        return self._first_row + len(self._rows)

    def add(self, row: Sequence[Any] | None) -> None:
        """Append a row; None: it is null in every column."""
        self._rows.append(row)
        last = row[-1] if row else b""
        self.size += sum(map(len, last)) if isinstance(last, list) else len(last)

    def refuse(self, url: str, byte_offset: int, reason: str, expected: str, raw: bytes) -> None:
        """Append a row that is null in every column, and the record of why; see `BadRecord` for the parameters."""
        kept = raw[:QUARANTINE_HEAD] if reason == TOO_LARGE else raw
        self._bad.append(BadRecord(url, self.row, byte_offset, reason, expected, kept))
        self._rows.append(None)
        self.size += len(kept)

    def refuse_size(self, url: str, byte_offset: int, size: int, max_record_bytes: int, raw: bytes) -> None:
        """Append a row that is null because its record has `size` bytes, more than are allowed."""
        expected = too_large(size, max_record_bytes)
        self.refuse(url, byte_offset, TOO_LARGE, expected, raw)

    def take(self) -> Block:
        """Return the rows as a block and start the next one."""
        columns = [
            pa.array([None if row is None else row[i] for row in self._rows], field.type)
            for i, field in enumerate(self._schema)
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        encodings, passed = tuple(self.encodings), tuple(self.passed.items())
        block = Block(batch, self._first_row, tuple(self._bad), encodings=encodings, passed=passed)
        self._first_row = self.row
        self._rows, self._bad, self.encodings, self.size = [], [], [], 0
        self.passed.clear()
        return block

    def __bool__(self) -> bool:
        return bool(self._rows or self.passed)


def finish(stored: StoredFile, path: str, inputs: list[InputRecord] | None) -> None:
    """Read what is left of a file for its checksum, refuse it if it was written meanwhile, and add its record to `inputs` if there is such a list."""
    if inputs is not None:
        stored.hash_rest()
        inputs.append(stored.record(path))
    stored.check_unchanged()
