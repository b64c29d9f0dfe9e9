"""The answer of what-if: counts by rule, level and group, from the sums over all documents."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dolma_dask.dataset import Shard
from dolma_dask.errors import UsageError
from dolma_dask.questions.what_if import counting, tables
from dolma_dask.questions.what_if.ladder import GIVEN, LevelBounds
from dolma_dask.questions.what_if.measure import Amount, GroupSizes
from dolma_dask.questions.what_if.stage import DropSums
from dolma_dask.results.answer import Answer
from dolma_dask.results.parts import Heading, Notes, Part, Sentences
from dolma_dask.rules.groups import ALL
from dolma_dask.rules.signal_names import short_names
from dolma_dask.rules.thresholds import By, note_without_values, shown_by
from dolma_dask.text.kernels import Counts

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
    ladder: LevelBounds = field(compare=False)
    tally: DropSums = field(compare=False)
    scale: GroupSizes = field(compare=False)
    page: str | None = None  # URL of the page, if one was written
    verb: str = "what_if"

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
        return list(short_names(list(self.ladder.signals)).values())

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


# ------------------------------------------------------------------------------------------------ from sums to rows


def answer_of(
    root: str,
    ladder: LevelBounds,
    tally: DropSums,
    scale: GroupSizes,
    shards: Sequence[Shard],
    notes: Sequence[str],
) -> WhatIf:
    """Return the answer that sums over all documents give."""
    names = list(short_names(list(ladder.signals)).values())
    parts = list(_parts(ladder, tally))
    has_levels = bool(ladder.following.any())
    return WhatIf(
        root=root,
        level=ladder.strictness,
        by=ladder.by,
        groups=tuple(
            GroupRow(group, *(_amount(scale, counts, rows) for counts in (tally.total, tally.kept)))
            for group, rows in parts
        ),
        rules=tuple(
            _rule_row(ladder, tally, scale, alone, names[rule], rule, group, rows)
            for rule, alone in ((rule, tally.alone(rule, ladder)) for rule in range(len(names)))
            for group, rows in parts
        ),
        levels=tuple(
            LevelRow(level, group, _amount(scale, tally.reached[:, step:].sum(axis=1), rows))
            for step, level in enumerate(ladder.levels, 1)
            for group, rows in parts
        ),
        overlap=_overlaps(ladder, tally),
        stricter=_amount(scale, tally.cost[:, -1], slice(None)) if has_levels else None,
        examples=tuple(_examples(ladder, tally, names, shards)),
        unreadable=tally.unreadable,
        measure=scale.how,
        notes=(*notes, *_notes(ladder, tally, names)),
        ladder=ladder,
        tally=tally,
        scale=scale,
    )


def _notes(ladder: LevelBounds, tally: DropSums, names: Sequence[str]) -> Iterator[str]:
    """Warn of rules without a value in all documents, or in all of some groups."""
    documents = tally.total[:, 0]
    for rule, name in enumerate(names):
        empty = (documents > 0) & (tally.missing[rule, :, 0] == documents)
        if empty.any():
            groups = [ladder.groups[group] for group in np.flatnonzero(empty)]
            some = groups if (documents[~empty] > 0).any() else []
            yield note_without_values(name, some, bool(tally.alone(rule, ladder)[empty, 0].any()))


Rows = slice | list[int]
"""Groups that a row of a table is about."""


def _parts(ladder: LevelBounds, tally: DropSums) -> Iterator[tuple[str, Rows]]:
    """Yield what tables have rows for: all documents, then every group that has any."""
    yield ALL, slice(None)
    for group, name in enumerate(ladder.groups):
        if tally.total[group, 0] and len(ladder.groups) > 2 - (ladder.by is not None):
            yield name, [group]


def _amount(scale: GroupSizes, counts: Counts, rows: Rows) -> Amount:
    """Return what some groups of counts (groups, 2) make."""
    return scale.amount(counts[rows], rows)


def _rule_row(
    ladder: LevelBounds,
    tally: DropSums,
    scale: GroupSizes,
    alone: Counts,
    name: str,
    rule: int,
    group: str,
    rows: Rows,
) -> RuleEffect:
    following = np.unique(ladder.following[rule][rows][tally.kept[rows][:, 0] > 0])
    levels = [ladder.levels[step - 1] for step in following if step]
    return RuleEffect(
        name,
        ladder.signals[rule],
        group,
        _one(ladder.lower[rule, :, GIVEN], rows),
        _one(ladder.upper[rule, :, GIVEN], rows),
        int(tally.missing[rule, rows, 0].sum()),
        _amount(scale, alone, rows),
        _amount(scale, tally.only[:, rule], rows),
        _amount(scale, tally.cost[:, rule], rows) if levels else None,
        levels[0] if len(levels) == 1 else None,
    )


def _one(ends: np.ndarray[Any, np.dtype[np.float64]], rows: Rows) -> float | None:
    """Return the bound of some groups if it is finite and the same in all that have one."""
    found = np.unique(ends[rows][~np.isnan(ends[rows])])
    return float(found[0]) if len(found) == 1 and np.isfinite(found[0]) else None


def _overlaps(ladder: LevelBounds, tally: DropSums) -> dict[str, tuple[tuple[int, ...], ...]]:
    def matrix(counts: Counts) -> tuple[tuple[int, ...], ...]:
        return tuple(map(tuple, counts.tolist()))

    found = {ALL: matrix(tally.overlap.sum(axis=0))}
    for group, name in enumerate(ladder.labels, 1):
        if name != ALL and ladder.places[group] < ladder.shown and tally.total[group, 0]:
            found[name] = matrix(tally.overlap[ladder.places[group]])
    return found


_SIDES = {
    counting.LOWER_IN: ("lower", "inside"),
    counting.LOWER_OUT: ("lower", "outside"),
    counting.UPPER_IN: ("upper", "inside"),
    counting.UPPER_OUT: ("upper", "outside"),
}


def _examples(
    ladder: LevelBounds, tally: DropSums, names: Sequence[str], shards: Sequence[Shard]
) -> Iterator[ExampleRow]:
    for rule, place, side, at in np.argwhere(np.isfinite(tally.distances)).tolist():
        group = int(np.flatnonzero(ladder.places == place)[0])
        bound, where = _SIDES[side]
        location = int(tally.locations[rule, place, side, at])
        ends = ladder.lower if bound == "lower" else ladder.upper
        yield ExampleRow(
            names[rule],
            ladder.groups[group],
            bound,
            where,
            float(ends[rule, group, GIVEN]),
            float(tally.found[rule, place, side, at]),
            tally.ids[location],
            shards[location >> 32].path,
            location & 0xFFFF_FFFF,
        )
