"""Check of the places where collections are written: not among the documents and attributes of a dataset, where readers would take the files for such."""

import re
from collections.abc import Iterator
from typing import Any

from dolma_dask.formats import layout
from dolma_dask.frames.partitions import Collection
from dolma_dask.io import files
from dolma_dask.options.groups import check_outside


def check_target(target: str, collection: Collection) -> None:
    """Refuse a target in the dataset that is read, as far as the graph tells, or in one whose folders the path goes through."""
    check_outside(target, *_origins(collection.frame), *_datasets_above(target))


def _origins(frame: Any) -> Iterator[str]:
    """Yield the roots of the datasets that a dataframe is computed from; those of bags and of persisted dataframes are not known."""
    from dolma_dask.frames.expression import ReadPartitions

    if hasattr(frame, "expr"):
        yield from {expression.args[0].root for expression in frame.expr.find_operations(ReadPartitions)}


def _datasets_above(target: str) -> Iterator[str]:
    place = files.resolved(target)
    for folder in re.finditer(rf"/({layout.DOCUMENTS}|{layout.ATTRIBUTES})(?=/|$)", place):
        root = place[: folder.start()]
        if root and _is_dataset(set(files.list_folders(root))):
            yield root


def _is_dataset(folders: set[str]) -> bool:
    return layout.DOCUMENTS in folders and not folders.isdisjoint((layout.ATTRIBUTES, layout.JOURNAL))
