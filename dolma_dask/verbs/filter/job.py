"""The job of `filter`: levels of every shard, read from attributes alone where the journal proves that these belong to the documents.

The dataset-wide record names the thresholds whose levels hold, by their key, and is announced before the first shard is written: readers refuse levels of
two sets of thresholds side by side. Each shard's record names the attribute files that its levels were made of; readers refuse levels of signals that have
been made again since.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np
import pyarrow as pa

import dolma_dask
from dolma_dask.dataset import Dataset, Shard
from dolma_dask.engine import Announce, Input, Passes, Plan, Ran, Task, Unit, WorkDir, inputs_of
from dolma_dask.errors import DataError
from dolma_dask.exchange.flagging import dataset_unit
from dolma_dask.formats import layout
from dolma_dask.formats.attributes import AttributeColumn
from dolma_dask.formats.layout import FileFormat
from dolma_dask.formats.levels import level_keys, stored_keys
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.io.records import Block
from dolma_dask.journal import Journal, Record, dataset_notes, work_key
from dolma_dask.reading import AlignedShard, Columns, ReadState
from dolma_dask.rules.levels import Levels
from dolma_dask.sinks.attributes import AttributeWriter
from dolma_dask.text.kernels import Counts
from dolma_dask.verbs.filter.summary import FilterSummary, counts_by_group, summarize

VERSION = 1
"""Raised whenever other bytes are written for the same signals and thresholds."""


def thresholds_key(levels: Levels) -> str:
    """Return a digest of thresholds, by which they are known again."""
    return work_key("filter", VERSION, {"levels": levels.canonical()})


@dataclass(frozen=True)
class FilterStage:
    """The work of `filter` on one shard; see `dolma_dask.engine.Stage`."""

    root: str  # of the dataset
    name: str  # of the attribute set
    levels: Levels
    policy: RecordPolicy = field(default_factory=RecordPolicy)  # what happens to bad records
    verb: str = "filter"

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys that readers are shown."""
        return level_keys(self.name, self.levels.names)

    def run_shard(self, task: Task) -> list[Record]:
        """Write the levels of one shard; ``task.work`` is its `AlignedShard`."""
        (unit,), work = task.units, task.work
        quarantine = Quarantine(self.policy)
        reader = work.open(max_record_bytes=self.policy.max_record_bytes, quarantine=quarantine)
        counts = np.zeros((), np.int64)
        with AttributeWriter(self.root, unit.name, repeating=["source"]) as writer:
            for block in reader:
                counts = counts + self._write(writer, block)
            kept = quarantine.publish(self.root, self.verb, task.shard)
        record = writer.record
        ids_digest, content_digest = _digests(reader.state, work)
        return [
            Record(
                unit=unit.name,
                shard=task.shard,
                key=unit.key,
                inputs=reader.state.inputs,
                files=(record, *kept),
                rows=record.rows,
                ids_digest=ids_digest,
                content_digest=content_digest,
                counts={"documents_in": record.rows, "bad_records": reader.state.bad_records},
                info={
                    **_proof_info(reader.state, work),
                    "dataset_wide": True,
                    "levels": list(self.keys),
                    "passed": counts_by_group(self.levels, counts),
                },
            )
        ]

    def _write(self, writer: AttributeWriter, block: Block) -> Counts:
        """Write the levels of some rows, and return counts of them; rows of documents that could not be read have none."""
        ids, sources = block.batch.column("id"), block.batch.column("source")
        columns = dict(zip(block.batch.schema.names, block.batch.columns, strict=True))
        errors = _errors(block)
        if errors:
            readable = ids.is_valid()
            columns = {name: column.filter(readable) for name, column in columns.items()}
        try:
            found, counts = self.levels.passed(columns, len(ids) - len(errors))
        except DataError as error:
            raise _located(error, block, errors) from error
        numbers = [pa.array(number) for number in found]
        if errors:
            places = pa.array(np.cumsum(np.asarray(readable)) - 1, mask=~np.asarray(readable))
            numbers = [number.take(places) for number in numbers]
        keys = stored_keys(self.keys)
        written = [AttributeColumn(key, "scalar", number) for key, number in zip(keys, numbers, strict=True)]
        writer.write(ids, sources, np.zeros(len(ids), np.int64), written, errors)
        return counts


