"""Rows of tokens in HDF5 files. Begin with `verb`; `job` holds the two passes: token ids of each shard (`staging`), then rows (`rows`).

`raw` reads texts that are no dataset. What a row is, a mode says: `dolma_dask.tokens.modes`.
"""
