"""mix: read documents and attributes side by side, keep the rows that rules and filters keep, and write a new version in one pass.

Kept documents are copied byte for byte, but what options change. Memory: a few blocks per worker. An attribute file that is missing,
short, long, swapped or stale is an error, never silently unfiltered output.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Annotated, Any, Unpack, cast

from dolma_dask.dataset import Dataset
from dolma_dask.errors import UsageError
from dolma_dask.formats.layout import FileFormat
from dolma_dask.io import files
from dolma_dask.io.id_lists import set_name
from dolma_dask.journal import dataset_notes
from dolma_dask.options.shared import (
    DatasetLike,
    Many,
    ReadArgs,
    RecordArgs,
    RuleLike,
    TokensLike,
    as_dataset,
    checked,
    rule_of,
    selected,
    without_empty,
    words_of,
)
from dolma_dask.reading.kept.planning import make_mixture
from dolma_dask.reading.kept.recipe import MixOptions, ReplaceLike, replacements_of
from dolma_dask.reading.selection import select
from dolma_dask.reading.thresholds import read_thresholds
from dolma_dask.registry import VERBS
from dolma_dask.rules.filters import Syntax
from dolma_dask.rules.rules import Missing, Rule, all_of
from dolma_dask.rules.values import Name
from dolma_dask.rules.where import parse
from dolma_dask.verbs.mix.call import MixSummary, name_of, requested, run_mix
from dolma_dask.verbs.mix.drawn import PARAMETER

if TYPE_CHECKING:
    from dolma_dask.verbs.mix.drawing import Request
    from dolma_dask.verbs.mix.tokens import TokenOptions

ThresholdsLike = str | Rule | None
"""A file that `quantiles` wrote, or what `thresholds` returned."""

DownsampleLike = Annotated[Mapping[str, float] | Sequence[str] | float | None, Many]
"""How much to keep: of all, or of groups by label, also as words such as ``en=1000``."""


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
    downsample: DownsampleLike = None,
    by: str | None = None,
    unit: str = "documents",
    shuffle: bool = False,
    seed: int = 0,
    max_size: int | None = None,
    shards: int | None = None,
    name: str = "part",
    attributes: Annotated[Sequence[str], Many] = (),
    format: FileFormat | None = None,
    source: str | None = None,
    version: str | None = None,
    **options: Unpack[ReadArgs],
) -> MixSummary:
    """Write a new version of a dataset with the documents that rules and filters keep.

    Example: dolma-dask mix corpus/wiki/v0 --to corpus/wiki/v1 --where "word_count >= 50 and symbol_to_word_ratio < 0.1"

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ and attributes/ in it.
    to : str, optional
        Root of the new version; its documents/ is written. Not needed if `ragged` or `hdf5` is given.
    ragged : dict, optional
        Options of the verb ragged, to and tokenizer among them: token arrays of the new documents from the same reading, as
        JSON: '{"to": "out/ragged", "tokenizer": "t5.json", "eos": "</s>"}'. With `shuffle`, `max_size` or `shards` they are made of the new files.
    hdf5 : dict, optional
        Options of the verb hdf5, in the same way: '{"to": "out/h5", "tokenizer": "neox.json", "max_seq_length": 2048}'.
    where : str, optional
        Keep documents for which this holds: id, source, added, created, metadata.<field> (at any depth: metadata.page.hash) and attribute keys (a
        unique ending is enough), numbers and 'strings', joined by == != < <= > >=, in (..., ...), is None, is not None, + - * /, and, or, not. A
        comparison with a missing value is false. Numbers are compared exactly, arithmetic is in double precision.
    include : list of str, optional
        Filters in JSONPath or jq, as the Dolma toolkit has them: keep only documents that one of them matches. An attribute that no row has is
        an error, or a note if the filter expects that it is missing: `@.k && @.k[0] ...`, `.attributes.k // []`.
    exclude : list of str, optional
        Filters of the same kind: drop the documents that one of them matches.
    syntax : {"jsonpath", "jq"}, optional
        Language of the filters.
    block : list of str, optional
        Files of ids, or of sources and ids: drop the listed documents. They are flagged first, as by the verb block.
    allow : list of str, optional
        Files of the same kind: keep only the listed documents.
    thresholds : str or Thresholds, optional
        Keep only documents inside of the bounds that quantiles wrote into this file, or that stand there in the JSON form of the LUMI chain.
    replace : list of dict, optional
        Spans to replace, each with the keys span, min_score, max_score, replacement and syntax, as JSON:
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
        How often each document is taken: 0.3 for three of ten, 2.5 for each twice and half of them once more; selected by a hash of source and id.
    downsample : list of str, optional
        Keep this many documents (bytes or tokens, see `unit`) of each group: 100000; or a share of it: 0.3; or of some groups, as words or as a map:
        en=100000 de=0.3, while the others are kept whole. Of the documents that rules and filters keep, those with the smallest hash of source and id
        are taken, equal ones in order, until the next would exceed the number: documents stay whole, and a smaller number takes some of those of a
        larger one. All are read twice: first to find what to keep, in the whole dataset also where `only` names the shards to write.
    by : str, optional
        Column of the groups of `downsample`: source, an attribute key or metadata.<field>; by default all documents are one group. Documents without
        a value are in a group with an empty name.
    unit : str, optional
        What `downsample` counts: documents, bytes (of text), tokens (by the tokenizer of `ragged`, else of `hdf5`, which doubles its work), or a
        column with a whole number for each document, such as metadata.tokens.
    shuffle : bool, optional
        Write the documents of all shards in an order drawn by the seed.
    seed : int, optional
        Seed of the hash of `sample` and `downsample`, and of the shuffle.
    max_size : int, optional
        Stored bytes of an output file at most. With it, or with `shuffle`, documents go to files <name>-0000.jsonl.gz, -0001 and so on; without,
        to one file per input file.
    shards : int, optional
        Number of output files, of about the same size, in place of `max_size`; fewer if few documents are kept.
    name : str, optional
        Name of these files.
    attributes : list of str, optional
        Attribute sets to read; by default those that rules and filters need. For filters, later ones win where two have one key.
    format : {"jsonl.gz", "jsonl.zst", "jsonl", "parquet"}, optional
        Format of the new documents; by default that of each input file.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself.

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
    changes = MixOptions(
        include=words_of("include", include, may_be_empty=True),
        exclude=words_of("exclude", exclude, may_be_empty=True),
        syntax=syntax,
        replacements=replacements_of(replace),
        discard_fields=words_of("discard_fields", discard_fields, may_be_empty=True),
        min_text_length=min_text_length,
        provenance=bool(provenance),
        merge_attributes=merge_attributes,
        sample=sample,
        seed=seed,
    )
    if merge_attributes and not attributes:
        raise UsageError(
            "merge_attributes without attributes; expected the sets to write into the documents, in their order."
        )
    tokens = _token_options(ragged, hdf5)
    opened = as_dataset(dataset, source, version)
    outputs = requested(
        opened.root,
        to=to,
        tokens=tokens,
        file_format=format,
        name=name,
        max_size=max_size,
        shards=shards,
        seed=seed if shuffle else None,
    )
    narrowed = narrow(opened, where, *lists, thresholds, options)
    of_rule = (
        (*attributes, *(name for name in narrowed.names if name not in attributes)) if attributes else ()
    )
    # what is kept of a group does not depend on the shards that one call is asked for; a trial need not read all
    is_whole = downsample is not None and downsample != () and options.get("prune") is None
    ranked = opened if is_whole else selected(opened, options)
    selection = select(ranked.with_current_attributes(), narrowed.where, of_rule)
    draw = _draw(selection.dataset, downsample, by, unit, changes, tokens, attributes)
    beside = None if draw is None else draw.columns
    mixture = make_mixture(selection, changes, attributes, in_order=merge_attributes, beside=beside)
    shown = without_empty(
        {
            "where": None if narrowed.where is None else str(narrowed.where),
            "attributes": list(attributes),
            "source": source,
            **changes.params(),
            **({} if draw is None else draw.wanted.params()),
        }
    )
    notes = (*dataset_notes(opened), *narrowed.notes, *mixture.notes)
    table = None
    asked = selected(selection.dataset, options) if is_whole else selection.dataset
    if draw is not None and asked.shards:
        # what is in the way is refused before all documents are ranked
        run_mix(opened, mixture.of(asked), outputs, shown, notes, {**options, "dry_run": True})
        mixture, table = draw.drawn(outputs.root, outputs.name or name_of(opened), mixture, options)
        shown |= {} if table is None else {PARAMETER: table.to_json()}
        notes = (*notes, *draw.notes(table, len(selection.dataset.shards), len(opened.shards)))
    summary = run_mix(opened, mixture.of(asked), outputs, shown, notes, options)
    return dataclasses.replace(summary, lost=summary.lost or narrowed.lost, downsampled=table)


