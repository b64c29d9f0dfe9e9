"""Back from Dask: partitions of dataframes and bags become attributes, documents, token arrays and HDF5 files.

`partitions` says what a partition is as rows, `publishing` how what the tasks have written appears; the rest is a module per kind of file. The
writers, records and journals are those of the verbs.
"""
