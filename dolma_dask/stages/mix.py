"""mix: read documents and attributes side by side, keep the rows that rules and filters keep, and write a new version in one pass.

Kept documents are copied byte for byte, but for what was asked to change. Memory: a few blocks per worker. An attribute file that is missing,
short, long, swapped or stale is an error, never silently unfiltered output.
"""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, Unpack

import dolma_dask
from dolma_dask import engine
from dolma_dask.dataset import Dataset
from dolma_dask.engine import Plan
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.layout import FileFormat
from dolma_dask.io import files
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.journal import work_key
from dolma_dask.mixing.filters import Syntax
from dolma_dask.stages.mix_lists import ThresholdsLike, narrow
from dolma_dask.stages.mix_pack import Packed, Part
from dolma_dask.stages.mix_packing import DEFAULT_SIZE, Packing
from dolma_dask.stages.mix_planning import make_mixture
from dolma_dask.stages.mix_recipe import Mixture
from dolma_dask.stages.mix_stage import MixStage
from dolma_dask.stages.mix_summary import MixSummary, summarize
from dolma_dask.stages.mix_wishes import ReplaceLike, make_wishes
from dolma_dask.stages.options import (
    DatasetLike,
    Many,
    ReadArgs,
    RuleLike,
    as_dataset,
    budget,
    check_format,
    checked,
    dataset_notes,
    record_policy,
    rule_of,
    run_options,
    selected,
    told,
    words_of,
)
from dolma_dask.stages.selection import select

VERSION = 2
"""Raised whenever mix writes other bytes for the same input and rule."""


def mix(
    dataset: DatasetLike,
    /,
    *,
    to: str,
    where: RuleLike = None,
    include: Annotated[Sequence[str], Many] = (),
    exclude: Annotated[Sequence[str], Many] = (),
    syntax: Syntax = "jsonpath",
    block: Annotated[Sequence[str], Many] = (),
    allow: Annotated[Sequence[str], Many] = (),
    thresholds: ThresholdsLike = None,
    replace: Annotated[Sequence[ReplaceLike], Many] = (),
    merge_attributes: bool = False,
    discard_fields: Annotated[Sequence[str], Many] = (),
    min_text_length: int = 0,
    provenance: bool = False,
    sample: float | None = None,
    shuffle: bool = False,
    seed: int = 0,
    max_size: int | None = None,
    name: str = "part",
    attributes: Annotated[Sequence[str], Many] = (),
    format: FileFormat | None = None,
    source: str | None = None,
    **options: Unpack[ReadArgs],
) -> MixSummary:
    """Write a new version of a dataset with the documents that rules and filters keep.

    Example: dolma-dask mix corpus/wiki/v0 --to corpus/wiki/v1 --where "word_count >= 50 and symbol_to_word_ratio < 0.1"

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ and attributes/ in it.
    to : str
        Root of the new version; its documents/ is written.
    where : str, optional
        Expression over id, source, added, created, metadata.<field> and attribute keys; a unique ending of a key is enough. A comparison with
        a missing value is false.
    include, exclude : list of str, optional
        Filters in JSONPath or jq, as the Dolma toolkit has them: a document is kept if any of `include` matches, and none of `exclude`.
    syntax : {"jsonpath", "jq"}, optional
        Language of the filters.
    block, allow : list of str, optional
        Files of ids, or sources and ids: listed documents are dropped, or kept alone. They are marked first, as by the verb block.
    thresholds : str or Thresholds, optional
        Keep only documents inside of the bounds that quantiles wrote into this file.
    replace : list of dict, optional
        Spans to replace, each with the keys span, min_score, max_score, replacement and syntax, on the command line as JSON:
        '{"span": "$.attributes.pii__pii__EMAIL_ADDRESS", "min_score": 0.5, "replacement": "|||EMAIL|||"}'. {} stands for the span's text.
    merge_attributes : bool, optional
        Write the attributes of the sets in `attributes` into the documents, as the Dolma toolkit does.
    discard_fields : list of str, optional
        Fields that the new documents do not have.
    min_text_length : int, optional
        Bytes of text, without white space around it, that a document needs after replacement.
    provenance : bool, optional
        Write into the metadata where each document comes from: file name and line.
    sample : float, optional
        How often each document is taken: 0.3 for three of ten, 2.5 for each twice and half of them once more; chosen by a hash of source and id.
    shuffle : bool, optional
        Write the documents of all shards in an order drawn by the seed.
    seed : int, optional
        Of the sample and the shuffle.
    max_size : int, optional
        Stored bytes of an output file at most. With it, or with shuffle, documents go to files <name>-0000.jsonl.gz, -0001 and so on; without,
        to one file per input file.
    name : str, optional
        Of these files.
    attributes : list of str, optional
        Attribute sets to read; by default those that rules and filters need. For filters, later ones win where two have one key.
    format : {"jsonl.gz", "jsonl.zst", "jsonl", "parquet"}, optional
        Format of the new documents; by default that of each input file.
    source : str, optional
        Source of all documents, for files that lack the field.

    Returns
    -------
    MixSummary
        With the number of documents for which each part of the rule holds, and that each filter matches.

    Raises
    ------
    StageError
        Some shards failed, for example because attributes do not line up.
    ExpressionError
        A rule or filter cannot be parsed, or names an unknown column.
    UsageError
        An argument is unknown, or has a value that it cannot have; no row has an attribute that a filter names.
    """
    options = checked(mix, options, ReadArgs)
    attributes = words_of("attributes", attributes)
    lists = words_of("block", block), words_of("allow", allow)
    where = rule_of(where)
    check_format(format)
    wishes = make_wishes(
        include=include,
        exclude=exclude,
        syntax=syntax,
        replacements=replace,
        discard_fields=discard_fields,
        min_text_length=min_text_length,
        provenance=provenance,
        merge_attributes=merge_attributes,
        sample_rate=sample,
        seed=seed,
    )
    if merge_attributes and not attributes:
        raise UsageError(
            "merge_attributes without attributes; expected the sets to write into the documents, in their order."
        )
    found = as_dataset(dataset, source)
    target = layout.dataset_root(files.normalize(to))
    check_apart(found.root, target)
    policy = record_policy(options)
    chosen = selected(found, options)
    narrowed = narrow(found, where, *lists, thresholds, options)
    of_rule = (
        (*attributes, *(name for name in narrowed.names if name not in attributes)) if attributes else ()
    )
    selection = select(chosen.with_current_attributes(), narrowed.where, of_rule)
    mixture = make_mixture(selection, wishes, attributes, in_order=merge_attributes)
    params = told(
        {
            "where": None if narrowed.where is None else str(narrowed.where),
            "attributes": list(attributes),
            "format": format,
            "from": found.root,
            "source": source,
            **wishes.params(),
        }
    )
    notes = (*dataset_notes(found), *narrowed.notes, *mixture.notes)
    job = _Job(target, found, chosen, mixture, policy, format, params, notes)
    if shuffle or max_size is not None:
        packing = Packing(
            f"{layout.DOCUMENTS}/{layout.check_name(name, 'name')}",
            "jsonl.gz" if format is None else format,
            DEFAULT_SIZE if max_size is None else max_size,
            seed if shuffle else None,
        )
        more = told({"max_size": max_size, "shuffle": shuffle or None, "name": name})
        summary = job.packed(name, packing, more).run(run_options(options))
    else:
        summary = engine.run(job.plan(), run_options(options))
    return _with_lists(summarize(summary), narrowed.lost)


