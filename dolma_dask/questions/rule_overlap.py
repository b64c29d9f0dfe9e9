"""rule_overlap: which conditions of a rule drop the same documents. Attribute columns alone are read, in one pass."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Struct

from dolma_dask.display import counted, isolated, last_name, percent
from dolma_dask.engine.fold import fold, mask_of, readable_rows, shards_of
from dolma_dask.errors import UsageError
from dolma_dask.figures.figure import Figure
from dolma_dask.figures.model import HeatMap
from dolma_dask.options.base import WHAT, Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import DatasetOptions, QuestionOptions, WithAttributes
from dolma_dask.options.kept import RuleLike, rule_of
from dolma_dask.options.pictures import PictureOptions
from dolma_dask.ownership import dataset_notes
from dolma_dask.reading.columns import find_columns
from dolma_dask.reading.reader import AlignedShard
from dolma_dask.reading.selection import select, written_conjuncts
from dolma_dask.rules.rules import Rule, all_of
from dolma_dask.rules.signal_names import short_names
from dolma_dask.rules.tally import Tally
from dolma_dask.rules.thresholds import Thresholds
from dolma_dask.rules.where import parse
from dolma_dask.rules.within import Within


@dataclass(frozen=True, kw_only=True)
class OverlapOptions(PictureOptions, DatasetOptions, QuestionOptions):
    """Options of `rule_overlap`."""

    attributes: Annotated[Sequence[str], Opt("Attribute sets to look in; by default all.", group=WHAT)] = ()


@command
def rule_overlap(
    dataset: WithAttributes,
    where: Annotated[
        RuleLike,
        Opt(
            "Rule, as in mix; its conditions are what `and` joins, and of thresholds the bounds of each signal.",
            kind="str",
            convert=rule_of,
        ),
    ],
    /,
    *,
    options: OverlapOptions,
) -> Figure:
    """Count what each condition of a rule drops, what it drops alone, and what pairs of conditions drop together.

    Example: dolma-dask rule-overlap corpus/wiki/v0 "word_count >= 50 and symbol_to_word_ratio <= 0.1" --to overlap.png

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
    if where is None:
        raise UsageError("where is None; expected a rule, such as 'word_count >= 50 and fuzzy is None'.")
    part, sets = options.selected(options.open(dataset)), options.attributes
    options.check_outside(part.root)
    written = parse(where) if isinstance(where, str) else where
    rule = select(part, written, sets).rule
    conditions = _conditions(rule, written)
    columns = find_columns(part, (), sets).with_rule(rule, sets)
    drops = fold(CountDrops(tuple(conditions)), shards_of(columns), options)
    documents, kept = drops.total[0], drops.kept[0]
    figure = Figure(
        "Documents that conditions drop together",
        (_heat(tuple(conditions.values()), drops),),
        notes=(
            f"{last_name(part.root)}: {counted(documents, 'document')}, {kept:,} kept ({percent(kept, documents)})",
            *_costliest(tuple(conditions.values()), drops),
            "of the documents that a row drops, the share that a column drops too",
            *dataset_notes(part),
        ),
    )
    return options.save(figure)


def _conditions(rule: Rule | None, written: Rule) -> dict[Rule, Rule]:
    """Return the conditions of a rule over full names, each with what the user wrote; those of one signal of thresholds are one."""
    pairs = written_conjuncts(rule, written)
    if not isinstance(written, Thresholds):
        return pairs
    by_names: dict[frozenset[str], list[Rule]] = {}
    for part in pairs:
        by_names.setdefault(part.names, []).append(part)
    return {all_of(*same): all_of(*(pairs[part] for part in same)) for same in by_names.values()}


class CountDrops(Struct, frozen=True):
    """Counting of `rule_overlap` in a shard; see `dolma_dask.engine.fold`."""

    conditions: tuple[Rule, ...]  # over full names
    verb: ClassVar[str] = "rule_overlap"

    def start(self) -> Tally:
        """Return the counts of no documents."""
        return Tally.with_pairs(len(self.conditions))

    def count(self, shard: AlignedShard) -> Tally:
        """Return what each condition drops in a shard."""
        drops = self.start()
        for batch in readable_rows(shard):
            holds = [mask_of(rule, batch).to_numpy(zero_copy_only=False) for rule in self.conditions]
            drops.count(~np.stack(holds))
        return drops


def _costliest(written: Sequence[Rule], drops: Tally) -> Iterator[str]:
    """Yield which condition costs most documents, if any does."""
    each, alone = drops.dropped[:, 0].tolist(), drops.alone[:, 0].tolist()
    place = max(range(len(each)), key=lambda at: (alone[at], each[at]), default=0)
    if each and each[place]:
        names = short_names(sorted(written[place].names))
        yield (
            f"{isolated(_called(written[place].renamed(names)))} costs most: it drops {counted(each[place], 'document')}, "
            f"{alone[place]:,} of which no other condition drops"
        )


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
