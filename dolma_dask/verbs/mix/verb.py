"""mix: read documents and attributes side by side, keep the rows that rules and filters keep, and write a new version in one pass.

Kept documents are copied byte for byte, but what options change. Memory: a few blocks per worker. An attribute file that is missing,
short, long, swapped or stale is an error, never silently unfiltered output.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.dataset import Dataset
from dolma_dask.errors import UsageError
from dolma_dask.io import files
from dolma_dask.io.id_lists import check_list, set_name
from dolma_dask.options.base import without_empty
from dolma_dask.options.command import command
from dolma_dask.options.groups import WithAttributes
from dolma_dask.options.kept import ListedOptions, RuleLike
from dolma_dask.options.records import RecordOptions
from dolma_dask.ownership import dataset_notes
from dolma_dask.reading.catalog import Catalog
from dolma_dask.reading.kept.planning import make_mixture
from dolma_dask.reading.kept.recipe import RecipeOptions
from dolma_dask.reading.selection import select
from dolma_dask.reading.thresholds import read_thresholds
from dolma_dask.registry import VERBS
from dolma_dask.rules.rules import Missing, Rule, all_of
from dolma_dask.rules.values import Name
from dolma_dask.rules.where import parse
from dolma_dask.verbs.mix.call import MixSummary, name_of, requested, run_mix
from dolma_dask.verbs.mix.drawn import PARAMETER
from dolma_dask.verbs.mix.options import MixOptions

if TYPE_CHECKING:
    from dolma_dask.verbs.mix.drawing import DownsamplingRequest
    from dolma_dask.verbs.mix.tokens import TokenOptions


@command
def mix(dataset: WithAttributes, /, *, options: MixOptions) -> MixSummary:
    """Write a new version of a dataset with the documents that rules and filters keep.

    Example: dolma-dask mix corpus/wiki/v0 --to corpus/wiki/v1 --where "word_count >= 50 and symbol_to_word_ratio < 0.1"

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
    opened, tokens = options.open(dataset), _token_options(options)
    if tokens is None:
        return _mixed(opened, options, None)
    return tokens.encoding(lambda: _mixed(opened, options, tokens))


def _mixed(opened: Dataset, options: MixOptions, tokens: "TokenOptions | None") -> MixSummary:
    attributes = tuple(options.attributes)
    outputs = requested(opened.root, options, tokens)
    narrowed = narrow(opened, options)
    of_rule = tuple(dict.fromkeys((*attributes, *narrowed.names))) if attributes else ()
    # what is kept of a group does not depend on the shards that one call is asked for; a trial need not read all
    is_whole = options.counts and options.prune is None
    ranked = opened if is_whole else options.selected(opened)
    selection = select(ranked.with_current_attributes(), narrowed.where, of_rule)
    draw = _draw(selection.dataset, options, tokens)
    recipe, beside = options.part(RecipeOptions), None if draw is None else draw.columns
    mixture = make_mixture(selection, recipe, attributes, in_order=options.merge_attributes, beside=beside)
    mixture = mixture.for_targets(*outputs.roots)
    shown = without_empty(
        {
            "where": None if narrowed.where is None else str(narrowed.where),
            "attributes": list(attributes),
            **opened.params,
            "source": options.source,
            **recipe.recipe_params(),
            **({} if draw is None else draw.wanted.params()),
        }
    )
    notes = (*dataset_notes(opened), *options.idle(), *narrowed.notes, *mixture.notes)
    table = None
    asked = options.selected(selection.dataset) if is_whole else selection.dataset
    if draw is not None and asked.shards:
        # what is in the way is refused before all documents are ranked
        run_mix(opened, mixture.of(asked), outputs, shown, notes, dataclasses.replace(options, dry_run=True))
        mixture, table = draw.drawn(outputs.root, outputs.name or name_of(opened), mixture, options)
        shown |= {} if table is None else {PARAMETER: table.to_json()}
        notes = (*notes, *draw.notes(table, len(selection.dataset.shards), len(opened.shards)))
    summary = run_mix(opened, mixture.of(asked), outputs, shown, notes, options, table)
    return replace(summary, lost=summary.lost or narrowed.lost, downsampled=table)


