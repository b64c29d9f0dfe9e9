"""Choose the writer by the suffix of the output."""

from dolma_dask.formats.layout import format_of
from dolma_dask.writers.base import RowWriter
from dolma_dask.writers.jsonl import JsonlWriter
from dolma_dask.writers.parquet import ParquetWriter


def open_writer(root: str, path: str) -> RowWriter:
    """Return the writer for the document file `path` below `root`."""
    return ParquetWriter(root, path) if format_of(path) == "parquet" else JsonlWriter(root, path)
