"""Read a list of documents: ids, or sources with ids, in text, JSON lines, CSV, TSV or Parquet; streaming, strict, with line numbers.

A bare id stands for the documents of that id in any source. The suffix says the format (anything unknown is text) and, with ``.gz`` or
``.zst`` behind it, the compression. Memory: a few blocks, whatever the size of the list. About 200 MB of text per second.
"""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.errors import BadRecordError, CorruptFileError, SchemaError
from dolma_dask.formats.json_exact import Field
from dolma_dask.formats.json_lines import scan_documents
from dolma_dask.io.parquet import open_parquet, read_batches
from dolma_dask.io.stream import (
    BLOCK_BYTES,
    LineBlock,
    StoredFile,
    compression_of,
    read_lines,
    read_pieces,
)

ListFormat = Literal["text", "jsonl", "csv", "tsv", "parquet"]

MAX_ENTRY_BYTES = 1 << 20
"""A longer line is no entry of a list."""

_COMPRESSED = (".gz", ".zst", ".zstd")
_FORMATS: dict[str, ListFormat] = {
    ".jsonl": "jsonl",
    ".json": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SHOWN = 80
"""Characters of an entry that an error shows."""

Lines = npt.NDArray[np.int64]


@dataclass(frozen=True)
class IdBlock:
    """Consecutive entries of a list.

    Attributes
    ----------
    ids : pyarrow.LargeStringArray
        (n,) without nulls.
    sources : pyarrow.LargeStringArray
        (n,) null: any source.
    lines : numpy.ndarray of int64
        (n,) line of each, from 1; in tables the row, from 1, without the heading.
    """

    ids: pa.LargeStringArray
    sources: pa.LargeStringArray
    lines: Lines

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, places: Lines) -> "IdBlock":
        """Return the entries at these places."""
        wanted = pa.array(places)
        return IdBlock(self.ids.take(wanted), self.sources.take(wanted), self.lines[places])


@dataclass(frozen=True)
class ListFacts:
    """What is known of a list that was read once.

    Attributes
    ----------
    url : str
        Where it was.
    bytes : int
        Stored size.
    stamp, checksum : str
        Of the stored bytes.
    entries : int
        Repeated ones included.
    bare, pairs : int
        How many stand for any source, and how many for one.
    """

    url: str
    bytes: int
    stamp: str
    checksum: str
    entries: int
    bare: int
    pairs: int


def list_format(url: str) -> ListFormat:
    """Return the format behind the suffix of a list; text if the suffix is unknown."""
    name = next((url.removesuffix(suffix) for suffix in _COMPRESSED if url.endswith(suffix)), url)
    return next((form for suffix, form in _FORMATS.items() if name.endswith(suffix)), "text")


def list_name(url: str) -> str:
    """Return the name of a list: that of its file without compression and suffix."""
    name = url.rstrip("/").rpartition("/")[2]
    name = next((name.removesuffix(suffix) for suffix in _COMPRESSED if name.endswith(suffix)), name)
    return name.rpartition(".")[0] or name


def read_facts(url: str) -> ListFacts:
    """Read a list once, check every entry, and count.

    Raises
    ------
    BadRecordError
        An entry cannot be read; the message names its line.
    CorruptFileError, SchemaError
        There is no such file, it is damaged, or a table lacks its columns.
    """
    file = IdListFile(url)
    entries = pairs = 0
    for block in file:
        entries += len(block)
        pairs += len(block) - block.sources.null_count
    stored = file.stored
    return ListFacts(
        url, stored.info.bytes, stored.info.stamp, stored.checksum, entries, entries - pairs, pairs
    )


