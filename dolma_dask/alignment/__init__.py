"""The law of alignment: an attribute file lines up row by row with its document file, or reading fails.

Documents and attributes are read in lockstep and every row's id (and source, where the file has it) is compared. If the journal knows
the attribute file, the digests in its record must also equal those of the documents read now: equal ids with other text are stale
attributes. Files without a record (made by other tools) pass on the row comparison alone and are called unproved.
"""

from dolma_dask.alignment.catalog import Catalog, check_clash, open_attributes
from dolma_dask.alignment.columns import (
    ColumnReader,
    Columns,
    ColumnWork,
    Kind,
    find_columns,
    find_fields,
    find_keys,
    full_name,
)
from dolma_dask.alignment.parts import AlignedPart, RowRange
from dolma_dask.alignment.rows import AlignedBlock, AlignedShard, ReadState
from dolma_dask.alignment.sets import CONVERTED, AttributeSets, AttributeSource, Proof, shard_inputs

__all__ = [
    "CONVERTED",
    "AlignedBlock",
    "AlignedPart",
    "AlignedShard",
    "AttributeSets",
    "AttributeSource",
    "Catalog",
    "ColumnReader",
    "ColumnWork",
    "Columns",
    "Kind",
    "Proof",
    "ReadState",
    "RowRange",
    "check_clash",
    "find_columns",
    "find_fields",
    "find_keys",
    "full_name",
    "open_attributes",
    "shard_inputs",
]
