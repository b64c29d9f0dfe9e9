"""Read attributes from a Parquet table: one column per key, or per object of numbers.

Columns come in the types that rows of JSON give. The schema of our own tables holds the kinds of their keys (`KINDS_KEY`); of others a
column's type decides, and of maps the first rows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.errors import SchemaError
from dolma_dask.formats.json.attributes import AttributeKind
from dolma_dask.io.parquet import open_parquet, read_batches
from dolma_dask.io.stored import WHOLE, Section

if TYPE_CHECKING:
    import pyarrow.parquet as pq

KINDS_KEY = b"dolma_dask.kinds"
"""Schema metadata of our tables: JSON object from key to kind."""

SAMPLE_ROWS = 1000
"""Rows at the start that are looked at to find the keys of a map."""

_ROW_COLUMNS = ("id", "source", "error")

_SPANS = pa.list_(pa.struct([("start", pa.int64()), ("end", pa.int64()), ("score", pa.float64())]))
_TYPES: dict[AttributeKind, pa.DataType] = {
    "document": pa.float64(),
    "number": pa.float64(),
    "dict": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.large_string(),
    "spans": _SPANS,
}


@dataclass(frozen=True)
class AttributeTable:
    """The rows of one Parquet file, as an iterable of ids, sources and columns; see `dolma_dask.io.attributes.AttributeFile`."""

    url: str
    kinds: Mapping[str, AttributeKind]
    block_bytes: int
    section: Section = WHOLE

    def __iter__(self) -> Iterator[tuple[pa.Array, pa.Array, dict[str, pa.Array]]]:
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
            for batch in read_batches(self.url, file, read, self.block_bytes, self.section):
                columns = {key: self._column(batch, key, kind) for key, kind in self.kinds.items()}
                yield self._strings(batch, "id"), self._strings(batch, "source"), columns

    def _strings(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        if name not in batch.schema.names:
            return pa.nulls(batch.num_rows, pa.large_string())
        return self._cast(batch.column(name), name, "string")

    def _column(self, batch: pa.RecordBatch, key: str, kind: AttributeKind) -> pa.Array:
        name, member = _parts(key, kind)
        if name not in batch.schema.names:
            return pa.nulls(batch.num_rows, _TYPES[kind])
        column = batch.column(name)
        if member is not None:
            column = self._member(column, key, member)
        return self._cast(column, key, kind)

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
        if expected == pa.large_string():
            self._check_utf8(column, key)
        return column

    def _check_utf8(self, column: pa.Array, key: str) -> None:
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise SchemaError(
                f"{self.url}: column {key!r} holds strings that are not UTF-8 ({error}); expected UTF-8. Make the attributes again.",
                url=self.url,
            ) from error

    def _wrong_type(self, key: str, actual: pa.DataType, expected: str) -> SchemaError:
        return SchemaError(
            f"{self.url}: column {key!r} is {actual}; expected {expected}. Make the attributes again.",
            url=self.url,
            key=key,
        )


def _fits(actual: pa.DataType, expected: pa.DataType) -> bool:
    """Tell whether a column holds such values, whatever their width."""
    return pa.types.is_null(actual) or _kind_of(actual) == _kind_of(expected)


def _kind_of(actual: pa.DataType) -> AttributeKind | None:
    if pa.types.is_boolean(actual):
        return "bool"
    if pa.types.is_integer(actual) or pa.types.is_floating(actual):
        return "number"
    if pa.types.is_dictionary(actual):
        return "string" if _kind_of(actual.value_type) == "string" else None
    if pa.types.is_string(actual) or pa.types.is_large_string(actual):
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
            if field.name not in _ROW_COLUMNS:
                kinds.update(_field_kinds(url, file, field))
    declared = (schema.metadata or {}).get(KINDS_KEY, b"{}")
    return kinds | msgspec.json.decode(declared, type=dict[str, AttributeKind])


def _field_kinds(url: str, file: "pq.ParquetFile", field: pa.Field) -> dict[str, AttributeKind]:
    if pa.types.is_struct(field.type):
        return {f"{field.name}.{member.name}": "dict" for member in field.type}
    if pa.types.is_map(field.type):
        first = next(file.iter_batches(batch_size=SAMPLE_ROWS, columns=[field.name], use_threads=False), None)
        names = [] if first is None else pc.unique(first.column(0).keys).to_pylist()
        return {f"{field.name}.{name}": "dict" for name in names}
    kind = _kind_of(field.type)
    if kind is None:
        raise SchemaError(
            f"{url}: column {field.name!r} is {field.type}; expected numbers, strings, bools, spans or a struct.",
            url=url,
            key=field.name,
        )
    return {field.name: kind}
