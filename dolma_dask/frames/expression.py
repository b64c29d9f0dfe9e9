"""The reader as Dask sees it: it gives the requested columns, and knows how many rows there are."""

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import dask
import numpy as np
import pandas as pd
import pyarrow as pa
from dask.dataframe import DataFrame as DaskFrame
from dask.dataframe.dask_expr._collection import new_collection
from dask.dataframe.dask_expr._expr import Index, Lengths, Literal
from dask.dataframe.dask_expr._reductions import Len
from dask.dataframe.dask_expr.io import FromMapProjectable
from pandas.api.extensions import ExtensionDtype

from dolma_dask.frames.cutting import Partition, Partitions, sum_known
from dolma_dask.frames.naming import FrameColumn
from dolma_dask.frames.reading import PartitionSource
from dolma_dask.frames.table import arrow_of, type_of
from dolma_dask.reading.columns import Kind
from dolma_dask.rules.values import unknown_name


def string_dtype() -> ExtensionDtype:
    """Return what pandas 3 calls ``str``; before, the string type that Dask uses."""
    if int(pd.__version__.split(".")[0]) < 3:
        return pd.StringDtype("pyarrow")
    return pd.StringDtype("pyarrow", na_value=np.nan)


def dtype_of(kind: Kind) -> np.dtype | ExtensionDtype:
    """Return the pandas dtype of a column."""
    arrow = type_of(kind)
    if arrow == pa.large_string():
        return string_dtype()
    if arrow == pa.bool_():
        return pd.BooleanDtype()
    return np.dtype("float64") if arrow == pa.float64() else pd.ArrowDtype(arrow)


def frame_of(batches: Iterable[pa.RecordBatch], columns: Sequence[FrameColumn]) -> pd.DataFrame:
    """Return batches, with arrays in the order of `columns`, as one frame."""
    table = arrow_of(batches, columns)
    data = {column.name: _values(table.column(at), column.kind) for at, column in enumerate(columns)}
    return pd.DataFrame(data, index=pd.RangeIndex(table.num_rows))


def _values(column: pa.ChunkedArray, kind: Kind) -> object:
    dtype = dtype_of(kind)
    if isinstance(dtype, np.dtype):
        return column.to_numpy().astype(dtype, copy=False)
    return dtype.__from_arrow__(column)  # type: ignore[attr-defined]


def read_frame(partition: Partition, source: PartitionSource, columns: list[str]) -> pd.DataFrame:
    """Return the requested columns of a partition; there may be none."""
    selected = source.select(columns)
    if not selected:
        return pd.DataFrame({"row": True}, index=pd.RangeIndex(source.count(partition)))[[]]
    return frame_of(source.read(partition, selected), selected)


class ReadPartitions(FromMapProjectable):
    """`dask.dataframe.from_map` over partitions that know their lengths.

    Without it ``len`` would read all columns, and Dask would try to turn lists of spans into strings.
    """

    def substitute_parameters(self, substitutions: dict[str, Any]) -> Any:
        """Leave out of the graph what a projection does not need."""
        if substitutions.get("columns") is not None:
            (source,), (partitions,) = self.args, self.iterables
            selected = source.select(substitutions["columns"])
            sets = {part.set for column in selected for part in column.stored}
            substitutions = {**substitutions, "iterables": [partitions.reading(sets)]}
        return super().substitute_parameters(substitutions)

    def _lengths(self) -> tuple[int, ...] | None:
        partitions = self.iterables[0]
        rows = [partitions[number].rows for number in self._partitions]
        return None if sum_known(rows) is None else tuple(rows)

    def _simplify_up(self, parent: Any, dependents: Any) -> Any:
        if isinstance(parent, Len | Lengths):
            return self._simplify_length(parent)
        if isinstance(parent, Index) and self.columns and not _others(self, parent, dependents):
            return Index(self._counting())
        return super()._simplify_up(parent, dependents)

    def _simplify_length(self, parent: Any) -> Any:
        rows = self._lengths()
        if rows is not None:
            return Literal(sum(rows) if isinstance(parent, Len) else rows)
        return type(parent)(self._counting()) if self.columns else None

    def _counting(self) -> Any:
        """Return the same without columns: the reader only counts."""
        return self.substitute_parameters({"columns": [], "_series": False})


def _others(expression: Any, parent: Any, dependents: Any) -> bool:
    """Tell whether other expressions than the index need columns of a reader."""
    users = [user() for user in dependents[expression._name]]
    return any(user is not None and not isinstance(user, Index) for user in users)


def scheduler_of(collection: Any) -> dict[str, Any]:
    """Return the option of ``compute`` with which Dask takes the scheduler that it would take; to ask for a client, it would import distributed (0.15 s)."""
    if "distributed" in sys.modules or dask.config.get("scheduler", None):
        return {}
    return {"scheduler": collection.__dask_scheduler__}


class DataFrame(DaskFrame):
    """Dask's dataframe, whose KeyError names the columns that are like the one that is not there; does not load distributed by itself."""

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(new_collection(Len(self)).compute(**scheduler_of(self)))

    def compute(self, *args: Any, **options: Any) -> Any:
        """Return the dataframe of pandas, as Dask does."""
        if not options.keys() & {"scheduler", "get"}:
            options |= scheduler_of(self)
        return super().compute(*args, **options)

    def __getitem__(self, other: Any) -> Any:
        """Select columns or rows, as Dask does."""
        try:
            return super().__getitem__(other)
        except KeyError as error:
            keys = other if isinstance(other, list) else [other]
            unknown = [key for key in keys if isinstance(key, str) and key not in self.columns]
            if not unknown:
                raise
            raise KeyError(
                f"{unknown_name(unknown[0], self.columns)}. Short names of attributes: read_dataframe(..., short=True)"
            ) from error


def collection(partitions: Partitions, source: PartitionSource) -> DataFrame:
    """Return the lazy dataframe."""
    return DataFrame(
        ReadPartitions(
            read_frame,
            [partitions],
            None,
            [source],
            {},
            columns_arg_required=True,
            user_meta=frame_of((), source.columns),
            label="read_dataframe",
        )
    )
