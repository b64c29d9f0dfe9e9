"""One stage for everything that documents become: a shard is read once, and each sink that lacks something takes the same rows.

`DocumentSource` gives the documents of a shard, `Output` opens a `Sink` for each of its files, `DocumentStage` connects them. A new kind of file is an
output: ``columns`` that it takes, ``open``, ``write`` and ``record``. Cost: none beyond reading and writing; rows are views of a block.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dolma_dask.engine import Input, Plan, Task, Unit
from dolma_dask.formats.digests import DocumentDigests
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.io.records import FileRecord, InputRecord, RuleCount
from dolma_dask.journal import Record

Writer = TypeVar("Writer", bound=AbstractContextManager[Any])


@dataclass(frozen=True)
class DocumentRows:
    """Some documents of a shard, as they are to be written."""

    batch: pa.RecordBatch  # (n,) the columns that outputs take, but the lines
    numbers: npt.NDArray[np.int64]  # (n,) rows in the shard
    lines: pa.LargeBinaryArray | None = None  # (n,) with their final newlines; None: no output takes them


@dataclass
class ShardFacts:
    """Facts about a shard for the records of all that is made of it; complete when it has been read."""

    shard: str
    inputs: tuple[InputRecord, ...] = ()
    counts: Mapping[str, float] = field(default_factory=dict)
    rules: tuple[RuleCount, ...] = ()
    unproved: tuple[str, ...] = ()  # attribute sets that no journal speaks of
    skipped_members: tuple[str, ...] = ()  # the first members of archives that hold no records
    ids_digest: str = ""  # of the rows that sinks took
    content_digest: str = ""

    def record(self, unit: Unit, files: Sequence[FileRecord], rows: int, **more: Any) -> Record:
        """Return the record of a unit; `more` are fields of it, of which ``counts`` are added to those of the reading."""
        counts = {**self.counts, **more.pop("counts", {})}
        return Record(
            unit=unit.name,
            shard=self.shard,
            key=unit.key,
            inputs=self.inputs,
            files=tuple(files),
            rows=rows,
            counts=counts,
            rules=self.rules,
            **more,
        )


class DocumentSource(Protocol):
    """Documents of one task; small, goes to workers."""

    @property
    def name(self) -> str: ...  # path of the shard, for progress, failures, the quarantine and records
    @property
    def inputs(self) -> tuple[Input, ...]: ...

    def read(
        self, columns: frozenset[str], policy: RecordPolicy, quarantine: Quarantine, facts: ShardFacts
    ) -> Iterator[DocumentRows]:
        """Yield documents with `columns`, without nulls; the facts are complete at the end."""
        ...


class Sink(AbstractContextManager[Any], Protocol):
    """Takes the documents of one shard; its files appear on a clean exit, and not at all after an exception."""

    def write(self, rows: DocumentRows) -> None:
        """Append documents."""
        ...

    def record(self, unit: Unit, facts: ShardFacts, quarantined: tuple[FileRecord, ...]) -> Record:
        """Return the record of what was written, after a clean exit; `quarantined` are files of bad records."""
        ...


class WriterSink(Generic[Writer]):
    """Base of sinks that hand everything to one writer: its files appear on a clean exit."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def __enter__(self) -> Self:
        self.writer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.writer.__exit__(kind, error, trace)


class Output(Protocol):
    """A kind of files that shards become; small, goes to workers."""

    @property
    def root(self) -> str: ...  # of the quarantine
    @property
    def verb(self) -> str: ...  # of the quarantine
    @property
    def columns(self) -> tuple[str, ...]: ...  # of documents that sinks take; `RAW` stands for the lines

    def open(self, unit: Unit, shard: str) -> Sink:
        """Return the sink of a unit."""
        ...


@dataclass(frozen=True)
class DocumentWork:
    """Work of a task: a shard, and which output of the stage makes which unit (the first one unless it is listed)."""

    source: DocumentSource
    outputs: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class DocumentStage:
    """Reads each shard once into the sinks of the units that are left; see `dolma_dask.engine.Stage`."""

    outputs: tuple[Output, ...]
    policy: RecordPolicy
    verb: str

    def task(self, source: DocumentSource, unit: Unit) -> Task:
        """Return the work on a shard that makes one unit, of the first output."""
        return Task(source.name, (unit,), source.inputs, DocumentWork(source))

    def run_shard(self, task: Task) -> list[Record]:
        """Read one shard; return a record for each unit."""
        work: DocumentWork = task.work
        name = work.source.name
        outputs = [self.outputs[work.outputs.get(unit.name, 0)] for unit in task.units]
        quarantine = Quarantine(self.policy)
        facts = ShardFacts(name)
        columns = frozenset(column for output in outputs for column in output.columns)
        digests = DocumentDigests()
        with ExitStack() as stack:
            sinks = [
                stack.enter_context(output.open(unit, name))
                for output, unit in zip(outputs, task.units, strict=True)
            ]
            for rows in self.rows(work.source, columns, quarantine, facts):
                digests.update(rows.batch)
                with _shared_encoding(len(sinks)):
                    for sink in sinks:
                        sink.write(rows)
            # before files appear
            quarantined = [quarantine.publish(output.root, output.verb, name) for output in outputs]
        facts.ids_digest, facts.content_digest = digests.ids, digests.content
        return [
            sink.record(unit, facts, files)
            for sink, unit, files in zip(sinks, task.units, quarantined, strict=True)
        ]

    def rows(
        self, source: DocumentSource, columns: frozenset[str], quarantine: Quarantine, facts: ShardFacts
    ) -> Iterator[DocumentRows]:
        """Yield the documents for the sinks; a stage may change them."""
        return source.read(columns, self.policy, quarantine, facts)


def _shared_encoding(sinks: int) -> AbstractContextManager[None]:
    """Let several sinks share the tokens of a block; one alone needs no tokenizer, which may not even be loaded."""
    if sinks == 1:
        return nullcontext()
    from dolma_dask.tokens.engine import encoding_once

    return encoding_once()


def join_documents(plans: Sequence[Plan]) -> tuple[list[Plan], DocumentStage]:
    """Make one stage of the document stages of several plans over the same shards; see `dolma_dask.engine.run_jobs`."""
    stages = [plan.stage for plan in plans if isinstance(plan.stage, DocumentStage)]
    sources: dict[str, DocumentSource] = {}
    outputs: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for number, plan in enumerate(plans):
        for task in plan.tasks:
            sources[task.shard] = task.work.source
            outputs[task.shard].update({unit.name: number for unit in task.units})
    stage = replace(stages[0], verb="mix", outputs=tuple(output for one in stages for output in one.outputs))
    works = {name: DocumentWork(source, outputs[name]) for name, source in sources.items()}
    joined = [
        replace(
            plan,
            stage=replace(stage, verb=plan.verb),
            tasks=[replace(task, work=works[task.shard]) for task in plan.tasks],
        )
        for plan in plans
    ]
    return joined, stage
