"""What bytes mean: no I/O, no Dask."""
