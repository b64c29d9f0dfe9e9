"""Read a list of documents: ids, or sources with ids, in text, JSON lines, CSV, TSV or Parquet; streaming, strict, with line numbers.

A bare id stands for the documents of that id in any source. The suffix says the format (anything unknown is text) and, with ``.gz`` or
``.zst`` behind it, the compression. Memory: a few blocks, whatever the size of the list. 200 to 500 MB of a list per second.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from dolma_dask.errors import BadRecordError, CorruptFileError, SchemaError, UsageError
from dolma_dask.formats.documents import is_string
from dolma_dask.formats.json.exact import Field
from dolma_dask.formats.json.lines import scan_documents
from dolma_dask.formats.layout import check_name
from dolma_dask.io import files
from dolma_dask.io.csv_tables import CsvTable
from dolma_dask.io.parquet import open_parquet, read_batches
from dolma_dask.io.stream import (
    BLOCK_BYTES,
    LineBlock,
    StoredFile,
    compression_of,
    read_lines,
    read_pieces,
)
from dolma_dask.text import compute as pc

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
MAX_ENTRY_BYTES = 1 << 20
"""A longer line is no entry of a list."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SHOWN = 80
"""Characters of an entry that an error shows."""

Lines = npt.NDArray[np.int64]


class IdBlock(Struct, frozen=True):
    """Consecutive entries of a list."""

    ids: pa.LargeStringArray  # (n,) without nulls
    sources: pa.LargeStringArray  # (n,) null: any source
    lines: Lines  # (n,) line of each, from 1; in tables the row, from 1, without the heading

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, indices: Lines) -> "IdBlock":
        """Return the entries at these indices."""
        return IdBlock(self.ids.take(indices), self.sources.take(indices), self.lines[indices])


class ListFacts(Struct, frozen=True):
    """Facts about a list that was read once."""

    url: str  # where it was
    bytes: int  # stored size
    stamp: str
    checksum: str  # of the stored bytes
    format: ListFormat  # as which it was read
    entries: int  # repeated ones included
    bare: int  # entries for any source
    pairs: int  # entries for one source


def list_format(url: str) -> ListFormat:
    """Return the format behind the suffix of a list; text if the suffix is unknown."""
    name = next((url.removesuffix(suffix) for suffix in _COMPRESSED if url.endswith(suffix)), url)
    return next((form for suffix, form in _FORMATS.items() if name.endswith(suffix)), "text")


def list_name(url: str) -> str:
    """Return the name of a list: that of its file without compression and suffix."""
    name = url.rstrip("/").rpartition("/")[2]
    name = next((name.removesuffix(suffix) for suffix in _COMPRESSED if name.endswith(suffix)), name)
    return name.rpartition(".")[0] or name


def set_name(url: str, advice: str) -> str:
    """Return the name of the attribute set that a list is called after.

    Raises
    ------
    UsageError
        It cannot be one; the message ends in `advice`.
    """
    name = list_name(url)
    try:
        return check_name(name, "name")
    except UsageError as error:
        raise UsageError(
            f"{url} would give its name {name!r} to an attribute set; expected letters, digits, '-', '_' or '.', with a letter or digit at "
            f"its start. {advice}"
        ) from error


def read_facts(url: str) -> ListFacts:
    """Read a list once, check every entry, and count.

    Raises `BadRecordError`: an entry cannot be read; the message names its line. Raises `CorruptFileError, SchemaError`: it is damaged,
    or a table lacks its columns. Raises `UsageError`: there is no such file.
    """
    file = IdListFile(url)
    for _ in file:
        pass
    return file.facts


class IdListFile:
    """A list as an iterable of blocks of entries; each iteration reads it anew.

    Text: an id per line, or source, tab and id. JSON lines: ``id`` and perhaps ``source``. Tables: a column ``id`` and perhaps ``source``; where
    none is called ``id``, and tables in text that have no heading: one column of ids, or sources and ids in this order, as in text.
    An empty or missing source means any; empty lines are no entries. Raises `BadRecordError, CorruptFileError, SchemaError,
    SourceChangedError` while iterating, and `UsageError` at once if there is no such file.
    """

    def __init__(self, url: str) -> None:
        check_list(url)
        self.url = url
        self.format = list_format(url)
        self.stored = StoredFile(url)
        self._entries = self._bare = 0

    @property
    def facts(self) -> ListFacts:
        """Facts about the list, after its last block."""
        info, pairs = self.stored.info, self._entries - self._bare
        known = info.bytes, info.stamp, self.stored.checksum, self.format
        return ListFacts(self.url, *known, self._entries, self._bare, pairs)

    def __iter__(self) -> Iterator[IdBlock]:
        self._entries = self._bare = 0
        with self.stored.anew():
            for block in self._blocks():
                self._check(block)
                self._entries += len(block)
                self._bare += block.sources.null_count
                if len(block):
                    yield block
            self.stored.hash_rest()  # the checksum is that of the whole file

    def _blocks(self) -> Iterator[IdBlock]:
        if self.format in ("text", "jsonl"):
            return self._lines()
        if self.format == "parquet":
            return self._rows(_parquet_columns(self.stored))
        return self._rows(_csv_columns(self.stored, "," if self.format == "csv" else "\t"))

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
        fields = [Field("id", required=True), Field("source")]
        batch, errors = scan_documents(block.data, block.starts, fields)
        wrong = [(row, error) for row, error in errors if error.reason != "blank_line"]
        for row, error in wrong[:1]:
            line = block.data[block.starts[row] : block.starts[row + 1]].tobytes()
            expected = f"{error.expected}{_as_strings(line) if error.reason == 'wrong_type' else ''}"
            raise self._bad(block.first_row + row + 1, error.reason.replace("_", " "), expected)
        kept = np.ones(batch.num_rows, np.bool_)
        kept[[row for row, _ in errors]] = False
        lines = np.arange(batch.num_rows) + block.first_row + 1
        return _entries(batch.column(0), batch.column(1), lines, kept)

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
        if not _is_utf8(texts):
            row = next(row for row in range(len(texts)) if not _is_utf8(texts.slice(row, 1)))
            raise self._bad(block.first_row + row + 1, "bytes that are not UTF-8", "UTF-8")
        return pc.ascii_rtrim(texts, "\r\n")


