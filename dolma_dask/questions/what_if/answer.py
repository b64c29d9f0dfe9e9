"""The answer of what-if: rows for programs, sentences and tables for people."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from dolma_dask.dataset import Dataset, Shard
from dolma_dask.display import byte_size, counted, isolated, near_or_all, percent, real, shortened
from dolma_dask.errors import UsageError
from dolma_dask.questions.what_if.rows import Counted, ExampleRow, GroupRow, LevelRow, RuleEffect, SideRow
from dolma_dask.questions.what_if.texts import Amount, read_beginnings
from dolma_dask.results.answer import Answer, plain
from dolma_dask.results.parts import Heading, Notes, Part, Sentences
from dolma_dask.results.summary import MAX_RULE
from dolma_dask.results.table import Column, Table
from dolma_dask.rules.groups import ALL
from dolma_dask.rules.thresholds import By, shown_by

if TYPE_CHECKING:
    import pandas as pd

MAX_SHOWN = 12
"""Groups that a table has a column for; how many more there are is told."""


class WhatIf(Answer, frozen=True):
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
    given : str
        Conditions of the rule without a bound that is looked at: only documents for which they hold are counted.
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
    counts: Counted  # what the others are made of
    page: str | None = None  # URL of the page, if one was written
    given: str = ""  # the other conditions of the rule: only documents for which they hold are counted
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

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WhatIf) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]

    def to_json(self) -> dict[str, Any]:
        """Return the answer as JSON-able values."""
        rows = ("groups", "rules", "levels", "examples")
        return {
            "verb": self.verb,
            "root": self.root,
            "level": self.level,
            "by": self.by,
            "sentences": list(sentences(self)),
            **{name: plain(getattr(self, name)) for name in rows},
            "overlap": {"rules": self.rule_names, "groups": self.overlap},
            "stricter": plain(self.stricter),
            "unreadable": self.unreadable,
            "measure": self.measure,
            "notes": list(self.notes),
            "page": self.page,
            "given": self.given,
        }

    @property
    def rule_names(self) -> list[str]:
        """Short names of the rules."""
        return self.counts.names

    def of_group(self, group: str) -> list[RuleEffect]:
        """Return the rows of the rules for one group."""
        return [row for row in self.rules if row.group == group]

    @property
    def costliest(self) -> RuleEffect:
        """The rule without which most documents would come back, for all documents."""
        return max(self.of_group(ALL), key=lambda row: (row.only.documents, row.alone.documents))

    def sides(self, rule: str | None = None) -> "pd.DataFrame":
        """Return where a rule cuts, by default the costliest: a row per group, "all" first, with its documents below, inside and above of the bounds and without a
        value, and the shares of its text below, inside and above.

        Raises
        ------
        UsageError
            There is no such rule.

        Examples
        --------
        >>> dk.what_if("corpus/v0", "regular").sides()  # doctest: +SKIP
        """
        import pandas as pd

        return pd.DataFrame([vars(row) for row in self._side_rows(rule)]).set_index("group")

    def _side_rows(self, rule: str | None = None) -> list[SideRow]:
        name = self.costliest.rule if rule is None else rule
        if name not in self.rule_names:
            raise UsageError(f"there is no rule {name!r}; {near_or_all(name, self.rule_names)}", name=name)
        return list(self.counts.side_rows(self.rule_names.index(name)))

    def examples_frame(self) -> "pd.DataFrame":
        """Return the documents beside the bounds as a frame, with the beginnings of their texts where they were read.

        A row per document: rule, group, bound ("lower" or "upper"), side ("inside": kept, "outside": dropped by this rule alone), limit, value,
        id, shard, row and excerpt.
        """
        import pandas as pd

        return pd.DataFrame(
            [vars(row) for row in self.examples],
            columns=[each.name for each in dataclasses.fields(ExampleRow)],
        )

    def parts(self) -> Iterator[Part]:
        by = f" by {shown_by(self.by)}" if self.by else ""
        yield Heading(f"what if: {self.level or rule_words(self)}{by}{_given_words(self)}, {self.root}")
        yield Sentences(sentences(self))
        yield rule_table(self)
        if len(self.groups) > 1:
            yield side_table(self)
        yield level_table(self)
        if len(self.rule_names) > 1:
            yield overlap_table(self)
        if not self.page:
            yield example_table(self)
        yield Notes([*unread_note(self), self.measure, *self.notes])
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
        examples = [
            dataclasses.replace(row, excerpt=texts.get((row.shard, row.row), "")) for row in self.examples
        ]
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


# ------------------------------------------------------------------------------------------------ for people


def sentences(answer: WhatIf, given: str = "", other: str = "rule") -> tuple[str, ...]:
    """Say which rule costs most, and what a stricter level would cost; `given` begins the first sentence, where it is said beside other rules, and `other` calls those that are counted."""
    every = answer.groups[0]
    if not every.documents.documents:
        return ("There are no documents.",)
    if answer.given:
        given, other = f"Where {shortened(isolated(answer.given), MAX_RULE)} holds, ", "bound"
    return _most_costly(answer, every, given, other), _stricter(answer, every)


def _most_costly(answer: WhatIf, every: GroupRow, given: str, other: str) -> str:
    rows = answer.of_group(ALL)
    if not any(row.alone.documents for row in rows):
        return f"{given}{'no' if given else 'No'} {other} drops anything of the {counted(every.documents.documents, 'document')}."
    most = max(rows, key=lambda row: (row.only.documents, row.alone.documents))
    dropped = f"it drops {counted(most.alone.documents, 'document')} ({percent(most.alone.documents, every.documents.documents)})"
    if len(rows) == 1:
        return f"{given}{isolated(most.rule)} is the only {other}: {dropped}{_text(most.only)}."
    back = (
        f"{most.only.documents:,} of these {'is' if most.only.documents == 1 else 'are'} dropped by no other {other} and would "
        f"come back without it{_text(most.only)}."
        if most.only.documents
        else f"other {other}s drop all of these too, so nothing would come back without it."
    )
    return f"{given}{isolated(most.rule)} is the {other} that costs most: {dropped}; {back}"


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
    most = max(rows, key=lambda row: row.stricter.documents if row.stricter else 0, default=None)
    cause = (
        f" Of the rules, {isolated(most.rule)} would take the most by itself: {most.stricter.documents:,}."
        if most and most.stricter and most.stricter.documents and len(answer.of_group(ALL)) > 1
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


def rule_words(answer: WhatIf) -> str:
    """Return bounds that are of no level: as a rule, if they are the same for all documents."""
    if answer.by:
        return "thresholds"
    return shortened(
        " and ".join(f"{row.rule} {_bounds(row, answer)}" for row in answer.of_group(ALL)), MAX_RULE
    )


def _given_words(answer: WhatIf) -> str:
    """Return the conditions that are taken as given, for a heading behind the bounds."""
    given = shortened(isolated(answer.given), MAX_RULE)
    return f" and ({given})" if " or " in given else f" and {given}" if given else ""


def rule_table(answer: WhatIf) -> Table:
    """Return what each rule drops, the most costly first."""
    every = answer.groups[0].documents.documents
    columns = (
        Column("rule", "name"),
        Column("keeps", "words", lambda row: _bounds(row, answer)),
        Column("missing"),
        Column("drops", of=lambda row: row.alone.documents),
        Column("share", "share", lambda row: row.alone.documents / every if every else None),
        Column("tokens", of=lambda row: row.alone.tokens),
        Column("no other drops", of=lambda row: row.only.documents),
        Column("one level stricter", of=lambda row: row.stricter and row.stricter.documents),
    )
    rows = sorted(answer.of_group(ALL), key=lambda row: (-row.only.documents, -row.alone.documents))
    return Table.of("What each rule drops", columns, rows)


def _bounds(row: RuleEffect, answer: WhatIf) -> str:
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
    """Return a bound as people write it: from the neighbour of a short number on is more than that number."""
    other = math.nextafter(end, -math.inf if sign == ">=" else math.inf)
    is_neighbour = len(repr(other)) + 8 < len(repr(end))
    return f"{sign[0]} {real(other)}" if is_neighbour else f"{sign} {real(end)}"


def side_table(answer: WhatIf) -> Table:
    """Return where the costliest rule cuts."""
    columns = (
        Column("group", "name"),
        Column("documents"),
        Column("below", is_quiet=True),
        Column("passes", of="inside"),
        Column("above", is_quiet=True),
        Column("missing", is_quiet=True),
        Column("text below", "share", is_quiet=True),
        Column("text above", "share", is_quiet=True),
    )
    rows = answer._side_rows()[: MAX_SHOWN + 1] if answer.rules else []
    return Table.of(f"Where {answer.costliest.rule} cuts, the rule that costs most", columns, rows)


def level_table(answer: WhatIf) -> Table:
    """Return what each level keeps."""
    groups = [row.group for row in answer.groups][: MAX_SHOWN + 1]
    left = len(answer.groups) - len(groups)
    by_level: dict[str, list[GroupRow | LevelRow]] = {"with these bounds": [*answer.groups]}
    for row in answer.levels:
        by_level.setdefault(_words(row.level), []).append(row)
    rows = [("all documents", *(row.documents.documents for row in answer.groups[: len(groups)]))]
    rows += [(name, *(row.kept.documents for row in own[: len(groups)])) for name, own in by_level.items()]
    more = f"; {left:,} more groups" if left else ""
    columns = (Column("level", "words"), *(Column(group, is_data=True) for group in groups))
    return Table(f"What each level keeps{more}", columns, rows)


def overlap_table(answer: WhatIf) -> Table:
    """Return the shares of what a rule drops that others drop too."""
    rows = []
    for number, (name, both) in enumerate(zip(answer.rule_names, answer.overlap[ALL], strict=True)):
        shares = [count / both[number] if both[number] else None for count in both]
        shares[number] = None
        rows.append((f"{name} ({number + 1})", *shares))
    numbers = (Column(f"({number})", "share", is_always=True) for number in range(1, len(rows) + 1))
    columns = (Column("rule", "words"), *numbers)
    return Table("Of the documents that a rule drops, the share that another drops too", columns, rows)


_EXAMPLES = (
    Column("rule", "name"),
    Column("group", "name"),
    Column("bound", "words", lambda row: _bound(">=" if row.bound == "lower" else "<=", row.limit)),
    Column("side", "words"),
    Column("value", "real"),
    Column("id", "name"),
    Column("text", "words", lambda row: " ".join(row.excerpt.split())[:60]),
)


def example_table(answer: WhatIf) -> Table:
    """Return documents beside the bounds, with the beginnings of their texts."""
    return Table.of("Documents beside the bounds", _EXAMPLES, [row for row in answer.examples if row.excerpt])
