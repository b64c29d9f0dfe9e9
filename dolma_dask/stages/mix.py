"""mix: read documents and attributes side by side, keep the rows that rules and filters keep, and write a new version in one pass.

Kept documents are copied byte for byte, but for what was asked to change. Memory: a few blocks per worker. An attribute file that is missing,
short, long, swapped or stale is an error, never silently unfiltered output.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Unpack

import dolma_dask
from dolma_dask import clusters
from dolma_dask.dataset import Dataset
from dolma_dask.engine import Plan, RunOptions, Unit
from dolma_dask.errors import UsageError
from dolma_dask.exchange.folders import remove_abandoned
from dolma_dask.formats import layout
from dolma_dask.formats.layout import FileFormat
from dolma_dask.io import files
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.journal import work_key
from dolma_dask.mixing.filters import Syntax
from dolma_dask.stages.mixing.cutting import DEFAULT_SIZE, Packing
from dolma_dask.stages.mixing.lists import ThresholdsLike, narrow
from dolma_dask.stages.mixing.packed import Packed, Part
from dolma_dask.stages.mixing.planning import make_mixture
from dolma_dask.stages.mixing.recipe import Mixture
from dolma_dask.stages.mixing.stage import DocumentOutput, MixStage
from dolma_dask.stages.mixing.summary import MixSummary, summarize, with_others
from dolma_dask.stages.mixing.together import Branch, run_branches
from dolma_dask.stages.mixing.tokens import (
    Chosen,
    TokensLike,
    TokenWishes,
    check_tokens,
    packing_branch,
    packing_of,
    ragged_branch,
    token_wishes,
    tokens_of_packed,
)
from dolma_dask.stages.mixing.wishes import ReplaceLike, make_wishes
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
from dolma_dask.summary import Summary

VERSION = 2
"""Raised whenever mix writes other bytes for the same input and rule."""


def mix(
    dataset: DatasetLike,
    /,
    *,
    to: str | None = None,
    ragged: TokensLike = None,
    hdf5: TokensLike = None,
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
    to : str, optional
        Root of the new version; its documents/ is written. Not needed if ragged or hdf5 is given.
    ragged : dict, optional
        Options of the verb ragged, to and tokenizer among them: token arrays of the new documents from the same reading. On the command line as
        JSON: '{"to": "out/ragged", "tokenizer": "t5.json", "eos": "</s>"}'.
    hdf5 : dict, optional
        Options of the verb hdf5, in the same way: '{"to": "out/h5", "tokenizer": "neox.json", "max_seq_length": 2048}'.
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
    tokens = token_wishes(ragged, hdf5)
    is_packed = shuffle or max_size is not None
    target = _target(to, tokens, is_packed)
    found = as_dataset(dataset, source)
    if target is not None:
        check_apart(found.root, target)
    check_tokens(tokens, [root for root in (found.root, target) if root is not None])
    policy = record_policy(options)
    chosen = selected(found, options)
    narrowed = narrow(found, where, *lists, thresholds, options)
    of_rule = (
        (*attributes, *(name for name in narrowed.names if name not in attributes)) if attributes else ()
    )
    selection = select(chosen.with_current_attributes(), narrowed.where, of_rule)
    mixture = make_mixture(selection, wishes, attributes, in_order=merge_attributes)
    asked = told(
        {
            "where": None if narrowed.where is None else str(narrowed.where),
            "attributes": list(attributes),
            "source": source,
            **wishes.params(),
        }
    )
    notes = (*dataset_notes(found), *narrowed.notes, *mixture.notes)
    job = _Job(found, chosen, mixture, policy, asked, notes)
    run = run_options(options)
    if target is None or not is_packed:
        summary = job.side_by_side(target, format, tokens, run)
        if target is not None and summary.done:
            remove_abandoned(target, "mix")  # by a packed mix that was stopped and is not wanted any more
    else:
        packing = Packing(
            f"{layout.DOCUMENTS}/{layout.check_name(name, 'name')}",
            "jsonl.gz" if format is None else format,
            DEFAULT_SIZE if max_size is None else max_size,
            seed if shuffle else None,
        )
        more = told({"max_size": max_size, "shuffle": shuffle or None, "name": name, "format": format})
        summary = job.packed(target, name, packing, more, run)
        summary = tokens_of_packed(summary, target, tokens, source, job.name, options)
    return _with_lists(summary, narrowed.lost)


def _target(to: str | None, tokens: TokenWishes, is_packed: bool) -> str | None:
    """Return the root of the new documents, if there are to be some."""
    if to is not None:
        return layout.dataset_root(files.normalize(to))
    if not tokens:
        raise UsageError(
            "mix has nothing to write; expected a root of new documents in `to`, or `ragged` or `hdf5`."
        )
    if is_packed:
        raise UsageError(
            "shuffle and max_size without `to`; expected a root of new documents, since token files are made from the packed ones."
        )
    return None


@dataclasses.dataclass(frozen=True)
class _Job:
    """What one call has come to: a mixture of some shards of a dataset."""

    found: Dataset
    chosen: Dataset
    mixture: Mixture
    policy: RecordPolicy
    asked: dict[str, Any]
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        """Of token files where they have no other: that of the dataset, whether or not its documents are written again."""
        return files.normalize(self.found.root).rsplit("/", 1)[-1]

    @property
    def params(self) -> dict[str, Any]:
        """What was asked, for the journal."""
        return {"from": self.found.root, **self.asked}

    def packed(
        self, target: str, name: str, packing: Packing, more: dict[str, Any], options: RunOptions
    ) -> MixSummary:
        """Pack the documents of all shards into files of one size."""
        parts = tuple(Part(self.mixture, shard, shard.path) for shard in self.chosen.shards)
        key = mix_key(self.mixture, self.policy)
        params = {**self.params, **more}
        packed = Packed(target, name, parts, packing, self.policy, key, params, self.notes, owns_folder=True)
        return summarize(packed.run(options))

    def side_by_side(
        self, target: str | None, file_format: FileFormat | None, tokens: TokenWishes, options: RunOptions
    ) -> MixSummary:
        """Make files of every kind for each shard, from one reading."""
        works = {shard.path: self.mixture.work(shard) for shard in self.chosen.shards}
        params = {**self.mixture.params(), "mix": VERSION}
        chosen = Chosen(self.found, self.mixture, works, params, self.asked, self.name)
        branches = {} if target is None else {"mix": self._documents(chosen, target, file_format)}
        if tokens.ragged is not None:
            branches["ragged"] = ragged_branch(tokens.ragged, chosen, self.policy)
        if tokens.hdf5 is None:
            return self._summary(run_branches(works, branches, self.policy, options))
        packing = packing_of(tokens.hdf5, chosen, self.policy)
        with clusters.shared_cluster(), packing.begun(options) as begun:
            first = packing_branch(packing, begun)
            ran = run_branches(works, branches | ({"hdf5": first} if first else {}), self.policy, options)
            rows = packing.finish(begun, options, ran.get("hdf5"))
        return self._summary({**ran, "hdf5": rows})

    def _summary(self, made: Mapping[str, Summary]) -> MixSummary:
        """Return the outcome: that of the first kind of files, and of the others below it."""
        (first, *others) = made.items()
        whole = summarize(dataclasses.replace(first[1], verb="mix"), self.notes)
        return with_others(whole, others)

    def _documents(self, chosen: Chosen, target: str, file_format: FileFormat | None) -> Branch:
        """Return what makes one file of documents per shard."""
        output = DocumentOutput(target, file_format)
        key = mix_key(self.mixture, self.policy)
        every = [output.path(shard) for shard in self.found.shards]
        layout.check_no_collision(every)
        plan = Plan(
            stage=MixStage((output,), self.policy),
            root=target,
            tasks=chosen.tasks(lambda shard: Unit(output.path(shard), key)),
            params=self.params | told({"format": file_format}),
            writes=(f"{layout.DOCUMENTS}/",),
            version=dolma_dask.__version__,
            origin=self.found.root,
            reads=layout.DOCUMENT_SUFFIXES,
            all_units=frozenset(every),
            max_bad_fraction=budget(self.policy),
            notes=self.notes,
        )
        return Branch(output, plan)


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
