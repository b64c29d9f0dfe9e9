"""Documents with their attributes: an attribute file lines up row by row with its document file, or reading fails.

Begin with `AlignedShard` in `reader`: columns of a shard that are read side by side. `columns` finds columns by name, `catalog` the attribute
files of a dataset and what the journal says of them, `clusters` the members of clusters of near duplicates, `follower` compares one attribute file with its documents: ids and sources row by row, and
the digests in its record with those of the documents read now. A file that differs from its record is stale; one without a record passes on
the rows alone and is called unproved.
"""

from dolma_dask.reading.catalog import Catalog, check_clash, open_attributes
from dolma_dask.reading.columns import (
    Columns,
    Kind,
    find_columns,
    find_fields,
    find_keys,
    find_metrics,
    full_name,
    look_up,
)
from dolma_dask.reading.reader import AlignedReader, AlignedShard, ReadState, RowRange
from dolma_dask.reading.sets import CONVERTED, AttributeSets, AttributeSource, Proof, shard_inputs

__all__ = [
    "CONVERTED",
    "AlignedReader",
    "AlignedShard",
    "AttributeSets",
    "AttributeSource",
    "Catalog",
    "Columns",
    "Kind",
    "Proof",
    "ReadState",
    "RowRange",
    "check_clash",
    "find_columns",
    "find_fields",
    "find_keys",
    "find_metrics",
    "full_name",
    "look_up",
    "open_attributes",
    "shard_inputs",
]
