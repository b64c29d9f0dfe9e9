"""The answer of what-if: rows by rule, level and group, from the sums over all documents; its tables and sentences are in `tables`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dolma_dask.dataset import Dataset, Shard
from dolma_dask.display import counted
from dolma_dask.errors import UsageError
from dolma_dask.questions.what_if import tables
from dolma_dask.questions.what_if.levels import GIVEN, LevelBounds
from dolma_dask.questions.what_if.sums import DropSums
from dolma_dask.questions.what_if.texts import Amount, GroupSizes, read_beginnings
from dolma_dask.results.answer import Answer
from dolma_dask.results.parts import Heading, Notes, Part, Sentences
from dolma_dask.rules.groups import ALL
from dolma_dask.rules.signal_names import short_names
from dolma_dask.rules.thresholds import By, note_without_values, shown_by
from dolma_dask.text.kernels import Counts, Floats

if TYPE_CHECKING:
    import pandas as pd


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


Groups = slice | list[int]
"""Groups that a row of a table is about."""


@dataclass(frozen=True, eq=False)
class Counted:
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
        named = len(self.bounds.groups) > 2 - (self.bounds.by is not None)
        own = {
            name: [group]
            for group, name in enumerate(self.bounds.groups)
            if named and self.sums.total[group, 0]
        }
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

    def overlap(self) -> dict[str, tuple[tuple[int, ...], ...]]:
        """Return the documents that pairs of rules drop, by group."""
        named = {self.bounds.groups[group]: self.bounds.places[group] for group in self.shown}
        every = {
            ALL: self.sums.overlap.sum(axis=0),
            **{name: self.sums.overlap[at] for name, at in named.items()},
        }
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


@dataclass(frozen=True, repr=False)
class WhatIf(Answer):
    """Drops by thresholds, and by other levels; prints as tables.

    Attributes
    ----------
    root : str
        Of the dataset.
    level : str or None
        Level of the bounds, if they are those of one.
    by : str, tuple of str or None
        Column of the groups, or several.
    groups, rules, levels, examples : tuple
        What the rules together do, by group; what each rule does; what each level keeps; documents beside the bounds. Each also for the group "all".
    overlap : Mapping
        Group to a matrix: of the documents that a rule (row) drops, how many another (column) drops too.
    stricter : Amount or None
        Kept documents that would go if every rule went one level further.
    unreadable : int
        Documents that could not be read; they are in no other count.
    measure : str
        How bytes and tokens are estimated.
    notes : tuple of str
        What a person should know.
    """

    root: str
    level: str | None
    by: By
    groups: tuple[GroupRow, ...]
    rules: tuple[RuleEffect, ...]
    levels: tuple[LevelRow, ...]
    overlap: Mapping[str, tuple[tuple[int, ...], ...]]
    stricter: Amount | None
    examples: tuple[ExampleRow, ...]
    unreadable: int
    measure: str
    notes: tuple[str, ...]
    counts: Counted = field(compare=False)
    page: str | None = None  # URL of the page, if one was written
    verb: str = "what_if"

    @classmethod
    def of(cls, root: str, counts: Counted, shards: Sequence[Shard], notes: Sequence[str]) -> "WhatIf":
        """Return the answer that sums over all documents give."""
        bounds, sums = counts.bounds, counts.sums
        return cls(
            root=root,
            level=bounds.strictness,
            by=bounds.by,
            groups=tuple(counts.group_rows()),
            rules=tuple(counts.rule_rows()),
            levels=tuple(counts.level_rows()),
            overlap=counts.overlap(),
            stricter=counts.amount(sums.cost[:, -1], slice(None)) if bounds.following.any() else None,
            examples=tuple(counts.examples(shards)),
            unreadable=sums.unreadable,
            measure=counts.sizes.how,
            notes=(*notes, *counts.notes()),
            counts=counts,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the answer as JSON-able values."""
        rows = ("groups", "rules", "levels", "examples")
        return {
            "verb": self.verb,
            "root": self.root,
            "level": self.level,
            "by": self.by,
            "sentences": list(tables.sentences(self)),
            **{name: [asdict(row) for row in getattr(self, name)] for name in rows},
            "overlap": {"rules": self.rule_names, "groups": self.overlap},
            "stricter": None if self.stricter is None else asdict(self.stricter),
            "unreadable": self.unreadable,
            "measure": self.measure,
            "notes": list(self.notes),
            "page": self.page,
        }

    @property
    def rule_names(self) -> list[str]:
        """Short names of the rules."""
        return self.counts.names

    def of_group(self, group: str) -> list[RuleEffect]:
        """Return the rows of the rules for one group."""
        return [row for row in self.rules if row.group == group]

    def examples_frame(self) -> "pd.DataFrame":
        """Return the documents beside the bounds as a frame, with the beginnings of their texts where they were read.

        A row per document: rule, group, bound ("lower" or "upper"), side ("inside": kept, "outside": dropped by this rule alone), limit, value,
        id, shard, row and excerpt.
        """
        import pandas as pd

        return pd.DataFrame(
            [asdict(row) for row in self.examples], columns=[each.name for each in fields(ExampleRow)]
        )

    def parts(self) -> Iterator[Part]:
        by = f" by {shown_by(self.by)}" if self.by else ""
        yield Heading(f"what if: {self.level or tables.rule_words(self)}{by}, {self.root}")
        yield Sentences(tables.sentences(self))
        yield tables.rule_table(self)
        yield tables.level_table(self)
        if len(self.rule_names) > 1:
            yield tables.overlap_table(self)
        if not self.page:
            yield tables.example_table(self)
        yield Notes([*tables.unread_note(self), self.measure, *self.notes])
        yield Sentences([f"page: {self.page}"] if self.page else [])

    def _repr_html_(self) -> str:
        from dolma_dask.questions.what_if.page import embedded

        return embedded(self)

    def with_excerpts(self, dataset: Dataset) -> "WhatIf":
        """Return the answer with the beginnings of the texts of its examples, as far as they are read."""
        documents = [(row.shard, row.row) for row in self.examples]
        texts = read_beginnings(dataset, documents)
        left = len(set(documents) - texts.keys())
        note = f"the texts of {counted(left, 'document')} beside the bounds were not read, as they lie in many shards"
        examples = [replace(row, excerpt=texts.get((row.shard, row.row), "")) for row in self.examples]
        return replace(self, examples=tuple(examples), notes=(*self.notes, *([note] if left else [])))

    def written(self, to: str) -> "WhatIf":
        """Write the page; return the answer that knows where it is."""
        from dolma_dask.io import files
        from dolma_dask.io.publish import publish
        from dolma_dask.questions.what_if.page import MARK, render

        url = files.normalize(to)
        if files.stat(url) is not None:
            with files.open_read(url) as handle:
                if MARK not in handle.read(4096):
                    raise UsageError(
                        f"{url} is there and is no page of what-if; expected a free path. Choose another name."
                    )
        with publish(url) as out:
            out.write(render(self).encode())
        return replace(self, page=url)
