"""read_table: documents and attributes side by side in Arrow, at once; and the types that columns have there."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from dolma_dask.clusters import cpu_count
from dolma_dask.dataset import Dataset
from dolma_dask.formats.json.attributes import value_kind
from dolma_dask.frames.cutting import PARTITION_BYTES
from dolma_dask.frames.dataframe import prepare
from dolma_dask.frames.naming import FrameColumn
from dolma_dask.frames.reading import OnBadRow
from dolma_dask.io.stream import MAX_RECORD_BYTES
from dolma_dask.reading.columns import Kind
from dolma_dask.results.summary import Summary

SPANS = pa.list_(pa.struct([("start", pa.int64()), ("end", pa.int64()), ("score", pa.float64())]))

_TYPES: dict[str, pa.DataType] = {
    "text": pa.large_string(),
    "string": pa.large_string(),
    "document": pa.float64(),
    "number": pa.float64(),
    "bool": pa.bool_(),
    "spans": SPANS,
}


def type_of(kind: Kind) -> pa.DataType:
    """Return the type of a column."""
    return _TYPES["text" if kind == "text" else value_kind(kind)]


def arrow_of(batches: Iterable[pa.RecordBatch], columns: Sequence[FrameColumn]) -> pa.Table:
    """Return batches, with arrays in the order of `columns`, as one table; numbers and strings are not copied."""
    schema = pa.schema([(column.name, type_of(column.kind)) for column in columns])
    return pa.Table.from_batches([_as(batch, schema) for batch in batches], schema)


def _as(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [
        array if array.type == item.type else array.cast(item.type)
        for array, item in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def read_table(
    dataset: str | Dataset | Summary,
    /,
    columns: Sequence[str] | str | None = None,
    attributes: Sequence[str] | str = (),
    *,
    prefix: bool = False,
    short: bool = False,
    spans: bool = False,
    partition_bytes: int | None = PARTITION_BYTES,
    source: str | None = None,
    version: str | None = None,
    on_bad_record: OnBadRow = "fail",
    max_record_bytes: int = MAX_RECORD_BYTES,
    only: Sequence[str] = (),
    prune: int | None = None,
    skip: Sequence[str] = (),
    ids_as_text: bool = False,
) -> pa.Table:
    """Read documents and attributes side by side into a table of Arrow, at once, a row per document, in the order of the files.

    For what fits into memory: it needs neither Dask nor pandas, whose import takes as long as reading 200 MB, and reads in a thread per processor.

    Parameters
    ----------
    dataset, columns, attributes, prefix, short, spans, partition_bytes, source, version, on_bad_record, max_record_bytes, only, prune, skip, ids_as_text
        As for `read_dataframe`; partitions are what a thread reads at a time.

    Returns
    -------
    pyarrow.Table
        The rows of `read_dataframe`: strings are ``large_string``, numbers and attributes of a whole document ``double``, booleans ``bool``, spans
        ``list<struct<start: int64, end: int64, score: double>>``; what is missing is null. A column has a chunk per block that was read.

    Raises
    ------
    DolmaDaskError
        As `read_dataframe`, at once.

    Examples
    --------
    >>> table = read_table("corpus/wiki", ["id", "text"], ["gopher_v2"], short=True)  # doctest: +SKIP
    >>> table.to_pandas(), polars.from_arrow(table)  # doctest: +SKIP
    """
    partitions, reader = prepare(**locals())  # all that was given
    with ThreadPoolExecutor(cpu_count(), "dolma-dask-table") as threads:
        parts = threads.map(
            lambda part: arrow_of(reader.read(part, reader.columns), reader.columns), partitions
        )
        return pa.concat_tables(parts)
