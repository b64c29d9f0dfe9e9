"""The job of `filter`: levels of every shard, read from attributes alone where the journal proves that these belong to the documents.

The dataset-wide record names the thresholds whose levels hold, by their key, and is announced before the first shard is written: readers refuse levels of
two sets of thresholds side by side. Each shard's record names the attribute files that its levels were made of; readers refuse levels of signals that have
been made again since.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
import pyarrow as pa
from msgspec import Struct

from dolma_dask.dataset import Dataset, Shard
from dolma_dask.engine import Announce, Input, Passes, Plan, Ran, Unit, WorkDir, attribute_plan
from dolma_dask.engine.map import Map
from dolma_dask.errors import DataError
from dolma_dask.exchange.flagging import dataset_unit
from dolma_dask.formats import layout
from dolma_dask.formats.attributes import AttributeColumn
from dolma_dask.formats.layout import FileFormat
from dolma_dask.formats.levels import level_keys, stored_keys
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.io.records import Block
from dolma_dask.journal import Journal, Record, work_key
from dolma_dask.reading.columns import Columns
from dolma_dask.rules.levels import Levels
from dolma_dask.sinks.attributes import AttributeSink, AttributeWriter
from dolma_dask.sinks.sink import ShardFacts
from dolma_dask.text.kernels import Counts
from dolma_dask.verbs.filter.summary import FilterSummary, counts_by_group, summarize

VERSION = 1
"""Raised whenever other bytes are written for the same signals and thresholds."""


def thresholds_key(levels: Levels) -> str:
    """Return a digest of thresholds, by which they are known again."""
    return work_key("filter", VERSION, {"levels": levels.canonical()})


class LevelOutput(Struct, frozen=True):
    """Levels of all documents, beside each shard."""

    root: str  # of the dataset
    name: str  # of the attribute set
    levels: Levels
    verb: ClassVar[str] = "filter"
    columns: ClassVar[tuple[str, ...]] = ()  # besides those of the shard

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys that readers are shown."""
        return level_keys(self.name, self.levels.names)

    def open(self, unit: Unit, shard: str) -> "LevelSink":
        """See `dolma_dask.sinks.sink.Output`."""
        return LevelSink(self, unit.name)


class LevelSink(AttributeSink):
    """Writes the levels of one shard."""

    def __init__(self, output: LevelOutput, path: str) -> None:
        super().__init__(AttributeWriter(output.root, path, repeating=["source"]))
        self._levels, self._keys = output.levels, output.keys
        self._passed: Counts = np.zeros((), np.int64)

    def info(self, facts: ShardFacts) -> dict[str, Any]:
        """Return what readers of the levels need to know."""
        return {
            "reads": sorted(facts.reads),
            **({"unproved": True} if facts.unproved else {}),
            "dataset_wide": True,
            "levels": list(self._keys),
            "passed": counts_by_group(self._levels, self._passed),
        }

    def write(self, block: Block) -> None:
        """Write the levels of some rows; rows of documents that could not be read have none."""
        ids, sources = block.batch.column("id"), block.batch.column("source")
        columns = dict(zip(block.batch.schema.names, block.batch.columns, strict=True))
        errors = _errors(block)
        if errors:
            readable = ids.is_valid()
            columns = {name: column.filter(readable) for name, column in columns.items()}
        try:
            found, counts = self._levels.passed(columns, len(ids) - len(errors))
        except DataError as error:
            raise _located(error, block, errors) from error
        numbers = [pa.array(number) for number in found]
        if errors:
            places = pa.array(np.cumsum(np.asarray(readable)) - 1, mask=~np.asarray(readable))
            numbers = [number.take(places) for number in numbers]
        keys = stored_keys(self._keys)
        written = [AttributeColumn(key, "scalar", number) for key, number in zip(keys, numbers, strict=True)]
        self.writer.write(ids, sources, np.zeros(len(ids), np.int64), written, errors)
        self._passed = self._passed + counts


def _errors(block: Block) -> dict[int, str]:
    """Return why rows of a block could not be read, now or when their attributes were made."""
    ids = block.batch.column("id")
    if not ids.null_count:
        return {}
    now = block.errors
    then = "the document could not be read when its attributes were made"
    return {row: now.get(row, then) for row in np.flatnonzero(np.asarray(ids.is_null())).tolist()}


def _located(error: DataError, block: Block, errors: Mapping[int, str]) -> DataError:
    """Return the error with the row in the file in place of that among the readable rows of a batch."""
    found = cast(int, error.details["row"])
    row = block.first_row + [row for row in range(block.num_rows) if row not in errors][found]
    message = str(error).replace(f"row {found} of the batch", f"row {row}")
    return DataError(message, row=row)


class Filtering(Struct, frozen=True, dict=True):
    """A call of `filter`; see `dolma_dask.engine.Job`."""

    dataset: Dataset  # all shards
    selected: Dataset  # those to work on
    columns: Columns  # to read
    output: LevelOutput
    policy: RecordPolicy  # what happens to bad records
    file_format: FileFormat | None
    params: Mapping[str, Any]
    verb: str = "filter"
    record: None = None
    writes: Sequence[str] = ()

    @property
    def root(self) -> str:
        """Root of the dataset."""
        return self.dataset.root

    @property
    def name(self) -> str:
        """Name of the attribute set."""
        return self.output.name

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Files of all shards."""
        return tuple(item for shard in self.dataset.shards for item in self.columns.work(shard).inputs)

    @cached_property
    def levels_key(self) -> str:
        """Key of every shard's levels."""
        params = {
            "set": self.name,
            "levels": self.output.levels.canonical(),
            "columns": self.columns.params(),
            "max_record_bytes": self.policy.max_record_bytes,
        }
        return work_key(self.verb, VERSION, params)

    @property
    def key(self) -> str:
        """Digest of what was requested."""
        paths = [shard.path for shard in self.selected.shards]
        return work_key(self.verb, VERSION, {"set": self.levels_key, "shards": paths})

    def outputs(self, known: Record | None, overwrite: bool) -> Plan:
        """Return the plan of the levels, under a key that nothing has while others hold."""
        return self._plan(self.levels_key if self._announced == self.levels_key else "")

    def passes(self, work: WorkDir, known: Record | None) -> Passes:
        """Say which levels hold from now on, and write those that are missing."""
        if self._announced != self.levels_key:
            unit, shard = dataset_unit(self.name), self.dataset.shards[0].path
            info = {
                "key": self.levels_key,
                "depends_on": "attributes",
                "rules": list(self.output.levels.names),
                "thresholds": thresholds_key(self.output.levels),
            }
            yield Announce(Record(unit, shard, self.levels_key, (), (), info=info))
        ran: Ran = yield self._plan(self.levels_key)
        return ran

    def summarize(self, ran: Ran, known: Record | None) -> FilterSummary:
        """Return the summary, with the documents that each level keeps."""
        return summarize(ran.summary, ran.records.values(), self.output.levels.names)

    @property
    def _announced(self) -> str | None:
        record = Journal(self.root, self.verb).records.get(dataset_unit(self.name))
        return None if record is None else record.info.get("key")

    def _path(self, shard: Shard) -> str:
        return layout.attribute_path(self.name, shard.path, self.file_format)

    def _plan(self, key: str) -> Plan:
        stage = Map((self.output,), self.policy, self.verb)
        tasks = [
            stage.task(self.columns.work(shard, identities=True), Unit(self._path(shard), key))
            for shard in self.selected.shards
        ]
        every = [self._path(shard) for shard in self.dataset.shards]
        return attribute_plan(stage, self.dataset, (self.name,), tasks, every, self.params, is_whole=True)