_RENAME = 'Rename the file, or flag its documents by itself and name the flags in the rule: dolma-dask block ... --name banned; --where "banned is None"'


class Narrowed(Struct, frozen=True):
    """A `where` rule with lists and thresholds in it."""

    where: RuleLike  # as it was given if nothing was added
    names: tuple[str, ...] = ()  # attribute sets of the lists
    notes: tuple[str, ...] = ()  # for people
    lost: bool = False  # whether documents could not be read when the lists were looked up


def narrow(dataset: Dataset, options: MixOptions) -> Narrowed:
    """Flag the documents of all lists, and join flags and thresholds with `where`."""
    where, lists = options.where, (*options.block, *options.allow)
    if not lists and options.thresholds is None:
        return Narrowed(where)
    rules = [] if where is None else [parse(where) if isinstance(where, str) else where]
    rules += [] if options.thresholds is None else [_inside(options.thresholds)]
    names, notes, lost = [], [], False
    named = _by_set_name(lists)
    for url in () if options.dry_run else named.values():  # an earlier stage may yet make it
        check_list(files.normalize(url))
    for number, (name, url) in enumerate(named.items()):
        if options.dry_run and name not in dataset.attributes:
            notes.append(f"the documents in {url} would be flagged first, and the rule is shown without them")
            continue
        if not options.dry_run:
            flagged = _flag(dataset, url, name, options)
            notes += [f"{name}: {text}" for text in (*flagged.notes, *_unmatched(flagged))]
            lost = lost or flagged.exit_status != 0
        names.append(name)
        rules.append(Missing(Name(name), negated=number >= len(options.block)))
    return Narrowed(all_of(*rules) if rules else None, tuple(names), tuple(notes), lost)


def _by_set_name(lists: Sequence[str]) -> dict[str, str]:
    """Return the lists by the names of their attribute sets, all of which are looked at before any set is written."""
    named: dict[str, str] = {}
    for url in lists:
        name = set_name(files.normalize(url), _RENAME)
        if name in named:
            raise UsageError(
                f"two lists are called {name!r}, {named[name]} and {url}; expected names that differ. Rename one of the files."
            )
        named[name] = url
    return named


def _flag(dataset: Dataset, url: str, name: str, options: MixOptions) -> Any:
    """Flag the documents of a list, where and how the mix runs."""
    passed = options.given(RecordOptions) | options.given(ListedOptions)
    # flags of files that are gone stand in the way without it; what another verb has made is not the mix's to replace
    passed["overwrite"] = options.overwrite and Catalog(dataset).makers.get(name) == "block"
    return VERBS["block"].load()(dataset, url, name=name, **dataset.params, **passed)


def _token_options(options: MixOptions) -> "TokenOptions | None":
    if not options.ragged and options.hdf5 is None:
        return None
    from dolma_dask.verbs.mix.tokens import token_options

    return token_options(options.ragged, options.hdf5)


def _draw(
    dataset: Dataset, options: MixOptions, tokens: "TokenOptions | None"
) -> "DownsamplingRequest | None":
    """Resolve the options of downsampling, or of a budget."""
    if not options.counts:
        return None
    from dolma_dask.verbs.mix.drawing import DownsamplingRequest, wanted_by

    return DownsamplingRequest.of(dataset, wanted_by(options), tokens, options.attributes)


def _unmatched(flagged: Any) -> Iterator[str]:
    """Tell which entries of a list no document has."""
    if flagged.unmatched:
        count = f"{flagged.unmatched:,} of {flagged.entries:,} entries of the list"
        yield f"no document has {count}, first {flagged.examples[0]!r}; all: {flagged.unmatched_file}"


def _inside(thresholds: object) -> Rule:
    if isinstance(thresholds, str | PathLike):
        return read_thresholds(fspath(thresholds))
    if isinstance(thresholds, Rule):
        return thresholds
    raise UsageError(
        f"thresholds={thresholds!r} is of type {type(thresholds).__name__}; expected a file that quantiles wrote, or what thresholds() returns."
    )
