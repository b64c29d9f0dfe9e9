"""Read the tables that RedPajama-V2 publishes beside its documents: MinHash signatures, quality signals and duplicates."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from dolma_dask.errors import DataError, SchemaError, UsageError
from dolma_dask.formats.json.attributes import AttributeKind
from dolma_dask.formats.json.exact import Field, LineError
from dolma_dask.formats.json.lines import Lines, scan
from dolma_dask.formats.redpajama import (
    BANDS,
    MINHASH_SCHEMA,
    RisingIds,
    RisingPlaces,
    Values,
    id_numbers,
    listed_places,
    signature_values,
)
from dolma_dask.formats.redpajama_signals import signal_members
from dolma_dask.io.parquet import open_parquet, read_batches
from dolma_dask.io.stream import (
    BLOCK_BYTES,
    MAX_RECORD_BYTES,
    LineBlock,
    StoredFile,
    bad_lines,
    compression_of,
    read_lines,
)
from dolma_dask.text.kernels import Bools, Counts

_LARGE = {"string": pa.large_string(), "list<item: binary>": pa.large_list(pa.large_binary())}
"""Types that other tools write for the same columns."""

_MEND = "Write it anew in smaller pages, with pyarrow.parquet.write_table(..., data_page_size=1 << 20)"


class TableBlock(Struct, frozen=True):
    """Consecutive rows of a table, one or more, of one published file."""

    shard_id: str  # of all documents
    rows: Counts  # (n,) row of each document in its published file, from its id


class MinHashBlock(TableBlock, frozen=True):
    """Rows of a MinHash table."""

    ids: pa.StringArray  # (n,)
    values: npt.NDArray[np.uint32]  # (n, values of the column), 0 where there is no signature
    valid: Bools  # (n,) whether there is one
    places: tuple[str, ...] = ()  # published files of the whole table; empty: one


class SignalBlock(TableBlock, frozen=True):
    """Rows of a table of quality signals."""

    members: pa.LargeStringArray  # (n,) see `dolma_dask.formats.redpajama_signals`
    kinds: Mapping[str, AttributeKind]  # of all signals in these rows


def read_minhash(url: str, column: str | None = None, *, whole: bool = False) -> Iterator[MinHashBlock]:
    """Yield the signatures of a table in blocks of some MB; memory does not depend on its size.

    Parameters
    ----------
    url : str
    column : {"signature_sim1.0", "signature_sim0.9", "signature_sim0.8", "signature_sim0.7"}, optional
        Where signatures are read from; by default the column that holds most values, of those that are there. Each holds a prefix of all 128.
    whole : bool
        Hold the other columns against the ids and this one, which then says all that the table does.

    Raises
    ------
    UsageError
        There is no such column in this format.
    SchemaError
        The table lacks a column, or it has another type.
    CorruptFileError
        It is damaged, no Parquet file, or not there.
    DataError
        An id has no row number or is of another shard, row numbers do not rise, signatures have another shape than their column says, or columns
        contradict each other.
    """
    with open_parquet(url) as file:
        name = column or _widest(file.schema_arrow)
        if name not in BANDS:
            raise UsageError(f"column={column!r}; expected one of {', '.join(BANDS)}.")
        read = MINHASH_SCHEMA.names if whole else ["id", name]
        _check_types(url, file.schema_arrow, read)
        places = listed_places(file.metadata.metadata, url)
        known, rising = RisingIds(url), RisingPlaces(url, places)
        for batch in read_batches(url, file, read, BLOCK_BYTES, mend=_MEND):
            if not batch.num_rows:
                continue
            columns = {key: batch.column(key).cast(MINHASH_SCHEMA.field(key).type) for key in read}
            ids, (values, valid) = columns["id"], signature_values(columns[name], name, url)
            if whole:
                _check_agreement(url, columns, values, valid)
            parts = rising.parts(ids) if places else [(0, len(ids), *known.split(ids))]
            for start, stop, shard_id, rows in parts:
                own, part = ids.slice(start, stop - start), slice(start, stop)
                yield MinHashBlock(shard_id, rows, own, values[part], valid[part], places)


def _check_agreement(url: str, columns: Mapping[str, pa.Array], values: Values, valid: Bools) -> None:
    """Refuse rows whose columns say anything that the ids (n,) and all values (n, 128) do not."""
    wrong = {"id_int": columns["id_int"].to_numpy(zero_copy_only=False) != id_numbers(columns["id"])}
    for name in BANDS:
        found, has_one = signature_values(columns[name], name, url)
        wrong[name] = (found != values[:, : found.shape[1]]).any(axis=1) | (has_one != valid)
    for name, rows in wrong.items():
        if rows.any():
            identity = columns["id"][int(rows.argmax())].as_py()
            raise DataError(
                f"{url}: {name} of {identity} contradicts its id or signature_sim1.0; expected a number of the id, and bands of one signature, as published. Fetch the table "
                "again.",
                url=url,
                column=name,
            )


def read_signals(stored: StoredFile, max_record_bytes: int = MAX_RECORD_BYTES) -> Iterator[SignalBlock]:
    """Yield the quality signals of a table in blocks of some MB; `stored` then knows its checksum.

    Raises `BadRecordError`: a line is longer than allowed, no JSON, or has other signals than lists of spans; `CorruptFileError`: it is damaged;
    `DataError`: ids as for `read_minhash`.
    """
    known = RisingIds(stored.url)
    compression = compression_of(stored.url)
    for lines in read_lines(stored, compression, block_bytes=BLOCK_BYTES, max_record_bytes=max_record_bytes):
        _check_lines(
            stored.url, lines, [], max_record_bytes
        )  # of a line that is too long only the head is there
        (ids, objects), errors = scan(Lines(lines.data, lines.starts), _SIGNAL_FIELDS)
        _check_lines(stored.url, lines, errors, max_record_bytes)
        members, kinds, errors = signal_members(objects)
        _check_lines(stored.url, lines, errors, max_record_bytes)
        if len(ids):
            yield SignalBlock(*known.split(ids), members, kinds)


_SIGNAL_FIELDS = (Field("id", required=True), Field("quality_signals", "raw", required=True))


def _check_lines(
    url: str, lines: LineBlock, errors: Sequence[tuple[int, LineError]], max_record_bytes: int
) -> None:
    reasons = {row: (error.reason, error.expected) for row, error in errors}
    for record in bad_lines(url, lines, reasons, max_record_bytes):
        raise record.error("Fetch the table again.")


def read_duplicates(url: str) -> Iterator[TableBlock]:
    """Yield the documents that a table of duplicates lists; raises as `read_minhash`."""
    with open_parquet(url) as file:
        _check_type(url, file.schema_arrow, "doc_id", pa.string(), "tables of duplicates")
        known = RisingIds(url)
        for batch in read_batches(url, file, ["doc_id"], BLOCK_BYTES, mend=_MEND):
            if batch.num_rows:
                yield TableBlock(*known.split(batch.column(0).cast(pa.string())))


def _widest(schema: pa.Schema) -> str:
    """Return the column with most values of those that are there, else the one that should be."""
    widest_first = sorted(BANDS, key=lambda name: BANDS[name][0] * BANDS[name][1], reverse=True)
    return next((name for name in widest_first if name in schema.names), widest_first[0])


def _check_types(url: str, schema: pa.Schema, names: Sequence[str]) -> None:
    for name in names:
        _check_type(url, schema, name, MINHASH_SCHEMA.field(name).type, "MinHash tables")


def _check_type(url: str, schema: pa.Schema, name: str, expected: pa.DataType, tables: str) -> None:
    found = schema.field(name).type if schema.names.count(name) == 1 else None
    if found not in (expected, _LARGE.get(str(expected))):
        raise SchemaError(
            f"{url}: column {name!r} is {found or ('there twice' if name in schema.names else 'missing')}; expected {expected}, as in the {tables} of RedPajama-V2. "
            f"The table has {', '.join(schema.names)}.",
            url=url,
            column=name,
        )
