"""Write the MinHash tables of RedPajama-V2, and its tables of duplicates."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dolma_dask.formats.redpajama import (
    DUPLICATES_SCHEMA,
    GROUP_ROWS,
    MINHASH_SCHEMA,
    duplicate_columns,
    minhash_columns,
    places_metadata,
)
from dolma_dask.sinks.base import GroupedTable
from dolma_dask.text.kernels import Bools, Counts


class MinHashTable(GroupedTable):
    """Writes one table, as the context of its file; what is in it equals upstream's: schema, values, row groups of 5,000, Snappy, dictionaries.

    The bytes of a file are those of the pyarrow that wrote it: its version, padding, and (before pyarrow 18) a copy of each column's metadata.
    """

    def __init__(self, root: str, path: str) -> None:
        super().__init__(root, path, MINHASH_SCHEMA, GROUP_ROWS, use_dictionary=True)
        self._places: list[str] = []

    def add(self, shard_id: str, rows: Counts, values: npt.NDArray[np.uint32], valid: Bools) -> None:
        """Append the documents of a published file with these row numbers (n,), and their signatures (n, 128), null where not `valid`; none for a file without rows."""
        if shard_id not in self._places[-1:]:
            self._places.append(shard_id)
        self.write(minhash_columns(shard_id, rows, values, valid))

    def _finish(self) -> None:
        super()._finish()
        if len(self._places) > 1:
            self._open(self._schema).add_key_value_metadata(places_metadata(self._places))

    def _options(self, schema: pa.Schema) -> dict[str, Any]:
        return {"compression": "snappy"}


class DuplicateTable(GroupedTable):
    """Writes a table of duplicates, as the context of its file; one without rows has its columns."""

    def __init__(self, root: str, path: str) -> None:
        super().__init__(root, path, DUPLICATES_SCHEMA, GROUP_ROWS, use_dictionary=True)

    def add(self, shard_id: str, rows: Counts, digests: pa.Array) -> None:
        """Append the documents of a shard with these row numbers and digests (n,)."""
        self.write(duplicate_columns(shard_id, rows, digests))

    def _options(self, schema: pa.Schema) -> dict[str, Any]:
        return {"compression": "snappy"}