def check_list(url: str) -> None:
    """Refuse what is no file that can be read again and again; raises `UsageError`."""
    if url.startswith(("http://", "https://", "hf://")):
        raise UsageError(
            f"{url}: lists are not read from the web; expected a file here or in a store. Download it first.",
            url=url,
        )
    if files.is_local(url):
        path = files.local_path(url)
        if path.is_file():
            return
        found = (
            "a folder"
            if path.is_dir()
            else "a pipe or device, which can be read once"
            if path.exists()
            else "no such file"
        )
    elif files.stat(url) is not None:
        return
    else:
        found = "no such file"
    raise UsageError(
        f"{url}: {found}; expected a file with a list of ids. Correct its path, or write the list to a file.",
        url=url,
    )


def _as_strings(line: bytes) -> str:
    """Return how to write an entry whose id or source is a whole number, which JSON keeps apart from the string that documents have."""
    try:
        entry = json.loads(line)
    except ValueError:  # a number of thousands of digits
        return ""
    known = {name: entry[name] for name in ("source", "id") if name in entry}
    if not any(type(value) is int for value in known.values()):
        return ""
    strings = {name: str(value) if type(value) is int else value for name, value in known.items()}
    return f"; write it as one: {json.dumps(strings, ensure_ascii=False)[:_SHOWN]}"


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
    rows = np.arange(len(texts))
    sources = _without_empty(pc.ascii_rtrim(both.take(pa.array(2 * rows)), "\t"))
    return both.take(pa.array(2 * rows + 1)), sources


# ------------------------------------------------------------------------------------------------ tables


def _csv_columns(stored: StoredFile, delimiter: str) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Yield ids and sources (large_string) of the rows of a table in text, whose cells may be in double quotes; an empty source is null.

    Raises `SchemaError`: there is no column ``id``. Raises `BadRecordError`: a row has another number of cells, or is not UTF-8.
    """
    table = CsvTable(stored.url, read_pieces(stored, compression_of(stored.url)), delimiter)
    if not table.names:
        return
    columns = _columns_of(stored.url, table.names)
    if "id" not in table.names:
        columns = {role: role for role in columns}
        table = table.without_heading(list(columns))
    blocks = table.batches(list(columns.values()), 2 * MAX_ENTRY_BYTES)
    try:
        for ids, sources in _columns(stored.url, blocks, columns):
            yield ids, _without_empty(sources)
    except BadRecordError as error:
        raise BadRecordError(f"{error} Mend the list.", **error.details) from error


def _parquet_columns(stored: StoredFile) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Yield ids and sources (large_string) of the rows of a Parquet file.

    Raises `SchemaError`: there is no column ``id``, or one of the two holds no strings. Raises `CorruptFileError`: the file is damaged, or
    a string is not UTF-8.
    """
    while stored.read():  # the checksum; a table itself is read from its footer
        pass
    with open_parquet(stored.url) as file:
        columns = _columns_of(stored.url, file.schema_arrow.names)
        batches = read_batches(stored.url, file, list(columns.values()), BLOCK_BYTES)
        yield from _columns(stored.url, batches, columns)


def _without_empty(sources: pa.Array) -> pa.Array:
    """Return sources with null for empty ones."""
    return pc.if_else(pc.equal(sources, ""), pa.scalar(None, pa.large_string()), sources)


def _columns_of(url: str, names: Sequence[str]) -> dict[str, str]:
    """Return the columns of ids and sources by what they hold; where none is called id, by their places, as in text."""
    if "id" not in names and len(names) in (1, 2):
        return dict(zip(("id",) if len(names) == 1 else ("source", "id"), names, strict=True))
    if list(names).count("id") != 1 or list(names).count("source") > 1:
        raise SchemaError(
            f"{url} has the columns {', '.join(names)}; expected one called id, and perhaps one called source; or an id in each row, or source and id.",
            url=url,
        )
    return {name: name for name in ("id", "source") if name in names}


def _columns(
    url: str, batches: Iterator[pa.RecordBatch], columns: Mapping[str, str]
) -> Iterator[tuple[pa.Array, pa.Array]]:
    for batch in batches:
        ids = _string_column(url, batch, columns["id"])
        nothing = pa.nulls(len(ids), pa.large_string())
        yield ids, _string_column(url, batch, columns["source"]) if "source" in columns else nothing


def _string_column(url: str, batch: pa.RecordBatch, name: str) -> pa.LargeStringArray:
    column = batch.column(name)
    kind = column.type
    if not (is_string(kind) or pa.types.is_null(kind)):
        how = f': df["{name}"] = df["{name}"].astype("string") in pandas' if pa.types.is_integer(kind) else ""
        raise SchemaError(
            f"{url}: column {name} is of type {kind}; expected strings, as documents have them. Write it as strings{how}, or the list as text: an id, or source, "
            "tab and id, in each line.",
            url=url,
        )
    column = column.cast(pa.large_string())
    if not _is_utf8(column):
        raise CorruptFileError(
            f"{url}: column {name} holds bytes that are not UTF-8; expected UTF-8. Mend the list.", url=url
        )
    return column
