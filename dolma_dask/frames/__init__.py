"""Datasets as lazy Dask collections: documents and attributes side by side, a partition per shard, group of small shards or row range.

Requests are bound into the reader, which reads no more than Dask wants of it; where partitions begin is decided before, from the listing,
the journal and the parameters alone.
"""
