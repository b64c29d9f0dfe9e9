"""The reader as Dask sees it: it gives what is asked, and knows how many rows there are."""

from typing import Any

import pandas as pd
from dask.dataframe import DataFrame
from dask.dataframe.dask_expr import new_collection
from dask.dataframe.dask_expr._expr import Index, Lengths, Literal
from dask.dataframe.dask_expr._reductions import Len
from dask.dataframe.dask_expr.io import FromMapProjectable

from dolma_dask.partitions.cutting import Partition, Partitions, sum_known
from dolma_dask.partitions.frames import empty_frame, frame_of, meta_of
from dolma_dask.partitions.reading import PartitionSource

LABEL = "read_dataframe"


def read_frame(partition: Partition, source: PartitionSource, columns: list[str]) -> pd.DataFrame:
    """Return the asked columns of a partition, none of which may be asked."""
    chosen = source.select(columns)
    return (
        frame_of(source.read(partition, chosen), chosen) if chosen else empty_frame(source.count(partition))
    )


class ReadPartitions(FromMapProjectable):
    """`dask.dataframe.from_map` over partitions that know their lengths.

    Without it ``len`` would read all columns, and Dask would try to turn lists of spans into strings.
    """

    def substitute_parameters(self, substitutions: dict[str, Any]) -> Any:
        """Leave out of the graph what a projection does not need."""
        if substitutions.get("columns") is not None:
            (source,), (partitions,) = self.args, self.iterables
            sets = {column.set for column in source.select(substitutions["columns"])}
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


def collection(partitions: Partitions, source: PartitionSource) -> DataFrame:
    """Return the lazy dataframe."""
    return new_collection(
        ReadPartitions(
            read_frame,
            [partitions],
            None,
            [source],
            {},
            columns_arg_required=True,
            user_meta=meta_of(source.columns),
            label=LABEL,
        )
    )
