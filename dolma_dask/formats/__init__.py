"""Meaning of bytes: no I/O, no Dask."""

from dolma_dask.formats.pandas_later import spare_pandas

spare_pandas()
