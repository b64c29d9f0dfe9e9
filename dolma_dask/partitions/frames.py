"""Batches of columns as pandas frames: one dtype per kind of column, the same in meta, in every partition and in the result.

Strings stay in the buffers that the reader made; no column of Python objects is ever made.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.extensions import ExtensionDtype

from dolma_dask.alignment import Kind
from dolma_dask.partitions.naming import Column

SPANS = pa.list_(pa.struct([("start", pa.int64()), ("end", pa.int64()), ("score", pa.float64())]))

_ARROW: dict[Kind, pa.DataType] = {
    "text": pa.large_string(),
    "string": pa.large_string(),
    "document": pa.float64(),
    "number": pa.float64(),
    "dict": pa.float64(),
    "bool": pa.bool_(),
    "spans": SPANS,
}


def string_dtype() -> ExtensionDtype:
    """Return what pandas 3 calls ``str``; before, the string type that Dask uses."""
    if int(pd.__version__.split(".")[0]) < 3:
        return pd.StringDtype("pyarrow")
    return pd.StringDtype("pyarrow", na_value=np.nan)


def dtype_of(kind: Kind) -> np.dtype | ExtensionDtype:
    """Return the pandas dtype of a column."""
    arrow = _ARROW[kind]
    if arrow == pa.large_string():
        return string_dtype()
    if arrow == pa.bool_():
        return pd.BooleanDtype()
    return np.dtype("float64") if arrow == pa.float64() else pd.ArrowDtype(arrow)


def meta_of(columns: Sequence[Column]) -> pd.DataFrame:
    """Return a frame without rows."""
    return frame_of((), columns)


def frame_of(batches: Iterable[pa.RecordBatch], columns: Sequence[Column]) -> pd.DataFrame:
    """Return batches as one frame.

    Parameters
    ----------
    batches : iterable of pyarrow.RecordBatch
        Arrays in the order of `columns`.
    columns : sequence of Column
        One or more.
    """
    schema = pa.schema([(str(number), _ARROW[column.kind]) for number, column in enumerate(columns)])
    table = pa.Table.from_batches([_as(batch, schema) for batch in batches], schema)
    data = {column.name: _values(table.column(at), column.kind) for at, column in enumerate(columns)}
    return pd.DataFrame(data, index=pd.RangeIndex(table.num_rows))


def empty_frame(rows: int) -> pd.DataFrame:
    """Return a frame of so many rows without columns."""
    return pd.DataFrame({"row": True}, index=pd.RangeIndex(rows))[[]]


def _as(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [
        array if array.type == item.type else array.cast(item.type)
        for array, item in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _values(column: pa.ChunkedArray, kind: Kind) -> object:
    dtype = dtype_of(kind)
    if isinstance(dtype, np.dtype):
        return column.to_numpy().astype(dtype, copy=False)
    return dtype.__from_arrow__(column)  # type: ignore[attr-defined]
