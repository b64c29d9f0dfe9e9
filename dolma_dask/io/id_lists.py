"""Read a list of documents: ids, or sources with ids, in text, JSON lines, CSV, TSV or Parquet; streaming, strict, with line numbers.

A bare id stands for the documents of that id in any source. The suffix says the format (anything unknown is text) and, with ``.gz`` or
``.zst`` behind it, the compression. Memory: a few blocks, whatever the size of the list. 200 to 500 MB of a list per second.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.errors import BadRecordError, CorruptFileError
from dolma_dask.formats.json.exact import Field
from dolma_dask.formats.json.lines import scan_documents
from dolma_dask.io import files
from dolma_dask.io.id_tables import MAX_ENTRY_BYTES, csv_columns, parquet_columns, without_empty
from dolma_dask.io.stream import (
    BLOCK_BYTES,
    LineBlock,
    StoredFile,
    compression_of,
    read_lines,
)

ListFormat = Literal["text", "jsonl", "csv", "tsv", "parquet"]

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
    format : ListFormat
        As which it was read.
    entries : int
        Repeated ones included.
    bare, pairs : int
        How many stand for any source, and how many for one.
    """

    url: str
    bytes: int
    stamp: str
    checksum: str
    format: ListFormat
    entries: int
    bare: int
    pairs: int

    @classmethod
    def of(cls, file: "IdListFile", entries: int, pairs: int) -> "ListFacts":
        """Return the facts of a list that was read to its end."""
        info, bare = file.stored.info, entries - pairs
        return cls(file.url, info.bytes, info.stamp, file.stored.checksum, file.format, entries, bare, pairs)


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
    return ListFacts.of(file, entries, pairs)


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
        _check_file(url)
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
        if self.format in ("text", "jsonl"):
            return self._lines()
        if self.format == "parquet":
            return self._rows(parquet_columns(self.stored))
        return self._rows(csv_columns(self.stored, "," if self.format == "csv" else "\t"))

    def _rows(self, columns: Iterator[tuple[pa.Array, pa.Array]]) -> Iterator[IdBlock]:
        before = 0
        for ids, sources in columns:
            yield IdBlock(ids, sources, np.arange(len(ids)) + before + 1)
            before += len(ids)

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


def _check_file(url: str) -> None:
    if files.stat(url) is not None:
        return
    is_folder = files.is_local(url) and files.local_path(url).is_dir()
    found = "a folder" if is_folder else "no such file"
    raise CorruptFileError(f"{url}: {found}; expected a file with a list of ids. Correct its path.", url=url)


def _is_utf8(texts: pa.Array) -> bool:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


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
    sources = without_empty(pc.ascii_rtrim(both.take(pa.array(2 * places)), "\t"))
    return both.take(pa.array(2 * places + 1)), sources
