"""One stage for everything that documents become: a shard is read once, and each sink that lacks something takes the same rows.

`DocumentSource` gives the documents of a shard, an output opens a sink for each of its files (`dolma_dask.sinks.sink`), `DocumentStage` connects them.
Cost: none beyond reading and writing; rows are views of a block.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from typing import Protocol

from dolma_dask.engine.plan import Plan, Task
from dolma_dask.formats.digests import DocumentDigests
from dolma_dask.io.files import Input
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.journal import Record, Unit
from dolma_dask.sinks.sink import DocumentRows, Output, ShardFacts


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
