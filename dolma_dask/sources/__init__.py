"""Raw files -> Dolma documents: what ``convert`` reads.

`plan_shards` says which raw files make which shard, `open_sources` opens files, whose ``read`` yields blocks of documents. One file per
kind of source; the rules for fields are in `dolma_dask.sources.mapping`.
"""

from dolma_dask.sources.base import CONVERTER_VERSION
from dolma_dask.sources.mapping import PRESETS, FieldMapping, preset
from dolma_dask.sources.plan import RawShard, open_sources, plan_shards, with_parts

__all__ = [
    "CONVERTER_VERSION",
    "PRESETS",
    "FieldMapping",
    "RawShard",
    "open_sources",
    "plan_shards",
    "preset",
    "with_parts",
]
