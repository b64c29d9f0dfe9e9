"""A verb with a sink of its own in one page: how often each text shouts, as an attribute beside the documents.

The example of a map. The sink says what becomes of some rows; reading, resume, keys, records, the quarantine and Dask are of the engine.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow.compute as pc

from dolma_dask import engine
from dolma_dask.dataset import open_dataset
from dolma_dask.engine import RunOptions, Unit, attribute_plan
from dolma_dask.engine.map import Map
from dolma_dask.formats import layout
from dolma_dask.formats.attributes import AttributeColumn
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.io.records import Block
from dolma_dask.journal import work_key
from dolma_dask.reading.reader import AlignedShard
from dolma_dask.results.summary import Summary
from dolma_dask.sinks.attributes import AttributeSink, AttributeWriter
from dolma_dask.sinks.sink import ShardFacts

VERSION = 1
NAME = "shouts"


class ShoutSink(AttributeSink):
    """Writes the attributes of one shard."""

    def write(self, block: Block) -> None:
        ids, sources, texts = (block.batch.column(name) for name in ("id", "source", "text"))
        shouts = pc.count_substring(pc.fill_null(texts, ""), "!")
        column = AttributeColumn(NAME, "scalar", shouts)
        self.counts["shouts"] += pc.sum(shouts).as_py() or 0
        self.writer.write(ids, sources, np.zeros(len(ids), np.int64), [column], block.errors)

    def info(self, facts: ShardFacts) -> Mapping[str, Any]:
        return {"reads": ["text"], "kinds": {NAME: "number"}}


@dataclass(frozen=True)
class ShoutOutput:
    """An attribute file for each shard."""

    root: str
    verb: ClassVar[str] = "shout"
    columns: ClassVar[tuple[str, ...]] = ("text",)

    def open(self, unit: Unit, shard: str) -> ShoutSink:
        return ShoutSink(AttributeWriter(self.root, unit.name))


def shout(root: str, options: RunOptions, policy: RecordPolicy) -> Summary:
    """Write what is missing of the set."""
    dataset = open_dataset(root)
    stage, key = Map((ShoutOutput(root),), policy, "shout"), work_key("shout", VERSION, {})
    paths = {shard: layout.attribute_path(NAME, shard.path) for shard in dataset.shards}
    tasks = [
        stage.task(AlignedShard(root, shard, ("id", "source")), Unit(path, key))
        for shard, path in paths.items()
    ]
    plan = attribute_plan(stage, dataset, (NAME,), tasks, list(paths.values()), {})
    return engine.run(plan, options).summary
