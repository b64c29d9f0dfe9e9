"""Check of the places where collections are written: not among the documents and attributes of a dataset, where readers would take the files for such."""

from collections.abc import Iterator
from typing import Any

from dolma_dask.frames.partitions import Collection
from dolma_dask.options.groups import check_outside, datasets_above


def check_target(target: str, collection: Collection) -> None:
    """Refuse a target in the dataset that is read, as far as the graph tells, or in one whose folders the path goes through."""
    check_outside(target, *_origins(collection.frame), *datasets_above(target))


def _origins(frame: Any) -> Iterator[str]:
    """Yield the roots of the datasets that a dataframe is computed from; those of bags and of persisted dataframes are not known."""
    from dolma_dask.frames.expression import ReadPartitions

    if hasattr(frame, "expr"):
        yield from {expression.args[0].root for expression in frame.expr.find_operations(ReadPartitions)}
