"""The answer of what-if: counts by rule, level and group, as tables, JSON, sentences and a page."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dolma_dask.dataset import Shard
from dolma_dask.display import byte_size, counted, isolated, percent, real
from dolma_dask.errors import UsageError
from dolma_dask.questions.what_if import counting
from dolma_dask.questions.what_if.conditions import spelled
from dolma_dask.questions.what_if.ladder import GIVEN, Ladder
from dolma_dask.questions.what_if.measure import Amount, Measure
from dolma_dask.questions.what_if.stage import Tally
from dolma_dask.results.answer import Answer
from dolma_dask.results.parts import Heading, Notes, Part, Sentences
from dolma_dask.results.summary import shortened
from dolma_dask.results.table import Column, Table
from dolma_dask.rules.groups import ALL
from dolma_dask.rules.signal_names import short_names
from dolma_dask.rules.thresholds import By, note_without_values, shown_by
from dolma_dask.text.kernels import Counts

if TYPE_CHECKING:
    import pandas as pd

MAX_SHOWN = 12
"""Groups that tables in a terminal have a column or line for; how many more there are is told."""


@dataclass(frozen=True)
class RuleRow:
    """What one rule does to one group."""

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
    """What a level of all rules keeps of one group."""

    level: str
    group: str
    kept: Amount


@dataclass(frozen=True)
class GroupRow:
    """What the rules together do to one group."""

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
    """What thresholds drop, and what other levels would; prints as tables.

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
    rules: tuple[RuleRow, ...]
    levels: tuple[LevelRow, ...]
    overlap: Mapping[str, tuple[tuple[int, ...], ...]]
    stricter: Amount | None
    examples: tuple[ExampleRow, ...]
    unreadable: int
    measure: str
    notes: tuple[str, ...]
    ladder: Ladder = field(compare=False)
    tally: Tally = field(compare=False)
    scale: Measure = field(compare=False)
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
            "sentences": list(sentences(self)),
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

    def of_group(self, group: str) -> list[RuleRow]:
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
        yield from _parts_of(self)

    def _repr_html_(self) -> str:
        from dolma_dask.questions.what_if.page import embedded

        return embedded(self)

    def rule_table(self) -> Table:
        """Return what each rule drops, the most costly first."""
        return _rule_table(self)

    def level_table(self) -> Table:
        """Return what each level keeps."""
        return _level_table(self)

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
    root: str, ladder: Ladder, tally: Tally, scale: Measure, shards: Sequence[Shard], notes: Sequence[str]
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


def _notes(ladder: Ladder, tally: Tally, names: Sequence[str]) -> Iterator[str]:
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


def _parts(ladder: Ladder, tally: Tally) -> Iterator[tuple[str, Rows]]:
    """Yield what tables have rows for: all documents, then every group that has any."""
    yield ALL, slice(None)
    for group, name in enumerate(ladder.groups):
        if tally.total[group, 0] and len(ladder.groups) > 2 - (ladder.by is not None):
            yield name, [group]


def _amount(scale: Measure, counts: Counts, rows: Rows) -> Amount:
    """Return what some groups of counts (groups, 2) make."""
    return scale.amount(counts[rows], rows)


