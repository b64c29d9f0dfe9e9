"""Read a document file into blocks of columns, strict and streaming.

Lines: the newline scan defines rows. Only the requested columns are made; ``raw`` is a view of the block. Lines are checked in full
(strict JSON, valid UTF-8, required strings); an invalid line comes as `BadRecord` beside its null row. Memory: a few blocks of 4 MB,
whatever the file.

Tables: which columns they have stands in `dolma_dask.formats.documents`. Strings are checked for UTF-8, which Parquet does not do.
Slower than JSON lines where the line is requested (``raw``), because it must be put together.
"""

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa

from dolma_dask.errors import SchemaError
from dolma_dask.formats.documents import (
    METADATA,
    RAW,
    REQUIRED,
    STRINGS,
    check_columns,
    encode_value,
    is_bytes,
    is_ours,
    is_string,
    metadata_text,
    null_row,
    raw_lines,
    schema_of,
    with_source,
    with_text_ids,
    without_rows,
)
from dolma_dask.formats.json.exact import INTEGER, NUMBERS_AS_IDS, Field, FieldKind, id_kind
from dolma_dask.formats.json.lines import Lines, scan_documents
from dolma_dask.formats.layout import format_of
from dolma_dask.io.attributes import member_texts
from dolma_dask.io.parquet import open_parquet, read_batches
from dolma_dask.io.records import QUARANTINE_HEAD, TOO_LARGE, BadRecord, Block, too_large
from dolma_dask.io.stored import WHOLE
from dolma_dask.io.stream import (
    BLOCK_BYTES,
    MAX_RECORD_BYTES,
    LineBlock,
    Section,
    StoredFile,
    bad_lines,
    compression_of,
    read_lines,
)
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import join_texts, large_bytes

_OR_ONCE = " (or give the source once for the whole dataset: source=..., --source)"