@dataclasses.dataclass(frozen=True)
class _Job:
    """What one call has come to: a mixture of some shards of a dataset, and where it goes."""

    target: str
    found: Dataset
    chosen: Dataset
    mixture: Mixture
    policy: RecordPolicy
    format: FileFormat | None
    params: dict[str, Any]
    notes: tuple[str, ...]

    def packed(self, name: str, packing: Packing, more: dict[str, Any]) -> Packed:
        """Return the work of packing all shards into files of one size."""
        parts = tuple(Part(self.mixture, shard, shard.path) for shard in self.chosen.shards)
        key = mix_key(self.mixture, self.policy)
        params = {**self.params, **more}
        return Packed(
            self.target, name, parts, packing, self.policy, key, params, self.notes, owns_folder=True
        )

    def plan(self) -> Plan:
        """Return the plan of one output file per shard."""
        stage = MixStage(self.target, self.format, self.policy)
        key = mix_key(self.mixture, self.policy)
        layout.check_no_collision([stage.path(shard) for shard in self.found.shards])
        return Plan(
            stage=stage,
            root=self.target,
            tasks=[stage.task(self.mixture, shard, key) for shard in self.chosen.shards],
            params=self.params,
            writes=(f"{layout.DOCUMENTS}/",),
            version=dolma_dask.__version__,
            origin=self.found.root,
            reads=layout.DOCUMENT_SUFFIXES,
            all_units=frozenset(stage.path(shard) for shard in self.found.shards),
            max_bad_fraction=budget(self.policy),
            notes=self.notes,
        )


def _with_lists(summary: MixSummary, lost: bool) -> MixSummary:
    """Return a summary whose exit status tells too whether `block` lost rows."""
    return dataclasses.replace(summary, lost=summary.lost or lost)


def mix_key(mixture: Mixture, policy: RecordPolicy) -> str:
    """Return the key of the outputs of a mix."""
    params = {"max_record_bytes": policy.max_record_bytes, "on_bad_record": policy.on_bad_record}
    return work_key("mix", VERSION, {**mixture.params(), **params})


def check_apart(root: str, target: str) -> None:
    """Refuse a target that is the input, or lies among its documents, or holds it among the new ones."""
    ours, theirs = (
        files.resolved(files.join(layout.dataset_root(url), layout.DOCUMENTS)) for url in (root, target)
    )
    if f"{ours}/".startswith(f"{theirs}/") or f"{theirs}/".startswith(f"{ours}/"):
        raise UsageError(
            f"mix to {target} would write over its own input {root}; expected another folder or URL in --to."
        )
