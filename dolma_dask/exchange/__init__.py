"""Fixed-width records of all shards regrouped by key, reduced range by range, and regrouped by shard: passes of a job.

The one mechanism behind unique ids, duplicates and joins with lists of ids. A verb that writes attributes of what comes back declares a `job.Exchange`;
others call `exchange` in the passes of their job. `contract` says what a caller brings.
Memory is bounded by the size of a range, whatever the keys; text never enters.
"""

from dolma_dask.exchange.contract import Emitted, Emitter, Reducer
from dolma_dask.exchange.passes import Exchanged, Shuffle, check_shuffle, exchange
from dolma_dask.exchange.staged import Limits, ShardRecords

__all__ = [
    "Emitted",
    "Emitter",
    "Exchanged",
    "Limits",
    "Reducer",
    "ShardRecords",
    "Shuffle",
    "check_shuffle",
    "exchange",
]
