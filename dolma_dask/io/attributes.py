"""Read an attribute file into blocks of columns: ids and sources to prove the alignment, and the requested keys.

Nested rows, the flat rows of AI2's pretrain-data layout, and Parquet tables give the same columns. A row that cannot be read is an error
here, never a missing value. The schema of our own tables holds the kinds of their keys (`KINDS_KEY`); of others a column's type decides,
and of maps the first rows.
"""

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct

from dolma_dask.errors import SchemaError
from dolma_dask.formats.documents import is_string, with_text_ids
from dolma_dask.formats.exact_numbers import as_exact
from dolma_dask.formats.json import NOT_JSON
from dolma_dask.formats.json.attributes import (
    AttributeKind,
    Form,
    guess_form,
    kinds_of_shapes,
    mixed_values,
    sample_shapes,
    scan_attributes,
)
from dolma_dask.formats.json.exact import NUMBERS_AS_IDS, Field
from dolma_dask.formats.json.lines import SPAN, Lines, scan
from dolma_dask.formats.layout import format_of
from dolma_dask.io.parquet import open_parquet, read_batches
from dolma_dask.io.stored import START
from dolma_dask.io.stream import (
    BLOCK_BYTES,
    MAX_RECORD_BYTES,
    LineBlock,
    Member,
    Section,
    StoredFile,
    bad_lines,
    compression_of,
    read_lines,
)
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import large_bytes

if TYPE_CHECKING:
    import pyarrow.parquet as pq

OBJECT = "\x1fobject"
"""Column of all attributes of each row as a JSON object; no attribute has this name."""

KINDS_KEY = b"dolma_dask.kinds"
"""Schema metadata of our tables: JSON object from key to kind."""

_MEND = "Make the attributes again in smaller pages"

_ROW_FIELDS = ("id", "source", "error")

SAMPLE_BYTES = 1 << 20
SAMPLE_ROWS = 1000
"""Rows at the start of a file that are looked at to find its keys, and those of a map."""

_TYPES: dict[AttributeKind, pa.DataType] = {
    "document": pa.float64(),
    "number": pa.float64(),
    "dict": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.large_string(),
    "spans": pa.list_(SPAN),
}


class AttributeBlock(Struct, frozen=True):
    """Consecutive rows of an attribute file."""

    # null for a row whose document could not be read; sources null where the file has none
    ids: pa.Array
    sources: pa.Array
    columns: Mapping[str, pa.Array]  # the requested keys
    first_row: int  # row of the first

    def slice(self, start: int, length: int) -> "AttributeBlock":
        """Return `length` rows from `start`."""
        columns = {key: array.slice(start, length) for key, array in self.columns.items()}
        return AttributeBlock(
            self.ids.slice(start, length), self.sources.slice(start, length), columns, self.first_row + start
        )


