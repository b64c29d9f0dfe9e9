"""The map of everything that documents become: files of documents, token shards, tables; see `dolma_dask.engine.map`."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from dolma_dask.engine.map import Map, MapWork, Source
from dolma_dask.engine.plan import Plan
from dolma_dask.formats.digests import DocumentDigests
from dolma_dask.io.quarantine import Quarantine
from dolma_dask.sinks.sink import DocumentRows, ShardFacts, Sink

DocumentSource = Source[DocumentRows]
"""Documents of a shard that go on; no column has nulls."""


@dataclass(frozen=True)
class DocumentStage(Map[DocumentRows]):
    """Reads each shard once, and digests the documents that sinks take."""

    def rows(
        self, source: Source[Any], columns: frozenset[str], quarantine: Quarantine, facts: ShardFacts
    ) -> Iterator[DocumentRows]:
        """Yield the documents; the facts have the digests of these at the end."""
        digests = DocumentDigests()
        for rows in self.documents(source, columns, quarantine, facts):
            digests.update(rows.batch)
            yield rows
        facts.ids_digest, facts.content_digest = digests.ids, digests.content

    def documents(
        self, source: DocumentSource, columns: frozenset[str], quarantine: Quarantine, facts: ShardFacts
    ) -> Iterator[DocumentRows]:
        """Yield the documents for the sinks; a stage may change them."""
        return source.read(columns, self.policy, quarantine, facts)

    def write(self, rows: DocumentRows, sinks: Sequence[Sink[DocumentRows]]) -> None:
        """Hand documents to all sinks."""
        with _shared_encoding(len(sinks)):
            super().write(rows, sinks)


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
    works = {name: MapWork(source, outputs[name]) for name, source in sources.items()}
    joined = [
        replace(
            plan,
            stage=replace(stage, verb=plan.verb),
            tasks=[replace(task, work=works[task.shard]) for task in plan.tasks],
        )
        for plan in plans
    ]
    return joined, stage