def _rule_row(
    ladder: Ladder,
    tally: Tally,
    scale: Measure,
    alone: Counts,
    name: str,
    rule: int,
    group: str,
    rows: Rows,
) -> RuleRow:
    following = np.unique(ladder.following[rule][rows][tally.kept[rows][:, 0] > 0])
    levels = [ladder.levels[step - 1] for step in following if step]
    return RuleRow(
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


def _overlaps(ladder: Ladder, tally: Tally) -> dict[str, tuple[tuple[int, ...], ...]]:
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
    ladder: Ladder, tally: Tally, names: Sequence[str], shards: Sequence[Shard]
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


# ------------------------------------------------------------------------------------------------ for people


def sentences(answer: WhatIf, given: str = "") -> tuple[str, ...]:
    """Say which rule costs most, and what a stricter level would cost; `given` begins the first sentence, where it is said beside other rules."""
    every = answer.groups[0]
    if not every.documents.documents:
        return ("There are no documents.",)
    return _most_costly(answer, every, given), _stricter(answer, every)


def _most_costly(answer: WhatIf, every: GroupRow, given: str) -> str:
    rows = answer.of_group(ALL)
    if not any(row.alone.documents for row in rows):
        return f"{given}{'no' if given else 'No'} rule drops anything of the {counted(every.documents.documents, 'document')}."
    most = max(rows, key=lambda row: (row.only.documents, row.alone.documents))
    dropped = f"it drops {counted(most.alone.documents, 'document')} ({percent(most.alone.documents, every.documents.documents)})"
    if len(rows) == 1:
        return f"{given}{isolated(most.rule)} is the only rule: {dropped}{_text(most.only)}."
    back = (
        f"{most.only.documents:,} of these {'is' if most.only.documents == 1 else 'are'} dropped by no other rule and would "
        f"come back without it{_text(most.only)}."
        if most.only.documents
        else "other rules drop all of these too, so nothing would come back without it."
    )
    return f"{given}{isolated(most.rule)} is the rule that costs most: {dropped}; {back}"


def _stricter(answer: WhatIf, every: GroupRow) -> str:
    kept = every.kept.documents
    if answer.stricter is None:
        return (
            f"{counted(kept, 'document')} of {every.documents.documents:,} {'is' if kept == 1 else 'are'} kept ({percent(kept, every.documents.documents)}); what a stricter level "
            "would cost is not known."
        )
    name = _next_level(answer)
    lost = answer.stricter
    rows = [row for row in answer.of_group(ALL) if row.stricter is not None]
    most = max(rows, key=lambda row: row.stricter.documents if row.stricter else 0)
    cause = (
        f" Of the rules, {isolated(most.rule)} would take the most by itself: {most.stricter.documents:,}."
        if most.stricter and most.stricter.documents and len(answer.of_group(ALL)) > 1
        else ""
    )
    return (
        f"The next stricter level{name} would keep {counted(kept - lost.documents, 'document')} in place of {kept:,}: {lost.documents:,} fewer "
        f"({percent(lost.documents, kept)} of what is kept){_text(lost)}.{cause}"
    )


def _next_level(answer: WhatIf) -> str:
    levels = {row.stricter_level for row in answer.of_group(ALL)}
    return f" ({_words(levels.pop() or '')})" if len(levels) == 1 and None not in levels else ""


def _words(level: str) -> str:
    return level.replace("_", " ")


def _text(amount: Amount) -> str:
    """Return the text of some documents, for a sentence."""
    if amount.bytes is None or amount.tokens is None:
        return ""
    return f", about {byte_size(amount.bytes)} of text or {rounded(amount.tokens)} tokens"


def rounded(count: int) -> str:
    """Return a number as exact as an estimate is: 574,000, or 1.2 million."""
    rounded = float(f"{count:.3g}")
    for size, word in ((10**12, "trillion"), (10**9, "billion"), (10**6, "million")):
        if rounded >= size:
            return f"{rounded / size:.3g} {word}"
    return f"{rounded:,.0f}"


def unread_note(answer: WhatIf) -> list[str]:
    """Return the note that some documents could not be read, if there are any."""
    verb = "is" if answer.unreadable == 1 else "are"
    note = f"{counted(answer.unreadable, 'document')} could not be read, and {verb} in no count"
    return [note] if answer.unreadable else []


def _parts_of(answer: WhatIf) -> Iterator[Part]:
    by = f" by {shown_by(answer.by)}" if answer.by else ""
    yield Heading(f"what if: {answer.level or _rule(answer)}{by}, {answer.root}")
    yield Sentences(sentences(answer))
    yield answer.rule_table()
    yield answer.level_table()
    if len(answer.rule_names) > 1:
        yield _overlap_table(answer)
    if not answer.page:
        yield _example_table(answer)
    yield Notes([*unread_note(answer), answer.measure, *answer.notes])
    yield Sentences([f"page: {answer.page}"] if answer.page else [])


def _rule(answer: WhatIf) -> str:
    """Return bounds that are of no level: as a rule, if they are the same for all documents."""
    if answer.by:
        return "thresholds"
    return shortened(" and ".join(f"{row.rule} {_bounds(row, answer)}" for row in answer.of_group(ALL)))


_RULES = (
    Column("rule", "name"),
    Column("keeps", "words"),
    Column("missing"),
    Column("drops"),
    Column("share", "share"),
    Column("tokens"),
    Column("no other drops"),
    Column("one level stricter"),
)


def _rule_table(answer: WhatIf) -> Table:
    every = answer.groups[0].documents.documents
    rows = [
        (
            row.rule,
            _bounds(row, answer),
            row.missing,
            row.alone.documents,
            row.alone.documents / every if every else None,
            row.alone.tokens,
            row.only.documents,
            None if row.stricter is None else row.stricter.documents,
        )
        for row in sorted(answer.of_group(ALL), key=lambda row: (-row.only.documents, -row.alone.documents))
    ]
    return Table("What each rule drops", _RULES, rows)


def _bounds(row: RuleRow, answer: WhatIf) -> str:
    if row.lower is None and row.upper is None:
        return f"by {shown_by(answer.by)}" if answer.by else "all"
    if row.lower is not None and row.lower == row.upper:
        return f"== {real(row.lower)}"
    ends = ((sign, getattr(row, name), name) for sign, name in ((">=", "lower"), ("<=", "upper")))
    return " and ".join(
        f"{sign} by {shown_by(answer.by)}" if end is None else _bound(sign, end)
        for sign, end, name in ends
        if any(getattr(other, name) is not None for other in answer.rules if other.rule == row.rule)
    )


def _bound(sign: str, end: float) -> str:
    sign, end = spelled(sign, end)
    return f"{sign} {real(end)}"


def _level_table(answer: WhatIf) -> Table:
    groups = [row.group for row in answer.groups][: MAX_SHOWN + 1]
    left = len(answer.groups) - len(groups)
    lines: list[tuple[str, list[GroupRow] | list[LevelRow]]] = [("with these bounds", list(answer.groups))]
    for level in dict.fromkeys(row.level for row in answer.levels):
        lines.append((_words(level), [row for row in answer.levels if row.level == level]))
    rows: list[tuple[str | int, ...]] = [
        ("all documents", *(row.documents.documents for row in answer.groups[: len(groups)]))
    ]
    rows += [(name, *(row.kept.documents for row in kept[: len(groups)])) for name, kept in lines]
    more = f"; {left:,} more groups" if left else ""
    columns = (Column("level", "words"), *(Column(group, is_data=True) for group in groups))
    return Table(f"What each level keeps{more}", columns, rows)


def _overlap_table(answer: WhatIf) -> Table:
    names, matrix = answer.rule_names, answer.overlap[ALL]
    rows = [
        (
            f"{name} ({number + 1})",
            *(
                None if number == other or not row[number] else row[other] / row[number]
                for other in range(len(names))
            ),
        )
        for number, (name, row) in enumerate(zip(names, matrix, strict=True))
    ]
    columns = (
        Column("rule", "words"),
        *(Column(f"({number})", "share", is_always=True) for number in range(1, len(names) + 1)),
    )
    return Table("Of the documents that a rule drops, the share that another drops too", columns, rows)


_EXAMPLES = (
    Column("rule", "name"),
    Column("group", "name"),
    Column("bound", "words"),
    Column("side", "words"),
    Column("value", "real"),
    Column("id", "name"),
    Column("text", "words"),
)


def _example_table(answer: WhatIf) -> Table:
    rows = [
        (
            row.rule,
            row.group,
            _bound(">=" if row.bound == "lower" else "<=", row.limit),
            row.side,
            row.value,
            row.id,
            " ".join(row.excerpt.split())[:60],
        )
        for row in answer.examples
        if row.excerpt
    ]
    return Table("Documents beside the bounds", _EXAMPLES, rows)
