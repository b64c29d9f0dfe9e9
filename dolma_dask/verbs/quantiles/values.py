"""The first pass of `quantiles`: read the columns once, choose the sampled rows, and keep their values per signal.

One file per group of shards, so that small shards make no swarm of files. Memory: a block of rows and a segment of values per worker.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct

from dolma_dask.dataset import Dataset
from dolma_dask.engine import Task, Unit, grouped
from dolma_dask.io import files
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.io.staging import stage
from dolma_dask.journal import Record
from dolma_dask.reading.columns import Columns, label_kind
from dolma_dask.reading.reader import AlignedReader, AlignedShard
from dolma_dask.rules.groups import MAX_GROUPS, Groups
from dolma_dask.rules.labels import BETWEEN
from dolma_dask.rules.rules import Rule
from dolma_dask.rules.sampling import Sample, sampled, sampled_by_group
from dolma_dask.rules.thresholds import By, Kind
from dolma_dask.verbs.quantiles.files import FORM, ValueWriter

GROUP_BYTES = 64 << 20
"""Stored bytes of the shards that share a file; a larger shard has one of its own."""

VALUES = "values"
"""Folder of the files."""


class Request(Struct, frozen=True):
    """Options of a call that decide its result."""

    columns: Columns  # all that are read
    signals: tuple[str, ...]  # full names
    by: By  # full name of the column of the groups, or of several
    probabilities: tuple[float, ...]  # ascending
    sample: Sample | None = None  # None: all documents
    seed: int = 0  # of the sample
    where: Rule | None = None  # over full names; None: all documents

    @property
    def label(self) -> str | None:
        """Column of the labels of the groups."""
        return self.by if not isinstance(self.by, tuple) else BETWEEN.join(self.by)

    @property
    def kind(self) -> Kind:
        """Type of the labels, or of each of several columns."""
        if isinstance(self.by, tuple):
            return tuple(label_kind(self.columns.kinds[name]) for name in self.by)
        return "string" if self.by is None else label_kind(self.columns.kinds[self.by])

    def sampled(self, batch: pa.RecordBatch, sample: Sample) -> pa.BooleanArray:
        """Tell which rows (n,) are in a sample."""
        source, identity = batch.column("source"), batch.column("id")
        if isinstance(sample, Mapping):
            return sampled_by_group(source, identity, batch.column(self.label), sample, self.seed)
        return sampled(source, identity, sample, self.seed)

    def params(self) -> dict[str, Any]:
        """Return all that decides the result besides the files."""
        drawn = {"sample": self.sample, "seed": self.seed} if self.sample is not None else {}
        return {
            **self.columns.params(),
            "signals": list(self.signals),
            "by": self.by,
            "probabilities": list(self.probabilities),
            **drawn,
            **({} if self.where is None else {"where": self.where.canonical()}),
        }


class ValueStage(Struct, frozen=True):
    """The first pass over some shards."""

    root: str  # of the dataset
    folder: str  # for the files of values
    request: Request
    policy: RecordPolicy = msgspec.field(default_factory=RecordPolicy)
    verb: str = "quantiles"

    def run_shard(self, task: Task) -> list[Record]:
        """Keep the values of a group of shards; see `dolma_dask.engine.Stage`."""
        unit = task.unit
        groups = None if self.request.label is None else Groups(self.request.label)
        codes_possible = 1 if groups is None else MAX_GROUPS + 1
        done = _Done()
        with stage(files.join(self.folder, unit.name)) as out:
            writer = ValueWriter(out, len(self.request.signals), codes_possible)
            for work in task.work:
                for batch in self._batches(work, done):
                    codes = np.zeros(batch.num_rows, np.uint16)
                    if groups is not None:
                        codes = groups.codes(batch.column(groups.by))
                        done.counts["documents_without_group"] += int(np.count_nonzero(codes == 0))
                    writer.add(codes, [batch.column(name) for name in self.request.signals])
            counts = writer.finish(groups.labels if groups else ())
        names = ("values", "missing_values", "infinite_values")
        done.counts.update(zip(names, counts.sum(axis=(0, 1)).tolist(), strict=True))
        written = FileRecord(unit.name, out.bytes, out.checksum)
        info = {
            "labels": groups.labels if groups else [],
            "unproved": sorted(done.unproved),
            "quarantine": msgspec.to_builtins(done.kept),
        }
        rows = int(done.counts["documents_in"])
        return [task.record([written], done.inputs, rows, counts=dict(done.counts), info=info)]

    def _batches(self, work: AlignedShard, done: "_Done") -> Iterator[pa.RecordBatch]:
        """Yield the sampled rows of a shard, and take down what is known of it at its end."""
        quarantine = Quarantine(self.policy)
        reader = work.open(max_record_bytes=self.policy.max_record_bytes, quarantine=quarantine)
        for block in reader:
            batch = block.batch
            if self.request.sample is not None:
                batch = batch.filter(self.request.sampled(batch, self.request.sample))
                done.counts["documents_sampled"] += batch.num_rows
            if self.request.where is not None:
                columns = {name: batch.column(name) for name in self.request.where.names}
                holds = self.request.where.mask(columns or {"": pa.nulls(batch.num_rows)})
                done.counts["documents_excluded"] += len(holds) - holds.true_count
                batch = batch.filter(holds)
            yield batch
        done.take(reader, quarantine.publish(self.root, self.verb, work.shard.path))


class _Done(Struct):
    """Values read so far of a group of shards."""

    inputs: list[InputRecord] = []
    unproved: set[str] = set()
    kept: list[FileRecord] = []
    counts: defaultdict[str, float] = msgspec.field(default_factory=lambda: defaultdict(int))

    def take(self, reader: AlignedReader, kept: Sequence[FileRecord]) -> None:
        state = reader.state
        self.inputs += state.inputs
        self.unproved.update(state.unproved)
        self.kept += kept
        self.counts["documents_in"] += state.rows
        self.counts["bad_records"] += state.bad_records
        self.counts["unproved_attribute_files"] += len(state.unproved)


def value_tasks(request: Request, dataset: Dataset, key: str) -> list[Task]:
    """Return the tasks of the first pass: groups of neighbouring shards, which depend on the listing alone."""
    tasks: list[Task] = []
    works = [request.columns.work(shard) for shard in dataset.shards]
    for group in grouped(works, lambda work: sum(info.bytes for info in work.files), GROUP_BYTES):
        tasks.append(Task.of(group, Unit(f"{VALUES}/{len(tasks):06d}.bin", f"{key}-{FORM}")))
    return tasks
