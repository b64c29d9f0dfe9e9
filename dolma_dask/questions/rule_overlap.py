"""rule_overlap: which conditions of a rule drop the same documents. Attribute columns alone are read, in one pass."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt

from dolma_dask import engine
from dolma_dask.dataset import Dataset
from dolma_dask.display import counted, percent
from dolma_dask.engine import Task
from dolma_dask.engine.fold import column_tasks, mask_of, readable_batches
from dolma_dask.errors import UsageError
from dolma_dask.figures.figure import Figure
from dolma_dask.figures.model import HeatMap
from dolma_dask.journal import dataset_notes
from dolma_dask.options.base import WHAT, Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import DatasetOptions, RuleLike, ShardOptions, WithAttributes, rule_of
from dolma_dask.options.pictures import PictureOptions, last_name
from dolma_dask.reading import find_columns
from dolma_dask.reading.selection import select, written_conjuncts
from dolma_dask.rules.rules import Rule, all_of
from dolma_dask.rules.signal_names import short_names
from dolma_dask.rules.thresholds import Thresholds
from dolma_dask.rules.where import parse
from dolma_dask.rules.within import Within

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class OverlapOptions(PictureOptions, DatasetOptions, ShardOptions):
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
    found = options.open(dataset)
    options.check_outside(found.root)
    part, sets = options.selected(found), options.attributes
    named = _conditions(part, parse(where) if isinstance(where, str) else where, sets)
    conditions = tuple(named)
    columns = find_columns(part, sorted(frozenset[str]().union(*(rule.names for rule in conditions))), sets)
    drops = Drops.of(len(conditions))
    stage = OverlapStage(conditions)
    engine.gather(stage, column_tasks(columns, part.shards), options, drops.add)
    figure = Figure(
        "Documents that conditions drop together",
        (_heat(tuple(named.values()), drops),),
        notes=(
            f"{last_name(found)}: {counted(drops.documents, 'document')}, {drops.kept:,} kept ({percent(drops.kept, drops.documents)})",
            "of the documents that a row drops, the share that a column drops too",
            *dataset_notes(found),
        ),
    )
    return options.save(figure)


def _conditions(dataset: Dataset, rule: Rule, sets: Sequence[str]) -> dict[Rule, Rule]:
    """Return the conditions of a rule over full names, each with what the user wrote; those of one signal of thresholds are one."""
    pairs = written_conjuncts(select(dataset, rule, sets).rule, rule)
    if not isinstance(rule, Thresholds):
        return pairs
    by_names: dict[frozenset[str], list[Rule]] = {}
    for part in pairs:
        by_names.setdefault(part.names, []).append(part)
    return {all_of(*same): all_of(*(pairs[part] for part in same)) for same in by_names.values()}


@dataclass
class Drops:
    """Documents that conditions drop: all counts are sums over documents."""

    together: Ints  # (n, n) by both; the diagonal by each
    alone: Ints  # (n,) by no other
    documents: int = 0
    kept: int = 0

    @classmethod
    def of(cls, conditions: int) -> "Drops":
        """Return the counts of no documents."""
        return cls(np.zeros((conditions, conditions), np.int64), np.zeros(conditions, np.int64))

    def add(self, other: "Drops") -> None:
        """Add the counts of other documents."""
        self.together += other.together
        self.alone += other.alone
        self.documents += other.documents
        self.kept += other.kept

    def count(self, dropped: npt.NDArray[np.bool_]) -> None:
        """Count documents: which conditions drop each (n, documents)."""
        ones = dropped.astype(np.float32)  # exact: fewer than 2^24 rows in a block
        self.together += (ones @ ones.T).astype(np.int64)
        how_many = dropped.sum(axis=0)
        self.alone += dropped[:, how_many == 1].sum(axis=1)
        self.documents += dropped.shape[1]
        self.kept += int(np.count_nonzero(how_many == 0))


@dataclass(frozen=True)
class OverlapStage:
    """The work of `rule_overlap` on some shards, as a stage for `dolma_dask.engine.gather`."""

    conditions: tuple[Rule, ...]  # over full names
    verb: ClassVar[str] = "rule_overlap"

    def run_shard(self, task: Task) -> Drops:
        """Count some shards."""
        drops = Drops.of(len(self.conditions))
        for batch in readable_batches(task):
            holds = [mask_of(rule, batch).to_numpy(zero_copy_only=False) for rule in self.conditions]
            drops.count(~np.stack(holds))
        return drops


def _heat(written: Sequence[Rule], drops: Drops) -> HeatMap:
    names = short_names(sorted(frozenset[str]().union(*(rule.names for rule in written))))
    each = drops.together.diagonal()
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = drops.together / each[:, None]
    np.fill_diagonal(shares, np.nan)
    return HeatMap(
        "overlap",
        tuple(_called(rule.renamed(names)) for rule in written),
        shares,
        "condition",
        {"dropped_documents": tuple(each.tolist()), "dropped_alone_documents": tuple(drops.alone.tolist())},
    )


def _called(rule: Rule) -> str:
    """Return how the picture calls a condition; thresholds by group by their signal alone."""
    return str(rule.signal) if isinstance(rule, Within) else rule.short
