"""The map of everything that documents become: files of documents, token shards, tables; see `dolma_dask.engine.map`.

`document_plan` is the plan of new documents, `file_plan` that of an output in a folder of its own; `tests/unit/example_sink.py` is a verb with one.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.engine.map import Map, MapWork, Source
from dolma_dask.engine.plan import Plan, Task, outlines
from dolma_dask.formats import layout
from dolma_dask.formats.digests import DocumentDigests, digests_of_parts
from dolma_dask.io import files
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.io.records import BadRecord
from dolma_dask.journal import Unit, work_key
from dolma_dask.options.base import without_empty
from dolma_dask.options.groups import check_outside
from dolma_dask.options.records import budget
from dolma_dask.sinks.sink import DocumentRows, Output, ShardFacts, Sink

DocumentSource = Source[DocumentRows]
"""Documents of a shard that go on; no column has nulls."""


class DocumentList(Struct, frozen=True):
    """All documents of a run, in order, and what decides which they are."""

    origin: str  # root of what is read
    parts: tuple[DocumentSource, ...]
    shards: tuple[str, ...]  # names of all that there are, also of those that options leave out
    params: Mapping[str, Any] = {}
    """Parameters that decide the documents, besides the bytes of the files."""
    shown: Mapping[str, Any] = {}  # the same for people
    notes: tuple[str, ...] = ()  # for people
    is_narrowed: bool = False  # options leave shards out


@dataclass(frozen=True)
class DocumentStage(Map[DocumentRows]):
    """Reads each shard once, and digests the documents that sinks take."""

    def rows(
        self, source: Source[Any], columns: frozenset[str], quarantine: Quarantine, facts: ShardFacts
    ) -> Iterator[DocumentRows]:
        """Yield the documents; the facts have the digests of these at the end."""
        digests = DocumentDigests()
        for rows in self.documents(source, columns, quarantine, facts):
            digests.update(rows.block, rows.taken)
            yield rows
        facts.ids_digest, facts.content_digest = digests.ids, digests.content

    def joins(self, task: Task) -> Hashable:
        """See `Map`: documents of sources that say so are read together, and cut before sinks take them."""
        common = getattr(task.work.source, "joins", None)
        if (
            common is None
            or type(self) is not DocumentStage
            or not all(files.is_local(o.root) for o in self.outputs)
        ):
            return None
        return common, *(task.work.outputs.get(unit.name, 0) for unit in task.units)

    def joined_rows(self, tasks: Sequence[Task], facts: Sequence[ShardFacts]) -> Iterator[DocumentRows]:
        """See `Map`."""
        sources = [task.work.source for task in tasks]
        joined = sources[0].read_joined(sources, self._columns(tasks[0]), self.policy, facts)
        rows: DocumentRows = joined.rows
        digests = digests_of_parts(rows.block, joined.cuts, rows.taken)
        for fact, part, digest in zip(facts, joined.parts, digests, strict=True):
            fact.ids_digest, fact.content_digest = digest
            yield rows.part(part)

    def documents(
        self, source: DocumentSource, columns: frozenset[str], quarantine: Quarantine, facts: ShardFacts
    ) -> Iterator[DocumentRows]:
        """Yield the documents for the sinks; a stage may change them."""
        return source.read(columns, self.policy, quarantine, facts)

    def write(
        self, rows: DocumentRows, sinks: Sequence[Sink[DocumentRows]]
    ) -> list[Sequence[BadRecord] | None]:
        """Hand documents to all sinks, and return what each refuses."""
        with _shared_encoding(len(sinks)):
            return super().write(rows, sinks)


def _shared_encoding(sinks: int) -> AbstractContextManager[None]:
    """Let several sinks share the tokens of a block; one alone needs no tokenizer, which may not even be loaded."""
    if sinks == 1:
        return nullcontext()
    from dolma_dask.tokens.engine import encoding_once

    return encoding_once()


def file_plan(
    output: Output[DocumentRows],
    documents: DocumentList,
    paths: Mapping[str, str],
    policy: RecordPolicy,
    options: Mapping[str, Any],
    *,
    version: int,
    shown: Mapping[str, Any] | None = None,
) -> Plan:
    """Return the plan of an output with a file for each shard, in a folder of its own.

    Parameters
    ----------
    output : Output
        What opens the sinks; its verb is that of the plan.
    documents : DocumentList
        What is written.
    paths : mapping of str to str
        The file of each of ``documents.shards``, relative to the root of the output.
    policy : RecordPolicy
        What happens to bad records.
    options : mapping of str to object
        Options of the output that can change a byte. They are in the key, so that files of other options are made again, and in the journal, so that
        those of a finished run are not replaced unasked.
    version : int
        Raised whenever the output writes other bytes for the same documents and options.
    shown : mapping of str to object, optional
        Options in the words that people know them by, in place of those in the key; None leaves one out.

    Raises
    ------
    UsageError
        Two shards have one file, or a file would lie among the documents and attributes that are read.
    """
    layout.check_no_collision(list(paths.values()))
    for folder in {path.rpartition("/")[0] for path in paths.values()}:
        check_outside(files.join(output.root, folder), documents.origin)
    stage = DocumentStage((output,), policy, output.verb)
    key = work_key(output.verb, version, {**documents.params, **options, **policy.params()})
    known = {"from": documents.origin, **options, **(shown or {}), **documents.shown}
    return Plan(
        stage=stage,
        root=output.root,
        tasks=[stage.task(part, Unit(paths[part.name], key)) for part in documents.parts],
        params=without_empty(known),
        writes=("",),
        origin=documents.origin,
        all_units=frozenset(paths.values()),
        max_bad_fraction=budget(policy),
        notes=documents.notes,
    )


def document_plan(
    stage: DocumentStage,
    tasks: Sequence[Task],
    every: Sequence[str],
    params: Mapping[str, Any],
    *,
    key: str,
    origin: str,
    notes: tuple[str, ...] = (),
    folder: str = f"{layout.DOCUMENTS}/",
) -> Plan:
    """Return the plan of a document file for each shard.

    Parameters
    ----------
    stage, tasks, params, origin, notes
        See `Plan`.
    every : sequence of str
        Paths of the files of all shards, if no others may stay in the folder; else empty.
    key : str
        Digest of what decides the documents besides the inputs.
    folder : str
        Where the files lie, relative to the root of the output.
    """
    (output,) = stage.outputs
    units = frozenset(every)
    return Plan(
        stage=stage,
        root=output.root,
        tasks=tasks,
        params=params,
        writes=(folder,),
        options_key=key,
        origin=origin,
        reads=layout.DOCUMENT_SUFFIXES,
        all_units=units or None,
        other_formats=layout.other_formats(units or [task.unit.name for task in outlines(tasks)]),
        max_bad_fraction=budget(stage.policy),
        quarantine=files.join(output.root, f"{layout.QUARANTINE}/{output.verb}"),
        notes=notes,
    )


def join_documents(plans: Sequence[Plan]) -> tuple[list[Plan], DocumentStage]:
    """Make one stage of the document stages of several plans over the same shards; see `dolma_dask.engine.run_jobs`."""
    stages = [plan.stage for plan in plans if isinstance(plan.stage, DocumentStage)]
    sources: dict[str, DocumentSource] = {}
    outputs: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for number, plan in enumerate(plans):
        for task in plan.tasks:
            sources[task.shard] = task.work.source
            outputs[task.shard].update({unit.name: number for unit in task.units})
    stage = dataclasses.replace(
        stages[0], verb="mix", outputs=tuple(output for one in stages for output in one.outputs)
    )
    works = {name: MapWork(source, outputs[name]) for name, source in sources.items()}
    joined = [
        replace(
            plan,
            stage=dataclasses.replace(stage, verb=plan.verb),
            tasks=[replace(task, work=works[task.shard]) for task in plan.tasks],
        )
        for plan in plans
    ]
    return joined, stage
