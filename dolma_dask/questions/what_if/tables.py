"""The answer of what-if for people: sentences, and tables of rules, levels and documents beside the bounds."""

import math
from typing import TYPE_CHECKING

from dolma_dask.display import byte_size, counted, isolated, percent, real
from dolma_dask.questions.what_if.texts import Amount
from dolma_dask.results.summary import shortened
from dolma_dask.results.table import Column, Table
from dolma_dask.rules.groups import ALL
from dolma_dask.rules.thresholds import shown_by

if TYPE_CHECKING:
    from dolma_dask.questions.what_if.answer import GroupRow, LevelRow, RuleEffect, WhatIf

MAX_SHOWN = 12
"""Groups that a table has a column for; how many more there are is told."""


def sentences(answer: "WhatIf", given: str = "") -> tuple[str, ...]:
    """Say which rule costs most, and what a stricter level would cost; `given` begins the first sentence, where it is said beside other rules."""
    every = answer.groups[0]
    if not every.documents.documents:
        return ("There are no documents.",)
    return _most_costly(answer, every, given), _stricter(answer, every)


def _most_costly(answer: "WhatIf", every: "GroupRow", given: str) -> str:
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


def _stricter(answer: "WhatIf", every: "GroupRow") -> str:
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


def _next_level(answer: "WhatIf") -> str:
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


def unread_note(answer: "WhatIf") -> list[str]:
    """Return the note that some documents could not be read, if there are any."""
    verb = "is" if answer.unreadable == 1 else "are"
    note = f"{counted(answer.unreadable, 'document')} could not be read, and {verb} in no count"
    return [note] if answer.unreadable else []


def rule_words(answer: "WhatIf") -> str:
    """Return bounds that are of no level: as a rule, if they are the same for all documents."""
    if answer.by:
        return "thresholds"
    return shortened(" and ".join(f"{row.rule} {_bounds(row, answer)}" for row in answer.of_group(ALL)))


def rule_table(answer: "WhatIf") -> Table:
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


def _bounds(row: "RuleEffect", answer: "WhatIf") -> str:
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


def level_table(answer: "WhatIf") -> Table:
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


def overlap_table(answer: "WhatIf") -> Table:
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


def example_table(answer: "WhatIf") -> Table:
    """Return documents beside the bounds, with the beginnings of their texts."""
    return Table.of("Documents beside the bounds", _EXAMPLES, [row for row in answer.examples if row.excerpt])