class DocumentFile:
    """One document file, or a section of it, as an iterable of blocks; each iteration reads it anew.

    `columns` are any of ``id text source added created`` (large_string), ``metadata`` (its JSON text) and ``raw`` (the line,
    large_binary); `source` is that of documents which lack the field. With `ids_as_text`, an id that is a whole number is its decimal text, in
    ``raw`` too. Lines longer than `max_record_bytes`, newline included, are bad
    records (``too_large``) and never held in memory; in a table the text counts, and a row group that must hold more at once is refused. `checksum` decides whether all stored bytes of a table are read for its checksum,
    which a section never has; lines are hashed on the way. ``stored`` says which file was read: its ``info``, and after the last block
    its ``checksum``.

    Raises `UsageError`: a column is unknown; `CorruptFileError`: there is no such file. While iterating, also `SchemaError` and
    `SourceChangedError`.
    """

    def __init__(
        self,
        url: str,
        columns: Sequence[str] = ("id", "text", "source"),
        *,
        source: str | None = None,
        ids_as_text: bool = False,
        section: Section | None = None,
        max_record_bytes: int = MAX_RECORD_BYTES,
        block_bytes: int = BLOCK_BYTES,
        checksum: bool = True,
    ) -> None:
        self.url = url
        self.columns = check_columns(columns)
        self.source = source
        self.ids_as_text = ids_as_text
        self.max_record_bytes = max_record_bytes
        self.block_bytes = block_bytes
        self.section = section or WHOLE
        self._is_table = format_of(url) == "parquet"
        self._is_hashed = checksum and self.section == WHOLE
        self.stored = StoredFile(url, None if self._is_table else section)
        given = () if source is None else ("source",)
        self._required = [name for name in self.columns if name in REQUIRED and name not in given]
        self._fields = [
            Field(name, self._kind(name), required=name in self._required)
            for name in self.columns
            if name != RAW
        ]

    def _kind(self, name: str) -> FieldKind:
        if name == "id":
            return id_kind(self.ids_as_text)
        return "raw" if name == METADATA else "string"

    def __iter__(self) -> Iterator[Block]:
        with self.stored.anew():
            yield from self._rows_of_table() if self._is_table else self._lines()

    def _lines(self) -> Iterator[Block]:
        lines = read_lines(
            self.stored,
            compression_of(self.url),
            block_bytes=self.block_bytes,
            max_record_bytes=self.max_record_bytes,
        )
        yield from map(self.rows_of, lines)

    def rows_of(self, lines: LineBlock) -> Block:
        """Return the rows of some lines of the file."""
        batch, errors = null_row(self.columns), dict[int, tuple[str, str]]()
        if not lines.oversize_bytes:
            batch, found = scan_documents(lines.data, lines.starts, self._fields)
            batch = self._arrange(batch, lines)
            errors = {row: (error.reason, _with_hint(error.reason, error.expected)) for row, error in found}
        bad = bad_lines(self.url, lines, errors, self.max_record_bytes)
        return self._block(batch, lines.first_row, bad)

    def _block(self, batch: pa.RecordBatch, first_row: int, bad: tuple[BadRecord, ...]) -> Block:
        batch = with_source(batch, self.source)
        if bad:
            batch = without_rows(batch, [record.row - first_row for record in bad])
        return Block(batch, first_row, bad)

    def _arrange(self, batch: pa.RecordBatch, lines: LineBlock) -> pa.RecordBatch:
        """Put the columns in the requested order, ``raw`` among them as a view of the block."""
        if RAW not in self.columns:
            return batch
        raw = large_bytes(lines.starts, lines.data)
        raw = _with_text_ids(raw, lines) if self.ids_as_text else raw
        arrays = [raw if name == RAW else batch.column(name) for name in self.columns]
        return pa.RecordBatch.from_arrays(arrays, names=list(self.columns))

    def _rows_of_table(self) -> Iterator[Block]:
        if self._is_hashed:
            self.stored.hash_rest()  # a table itself is read from its footer
        with open_parquet(self.url) as file:
            names = file.schema_arrow.names
            self._check_columns(file.schema_arrow)
            present = [name for name in self.columns if name in names]
            read = names if RAW in self.columns else present or names[:1]  # without columns there are no rows
            first_row = self.section.start.row
            for batch in read_batches(
                self.url, file, read, self.block_bytes, self.section, max_bytes=self.max_record_bytes
            ):
                batch = with_text_ids(batch) if self.ids_as_text else batch
                yield self._block_of_table(_decoded(batch), first_row)
                first_row += batch.num_rows

    def _check_columns(self, schema: pa.Schema) -> None:
        """Refuse at once what would make every row a bad record."""
        for name in (*self.columns, METADATA) if RAW in self.columns else self.columns:
            types = [field.type for field in schema if field.name == name]
            if len(types) > 1 or (not types and name in self._required):
                raise SchemaError(
                    f"{self.url} has {len(types)} columns {name!r}; its columns are {', '.join(schema.names)}. Expected one. "
                    "Convert the file: dolma-dask convert.",
                    url=self.url,
                )
            is_number = name == "id" and bool(types) and pa.types.is_integer(types[0])
            if is_number and self.ids_as_text:
                continue
            strange = name in STRINGS and types and not (is_string(types[0]) or pa.types.is_null(types[0]))
            if strange or (name == METADATA and types and is_bytes(types[0])):
                advice = NUMBERS_AS_IDS if is_number else "Convert the file: dolma-dask convert"
                raise SchemaError(
                    f"{self.url}: column {name!r} has type {types[0]}; expected strings. {advice}.",
                    url=self.url,
                )

    def _block_of_table(self, batch: pa.RecordBatch, first_row: int) -> Block:
        bad = tuple(self._bad_rows(batch, first_row))
        hidden = {record.row - first_row for record in bad}
        batch = without_rows(batch, hidden) if hidden else batch
        try:
            arrays = [self._column(batch, name, hidden) for name in self.columns]
        except (ValueError, OverflowError) as error:
            rows = f"{first_row:,} to {first_row + batch.num_rows - 1:,}"
            raise SchemaError(
                f"{self.url}: rows {rows} hold a value that cannot be written as JSON ({error}); expected times that a calendar has, and names of fields "
                "that differ. Convert the file, which sets such rows aside: dolma-dask convert.",
                url=self.url,
            ) from error
        return self._block(pa.RecordBatch.from_arrays(arrays, schema=schema_of(self.columns)), first_row, bad)

    def _column(self, batch: pa.RecordBatch, name: str, hidden: Collection[int]) -> pa.Array:
        if name == RAW:
            return raw_lines(batch, hidden)
        if name not in batch.schema.names:
            return pa.nulls(batch.num_rows, pa.large_string())
        column = batch.column(name)
        if name == METADATA and not (is_ours(batch.schema) and column.type == pa.large_string()):
            texts = [None if value is None else metadata_text(value).decode() for value in column.to_pylist()]
            return pa.array(texts, pa.large_string())
        return pc.cast(column, pa.large_string())

    def _bad_rows(self, batch: pa.RecordBatch, first_row: int) -> Iterator[BadRecord]:
        errors: dict[int, tuple[str, str]] = {}
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            for row in _invalid_rows(column):
                errors.setdefault(row, ("invalid_utf8", f"UTF-8 in column {name!r}"))
        for name in self._required:
            for row in np.flatnonzero(batch.column(name).is_null()).tolist():
                expected = _with_hint("missing_field", f"a string in column {name!r}, found null")
                errors.setdefault(row, ("missing_field", expected))
        for row, size in self._large_texts(batch):
            errors[row] = (TOO_LARGE, too_large(size, self.max_record_bytes))
        for row, (reason, expected) in sorted(errors.items()):
            most = QUARANTINE_HEAD if reason == TOO_LARGE else None
            raw = _row_as_json(batch, row, most)
            yield BadRecord(self.url, first_row + row, 0, reason, expected, raw)

    def _large_texts(self, batch: pa.RecordBatch) -> list[tuple[int, int]]:
        if "text" not in batch.schema.names:
            return []
        sizes = np.asarray(pc.fill_null(pc.binary_length(batch.column("text")), 0))
        return [(int(row), int(sizes[row])) for row in np.flatnonzero(sizes > self.max_record_bytes)]


