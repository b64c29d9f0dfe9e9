"""Rows of the answer of what-if by rule, level and group, from the sums over all documents."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from msgspec import Struct

from dolma_dask.dataset import Shard
from dolma_dask.questions.what_if.levels import GIVEN, LevelBounds
from dolma_dask.questions.what_if.sums import DropSums
from dolma_dask.questions.what_if.texts import Amount, GroupSizes
from dolma_dask.rules.groups import ALL
from dolma_dask.rules.signal_names import short_names
from dolma_dask.rules.thresholds import note_without_values
from dolma_dask.text.kernels import Counts, Floats


@dataclass(frozen=True)
class RuleEffect:
    """Effect of one rule on one group."""

    rule: str  # short name
    signal: str  # column
    group: str  # or "all"
    # bounds, both inclusive; None: there is none, or several for "all"
    lower: float | None
    upper: float | None
    missing: int  # documents without a value
    alone: Amount  # dropped if this were the only rule
    only: Amount  # dropped by no other rule: they would come back without it
    # kept documents that it would drop one level further, the other rules as they are; None: no stricter level is known
    stricter: Amount | None
    stricter_level: str | None  # that level; None if groups differ


@dataclass(frozen=True)
class LevelRow:
    """Documents of one group that a level of all rules keeps."""

    level: str
    group: str
    kept: Amount


@dataclass(frozen=True)
class GroupRow:
    """Effect of all rules together on one group."""

    group: str
    documents: Amount
    kept: Amount


@dataclass(frozen=True)
class ExampleRow:
    """A document beside a bound: kept, or dropped by this rule alone."""

    rule: str
    group: str
    bound: str  # "lower" or "upper"
    side: str  # "inside" or "outside"
    limit: float
    value: float
    id: str
    shard: str
    row: int
    excerpt: str = ""  # beginning of its text, if that was read


@dataclass(frozen=True)
class SideRow:
    """Documents of one group on each side of the bounds of a rule, and the shares of the text in them."""

    group: str  # or "all"
    documents: int
    below: int
    inside: int
    above: int
    missing: int  # without a value, or of a group without bounds
    # shares of the text of the group, 0..1; None if nothing tells it
    text_below: float | None
    text_inside: float | None
    text_above: float | None


Groups = slice | list[int]
"""Groups that a row of a table is about."""


class Counted(Struct, frozen=True, eq=False, dict=True):
    """Sums over all documents, what they are of, and what stands for a unit of text."""

    bounds: LevelBounds
    sums: DropSums
    sizes: GroupSizes

    @cached_property
    def names(self) -> list[str]:
        """Short names of the rules."""
        return list(short_names(list(self.bounds.signals)).values())

    @cached_property
    def groups(self) -> dict[str, Groups]:
        """Groups that tables have rows for: all documents, then every group that has any."""
        with_rows = enumerate(self.bounds.groups) if self.bounds.by and self.bounds.labels else ()
        own = {name: [group] for group, name in with_rows if self.sums.total[group, 0]}
        return {ALL: slice(None), **own}

    @cached_property
    def shown(self) -> list[int]:
        """Groups with bins and documents."""
        return [group for group in self.bounds.shown if self.sums.total[group, 0]]

    def amount(self, counts: Counts, groups: Groups) -> Amount:
        """Return what some groups of counts (groups, 2) make."""
        return self.sizes.amount(counts[groups], groups)

    def group_rows(self) -> Iterator[GroupRow]:
        """Yield what all rules do, by group."""
        for name, groups in self.groups.items():
            yield GroupRow(name, self.amount(self.sums.total, groups), self.amount(self.sums.kept, groups))

    def level_rows(self) -> Iterator[LevelRow]:
        """Yield what levels keep, by group."""
        for step, level in enumerate(self.bounds.levels, 1):
            kept = self.sums.reached[:, step:].sum(axis=1)
            for name, groups in self.groups.items():
                yield LevelRow(level, name, self.amount(kept, groups))

    def rule_rows(self) -> Iterator[RuleEffect]:
        """Yield what rules do, by group."""
        for rule in range(len(self.names)):
            alone = self.sums.alone(rule, self.bounds)
            for name, groups in self.groups.items():
                yield self._rule_row(rule, alone, name, groups)

    def _rule_row(self, rule: int, alone: Counts, group: str, groups: Groups) -> RuleEffect:
        bounds, sums = self.bounds, self.sums
        following = np.unique(bounds.following[rule][groups][sums.kept[groups][:, 0] > 0])
        levels = [bounds.levels[step - 1] for step in following if step]
        return RuleEffect(
            rule=self.names[rule],
            signal=bounds.signals[rule],
            group=group,
            lower=_one(bounds.lower[rule, groups, GIVEN]),
            upper=_one(bounds.upper[rule, groups, GIVEN]),
            missing=int(sums.missing[rule, groups, 0].sum()),
            alone=self.amount(alone, groups),
            only=self.amount(sums.only[:, rule], groups),
            stricter=self.amount(sums.cost[:, rule], groups) if levels else None,
            stricter_level=levels[0] if len(levels) == 1 else None,
        )

    def side_rows(self, rule: int) -> Iterator[SideRow]:
        """Yield the documents on each side of the bounds of a rule, by group."""
        fails, has_bounds = self.sums.fails(rule, GIVEN), ~np.isnan(self.bounds.lower[rule, :, GIVEN])
        apart = self.sums.missing[rule] + fails.sum(axis=1) * ~has_bounds[:, None]
        fails = fails * has_bounds[:, None, None]
        for name, groups in self.groups.items():
            every, missing, below, above = (
                self.amount(counts, groups) for counts in (self.sums.total, apart, fails[:, 0], fails[:, 1])
            )
            texts = [
                each.bytes / every.bytes if every.bytes and each.bytes is not None else None
                for each in (missing, below, above)
            ]
            known = [share for share in texts if share is not None]
            yield SideRow(
                group=name,
                documents=every.documents,
                below=below.documents,
                inside=every.documents - below.documents - above.documents - missing.documents,
                above=above.documents,
                missing=missing.documents,
                text_below=texts[1],
                text_inside=1 - sum(known) if len(known) == len(texts) else None,
                text_above=texts[2],
            )

    def overlap(self) -> dict[str, tuple[tuple[int, ...], ...]]:
        """Return the documents that pairs of rules drop, by group."""
        every = {ALL: self.sums.overlap.sum(axis=0)}
        for group in self.shown:
            every[self.bounds.groups[group]] = self.sums.overlap[self.bounds.places[group]]
        return {name: tuple(map(tuple, counts.tolist())) for name, counts in every.items()}

    def examples(self, shards: Sequence[Shard]) -> Iterator[ExampleRow]:
        """Yield the documents beside the bounds."""
        nearest = self.sums.nearest
        for rule, place, side, at in np.argwhere(nearest.locations >= 0).tolist():
            group, location = self.bounds.shown[place], int(nearest.locations[rule, place, side, at])
            ends = (self.bounds.lower, self.bounds.upper)[side // 2]
            yield ExampleRow(
                rule=self.names[rule],
                group=self.bounds.groups[group],
                bound=("lower", "upper")[side // 2],
                side=("inside", "outside")[side % 2],
                limit=float(ends[rule, group, GIVEN]),
                value=float(nearest.found[rule, place, side, at]),
                id=nearest.ids[location],
                shard=shards[location >> 32].path,
                row=location & 0xFFFF_FFFF,
            )

    def notes(self) -> Iterator[str]:
        """Warn of rules without a value in all documents, or in all of some groups."""
        documents = self.sums.total[:, 0]
        for rule, name in enumerate(self.names):
            empty = (documents > 0) & (self.sums.missing[rule, :, 0] == documents)
            if empty.any():
                groups = [self.bounds.groups[group] for group in np.flatnonzero(empty)]
                some = groups if (documents[~empty] > 0).any() else []
                yield note_without_values(
                    name, some, bool(self.sums.alone(rule, self.bounds)[empty, 0].any())
                )


def _one(ends: Floats) -> float | None:
    """Return the bound of some groups if it is finite and the same in all that have one."""
    found = np.unique(ends[~np.isnan(ends)])
    return float(found[0]) if len(found) == 1 and np.isfinite(found[0]) else None
