"""Regroup fixed-width records of all shards by key, reduce them range by range, and regroup what comes out by shard.

The one mechanism behind unique ids, duplicates and joins with lists of ids. Records are rows of unsigned 64-bit words (`contract`). They
go through files: cut into buckets by the top bits of the key (`buckets`, `bucket_file`), read back range by range in order (`ordering`),
each pass a stage of the engine (`phases`), so that an exchange survives whatever kills it and goes on (`run`). Memory is bounded by the
size of a range, whatever the keys; text never enters.
"""

from dolma_dask.exchange.contract import Emitted, Emitter, Reducer
from dolma_dask.exchange.exchanged import Exchanged, ShardRecords
from dolma_dask.exchange.run import exchange

__all__ = ["Emitted", "Emitter", "Exchanged", "Reducer", "ShardRecords", "exchange"]
