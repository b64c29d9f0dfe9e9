"""One call of `mix`, from its options to its outputs: documents, packed or not, and token files.

Cost: that of reading the documents and attributes once; packed and shuffled documents are copied once or twice more as they are stored.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.dataset import Dataset
from dolma_dask.display import counted
from dolma_dask.engine import Job, MapJob, remove_abandoned, run_jobs
from dolma_dask.engine.documents import DocumentList, join_documents
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.options.base import without_empty
from dolma_dask.options.groups import NO_SHARD, check_outside
from dolma_dask.options.records import RecordOptions
from dolma_dask.outputs.card import write_card
from dolma_dask.outputs.cutting import DEFAULT_SIZE, FilePacking
from dolma_dask.outputs.documents import check_apart, documents_job
from dolma_dask.outputs.dropped import DroppedOutput
from dolma_dask.outputs.kept import documents_of
from dolma_dask.outputs.packed import Part
from dolma_dask.reading.kept import transform
from dolma_dask.reading.kept.transform import Mixture
from dolma_dask.reading.selection import rule_notes
from dolma_dask.results.parts import Fact, indented
from dolma_dask.results.summary import Summary
from dolma_dask.results.table import Table
from dolma_dask.sinks.documents import DocumentOutput
from dolma_dask.verbs.mix.options import MixOptions

if TYPE_CHECKING:  # most mixes make no tokens, whose modules cost a third of a start
    from dolma_dask.verbs.mix.drawn import DrawnTable
    from dolma_dask.verbs.mix.tokens import TokenOptions


class MixSummary(Summary, frozen=True):
    """The outcome of a mix.

    Attributes
    ----------
    others : tuple of (str, Summary)
        That of the token files which it made too, by their verbs.
    downsampled : DrawnTable or None
        What was wanted and is kept of each group, by `downsample` or `budget`.
    """

    others: tuple[tuple[str, Summary], ...] = ()
    downsampled: "DrawnTable | None" = None

    def facts(self) -> list[Fact]:
        """Return the facts, those of the token files below."""
        facts = super().facts()
        for name, other in self.others:
            own = {
                key: value
                for key, value in other.counts.items()
                if key not in self.counts or key == "bytes_out"
            }
            facts += [Fact(name, ""), *indented(replace(other, counts=own, rules=()).facts())]
        return facts

    def tables(self) -> list[Table]:
        return [] if self.downsampled is None or self.planned else [self.downsampled.table()]

    def to_json(self) -> dict[str, Any]:
        known = super().to_json() | {name: other.to_json() for name, other in self.others}
        del known["others"]
        downsampled = known.pop("downsampled")
        return known if self.downsampled is None else known | {self.downsampled.what: downsampled}


class Requested(Struct, frozen=True):
    """Outputs of a mix that were requested, checked."""

    documents: DocumentOutput | None
    packing: FilePacking | None  # how files of documents are cut; None: there is one for each input file
    tokens: "TokenOptions | None"
    dropped: DroppedOutput | None
    shown: Mapping[str, Any]  # the same for people

    @property
    def name(self) -> str | None:
        """Name of the token files, if one was given."""
        ragged = () if self.tokens is None else self.tokens.ragged
        return ragged[0].name if ragged else None

    @property
    def root(self) -> str:
        """Root of the first output."""
        return self.roots[0]

    @property
    def roots(self) -> tuple[str, ...]:
        """Roots of all outputs."""
        documents = () if self.documents is None else (self.documents.root,)
        tokens = () if self.tokens is None else self.tokens.roots
        return (*documents, *tokens, *(() if self.dropped is None else (self.dropped.root,)))


def requested(root: str, options: MixOptions, tokens: "TokenOptions | None") -> Requested:
    """Return the outputs of a mix of the dataset at `root`.

    Refused is what would write over the input, or among its documents, and token files that cannot be made.
    """
    target = None if options.to is None else layout.dataset_root(files.normalize(options.to))
    packing, shown = None, dict[str, Any](format=options.format)
    if options.is_packed:
        packing = _packing(options)
        shown |= {
            "max_size": options.max_size,
            "shards": options.shards,
            "shuffle": options.shuffle or None,
            "seed": packing.seed,
            "name": options.name,
        }
    if target is not None:
        check_apart(root, target)
    roots = [each for each in (root, target) if each is not None]
    if tokens is not None:
        tokens.check(roots)
    dropped = None
    if options.dropped is not None:
        dropped = DroppedOutput(files.normalize(options.dropped), options.dropped_documents)
        check_outside(dropped.root, *roots)
        dropped.check_apart(*roots, *(tokens.roots if tokens is not None else ()))
    documents = None if target is None else DocumentOutput(target, options.format)
    return Requested(documents, packing, tokens, dropped, without_empty(shown))


def _packing(options: MixOptions) -> FilePacking:
    return FilePacking(
        f"{layout.DOCUMENTS}/{layout.check_name(options.name, 'name')}",
        options.format or "jsonl.gz",
        DEFAULT_SIZE if options.max_size is None else options.max_size,
        options.seed if options.shuffle else None,
        options.shards,
    )


def run_mix(
    dataset: Dataset,
    mixture: Mixture,
    outputs: Requested,
    shown: Mapping[str, Any],
    notes: tuple[str, ...],
    options: RecordOptions,
    table: "DrawnTable | None" = None,
) -> MixSummary:
    """Make what is left of all outputs: `mixture` is of the shards of `dataset` that are mixed, `shown` tells its options to people, `table` what is kept of each group.

    Files of every kind are made for each shard from one reading; token files of packed documents are made from these.
    """
    policy, documents, tokens = options.policy, outputs.documents, outputs.tokens
    name, asked = name_of(dataset), len(mixture.dataset.shards)
    if not asked:
        return MixSummary("mix", outputs.root, notes=(*notes, NO_SHARD))
    is_narrowed = asked < len(dataset.shards)
    if outputs.packing is not None and is_narrowed:
        notes = (*notes, f"the files hold {asked:,} of {counted(len(dataset.shards), 'shard')} alone")
    jobs: dict[str, Job[Summary]] = {}
    if documents is not None:
        parts = [Part(mixture, shard, shard.path) for shard in mixture.dataset.shards]
        params = {"from": dataset.root, **shown, **outputs.shown}
        jobs["mix"] = documents_job(
            documents, outputs.packing, parts, policy, params, notes, is_narrowed, all_shards=dataset.shards
        )
    if outputs.packing is None and (tokens is not None or outputs.dropped is not None):
        params = {**mixture.params(), "mix": transform.VERSION}
        read = documents_of(mixture, dataset, params, shown)
        jobs |= {} if tokens is None else tokens.jobs(read, name, policy)
        jobs |= {} if outputs.dropped is None else _dropped_job(outputs.dropped, read, mixture, jobs, policy)
    first, *others = zip(jobs, run_jobs(list(jobs.values()), options, join_documents), strict=True)
    mixed = summarize(replace(first[1], verb="mix"), notes)
    if documents is not None and outputs.packing is None and mixed.done:
        remove_abandoned(documents.root, "mix")  # by a packed mix that was stopped and is no longer requested
    if documents is not None and outputs.packing is not None and tokens is not None and not mixed.planned:
        others = tokens.of_packed(documents.root, dataset.source, name, options)
    tables = (table.table(),) if table is not None and table.is_budget else ()
    if documents is not None and not mixed.planned and (note := write_card(documents.root, tables)):
        mixed = replace(mixed, notes=(*mixed.notes, note))
    return _with_others(mixed, others)


def _dropped_job(
    output: DroppedOutput,
    read: DocumentList,
    mixture: Mixture,
    others: Mapping[str, Job[Summary]],
    policy: RecordPolicy,
) -> dict[str, Job[Summary]]:
    """Return the job of dropped documents; records of a shard are told apart by the paths of files, which must differ from those of other outputs."""
    plan = output.plan(read, mixture.recipe.conditions, policy)
    plans = [plan, *(job.plan for job in others.values() if isinstance(job, MapJob))]
    layout.check_no_collision([path for each in plans for path in each.all_units or ()])
    return {"dropped": MapJob(plan)}


def name_of(dataset: Dataset) -> str:
    """Return the name of token files that have no other: that of the dataset, whether or not its documents are written again."""
    return files.normalize(dataset.root).rsplit("/", 1)[-1]


def summarize(summary: Summary, notes: tuple[str, ...] = ()) -> MixSummary:
    """Return the summary of a run of mix, with what its counts say of rules and filters."""
    known = {name: getattr(summary, name) for name in Summary.__struct_fields__}
    every = (*summary.notes, *notes, *rule_notes(summary))
    return MixSummary(**known | {"notes": tuple(dict.fromkeys(every))})


def _with_others(mixed: MixSummary, others: Sequence[tuple[str, Summary]]) -> MixSummary:
    """Return the outcome of a mix with that of the token files that it made."""
    notes = (f"{name}: {note}" for name, other in others for note in other.notes if note not in mixed.notes)
    planned = (*mixed.planned, *(path for _, other in others for path in other.planned))
    return replace(
        mixed,
        notes=(*mixed.notes, *notes),
        planned=tuple(dict.fromkeys(planned)),
        lost=mixed.lost or any(other.lost for _, other in others),
        seconds=max(mixed.seconds, *(other.seconds for _, other in others), 0.0),
        others=tuple(others),
    )
