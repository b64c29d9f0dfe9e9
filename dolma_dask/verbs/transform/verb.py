"""transform: rewrite the texts of documents by a function of the user, and write them as a new version.

Ids, sources and everything else of a document stay as they are, byte for byte, unless the function takes whole documents and changes them. It costs
what mix costs, and the function: with one Python call per text some 90 MB of text per CPU-second besides its own work.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from dolma_dask.engine import Unit
from dolma_dask.engine.documents import DocumentSource, DocumentStage, document_plan
from dolma_dask.formats import layout
from dolma_dask.formats.documents import text_bytes
from dolma_dask.functions.calls import FunctionLike
from dolma_dask.io import files
from dolma_dask.io.quarantine import Quarantine
from dolma_dask.io.records import Block
from dolma_dask.journal import work_key
from dolma_dask.options.base import OUTPUT, WHAT, Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import Documents
from dolma_dask.options.kept import KeptOptions, RuleLike, rule_of
from dolma_dask.options.records import RecordOptions
from dolma_dask.outputs.documents import DocumentFormat, check_apart
from dolma_dask.outputs.kept import make_files
from dolma_dask.ownership import dataset_notes
from dolma_dask.reading.kept import transform as mixing
from dolma_dask.reading.kept.planning import make_mixture
from dolma_dask.reading.kept.transform import Mixture
from dolma_dask.reading.selection import select
from dolma_dask.results.summary import Summary
from dolma_dask.sinks.documents import DocumentOutput
from dolma_dask.sinks.sink import DocumentRows, ShardFacts
from dolma_dask.verbs.transform.rewriting import Rewriter, Rewriting

VERSION = 1
"""Raised whenever transform writes other bytes for the same documents and function."""


@dataclass(frozen=True, kw_only=True)
class TransformOptions(KeptOptions, RecordOptions):
    """Options of `transform`."""

    unrecorded = frozenset({"to"})

    to: Annotated[str, Opt("Root of the new version; its documents/ is written.", group=OUTPUT)]
    where: Annotated[
        RuleLike,
        Opt("Keep and rewrite only documents for which this holds, as in mix.", kind="str", convert=rule_of),
    ] = None
    attributes: Annotated[
        Sequence[str],
        Opt("Attribute sets to read for the rule; by default those that it needs.", group=WHAT),
    ] = ()
    provenance: Annotated[
        bool,
        Opt(
            "Write into the metadata where each document comes from, file name and line, and into that of changed ones the name and digest of the "
            "function."
        ),
    ] = False
    format: DocumentFormat = None


@command
def transform(
    dataset: Documents,
    /,
    function: Annotated[
        FunctionLike,
        Opt(
            "Where the function is: file.py:name or module:name. From Python also the function itself. It gets a text and returns a text, or nothing to "
            "drop the document. If its first parameter has the type dict, or the name document, doc or record, it gets the whole document and returns "
            "that; with the type pyarrow.Array, or the name texts, all texts of a block, and returns as many, null where a document is dropped.",
            kind="str",
        ),
    ],
    *,
    options: TransformOptions,
) -> Summary:
    """Rewrite the texts of documents by a function of yours, and write them as a new version of the dataset.

    Example: dolma-dask transform corpus/wiki/v0 --function clean.py:strip_menus --to corpus/wiki/clean

    Returns
    -------
    Summary
        With the numbers of documents changed, unchanged and dropped, and of characters before and after.

    Raises
    ------
    StageError
        Some shards failed, for example because the function raised.
    BadRecordBudgetError
        The function failed on more documents than `max_bad_fraction` allows.
    UsageError
        The function cannot be used; or an argument is unknown, or has a value that it cannot have.

    Notes
    -----
    Documents keep their ids. Attributes of the old version are not copied: tag the new one.
    """
    rewriting = Rewriting.of(function, options.provenance)
    opened = options.open(dataset)
    target = layout.dataset_root(files.normalize(options.to))
    check_apart(opened.root, target, "transform")
    asked = options.selected(opened)
    selection = select(asked.with_current_attributes(), options.where, options.attributes)
    mixture = make_mixture(selection, names=options.attributes).for_targets(target)
    output = DocumentOutput(target, options.format, verb="transform")
    stage = TransformStage((output,), options.policy, "transform", rewriting, opened.root)
    every = [output.path(shard) for shard in opened.shards]
    layout.check_no_collision(every)
    key = stage.key(mixture)
    rule = selection.rule
    tasks = [
        stage.task(mixture.source(shard), Unit(output.path(shard), key)) for shard in mixture.dataset.shards
    ]
    params = options.params(
        **{"from": opened.root},
        function=rewriting.function.name,
        function_version=rewriting.function.version,
        where=None if rule is None else str(rule),
        provenance=options.provenance or None,
    )
    notes = (*dataset_notes(opened), *mixture.notes)
    plan = document_plan(stage, tasks, every, params, key=key, origin=opened.root, notes=notes)
    return make_files(plan, options)


@dataclass(frozen=True)
class TransformStage(DocumentStage):
    """Reads each shard once, and rewrites its documents."""

    rewriting: Rewriting
    root: str  # of the documents that are read

    def key(self, mixture: Mixture) -> str:
        """Return the key of the documents."""
        params = {**self.policy.params(), "mix": mixing.VERSION}
        return work_key("transform", VERSION, {**mixture.params(), **self.rewriting.params(), **params})

    def documents(
        self, source: DocumentSource, columns: frozenset[str], quarantine: Quarantine, facts: ShardFacts
    ) -> Iterator[DocumentRows]:
        """Yield rewritten documents; see `DocumentStage`."""
        rewriter = Rewriter(self.rewriting, files.join(self.root, layout.document_path(source.name)))
        documents, size = 0, 0
        for before in source.read(columns, self.policy, quarantine, facts):
            after, bad = rewriter(before)
            quarantine.admit(Block(after.batch, 0, tuple(bad)))
            documents += after.batch.num_rows
            size += text_bytes(after.batch.column("text"))
            yield after
        written = {"documents_out": documents, "text_bytes_out": size, "bad_records": quarantine.count}
        facts.counts = {**facts.counts, **written, **rewriter.counts}
