"""Jobs that flag documents: what `dedupe` and `block` have in common.

The dataset-wide record tells readers which flags hold: those whose records have the key in its ``info["key"]``. It is therefore announced before
the first flag is written, so that after a kill no old flag counts beside new ones.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from dolma_dask.dataset import Dataset, Shard
from dolma_dask.engine import Input, Plan, Task, Unit, attribute_plan, grouped
from dolma_dask.engine.map import Map, Source
from dolma_dask.errors import UsageError
from dolma_dask.exchange import Exchanged, ShardRecords
from dolma_dask.exchange.flag_rows import ShardKeys, StagedShard, staged_shards
from dolma_dask.exchange.flags import StagedSource
from dolma_dask.formats import layout
from dolma_dask.formats.layout import FileFormat
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.journal import Record
from dolma_dask.reading.columns import Columns
from dolma_dask.sinks.sink import Output

GROUP_BYTES = 32_000_000
"""Stored bytes of small shards that are read by one task."""

GROUP_SHARDS = 256
"""Shards that are read by one task at most: opening one costs as much as reading 100 kB or more, on a store far more."""


def dataset_unit(name: str) -> str:
    """Return the unit of the dataset-wide record of an attribute set; it is the name of no file."""
    return f"{layout.ATTRIBUTES}/{name}/"


def check_written(columns: Columns, name: str) -> None:
    """Refuse to write the attribute set that is read."""
    if columns.sets is not None and name in columns.sets.files:
        read = [column for column in columns.names if column in columns.sets.kinds[name]]
        raise UsageError(
            f"attribute set {name!r} would be written and is read for {' and '.join(read)}; expected another set. Choose another --name."
        )


@dataclass(frozen=True, kw_only=True)
class Flagging:
    """A job that writes an attribute set of flags; see `dolma_dask.engine.Job`."""

    dataset: Dataset  # all shards
    selected: Dataset  # those to flag
    columns: Columns  # to read, `dolma_dask.exchange.flag_rows.COLUMNS` first
    name: str  # of the attribute set, and its only key
    file_format: FileFormat | None
    policy: RecordPolicy
    params: Mapping[str, Any] = field(default_factory=dict)

    verb: ClassVar[str]
    depends_on: ClassVar[str]  # besides the own shard: "documents" of all shards, or a "list"

    @property
    def root(self) -> str:
        """Root of the dataset."""
        return self.dataset.root

    @property
    def writes(self) -> Sequence[str]:
        """See `dolma_dask.engine.Job`."""
        return ()

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Files of all shards."""
        return self.inputs_of(self.dataset.shards)

    def path(self, shard: Shard) -> str:
        """Return where the flags of a shard go."""
        return layout.attribute_path(self.name, shard.path, self.file_format)

    def inputs_of(self, shards: Iterable[Shard]) -> tuple[Input, ...]:
        """Return the files that are read for the flags of some shards."""
        return tuple(item for shard in shards for item in self.columns.work(shard).inputs)

    def plan(self, output: Output[Any], key: str, sources: Mapping[str, Source[Any]]) -> Plan:
        """Return the plan that writes the flags of the selected shards under a key, from a source for each that is known already."""
        stage: Map[Any] = Map((output,), self.policy, self.verb)
        tasks = [self._task(stage, shard, key, sources.get(shard.path)) for shard in self.selected.shards]
        every = [self.path(shard) for shard in self.dataset.shards]
        return attribute_plan(stage, self.dataset, (self.name,), tasks, every, self.params, is_whole=True)

    def _task(self, stage: Map[Any], shard: Shard, key: str, source: Source[Any] | None) -> Task:
        unit = Unit(self.path(shard), key)
        return stage.task(source, unit) if source else Task(shard.path, (unit,), self.inputs_of([shard]))

    def reading(self, numbers: Sequence[int], before: int = 0) -> list[Task]:
        """Return tasks that read these shards for an exchange in which others have the numbers `before` them; small ones together."""
        shards = self.dataset.shards
        works = [
            ShardKeys(before + number, self.columns.work(shards[number], exact=True)) for number in numbers
        ]
        groups = grouped(works, lambda work: work.work.shard.bytes, GROUP_BYTES, GROUP_SHARDS)
        return [Task.of(group) for group in groups]

    def staged(self, exchanged: Exchanged, before: int = 0) -> dict[str, StagedShard]:
        """Return what an exchange has staged of each shard, by path; see `reading`."""
        staged = (shard for record in exchanged.emitted.values() for shard in staged_shards(record))
        shards = self.dataset.shards
        return {
            shards[one.number - before].path: one
            for one in staged
            if before <= one.number < before + len(shards)
        }

    def sources(
        self, kind: type[StagedSource], staged: Mapping[str, StagedShard], folder: str, records: ShardRecords
    ) -> dict[str, StagedSource]:
        """Return the sources of flags, by path of the shard: what was staged below `folder`, beside the records that have come back."""
        shards = {shard.path: shard for shard in self.dataset.shards}
        return {
            path: kind(one, folder, records, self.inputs_of([shards[path]])) for path, one in staged.items()
        }

    def dataset_record(
        self,
        unit: Unit,
        key: str,
        inputs: Sequence[InputRecord] = (),
        kept: Sequence[FileRecord] = (),
        *,
        seconds: float = 0.0,
        info: Mapping[str, Any] | None = None,
    ) -> Record:
        """Return the record that says that the flags of `key` hold from now on, and what they were made of."""
        described = {"key": key, "depends_on": self.depends_on, **(info or {})}
        shard = self.dataset.shards[0].path
        return Record(unit.name, shard, unit.key, tuple(inputs), tuple(kept), seconds=seconds, info=described)