class AttributeFile:
    """One attribute file as an iterable of blocks; each iteration reads it anew.

    `kinds` are the keys to read and what their values must be; `with_objects` adds the column `OBJECT` (JSON lines only), `exact` makes numbers
    `dolma_dask.formats.exact_numbers.EXACT`, `ids_as_text` reads whole numbers as ids. A row longer
    than `max_record_bytes` is an error. Reading begins at `start`, a member or row group; rows from there up to `first_row` are skipped,
    lines without being parsed. After the last block ``stored.checksum`` says which file was read, unless reading began later than at its
    start.

    While iterating, raises `BadRecordError`, `CorruptFileError` (also at once if there is no such file), `SchemaError` and
    `SourceChangedError`.
    """

    def __init__(
        self,
        url: str,
        kinds: Mapping[str, AttributeKind],
        *,
        with_objects: bool = False,
        exact: bool = False,
        ids_as_text: bool = False,
        max_record_bytes: int = MAX_RECORD_BYTES,
        block_bytes: int = BLOCK_BYTES,
        start: Member = START,
        first_row: int = 0,
    ) -> None:
        self.url = url
        self.kinds = dict(kinds)
        self.with_objects = with_objects
        self.exact = exact
        self.ids_as_text = ids_as_text
        self.max_record_bytes = max_record_bytes
        self.block_bytes = block_bytes
        self.first_row = first_row
        self._section = Section(start)
        self._is_table = format_of(url) == "parquet"
        self.stored = StoredFile(url, None if self._is_table else self._section)

    def __iter__(self) -> Generator[AttributeBlock]:
        with self.stored.anew():
            yield from self._rows_of_table() if self._is_table else self._lines()

    def _rows_of_table(self) -> Iterator[AttributeBlock]:
        if not self.first_row:
            self.stored.hash_rest()  # a table is read from its footer
        row = self._section.start.row
        with open_parquet(self.url) as file:
            names = file.schema_arrow.names
            if "id" not in names:
                raise SchemaError(
                    f"{self.url} has no column 'id'; its columns are {', '.join(names)}. Expected ids, which prove that attributes "
                    "belong to their documents. Make the attributes again.",
                    url=self.url,
                )
            outer = {_parts(key, kind)[0] for key, kind in self.kinds.items()}
            read = [name for name in names if name in outer or name in ("id", "source")]
            for batch in read_batches(
                self.url,
                file,
                read,
                self.block_bytes,
                self._section,
                max_bytes=self.max_record_bytes,
                mend=_MEND,
            ):
                batch = with_text_ids(batch) if self.ids_as_text else batch
                columns = {key: self._column(batch, key, kind) for key, kind in self.kinds.items()}
                ids, sources = (self._column(batch, name, "string") for name in ("id", "source"))
                block = AttributeBlock(ids, sources, columns, row)
                row += batch.num_rows
                if row > self.first_row:
                    skipped = max(self.first_row - block.first_row, 0)
                    yield block.slice(skipped, batch.num_rows - skipped)

    def _column(self, batch: pa.RecordBatch, key: str, kind: AttributeKind) -> pa.Array:
        name, member = _parts(key, kind)
        if name not in batch.schema.names:
            column = pa.nulls(batch.num_rows, _TYPES[kind])
        else:
            column = batch.column(name)
            column = column if member is None else self._member(column, key, member)
        is_exact = self.exact and _TYPES[kind] == pa.float64() and _fits(column.type, pa.float64())
        return as_exact(column) if is_exact else self._cast(column, key, kind)

    def _member(self, column: pa.Array, key: str, member: str) -> pa.Array:
        if pa.types.is_map(column.type):
            return pc.map_lookup(column, pa.scalar(member, column.type.key_type), "last")
        if not pa.types.is_struct(column.type):
            raise self._wrong_type(key, column.type, "a struct or map of numbers")
        if column.type.get_field_index(member) < 0:
            return pa.nulls(len(column), pa.float64())
        return pc.struct_field(column, member)

    def _cast(self, column: pa.Array, key: str, kind: AttributeKind) -> pa.Array:
        expected = _TYPES[kind]
        if not _fits(column.type, expected):
            raise self._wrong_type(key, column.type, str(expected))
        column = pc.cast(column, expected, safe=False)
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise SchemaError(
                f"{self.url}: column {key!r} holds strings that are not UTF-8 ({error}); expected UTF-8. Make the attributes again.",
                url=self.url,
            ) from error
        return column

    def _wrong_type(self, key: str, actual: pa.DataType, expected: str) -> SchemaError:
        advice = f" ({NUMBERS_AS_IDS})" if key == "id" and pa.types.is_integer(actual) else ""
        return SchemaError(
            f"{self.url}: column {key!r} is {actual}; expected {expected}{advice}. Make the attributes again.",
            url=self.url,
            key=key,
        )

    def _lines(self) -> Iterator[AttributeBlock]:
        form: Form | None = None
        for block in read_lines(
            self.stored,
            compression_of(self.url),
            block_bytes=self.block_bytes,
            max_record_bytes=self.max_record_bytes,
        ):
            lines = _from_row(block, self.first_row)
            if lines is not None:
                yield self.rows_of(lines, form := form or guess_form(lines))

    def rows_of(self, lines: LineBlock, form: Form) -> AttributeBlock:
        """Return the rows of some lines of the file, which are of that form.

        Raises `BadRecordError`: a row cannot be read.
        """
        self._check(lines, {})  # of a line that is too long only the head is there
        batch = scan_attributes(
            lines.data, lines.starts, self.kinds, form, exact=self.exact, ids_as_text=self.ids_as_text
        )
        self._check(lines, {row: (error.reason, error.expected) for row, error in batch.errors})
        columns = batch.columns
        if self.with_objects:
            columns = {**columns, OBJECT: _objects(Lines(lines.data, lines.starts), form)}
        return AttributeBlock(batch.ids, batch.sources, columns, lines.first_row)

    def _check(self, lines: LineBlock, errors: Mapping[int, tuple[str, str]]) -> None:
        for record in bad_lines(self.url, lines, errors, self.max_record_bytes):
            raise record.error("Make the attributes again.")


def _from_row(lines: LineBlock, first_row: int) -> LineBlock | None:
    """Return `lines` without those before `first_row`, None if nothing is left."""
    skipped = first_row - lines.first_row
    if skipped <= 0:
        return lines
    if skipped >= len(lines.starts) - 1:
        return None
    at = int(lines.starts[skipped])
    return LineBlock(lines.data[at:], lines.starts[skipped:] - at, first_row, lines.byte_offset + at)


class SampledKeys(Struct, frozen=True):
    """Keys of an attribute file as its first rows show them."""

    kinds: dict[str, AttributeKind] = {}
    mixed: dict[str, str] = {}  # of values of several kinds, which no column can hold, and what these are


