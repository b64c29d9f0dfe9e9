"""rule_overlap: which conditions of a rule drop the same documents. Attribute columns alone are read, in one pass."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Unpack

import numpy as np

from dolma_dask.dataset import Dataset
from dolma_dask.display import counted, percent
from dolma_dask.engine.fold import fold, mask_of, readable_rows, shards_of
from dolma_dask.errors import UsageError
from dolma_dask.figures.figure import Figure
from dolma_dask.figures.model import HeatMap
from dolma_dask.io import files
from dolma_dask.journal import dataset_notes
from dolma_dask.options.pictures import check_target, last_name, save_figure
from dolma_dask.options.shared import (
    DatasetLike,
    Many,
    RuleLike,
    RunArgs,
    as_dataset,
    check_outside,
    checked,
    rule_of,
    run_options,
    selected,
    words_of,
)
from dolma_dask.reading import AlignedShard, find_columns
from dolma_dask.reading.selection import select, written_conjuncts
from dolma_dask.rules.rules import Rule, all_of
from dolma_dask.rules.signal_names import short_names
from dolma_dask.rules.tally import Tally
from dolma_dask.rules.thresholds import Thresholds
from dolma_dask.rules.where import parse
from dolma_dask.rules.within import Within


def rule_overlap(
    dataset: DatasetLike,
    where: RuleLike,
    /,
    *,
    to: str | None = None,
    attributes: Annotated[Sequence[str], Many] = (),
    source: str | None = None,
    version: str | None = None,
    **options: Unpack[RunArgs],
) -> Figure:
    """Count what each condition of a rule drops, what it drops alone, and what pairs of conditions drop together.

    Example: dolma-dask rule-overlap corpus/wiki/v0 "word_count >= 50 and symbol_to_word_ratio <= 0.1" --to overlap.png

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ and attributes/ in it.
    where : str
        Rule, as in mix; its conditions are what `and` joins, and of thresholds the bounds of each signal.
    to : str, optional
        Picture to write, ending in .png, .svg or .html.
    attributes : list of str, optional
        Attribute sets to look in; by default all.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself.

    Returns
    -------
    Figure
        A heat map: of the documents that the condition of a row drops, the share that the condition of a column drops too. ``frame()`` has a row
        per condition, with the documents that it drops and those that no other drops.

    Raises
    ------
    UsageError
        The rule cannot be read, or names what is not there.
    StageError
        Some shards could not be read, for example because attributes do not line up.

    Examples
    --------
    >>> dk.rule_overlap("corpus/v0", dk.thresholds("corpus/v0", "regular"))  # doctest: +SKIP
    """
    options = checked(rule_overlap, options, RunArgs)
    check_target(to)
    given = rule_of(where)
    if given is None:
        raise UsageError("where is None; expected a rule, such as 'word_count >= 50 and fuzzy is None'.")
    found = as_dataset(dataset, source, version)
    if to is not None:
        check_outside(files.normalize(to), found.root)
    part = selected(found, options)
    sets = words_of("attributes", attributes)
    named = _conditions(part, parse(given) if isinstance(given, str) else given, sets)
    conditions = tuple(named)
    columns = find_columns(part, sorted(frozenset[str]().union(*(rule.names for rule in conditions))), sets)
    drops = fold(CountOverlap(conditions), shards_of(columns, part.shards), run_options(options))
    documents, kept = drops.total[0], drops.kept[0]
    figure = Figure(
        "Documents that conditions drop together",
        (_heat(tuple(named.values()), drops),),
        notes=(
            f"{last_name(found)}: {counted(documents, 'document')}, {kept:,} kept ({percent(kept, documents)})",
            "of the documents that a row drops, the share that a column drops too",
            *dataset_notes(found),
        ),
    )
    return save_figure(figure, to)


def _conditions(dataset: Dataset, rule: Rule, sets: Sequence[str]) -> dict[Rule, Rule]:
    """Return the conditions of a rule over full names, each with what the user wrote; those of one signal of thresholds are one."""
    pairs = written_conjuncts(select(dataset, rule, sets).rule, rule)
    if not isinstance(rule, Thresholds):
        return pairs
    by_names: dict[frozenset[str], list[Rule]] = {}
    for part in pairs:
        by_names.setdefault(part.names, []).append(part)
    return {all_of(*same): all_of(*(pairs[part] for part in same)) for same in by_names.values()}


@dataclass(frozen=True)
class CountOverlap:
    """Counts what conditions drop; see `dolma_dask.engine.fold.Fold`."""

    conditions: tuple[Rule, ...]  # over full names
    verb: ClassVar[str] = "rule_overlap"

    def start(self) -> Tally:
        """Return the counts of no shards."""
        return Tally.with_pairs(len(self.conditions))

    def count(self, shard: AlignedShard) -> Tally:
        """Count one shard."""
        drops = self.start()
        for batch in readable_rows(shard):
            holds = [mask_of(rule, batch).to_numpy(zero_copy_only=False) for rule in self.conditions]
            drops.count(~np.stack(holds))
        return drops


def _heat(written: Sequence[Rule], drops: Tally) -> HeatMap:
    names = short_names(sorted(frozenset[str]().union(*(rule.names for rule in written))))
    each, alone = drops.dropped[:, 0], drops.alone[:, 0]
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = drops.together / each[:, None]
    np.fill_diagonal(shares, np.nan)
    return HeatMap(
        "overlap",
        tuple(_called(rule.renamed(names)) for rule in written),
        shares,
        "condition",
        {"dropped_documents": tuple(each.tolist()), "dropped_alone_documents": tuple(alone.tolist())},
    )


def _called(rule: Rule) -> str:
    """Return how the picture calls a condition; thresholds by group by their signal alone."""
    return str(rule.signal) if isinstance(rule, Within) else rule.short
