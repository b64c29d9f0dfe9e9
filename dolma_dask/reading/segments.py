"""Segments of token files, read by row."""

from collections.abc import Sequence

import pyarrow as pa

from dolma_dask.formats.segments import segments_path
from dolma_dask.io import files
from dolma_dask.io.parquet import open_parquet


def read_segments(root: str, token_file: str, rows: Sequence[int] | None = None) -> pa.Table:
    """Return the segments of some rows of a token file."""
    with open_parquet(files.join(root, segments_path(token_file))) as file:
        table = file.read()
    if rows is None:
        return table
    return table.filter(pa.compute.is_in(table.column("row"), pa.array(rows, pa.int64())))