def sample_keys(url: str, *, ids_as_text: bool = False) -> SampledKeys:
    """Find the keys of an attribute file from its first rows; none for an empty file. Rows that cannot be read are left to
    `AttributeFile`, which names them: at once if no row has a key.
    """
    if format_of(url) == "parquet":
        return SampledKeys(table_kinds(url))
    stored = StoredFile(url)
    try:
        block = next(read_lines(stored, compression_of(url), block_bytes=SAMPLE_BYTES), None)
    finally:
        stored.close()
    if block is None:
        return SampledKeys()
    lines = list(islice(block, SAMPLE_ROWS))
    shapes = sample_shapes(lines, guess_form(lines))
    kinds = kinds_of_shapes(shapes)
    if not kinds:
        with closing(iter(AttributeFile(url, {}, ids_as_text=ids_as_text))) as blocks:
            next(blocks, None)
    return SampledKeys(kinds, mixed_values(shapes))


def empty_block(
    kinds: Mapping[str, AttributeKind], *, with_objects: bool = False, exact: bool = False
) -> AttributeBlock:
    """Return a block of no rows."""
    return _empty_block(tuple(kinds.items()), with_objects, exact)


@lru_cache(maxsize=64)
def _empty_block(
    kinds: tuple[tuple[str, AttributeKind], ...], with_objects: bool, exact: bool
) -> AttributeBlock:
    batch = scan_attributes(np.zeros(0, np.uint8), np.zeros(1, np.int64), dict(kinds), "nested", exact=exact)
    objects = {OBJECT: pa.array([], pa.large_string())} if with_objects else {}
    return AttributeBlock(batch.ids, batch.sources, {**batch.columns, **objects}, 0)


def member_texts(lines: Lines, name: str) -> pa.LargeStringArray:
    """Return the JSON text of one member of each line; null where it is absent or null, or the line cannot be read."""
    (column,), _ = scan(lines, [Field(name, "raw")])  # bad records are reported by their reader
    return column


def _objects(lines: Lines, form: Form) -> pa.LargeStringArray:
    """Return the attributes of each row as a JSON object."""
    if form == "nested":
        return member_texts(lines, "attributes")
    from dolma_dask.rules.splicing import Edit, splice  # rarely needed kernels

    rows = large_bytes(lines.starts, lines.block)
    objects = splice(rows, [Edit(name, None) for name in (*_ROW_FIELDS, "attributes")])
    return pc.utf8_rtrim(objects.cast(pa.large_string()), characters="\n")


def _fits(actual: pa.DataType, expected: pa.DataType) -> bool:
    """Tell whether a column holds such values, whatever their width."""
    return pa.types.is_null(actual) or _kind_of(actual) == _kind_of(expected)


def _kind_of(actual: pa.DataType) -> AttributeKind | None:
    if pa.types.is_boolean(actual):
        return "bool"
    if pa.types.is_integer(actual) or pa.types.is_floating(actual):
        return "number"
    if is_string(actual):
        return "string"
    return "spans" if _is_spans(actual) else None


def _is_spans(actual: pa.DataType) -> bool:
    if not (pa.types.is_list(actual) or pa.types.is_large_list(actual)):
        return False
    inner = actual.value_type
    kinds = {field.name: _kind_of(field.type) for field in inner} if pa.types.is_struct(inner) else {}
    return kinds == dict.fromkeys(("start", "end", "score"), "number")


def _parts(key: str, kind: AttributeKind) -> tuple[str, str | None]:
    """Split ``lang.en`` into column and member."""
    name, _, member = key.partition(".")
    return (name, member) if kind == "dict" else (key, None)


def table_kinds(url: str) -> dict[str, AttributeKind]:
    """Return the keys of a Parquet attribute file and their kinds.

    Raises `SchemaError`: a column is nothing that can be read as an attribute.
    """
    with open_parquet(url) as file:
        schema = file.schema_arrow
        kinds: dict[str, AttributeKind] = {}
        for field in schema:
            if field.name not in _ROW_FIELDS:
                kinds.update(_field_kinds(url, file, field))
    declared = (schema.metadata or {}).get(KINDS_KEY, b"{}")
    try:
        return kinds | msgspec.json.decode(declared, type=dict[str, AttributeKind])
    except NOT_JSON as error:
        raise SchemaError(
            f"{url}: its schema does not say of what kind its attributes are ({error}); expected what was written. Make the attributes again.",
            url=url,
        ) from error


def _field_kinds(url: str, file: "pq.ParquetFile", field: pa.Field) -> dict[str, AttributeKind]:
    if pa.types.is_struct(field.type):
        return {f"{field.name}.{member.name}": "dict" for member in field.type}
    if pa.types.is_map(field.type):
        first = next(read_batches(url, file, [field.name], BLOCK_BYTES), None)
        names = [] if first is None else pc.unique(first.column(0).slice(0, SAMPLE_ROWS).keys).to_pylist()
        return {f"{field.name}.{name}": "dict" for name in names}
    kind = _kind_of(field.type)
    if kind is None:
        raise SchemaError(
            f"{url}: column {field.name!r} is {field.type}; expected numbers, strings, bools, spans or a struct.",
            url=url,
            key=field.name,
        )
    return {field.name: kind}
