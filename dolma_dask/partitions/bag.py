"""read_bag: documents and attributes of a dataset side by side as a lazy Dask Bag of dicts."""

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dolma_dask.alignment import Kind
from dolma_dask.dataset import Dataset
from dolma_dask.formats.documents import METADATA
from dolma_dask.io.stream import MAX_RECORD_BYTES
from dolma_dask.partitions.cutting import PARTITION_BYTES, Partition
from dolma_dask.partitions.dataframe import prepare
from dolma_dask.partitions.naming import Column
from dolma_dask.partitions.reading import OnBadRecord, PartitionSource
from dolma_dask.summary import Summary

if TYPE_CHECKING:
    from dask.bag import Bag

LABEL = "read_bag"


def read_bag(
    dataset: str | Dataset | Summary,
    /,
    columns: Sequence[str] | str | None = None,
    attributes: Sequence[str] | str = (),
    *,
    prefix: bool = False,
    spans: bool = False,
    partition_bytes: int | None = PARTITION_BYTES,
    source: str | None = None,
    on_bad_record: OnBadRecord = "fail",
    max_record_bytes: int = MAX_RECORD_BYTES,
    only: Sequence[str] = (),
    prune: int | None = None,
) -> "Bag":
    """Return documents and attributes side by side as a lazy Dask Bag, a dict per document, in the order of the files.

    Every document becomes Python objects, and all that is asked is read: ask for little, or take a dataframe, which reads what it needs.

    Parameters
    ----------
    dataset, columns, attributes, prefix, spans, partition_bytes, source, on_bad_record, max_record_bytes, only, prune
        As for `read_dataframe`.

    Returns
    -------
    dask.bag.Bag
        Dicts with every column as a key: str, float, bool, ``[[start, end, score], ...]`` for spans, None where there is no value;
        ``metadata`` is the parsed object. A partition is read while it is consumed, so that what is wrong at the end of a file is only
        found when the end is read.

    Raises
    ------
    DolmaDaskError
        As `read_dataframe`.

    Examples
    --------
    >>> read_bag("corpus/wiki", ["id", "metadata"]).filter(lambda row: row["metadata"]["n"] > 3).take(1)  # doctest: +SKIP
    """
    from dask.bag import Bag
    from dask.base import tokenize

    partitions, reader = prepare(
        dataset,
        columns,
        attributes,
        prefix=prefix,
        spans=spans,
        partition_bytes=partition_bytes,
        source=source,
        on_bad_record=on_bad_record,
        max_record_bytes=max_record_bytes,
        only=only,
        prune=prune,
    )
    name = f"{LABEL}-{tokenize(partitions, reader)}"
    graph = {(name, number): (read_rows, partition, reader) for number, partition in enumerate(partitions)}
    return Bag(graph, name, len(partitions))


def read_rows(partition: Partition, source: PartitionSource) -> Iterator[dict[str, Any]]:
    """Yield the rows of a partition."""
    names = [column.name for column in source.columns]
    for batch in source.read(partition, source.columns):
        values = [_values(array, column) for array, column in zip(batch.columns, source.columns, strict=True)]
        for row in zip(*values, strict=True):
            yield dict(zip(names, row, strict=True))


def _values(array: pa.Array, column: Column) -> list[Any]:
    values = array.to_pylist()
    if column.set is None and column.key == METADATA:
        return [None if text is None else json.loads(text) for text in values]
    return [_spans(value) for value in values] if column.kind == _SPANS else values


_SPANS: Kind = "spans"


def _spans(value: list[dict[str, Any]] | None) -> list[list[Any]] | None:
    return None if value is None else [[span["start"], span["end"], span["score"]] for span in value]
