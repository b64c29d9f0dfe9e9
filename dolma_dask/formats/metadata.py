"""Scalar fields of the ``metadata`` object as columns, read by the kernel that reads attributes.

The kernel and its law are those of attributes. Cost: one copy of the metadata, then 2 GB/s of it.
"""

from collections.abc import Mapping, Sequence

import msgspec
import pyarrow as pa

from dolma_dask.formats.json.attributes import (
    AttributeKind,
    kind_of_shapes,
    sample_shapes,
    scan_objects,
    value_kind,
)
from dolma_dask.formats.json.exact import LineError
from dolma_dask.text import compute as pc

PREFIX = "metadata."
"""Prefix of the name of such a column."""

AS_TEXT = ":str"
"""End of the name of a column that holds a field as text, whatever it is: strings as they are, numbers and other values as their JSON."""

_decode = msgspec.json.Decoder(str).decode

_SCALARS = ("number", "bool", "string")


def is_field(name: str) -> bool:
    """Tell whether a column name stands for a field of the metadata."""
    return name.startswith(PREFIX)


def is_as_text(name: str) -> bool:
    """Tell whether the name of a field asks for its text, of whatever kind it is."""
    return name.endswith(AS_TEXT)


def metadata_shapes(texts: pa.LargeStringArray) -> dict[str, set[str]]:
    """Find the fields of some metadata objects, at any depth, as column names with their prefix, and the shapes of their values."""
    lines = [b'{"attributes":%b}' % text.encode() for text in _objects(texts).to_pylist()]
    return {PREFIX + key: set(found) for key, found in sample_shapes(lines, "nested", deep=True).items()}


def field_kind(shapes: set[str]) -> AttributeKind | None:
    """Return the kind of a field with values of these shapes; None for what is no column: several kinds, lists, objects."""
    kind = kind_of_shapes(shapes)
    return kind if kind is not None and value_kind(kind) in _SCALARS else None


def scan_metadata(
    texts: pa.LargeStringArray, kinds: Mapping[str, AttributeKind], *, exact: bool = False
) -> tuple[dict[str, pa.Array], Sequence[tuple[int, LineError]]]:
    """Read fields of the metadata of every row; null where the field is absent or null, or the text null or no object.

    Also returns the rows that have another kind of value; they are null in every column but those of any kind, which are null only where there is no such
    field. Each of these costs a pass of its own.
    """
    objects = _objects(texts)
    keys = {name.removeprefix(PREFIX): kind for name, kind in kinds.items() if kind != "any"}
    columns, errors = scan_objects(objects, keys, exact=exact)
    columns |= {
        name.removeprefix(PREFIX): _text_of(objects, name) for name, kind in kinds.items() if kind == "any"
    }
    return {name: columns[name.removeprefix(PREFIX)] for name in kinds}, errors


def _text_of(objects: pa.LargeStringArray, name: str) -> pa.LargeStringArray:
    key = name.removeprefix(PREFIX).removesuffix(AS_TEXT)
    return _as_text(scan_objects(objects, {key: "any"})[0][key])


def _as_text(values: pa.LargeStringArray) -> pa.LargeStringArray:
    """Return JSON values as text: strings without their quotes, others as they stand."""
    quoted = pc.fill_null(pc.starts_with(values, '"'), False)
    plain = pc.if_else(quoted, pc.utf8_slice_codeunits(values, 1, -1), values)
    escaped = pc.and_(quoted, pc.fill_null(pc.match_substring(values, "\\"), False))
    if not pc.any(escaped).as_py():
        return plain
    decoded = [_decode(text) for text in values.filter(escaped).to_pylist()]
    return pc.replace_with_mask(plain, escaped, pa.array(decoded, pa.large_string()))


def _objects(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    known = pc.fill_null(pc.starts_with(texts, "{"), False)
    return pc.if_else(known, texts, pa.scalar("{}", pa.large_string()))
