"""Block lists, allow lists and thresholds of a mix, as parts of its `where` rule.

A list of ids is first marked beside the documents by the verb `block`, under the name of its file; then the rule asks for the mark.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import cast

from dolma_dask.dataset import Dataset
from dolma_dask.errors import UsageError
from dolma_dask.io import files
from dolma_dask.rules.rules import Missing, Rule, all_of
from dolma_dask.rules.thresholds import Thresholds
from dolma_dask.rules.values import Name
from dolma_dask.rules.where import parse
from dolma_dask.verbs.block.summary import BlockSummary
from dolma_dask.verbs.block.verb import block as mark
from dolma_dask.verbs.block.verb import set_name
from dolma_dask.verbs.options import ReadArgs, RecordArgs, RuleLike
from dolma_dask.verbs.quantiles.thresholds import read_thresholds

ThresholdsLike = str | Rule | None
"""A file that `quantiles` wrote, or what `thresholds` returned."""

_OF_BLOCK = ("only", "prune", "scheduler", "workers", "progress", "on_bad_record", "max_record_bytes")

_RENAME = 'Rename the file, or mark its documents by itself and ask for them: dolma-dask block ... --name banned; --where "banned is None"'


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
    """Mark the documents of all lists, and join marks and thresholds with `where`."""
    if not (block or allow or thresholds is not None):
        return Narrowed(where)
    rules = [] if where is None else [parse(where) if isinstance(where, str) else where]
    rules += [] if thresholds is None else [_inside(thresholds)]
    names, notes, lost = [], [], False
    for url, is_allowed in (*((url, False) for url in block), *((url, True) for url in allow)):
        name = set_name(files.normalize(url), _RENAME)
        if name in names:
            raise UsageError(
                f"two lists are called {name!r}; expected names that differ. Rename one of the files."
            )
        if options.get("dry_run") and name not in dataset.attributes:
            notes.append(f"the documents in {url} would be marked first, and the rule is told without them")
            continue
        if not options.get("dry_run"):
            marked = mark(dataset, url, name=name, source=dataset.source, **_options(options))
            notes += [f"{name}: {text}" for text in marked.notes]
            notes += _unmatched(name, marked)
            lost = lost or marked.exit_status != 0
        names.append(name)
        rules.append(Missing(Name(name), negated=is_allowed))
    return Narrowed(all_of(*rules) if rules else None, tuple(names), tuple(notes), lost)


def _unmatched(name: str, marked: BlockSummary) -> list[str]:
    """Tell which entries of a list no document has."""
    if not marked.unmatched:
        return []
    count = f"{marked.unmatched:,} of {marked.entries:,} entries of the list"
    return [f"{name}: no document has {count}, first {marked.examples[0]!r}; all: {marked.unmatched_file}"]


def _inside(thresholds: object) -> Rule:
    if isinstance(thresholds, str | PathLike):
        return read_thresholds(fspath(thresholds)).inside()
    if isinstance(thresholds, Thresholds):
        return thresholds.inside()
    if isinstance(thresholds, Rule):
        return thresholds
    raise UsageError(
        f"thresholds={thresholds!r} is of type {type(thresholds).__name__}; expected a file that quantiles wrote, or what thresholds() returns."
    )


def _options(options: ReadArgs) -> RecordArgs:
    return cast(RecordArgs, {name: value for name, value in options.items() if name in _OF_BLOCK})
