"""Published signatures: the MinHash tables of RedPajama-V2 in place of signatures that are made of the texts (`dolma_dask.reading.published`)."""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain, islice

import numpy as np
import pyarrow as pa

from dolma_dask.errors import UsageError
from dolma_dask.formats.redpajama import MINHASH
from dolma_dask.io.files import Input
from dolma_dask.io.records import InputRecord
from dolma_dask.io.redpajama import MinHashBlock, read_minhash
from dolma_dask.io.stored import StoredFile
from dolma_dask.minhash.published import PUBLISHED
from dolma_dask.minhash.schemes import ABSENT, SHORT, SIGNED, MinHash, Signatures
from dolma_dask.reading.published import (
    PLACED,
    CombinedRows,
    PublishedTables,
    TableRows,
    is_combined,
    list_tables,
    missing_table,
)

_COLUMN = "signature_sim1.0"
"""The column that holds all values."""


def find_tables(root: str, url: str, minhash: MinHash, shards: Iterable[str]) -> PublishedTables:
    """Find the tables of shards of the dataset at `root`, below `url`. Raises `UsageError`: signatures with other parameters are requested, or there is no table."""
    if minhash != PUBLISHED:
        raise UsageError(
            f"signatures={url!r} with {minhash.label}; expected scheme='redpajama_v2', ngram={PUBLISHED.ngram}, num_perm={PUBLISHED.num_perm} and "
            f"seed={PUBLISHED.seed}: "
            "these tables hold no others. Leave signatures out to make them of the texts."
        )
    found = list_tables(root, url, [MINHASH], list(shards))
    if not found:
        raise UsageError(
            f"signatures={url!r}: no MinHash table of these documents there; expected files such as {MINHASH.path('2023-06/0000/en_head')}, {PLACED} "
            "Write them with: dolma-dask sign DATASET FOLDER."
        )
    return found[0]


def _open_table(shard: str, table: Input, *, whole: bool) -> TableRows[MinHashBlock]:
    blocks = read_minhash(table.url, _COLUMN, whole=whole)
    first = list(islice(blocks, 1))
    places = first[0].places if first else ()
    return TableRows(shard, table, StoredFile(table.url), chain(first, blocks), places)


class TableReader:
    """Signatures of documents from the tables of their shard; `whole` holds all columns of these against each other."""

    def __init__(self, folder: str, shard: str, table: Sequence[Input], *, whole: bool = False) -> None:
        if not table:
            raise missing_table(MINHASH, folder, shard)
        self._folder = folder
        open_table = partial(_open_table, whole=whole)
        self._rows: TableRows[MinHashBlock] | CombinedRows[MinHashBlock] = (
            CombinedRows(MINHASH, table, open_table, self._miss)
            if is_combined(MINHASH, shard, table)
            else open_table(shard, table[0])
        )

    def _miss(self, shard: str) -> None:
        raise missing_table(MINHASH, self._folder, shard)

    def sign(self, ids: pa.LargeStringArray) -> Signatures:
        """Return the signatures of neighbouring documents (n,), of which those that could not be read have null for an id."""
        values = np.zeros((len(ids), PUBLISHED.num_perm), np.uint32)
        kinds = np.full(len(ids), ABSENT, np.uint8)
        for part in self._rows.beside(ids):
            if part.block is not None:
                at = part.start + part.at
                values[at] = part.block.values[part.found]
                kinds[at] = np.where(part.block.valid[part.found], SIGNED, SHORT)
        return Signatures(values, kinds)

    def finish(self) -> tuple[tuple[InputRecord, ...], int]:
        """Read the rest; return the tables as they were read, and how many of its rows have no document."""
        read = self._rows.finish()
        self._rows.close()
        return read
