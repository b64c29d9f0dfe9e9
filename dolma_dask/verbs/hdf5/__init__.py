"""Rows of tokens in HDF5 files. Begin with `verb`; `job` holds the two passes: token ids of each shard (`staging`), then rows (`rows`).

`inputs` and `raw` say what is read, `lm_options` are the options of the mode LMData, whose rows `dolma_dask.tokens` makes.
"""
