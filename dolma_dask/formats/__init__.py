"""Meaning of bytes: pure rules and kernels, no files and no Dask. Begin with `layout`, which says which file belongs to which shard.

`documents` are the columns of a document row, `attributes` the rows of an attribute file (`json` reads both), `metadata` the fields of a
document's metadata. `digests` prove that rows are the same. `ragged` and `hdf5` describe the two formats of tokens that
are read here too, `token_files` all that `ragged` writes.
"""

from dolma_dask.formats.pandas_later import spare_pandas

spare_pandas()