class IdListFile:
    """A list as an iterable of blocks of entries; each iteration reads it anew.

    Parameters
    ----------
    url : str
        Local path or fsspec URL. Text: an id per line, or source, tab and id. JSON lines: ``id`` and perhaps ``source``. Tables: a
        column ``id`` and perhaps ``source``. An empty or missing source means any; empty lines are no entries.

    Attributes
    ----------
    stored : StoredFile
        Its ``checksum``, after the last block, says which file was read.

    Raises
    ------
    BadRecordError, CorruptFileError, SchemaError, SourceChangedError
        While iterating; the second also at once if there is no such file.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.format = list_format(url)
        self.stored = StoredFile(url)

    def __iter__(self) -> Iterator[IdBlock]:
        if self.stored.position:
            self.stored.rewind()
        try:
            for block in self._blocks():
                self._check(block)
                if len(block):
                    yield block
            while self.stored.read():  # the checksum is that of the whole file
                pass
            self.stored.check_unchanged()
        finally:
            self.stored.close()

    def _blocks(self) -> Iterator[IdBlock]:
        if self.format == "parquet":
            return self._parquet()
        if self.format in ("csv", "tsv"):
            return self._table(b"," if self.format == "csv" else b"\t")
        return self._lines()

    def _check(self, block: IdBlock) -> None:
        empty = pc.fill_null(pc.equal(block.ids, ""), True)
        if pc.any(empty).as_py():
            line = int(block.lines[empty.index(True).as_py()])
            raise self._bad(line, "no id", "an id in every entry")

    def _bad(self, line: int, found: str, expected: str) -> BadRecordError:
        word = "row" if self.format in ("csv", "tsv", "parquet") else "line"
        return BadRecordError(
            f"{self.url}, {word} {line}: {found}; expected {expected}. Mend the list.",
            url=self.url,
            line=line,
        )

    # text and JSON lines

    def _lines(self) -> Iterator[IdBlock]:
        lines = read_lines(
            self.stored,
            compression_of(self.url),
            block_bytes=BLOCK_BYTES,
            max_record_bytes=MAX_ENTRY_BYTES,
        )
        for block in lines:
            if block.oversize_bytes:
                raise self._bad(
                    block.first_row + 1, f"{block.oversize_bytes:,} bytes", f"at most {MAX_ENTRY_BYTES:,}"
                )
            yield self._documents(block) if self.format == "jsonl" else self._text(block)

    def _documents(self, block: LineBlock) -> IdBlock:
        fields = [Field("id"), Field("source")]
        batch, errors = scan_documents(block.data, block.starts, fields, ["id"])
        wrong = [(row, error) for row, error in errors if error.reason != "blank_line"]
        for row, error in wrong[:1]:
            raise self._bad(block.first_row + row + 1, error.reason.replace("_", " "), error.expected)
        kept = np.ones(batch.num_rows, np.bool_)
        kept[[row for row, _ in errors]] = False
        return _entries(
            batch.column(0), batch.column(1), np.arange(batch.num_rows) + block.first_row + 1, kept
        )

    def _text(self, block: LineBlock) -> IdBlock:
        texts = self._strings(block)
        numbers = np.arange(len(texts)) + block.first_row + 1
        kept = np.asarray(pc.not_equal(texts, ""))
        tabs = pc.count_substring(texts, "\t")
        if not pc.max(tabs).as_py():
            return _entries(texts, pa.nulls(len(texts), pa.large_string()), numbers, kept)
        several = np.flatnonzero(np.asarray(tabs) > 1)
        if len(several):
            found = f"{tabs[several[0]].as_py() + 1} fields ({texts[several[0]].as_py()[:_SHOWN]!r})"
            raise self._bad(
                int(numbers[several[0]]), found, "an id, or a source and an id with one tab between"
            )
        at = pc.if_else(pc.equal(tabs, 1), pc.find_substring(texts, "\t"), -1)
        return _entries(*_split(texts, np.asarray(at, np.int64)), numbers, kept)

    def _strings(self, block: LineBlock) -> pa.LargeStringArray:
        """Return the lines without their ends (``\\n`` or ``\\r\\n``) and a mark at the start of the file."""
        first = 3 if block.byte_offset == 0 and block.data[:3].tobytes() == _BYTE_ORDER_MARK else 0
        starts = block.starts.copy()
        starts[0] = first
        buffers = [None, pa.py_buffer(starts), pa.py_buffer(block.data)]
        texts = pa.Array.from_buffers(pa.large_string(), len(starts) - 1, buffers)
        try:
            texts.validate(full=True)
        except pa.ArrowInvalid:
            row = next(row for row in range(len(texts)) if not _is_utf8(texts.slice(row, 1)))
            raise self._bad(block.first_row + row + 1, "bytes that are not UTF-8", "UTF-8") from None
        return pc.ascii_rtrim(texts, "\r\n")

    # tables

    def _table(self, delimiter: bytes) -> Iterator[IdBlock]:
        from pyarrow import csv as table

        pieces = _Pieces(read_pieces(self.stored, compression_of(self.url)))
        if not pieces.head:
            raise SchemaError(
                f"{self.url}: an empty file; expected a heading with id and perhaps source.", url=self.url
            )
        columns = self._columns(_heading(pieces.head, delimiter.decode()))
        options = table.ConvertOptions(
            column_types=dict.fromkeys(columns, pa.large_string()),
            include_columns=columns,
            strings_can_be_null=False,
        )
        try:
            reader = table.open_csv(
                pa.PythonFile(pieces, mode="r"),
                read_options=table.ReadOptions(use_threads=False, block_size=2 * MAX_ENTRY_BYTES),
                parse_options=table.ParseOptions(delimiter=delimiter.decode(), newlines_in_values=True),
                convert_options=options,
            )
            yield from self._rows(iter(reader), columns, empty_is_any=True)
        except pa.ArrowInvalid as error:
            raise BadRecordError(
                f"{self.url}: {' '.join(str(error).split())}; expected rows as the heading says, in UTF-8. Mend the list.",
                url=self.url,
            ) from error

    def _parquet(self) -> Iterator[IdBlock]:
        while self.stored.read():  # the checksum; a table itself is read from its footer
            pass
        with open_parquet(self.url) as file:
            columns = self._columns(file.schema_arrow.names)
            yield from self._rows(read_batches(self.url, file, columns, BLOCK_BYTES), columns)

    def _columns(self, names: list[str]) -> list[str]:
        if "id" not in names or names.count("id") > 1 or names.count("source") > 1:
            raise SchemaError(
                f"{self.url} has the columns {', '.join(names)}; expected one called id, and perhaps one called source.",
                url=self.url,
            )
        return ["id", "source"] if "source" in names else ["id"]

    def _rows(
        self, batches: Iterator[pa.RecordBatch], columns: list[str], empty_is_any: bool = False
    ) -> Iterator[IdBlock]:
        before = 0
        for batch in batches:
            ids = self._column(batch, "id")
            sources = pa.nulls(len(ids), pa.large_string())
            if "source" in columns:
                sources = self._column(batch, "source")
                sources = _without_empty(sources) if empty_is_any else sources
            yield IdBlock(ids, sources, np.arange(len(ids)) + before + 1)
            before += len(ids)

    def _column(self, batch: pa.RecordBatch, name: str) -> pa.LargeStringArray:
        column = batch.column(name)
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)):
            raise SchemaError(f"{self.url}: column {name} is of type {kind}; expected strings.", url=self.url)
        column = column.cast(pa.large_string())
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise CorruptFileError(
                f"{self.url}: column {name} holds bytes that are not UTF-8; expected UTF-8. Mend the list.",
                url=self.url,
            ) from error
        return column


def _is_utf8(texts: pa.Array) -> bool:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _without_empty(sources: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(sources, ""), pa.scalar(None, pa.large_string()), sources)


def _entries(ids: pa.Array, sources: pa.Array, lines: Lines, kept: npt.NDArray[np.bool_]) -> IdBlock:
    if kept.all():
        return IdBlock(ids, sources, lines)
    mask = pa.array(kept)
    return IdBlock(ids.filter(mask), sources.filter(mask), lines[kept])


def _split(texts: pa.LargeStringArray, at: npt.NDArray[np.int64]) -> tuple[pa.Array, pa.Array]:
    """Return ids and sources of texts whose tab stands `at` so many bytes (-1: no tab, no source)."""
    _, offsets, data = texts.buffers()
    starts = np.frombuffer(offsets, np.int64, len(texts) + 1, 8 * texts.offset)
    pieces = np.empty(2 * len(texts) + 1, np.int64)  # source with its tab, then id
    pieces[0::2] = starts
    pieces[1::2] = starts[:-1] + at + 1
    both = pa.Array.from_buffers(pa.large_string(), 2 * len(texts), [None, pa.py_buffer(pieces), data])
    places = np.arange(len(texts))
    sources = _without_empty(pc.ascii_rtrim(both.take(pa.array(2 * places)), "\t"))
    return both.take(pa.array(2 * places + 1)), sources


def _heading(head: bytes, delimiter: str) -> list[str]:
    """Return the names in the first line of a table."""
    text = head.removeprefix(_BYTE_ORDER_MARK).decode(errors="replace")
    return next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), [])


class _Pieces:
    """Decompressed pieces as a file that pyarrow reads; its beginning can be looked at."""

    closed = False
    readable = staticmethod(lambda: True)
    seekable = writable = staticmethod(lambda: False)

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""
        while len(self._rest) < MAX_ENTRY_BYTES and (piece := next(pieces, b"")):
            self._rest += piece
        self.head = self._rest

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes, empty at the end."""
        self._rest = self._rest or next(self._pieces, b"")
        wanted = len(self._rest) if size < 0 else size
        data, self._rest = self._rest[:wanted], self._rest[wanted:]
        if size < 0:
            data += b"".join(self._pieces)
        return data

    def close(self) -> None:
        self.closed = True
