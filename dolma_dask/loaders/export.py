"""Rows of a token dataset as Parquet files, for readers of tables: datasets, DuckDB, pandas."""

import re
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from dolma_dask.errors import CorruptFileError, UsageError
from dolma_dask.io import files
from dolma_dask.loaders.filling import UNSEEN, Batch
from dolma_dask.sinks.base import GroupedTable

if TYPE_CHECKING:
    from dolma_dask.loaders.token_dataset import TokenDataset

_GROUP_TOKENS = 1 << 20
"""Tokens of a row group."""

_NAME = re.compile(r"rows\.\d{5,}-of-(\d{5,})\.parquet")

_KEY = b"dolma_dask"
"""Where the footer says what the rows are of."""


def write_parquet(data: "TokenDataset", folder: str, rows_per_file: int) -> list[str]:
    """Write the rows of a finite dataset with labels ``same``, as far as they are not there; return the names of the files that this process wrote."""
    count, written = -(-len(data) // rows_per_file), list[str]()
    _check_alone(folder, count)
    for number in range(data.rank, count, data.world_size):
        first = number * rows_per_file
        samples = np.arange(first, min(first + rows_per_file, len(data)))
        name = f"rows.{number:05d}-of-{count:05d}.parquet"
        said = {"of": data.fingerprint, "first": first, "rows": len(samples)}
        schema = _schema(data).with_metadata({_KEY: msgspec.json.encode(said)})
        if not _is_there(files.join(folder, name), schema):
            _write_file(data, folder, name, schema, samples)
            written.append(name)
    return written


def _check_alone(folder: str, count: int) -> None:
    """Refuse a folder with files of another number, which its readers would take for more rows of the same run."""
    others = [
        info.path
        for info in files.list_flat(folder)
        if (name := _NAME.fullmatch(info.path)) and int(name[1]) != count
    ]
    if others:
        raise UsageError(
            f"{folder} holds {min(others)} of another call, and this one makes {count} files; expected files of one call, since readers take all of a folder."
            " Remove them, or choose another folder."
        )


def _write_file(
    data: "TokenDataset", folder: str, name: str, schema: pa.Schema, samples: np.ndarray[Any, Any]
) -> None:
    at_a_time = max(_GROUP_TOKENS // data.seq_length, 1)
    with GroupedTable(folder, name, schema, at_a_time, use_dictionary=False) as out:
        for first in range(0, len(samples), at_a_time):
            out.write(_columns(data.read(samples[first : first + at_a_time]), schema))


def _schema(data: "TokenDataset") -> pa.Schema:
    ids = pa.int32() if data.max_id < 2**31 else pa.int64()
    fields = {"input_ids": pa.list_(ids), "length": pa.int32()}
    if data.is_packed:
        fields["seq_lengths"] = pa.list_(pa.int32())
    return pa.schema(list(fields.items()))


def _columns(batch: Batch, schema: pa.Schema) -> list[pa.Array]:
    """Return rows without their padding."""
    ids = batch["input_ids"]
    is_filled = batch["segment_ids"] > 0 if "segment_ids" in batch else batch["labels"] != UNSEEN
    lengths = is_filled.sum(axis=1)
    columns = [_lists(ids[is_filled], lengths, schema.field("input_ids")), pa.array(lengths, pa.int32())]
    if "segment_ids" in batch:
        firsts = (batch["position_ids"] == 0) & is_filled
        begins = np.append(np.flatnonzero(firsts[is_filled]), is_filled.sum())
        columns.append(_lists(np.diff(begins), firsts.sum(axis=1), schema.field("seq_lengths")))
    return columns


def _lists(values: np.ndarray[Any, Any], counts: np.ndarray[Any, Any], field: pa.Field) -> pa.ListArray:
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    items = pa.array(values).cast(field.type.value_type)
    return pa.ListArray.from_arrays(pa.array(offsets), items, type=field.type)


def _is_there(url: str, schema: pa.Schema) -> bool:
    """Tell whether a file holds the same rows; a damaged one, or one of other rows, is written anew."""
    import pyarrow.parquet as pq

    if files.stat(url) is None:
        return False
    try:
        with files.open_read(url, scattered=True) as file:
            found = pq.read_schema(file)
    except (pa.ArrowInvalid, CorruptFileError):
        return False
    return bool((found.metadata or {}).get(_KEY) == schema.metadata[_KEY])
