"""A verb of three passes in one page: how many documents of the whole dataset begin with the word that this one begins with.

The example of CONTRIBUTING.md. Pass one sends a key per document, pass two counts equal keys, pass three regroups the counts by shard; the
plan writes an attribute file per shard.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import xxhash

from dolma_dask.dataset import Dataset
from dolma_dask.engine import Announce, Passes, Plan, Ran, Task, Unit, WorkDir, inputs_of
from dolma_dask.exchange import Emitted, ShardRecords, exchange
from dolma_dask.formats import layout
from dolma_dask.formats.attributes import AttributeColumn
from dolma_dask.journal import Record, work_key
from dolma_dask.reading.columns import find_columns
from dolma_dask.sinks.attributes import AttributeWriter
from dolma_dask.text.columns import code_point_lengths

VERSION = 1
KEYS = np.dtype([("key", "<u8"), ("location", "<u8")])
COUNTS = np.dtype([("location", "<u8"), ("count", "<u8")])


@dataclass(frozen=True)
class FirstWords:
    """Emits a key for each document; a task is one shard."""

    dtype: np.dtype = KEYS

    def emit(self, task, out, folder):
        number, shard = task.work
        reader, rows = shard.open(), 0
        for block in reader:
            words = [text.split(maxsplit=1)[:1] for text in block.batch.column("text").to_pylist()]
            keys = [xxhash.xxh3_64_intdigest(" ".join(word).encode()) for word in words]
            locations = range((number << 32) + rows, (number << 32) + rows + len(keys))
            out(np.array(list(zip(keys, locations, strict=True)), KEYS))
            rows += len(keys)
        return Emitted(reader.state.inputs, rows)


@dataclass(frozen=True)
class Count:
    """Gives each location the number of records of its key."""

    dtype: np.dtype = COUNTS

    def reduce(self, runs, out):
        records = np.concatenate(list(runs))  # a real reducer goes through the runs one by one
        _, inverse, counts = np.unique(records["key"], return_inverse=True, return_counts=True)
        counted = np.empty(len(records), COUNTS)
        counted["location"], counted["count"] = records["location"], counts[inverse]
        out(counted)
        return {"keys": len(counts)}


@dataclass(frozen=True)
class WriteCounts:
    """Writes the attribute file of one shard."""

    root: str
    records: ShardRecords | None = None
    verb: str = "first_words"

    def run_shard(self, task: Task) -> list[Record]:
        (unit,), (number, shard) = task.units, task.work
        counts = self.records.of_shard(number)["count"].astype(np.float64)
        reader, rows = shard.open(), 0
        with AttributeWriter(self.root, unit.name) as writer:
            for block in reader:
                ids, sources, text = (block.batch.column(name) for name in ("id", "source", "text"))
                values = pa.array(counts[rows : rows + len(ids)])
                writer.write(
                    ids, sources, code_point_lengths(text), [AttributeColumn("count", "document", values)], {}
                )
                rows += len(ids)
        inputs, files = reader.state.inputs, (writer.record,)
        return [
            Record(
                unit.name, task.shard, unit.key, inputs, files, rows, info={"kinds": {"count": "document"}}
            )
        ]


@dataclass(frozen=True)
class FirstWordsJob:
    """See `dolma_dask.engine.Job`."""

    dataset: Dataset

    verb: ClassVar[str] = "first_words"
    name: ClassVar[str] = "first_words"
    key: ClassVar[str] = work_key("first_words", VERSION, {})
    record: ClassVar[str] = "attributes/first_words/"
    writes: ClassVar[Sequence[str]] = ()

    @property
    def root(self):
        return self.dataset.root

    @property
    def works(self):
        columns = find_columns(self.dataset, ["id", "source", "text"])
        return [(number, columns.work(shard)) for number, shard in enumerate(self.dataset.shards)]

    @property
    def inputs(self):
        return tuple(item for _, shard in self.works for item in inputs_of(self.root, shard.files))

    def outputs(self, known: Record | None, overwrite: bool) -> Plan:
        return self.plan(WriteCounts(self.root), known.info["key"] if known else "")

    def plan(self, stage: WriteCounts, key: str) -> Plan:
        tasks = [
            Task(
                shard.shard.path,
                (Unit(layout.attribute_path("first_words", shard.shard.path, None), key),),
                inputs_of(self.root, shard.files),
                (number, shard),
            )
            for number, shard in self.works
        ]
        return Plan(stage, self.root, tasks, {}, ("attributes/first_words/",))

    def passes(self, work: WorkDir, known: Record | None) -> Passes:
        tasks = [
            Task(shard.shard.path, (), inputs_of(self.root, shard.files), (number, shard))
            for number, shard in self.works
        ]
        exchanged = yield from exchange(work, FirstWords(), tasks, Count(), shards=len(tasks))
        inputs = [item for record in exchanged.emitted.values() for item in record.inputs]
        key = work_key(self.verb, VERSION, {"inputs": [item.checksum for item in inputs]})
        yield Announce(Record(self.record, self.name, self.key, tuple(inputs), info={"key": key}))
        ran: Ran = yield self.plan(WriteCounts(self.root, exchanged.by_shard), key)
        return ran

    def summarize(self, ran: Ran, known: Record | None):
        return ran.summary