def _with_text_ids(raw: pa.LargeBinaryArray, lines: LineBlock) -> pa.LargeBinaryArray:
    """Return lines in which ids that are whole numbers are strings; the others as they are."""
    from dolma_dask.rules.splicing import Edit, splice  # rarely needed kernels

    written = member_texts(Lines(lines.data, lines.starts), "id")
    numbers = pc.fill_null(pc.match_substring_regex(written, f"^{INTEGER.pattern.decode()}$"), False)
    if not pc.any(numbers).as_py():
        return raw
    ids = pc.replace_substring_regex(written.filter(numbers), "^-0$", "0")
    edit = Edit("id", join_texts('"', ids, '"'))
    return pc.replace_with_mask(raw, numbers, splice(raw.filter(numbers), [edit]))


def _with_hint(reason: str, expected: str) -> str:
    return expected + _OR_ONCE if reason == "missing_field" and "'source'" in expected else expected


def _decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return `batch` with every string column as large_string."""
    columns = [
        pc.cast(column, pa.large_string()) if is_string(column.type) else column for column in batch.columns
    ]
    fields = [pa.field(name, column.type) for name, column in zip(batch.schema.names, columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, metadata=batch.schema.metadata))


def _invalid_rows(column: pa.Array) -> list[int]:
    """Return the rows that hold a string which is not UTF-8: Parquet does not look."""
    if _is_valid(column):
        return []
    return [row for row in range(len(column)) if not _is_valid(column.slice(row, 1))]


def _is_valid(column: pa.Array) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _row_as_json(batch: pa.RecordBatch, row: int, most: int | None) -> bytes:
    """Return the strings of a bad row for the quarantine file, or their first bytes; what is not UTF-8 in them is replaced."""
    values = {
        name: pc.binary_slice(column.slice(row, 1).cast(pa.large_binary()), 0, most)[0].as_py()
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        if column.type == pa.large_string()
    }
    return encode_value({name: value and value.decode(errors="replace") for name, value in values.items()})[
        :most
    ]