def _errors(block: Block) -> dict[int, str]:
    """Return why rows of a block could not be read, now or when their attributes were made."""
    ids = block.batch.column("id")
    if not ids.null_count:
        return {}
    now = {
        record.row - block.first_row: f"{record.reason}: expected {record.expected}" for record in block.bad
    }
    then = "the document could not be read when its attributes were made"
    return {row: now.get(row, then) for row in np.flatnonzero(np.asarray(ids.is_null())).tolist()}


def _located(error: DataError, block: Block, errors: Mapping[int, str]) -> DataError:
    """Return the error with the row in the file in place of that among the readable rows of a batch."""
    found = cast(int, error.details["row"])
    row = block.first_row + [row for row in range(block.num_rows) if row not in errors][found]
    message = str(error).replace(f"row {found} of the batch", f"row {row}")
    return DataError(message, row=row)


def _digests(state: ReadState, work: AlignedShard) -> tuple[str, str]:
    """Return the digests of the ids and of the content of the documents: as they were read now, or as the attributes prove them."""
    proofs = [source.proof for source in work.sources if source.proof]
    ids = [state.ids_digest, *(proof.ids_digest for proof in proofs)]
    texts = [state.content_digest, *(proof.content_digest for proof in proofs if proof.reads_text)]
    return next(filter(None, ids), ""), next(filter(None, texts), "")


def _proof_info(state: ReadState, work: AlignedShard) -> dict[str, Any]:
    """Return which columns of the documents the levels depend on, and whether some attributes are unproved."""
    proofs = [source.proof for source in work.sources if source.proof]
    reads = {"id", "source", *(["text"] if any(proof.reads_text for proof in proofs) else ())}
    reads.update(*(proof.undigested for proof in proofs), ["metadata"] if work.fields else ())
    return {"reads": sorted(reads), **({"unproved": True} if state.unproved else {})}


@dataclass(frozen=True)
class Filtering:
    """A call of `filter`; see `dolma_dask.engine.Job`."""

    dataset: Dataset  # all shards
    selected: Dataset  # those to work on
    columns: Columns  # to read
    stage: FilterStage
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
        return self.stage.name

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Files of all shards."""
        return tuple(item for shard in self.dataset.shards for item in self._inputs_of(shard))

    @cached_property
    def levels_key(self) -> str:
        """Key of every shard's levels."""
        params = {
            "set": self.name,
            "levels": self.stage.levels.canonical(),
            "columns": self.columns.params(),
            "max_record_bytes": self.stage.policy.max_record_bytes,
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
                "rules": list(self.stage.levels.names),
                "thresholds": thresholds_key(self.stage.levels),
            }
            yield Announce(Record(unit, shard, self.levels_key, (), (), info=info))
        ran: Ran = yield self._plan(self.levels_key)
        return ran

    def summarize(self, ran: Ran, known: Record | None) -> FilterSummary:
        """Return the summary, with the documents that each level keeps."""
        return summarize(ran.summary, ran.records.values(), self.stage.levels.names)

    @property
    def _announced(self) -> str | None:
        record = Journal(self.root, self.verb).records.get(dataset_unit(self.name))
        return None if record is None else record.info.get("key")

    def _path(self, shard: Shard) -> str:
        return layout.attribute_path(self.name, shard.path, self.file_format)

    def _inputs_of(self, shard: Shard) -> tuple[Input, ...]:
        return inputs_of(self.root, self.columns.work(shard).files)

    def _plan(self, key: str) -> Plan:
        every = frozenset(map(self._path, self.dataset.shards))
        return Plan(
            stage=self.stage,
            root=self.root,
            tasks=[
                Task(
                    shard.path,
                    (Unit(self._path(shard), key),),
                    self._inputs_of(shard),
                    self.columns.work(shard, identities=True),
                )
                for shard in self.selected.shards
            ],
            params=self.params,
            writes=(dataset_unit(self.name),),
            version=dolma_dask.__version__,
            all_units=every,
            other_formats=layout.other_formats(every),
            reads=layout.DOCUMENT_SUFFIXES,
            bad_is_loss=True,
            notes=dataset_notes(self.dataset),
        )
