"""Read the MinHash tables of RedPajama-V2."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dolma_dask.errors import SchemaError, UsageError
from dolma_dask.formats.redpajama import BANDS, MINHASH_SCHEMA, RisingIds, signature_values
from dolma_dask.io.parquet import open_parquet, read_batches
from dolma_dask.io.stream import BLOCK_BYTES
from dolma_dask.text.kernels import Bools, Counts

_LARGE = {"string": pa.large_string(), "list<item: binary>": pa.large_list(pa.large_binary())}
"""Types that other tools write for the same columns."""

_MEND = "Write it anew in smaller pages, with pyarrow.parquet.write_table(..., data_page_size=1 << 20)"


@dataclass(frozen=True)
class MinHashBlock:
    """Consecutive rows of a table."""

    shard_id: str  # of all documents
    ids: pa.StringArray  # (n,)
    rows: Counts  # (n,) row of each document in its shard, from its id
    values: npt.NDArray[np.uint32]  # (n, values of the column), 0 where there is no signature
    valid: Bools  # (n,) whether there is one


def read_minhash(url: str, column: str | None = None) -> Iterator[MinHashBlock]:
    """Yield the signatures of a table in blocks of some MB; memory does not depend on its size.

    Parameters
    ----------
    url : str
    column : {"signature_sim1.0", "signature_sim0.9", "signature_sim0.8", "signature_sim0.7"}, optional
        Where signatures are read from; by default the column that holds most values, of those that are there. Each holds a prefix of all 128.

    Raises
    ------
    UsageError
        There is no such column in this format.
    SchemaError
        The table lacks a column, or it has another type.
    CorruptFileError
        It is damaged, no Parquet file, or not there.
    DataError
        An id has no row number or is of another shard, row numbers do not rise, or signatures have another shape than their column says.
    """
    with open_parquet(url) as file:
        name = column or _widest(file.schema_arrow)
        if name not in BANDS:
            raise UsageError(f"column={column!r}; expected one of {', '.join(BANDS)}.")
        _check_types(url, file.schema_arrow, ("id", name))
        known = RisingIds(url)
        for batch in read_batches(url, file, ["id", name], BLOCK_BYTES, mend=_MEND):
            ids, signatures = (batch.column(key).cast(MINHASH_SCHEMA.field(key).type) for key in ("id", name))
            if len(ids):
                shard_id, rows = known.split(ids)
                yield MinHashBlock(shard_id, ids, rows, *signature_values(signatures, name, url))


def _widest(schema: pa.Schema) -> str:
    """Return the column with most values of those that are there, else the one that should be."""
    widest_first = sorted(BANDS, key=lambda name: BANDS[name][0] * BANDS[name][1], reverse=True)
    return next((name for name in widest_first if name in schema.names), widest_first[0])


def _check_types(url: str, schema: pa.Schema, names: tuple[str, ...]) -> None:
    for name in names:
        expected = MINHASH_SCHEMA.field(name).type
        found = schema.field(name).type if name in schema.names else None
        if found not in (expected, _LARGE[str(expected)]):
            raise SchemaError(
                f"{url}: column {name!r} is {found or 'missing'}; expected {expected}, as in the MinHash tables of RedPajama-V2. "
                f"The table has {', '.join(schema.names)}.",
                url=url,
                column=name,
            )
