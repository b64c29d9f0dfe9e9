"""Runs of tokens that rows are made of."""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple

from dolma_dask.loaders.index import Int64s


class Pieces(Struct, frozen=True):
    """Runs of tokens of some rows, in the order of the rows."""

    row: Int64s  # (n,) among the rows that were asked for
    place: Int64s  # position in the row
    start: Int64s  # first token, of those of all shards back to back
    stored: Int64s  # tokens that the shards hold
    size: Int64s  # the same, or one more: an end token follows

    @classmethod
    def joined(cls, parts: Sequence["Pieces"]) -> "Pieces":
        """Return the pieces of all parts."""
        columns = zip(*map(astuple, parts), strict=True)
        return cls(*map(np.concatenate, columns)) if parts else cls(*np.empty((5, 0), np.int64))
