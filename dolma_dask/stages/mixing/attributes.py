"""Attribute files read with the whole object of each row beside its columns: what is merged into documents, or shown to slow filters."""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from dolma_dask.formats.attribute_columns import column_texts
from dolma_dask.formats.json.attributes import AttributeKind
from dolma_dask.formats.json.block import SPAN
from dolma_dask.formats.json.write import number_texts, validity


def as_spans(column: pa.Array, lengths: pa.Array) -> pa.ListArray:
    """Return a column of spans as it is; scores of documents as spans ``[0, length, score]``."""
    if not pa.types.is_floating(column.type):
        return column
    valid = validity(column)
    offsets = np.zeros(len(column) + 1, np.int32)
    np.cumsum(valid, out=offsets[1:])
    kept = pa.array(valid)
    ends = lengths.filter(kept).cast(pa.int64())
    starts = pa.array(np.zeros(len(ends), np.int64))
    spans = pa.StructArray.from_arrays([starts, ends, column.filter(kept)], fields=list(SPAN))
    mask = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.list_(SPAN), len(column), [mask, pa.py_buffer(offsets)], children=[spans])


def object_texts(
    columns: Mapping[str, pa.Array], kinds: Mapping[str, AttributeKind], lengths: pa.Array
) -> pa.LargeStringArray:
    """Return attributes that were read as columns as one JSON object per row; what is missing is left out.

    Parameters
    ----------
    columns, kinds : mapping
        By key, (n,) each.
    lengths : pyarrow.Array
        (n,) code points of the documents.
    """
    texts = {key: _texts(key, kinds[key], column, lengths).to_pylist() for key, column in columns.items()}
    objects = [
        _object({key: column[row] for key, column in texts.items()}, kinds) for row in range(len(lengths))
    ]
    return pa.array(objects, pa.large_string())


def _texts(key: str, kind: AttributeKind, column: pa.Array, lengths: pa.Array) -> pa.LargeStringArray:
    if kind in ("document", "spans"):
        return column_texts(key, "spans", as_spans(column, lengths))
    if pa.types.is_floating(column.type):
        return number_texts(column.fill_null(0.0).to_numpy(), validity(column), rounded=False)
    return column_texts(key, "scalar", column)


def _object(texts: Mapping[str, str | None], kinds: Mapping[str, AttributeKind]) -> str:
    inside: dict[str, Any] = {}
    for key, text in texts.items():
        if text is None:
            continue
        outer, _, inner = key.partition(".")
        if kinds[key] == "dict":
            inside.setdefault(outer, {})[inner] = msgspec.Raw(text.encode())
        else:
            inside[key] = msgspec.Raw(text.encode())
    return msgspec.json.encode(inside).decode()