_RENAME = 'Rename the file, or flag its documents by itself and name the flags in the rule: dolma-dask block ... --name banned; --where "banned is None"'


@dataclass(frozen=True)
class Narrowed:
    """A `where` rule with lists and thresholds in it."""

    where: RuleLike  # as it was given if nothing was added
    names: tuple[str, ...] = ()  # attribute sets of the lists
    notes: tuple[str, ...] = ()  # for people
    lost: bool = False  # whether documents could not be read when the lists were looked up


def narrow(
    dataset: Dataset,
    where: RuleLike,
    block: Sequence[str],
    allow: Sequence[str],
    thresholds: ThresholdsLike,
    options: ReadArgs,
) -> Narrowed:
    """Flag the documents of all lists, and join flags and thresholds with `where`."""
    if not (block or allow or thresholds is not None):
        return Narrowed(where)
    rules = [] if where is None else [parse(where) if isinstance(where, str) else where]
    rules += [] if thresholds is None else [_inside(thresholds)]
    of_block = RecordArgs.__annotations__.keys() - {"overwrite", "dry_run"}
    passed = cast(RecordArgs, {name: value for name, value in options.items() if name in of_block})
    names, notes, lost = [], [], False
    for url, is_allowed in (*((url, False) for url in block), *((url, True) for url in allow)):
        name = set_name(files.normalize(url), _RENAME)
        if name in names:
            raise UsageError(
                f"two lists are called {name!r}; expected names that differ. Rename one of the files."
            )
        if options.get("dry_run") and name not in dataset.attributes:
            notes.append(f"the documents in {url} would be flagged first, and the rule is shown without them")
            continue
        if not options.get("dry_run"):
            flagged = VERBS["block"].load()(dataset, url, name=name, source=dataset.source, **passed)
            notes += [f"{name}: {text}" for text in flagged.notes]
            notes += _unmatched(name, flagged)
            lost = lost or flagged.exit_status != 0
        names.append(name)
        rules.append(Missing(Name(name), negated=is_allowed))
    return Narrowed(all_of(*rules) if rules else None, tuple(names), tuple(notes), lost)


