"""Maps: the rows of a shard are read once, and each sink that lacks something takes them.

A `Source` gives the rows of a shard and what is known of it, an output opens a sink for each of its files (`dolma_dask.sinks.sink`), `Map` connects
them: bad records go to the quarantine before files appear, and each file has a record. `tests/unit/example_map.py` is a verb with a sink of its own.
Cost: none beyond reading and writing; rows are views of a block.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.engine.plan import Task
from dolma_dask.io.files import Input
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.io.records import BadRecord, FileRecord
from dolma_dask.io.waiting import begin_task
from dolma_dask.journal import Record, Unit
from dolma_dask.placement import Cost, cost_of, dearer
from dolma_dask.sinks.sink import Output, ShardFacts, Sink

Rows = TypeVar("Rows")
Read = TypeVar("Read", covariant=True)


class Source(Protocol[Read]):
    """Rows of one task; small, goes to workers."""

    @property
    def name(self) -> str: ...  # path of the shard, for progress, failures, the quarantine and records
    @property
    def inputs(self) -> tuple[Input, ...]: ...

    def read(
        self, columns: frozenset[str], policy: RecordPolicy, quarantine: Quarantine, facts: ShardFacts
    ) -> Iterator[Read]:
        """Yield rows with `columns`; the facts are complete at the end."""
        ...


class MapWork(Struct, frozen=True, gc=False):
    """Work of a task: a shard, and which output of the stage makes which unit (the first one unless it is listed)."""

    source: Source[Any]
    outputs: Mapping[str, int] = {}


@dataclass(frozen=True)
class Map(Generic[Rows]):
    """Reads each shard once into the sinks of the units that are left; see `dolma_dask.engine.Stage`."""

    outputs: tuple[Output[Rows], ...]
    policy: RecordPolicy
    verb: str
    locked: float = field(
        default=0.0, kw_only=True
    )  # CPU-seconds per MB of text under the interpreter lock, besides the usual cost

    @property
    def urls(self) -> tuple[str, ...]:
        """Files that are read besides the inputs of tasks."""
        return tuple(url for output in self.outputs for url in getattr(output, "urls", ()))

    @property
    def cost(self) -> str | Cost:
        """Name of what it costs, for `dolma_dask.placement`: that of the dearest output that has one, else the verb; with `locked`, the sum."""
        named = {cost for output in self.outputs if (cost := getattr(output, "cost", ""))}
        usual = max(named, key=lambda name: cost_of(name).cpu, default=self.verb)
        return dearer(usual, self.locked) if self.locked else usual

    def task(self, source: Source[Any], *units: Unit) -> Task:
        """Return the work on a shard: a unit for each output."""
        numbers = {unit.name: number for number, unit in enumerate(units)} if units[1:] else {}
        return Task(source.name, units, source.inputs, MapWork(source, numbers))

    def run_shard(self, task: Task) -> list[Record]:
        """Read one shard; return a record for each unit."""
        source: Source[Any] = task.work.source
        facts, quarantine = ShardFacts(source.name), Quarantine(self.policy)
        return self._write(task, self.rows(source, self._columns(task), quarantine, facts), quarantine, facts)

    def joins(self, task: Task) -> Hashable:
        """Return what tasks have in common that are done as one; see `dolma_dask.engine.plan.JoiningStage`. Stages with `joined_rows` have an answer."""
        return None

    def run_joined(self, tasks: Sequence[Task]) -> list[list[Record]]:
        """Read several small shards as one; return a record for each unit of each."""
        facts = [ShardFacts(task.work.source.name) for task in tasks]
        records = []
        for task, rows, fact in zip(tasks, self.joined_rows(tasks, facts), facts, strict=True):
            begin_task()
            records.append(self._write(task, [rows], Quarantine(self.policy), fact))
        return records

    def joined_rows(self, tasks: Sequence[Task], facts: Sequence[ShardFacts]) -> Iterator[Rows]:
        """Yield the rows of each shard, which have none that cannot be read; its facts are complete then. Raise if anything is unusual."""
        raise NotImplementedError

    def _outputs(self, task: Task) -> list[Output[Rows]]:
        return [self.outputs[task.work.outputs.get(unit.name, 0)] for unit in task.units]

    def _columns(self, task: Task) -> frozenset[str]:
        return frozenset(column for output in self._outputs(task) for column in output.columns)

    def _write(
        self, task: Task, rows: Iterable[Rows], quarantine: Quarantine, facts: ShardFacts
    ) -> list[Record]:
        """Hand all rows of a shard to the sinks of its units, and return their records."""
        outputs = self._outputs(task)
        with ExitStack() as stack:
            sinks = [
                stack.enter_context(output.open(unit, facts.shard))
                for output, unit in zip(outputs, task.units, strict=True)
            ]
            for some in rows:
                for number, refused in enumerate(self.write(some, sinks)):
                    quarantine.refuse(
                        number, [_located(record, task.work.source) for record in refused or ()]
                    )
            # before files appear
            kept = self.set_aside(outputs, quarantine, facts.shard)
        return [
            sink.record(unit, facts, files) for sink, unit, files in zip(sinks, task.units, kept, strict=True)
        ]

    def rows(
        self, source: Source[Any], columns: frozenset[str], quarantine: Quarantine, facts: ShardFacts
    ) -> Iterator[Rows]:
        """Yield the rows for the sinks; a stage may change them."""
        return source.read(columns, self.policy, quarantine, facts)

    def write(self, rows: Rows, sinks: Sequence[Sink[Rows]]) -> list[Sequence[BadRecord] | None]:
        """Hand rows to all sinks, and return what each refuses."""
        return [sink.write(rows) for sink in sinks]

    def set_aside(
        self, outputs: Sequence[Output[Rows]], quarantine: Quarantine, shard: str
    ) -> list[tuple[FileRecord, ...]]:
        """Write bad records to the quarantine of each output, and return the files."""
        return [
            quarantine.publish(output.root, output.verb, shard, number)
            for number, output in enumerate(outputs)
        ]


def _located(record: BadRecord, source: Source[Any]) -> BadRecord:
    """Return a bad record with the URL of the file that it is in: a source of several files, a document each, has a row for each."""
    inputs = source.inputs
    if not inputs:
        return record
    return replace(record, url=inputs[record.row if getattr(source, "is_document_each", False) else 0].url)
