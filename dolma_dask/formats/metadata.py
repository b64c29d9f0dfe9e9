"""Scalar fields of the ``metadata`` object as columns, read by the kernel that reads attributes.

The kernel and its law are those of attributes. Cost: one copy of the metadata, then 2 GB/s of it.
"""

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.formats.json.attributes import (
    AttributeKind,
    kind_of_shapes,
    sample_shapes,
    scan_objects,
    value_kind,
)
from dolma_dask.formats.json.exact import LineError

PREFIX = "metadata."
"""Prefix of the name of such a column."""

_SCALARS = ("number", "bool", "string")


def is_field(name: str) -> bool:
    """Tell whether a column name stands for a field of the metadata."""
    return name.startswith(PREFIX)


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

    Also returns the rows that have another kind of value; they are null in every column.
    """
    keys = {name.removeprefix(PREFIX): kind for name, kind in kinds.items()}
    columns, errors = scan_objects(_objects(texts), keys, exact=exact)
    return {PREFIX + key: column for key, column in columns.items()}, errors


def _objects(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    known = pc.fill_null(pc.starts_with(texts, "{"), False)
    return pc.if_else(known, texts, pa.scalar("{}", pa.large_string()))