def _token_options(ragged: TokensLike, hdf5: TokensLike) -> "TokenOptions | None":
    if ragged is None and hdf5 is None:
        return None
    from dolma_dask.verbs.mix.tokens import token_options

    return token_options(ragged, hdf5)


def _draw(
    dataset: Dataset,
    downsample: DownsampleLike,
    by: str | None,
    unit: str,
    changes: MixOptions,
    tokens: "TokenOptions | None",
    attributes: Sequence[str],
) -> "Request | None":
    """Check the options of downsampling."""
    if downsample is None or downsample == ():
        if by is not None or unit != "documents":
            raise UsageError("`by` and `unit` say how to downsample; expected `downsample` with them.")
        return None
    if changes.rate is not None:
        raise UsageError(
            "`sample` and `downsample` both choose documents by their hash; expected one of them. A share of each group: downsample=0.3."
        )
    from dolma_dask.rules.downsampling import downsampling
    from dolma_dask.verbs.mix.drawing import Request

    return Request.of(dataset, downsampling(downsample, by, unit, changes.seed), tokens, attributes)


def _unmatched(name: str, flagged: Any) -> list[str]:
    """Tell which entries of a list no document has."""
    if not flagged.unmatched:
        return []
    count = f"{flagged.unmatched:,} of {flagged.entries:,} entries of the list"
    return [f"{name}: no document has {count}, first {flagged.examples[0]!r}; all: {flagged.unmatched_file}"]


def _inside(thresholds: object) -> Rule:
    if isinstance(thresholds, str | PathLike):
        return read_thresholds(fspath(thresholds))
    if isinstance(thresholds, Rule):
        return thresholds
    raise UsageError(
        f"thresholds={thresholds!r} is of type {type(thresholds).__name__}; expected a file that quantiles wrote, or what thresholds() returns."
    )
