"""The outcome of `filter`: the documents that each rule keeps at each level, and all of them together, by group."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dolma_dask.formats.levels import LEAST
from dolma_dask.journal import Record
from dolma_dask.rules.groups import ALL
from dolma_dask.rules.levels import Levels
from dolma_dask.rules.thresholds import note_without_values
from dolma_dask.summary import Summary
from dolma_dask.text.kernels import Counts

MOST_SHOWN = 40
"""Lines of the table, which says how many more there are."""

TOGETHER = "all rules"
"""Name of the line of documents that all rules keep."""

Passed = Mapping[str, Mapping[str, list[int]]]
"""By group (empty: of no group) and rule (`LEAST`: all together): documents by level passed, 0 first, and last those without a value."""


def counts_by_group(levels: Levels, counts: Counts) -> dict[str, dict[str, list[int]]]:
    """Return counts of `Levels.passed` (groups, rules + 1, levels + 2) by name, without groups that no document has."""
    rules = (*levels.names, LEAST)
    sums: dict[str, Counts] = {}
    for group, own in zip(levels.groups, counts, strict=True) if counts.ndim else ():
        if own[-1].any():
            sums[group] = sums.get(group, 0) + own  # a label may be empty too
    return {
        group: {rule: numbers.tolist() for rule, numbers in zip(rules, own, strict=True)}
        for group, own in sums.items()
    }


@dataclass(frozen=True, repr=False)
class FilterSummary(Summary):
    """The outcome of `filter`.

    Attributes
    ----------
    rules : tuple of str
        Names of the rules, as columns ``<name>.<rule>`` have them.
    levels : int
        Number of levels.
    passed : Mapping
        By group, "" for documents in none and in the group of that name, and rule, "level" for all together: documents by number of levels passed, 0
        first, and last those without a value, which also count at the level that the policy for them gives.
    """

    names: tuple[str, ...] = ()
    levels: int = 0
    passed: Passed = field(default_factory=dict)

    def kept(self, level: int, rule: str = LEAST, group: str | None = None) -> int:
        """Return how many documents pass at least this level of a rule, by default of all together, in a group or in all."""
        return sum(
            sum(rules[rule][level : self.levels + 1])
            for name, rules in self.passed.items()
            if group in (None, name)
        )

    def to_json(self) -> dict[str, Any]:
        return {
            **super().to_json(),
            "levels": self.levels,
            "passed": {group: dict(rules) for group, rules in self.passed.items()},
        }

    @property
    def columns(self) -> tuple[str, ...]:
        """Headings of the table."""
        return ("rule", "group", *(f">= {level}" for level in range(1, self.levels + 1)), "no value")

    def lines(self) -> Iterator[tuple[str | int | None, ...]]:
        """Yield the lines of the table: rule, group, documents kept at each level, and those without a value."""
        groups = [None, *self.passed] if len(self.passed) > 1 else [None]
        of_groups = [(rule, group) for rule in self.names for group in groups[1:]]  # the longest part is last
        for rule, group in (
            *((LEAST, group) for group in groups),
            *((rule, None) for rule in self.names),
            *of_groups,
        ):
            kept = (self.kept(level, rule, group) for level in range(1, self.levels + 1))
            rules = [own for name, own in self.passed.items() if group in (None, name)]
            missing = None if rule == LEAST else sum(own[rule][-1] for own in rules)
            shown = ALL if group is None else group or "none"
            yield (TOGETHER if rule == LEAST else rule, shown, *kept, missing)

    def table(self) -> list[tuple[str, ...]]:
        """Return the lines of the table as words, its heading first."""
        lines = [tuple(map(_word, line)) for line in self.lines()]
        more = (f"and {len(lines) - MOST_SHOWN:,} more", *[""] * (len(self.columns) - 1))
        return [self.columns, *lines[:MOST_SHOWN], *([more] if len(lines) > MOST_SHOWN else [])]

    def tables(self) -> list[tuple[str, Sequence[Sequence[str]]]]:
        return [("documents kept", self.table())] if self.passed else []


def _word(value: str | int | None) -> str:
    return f"{value:,}" if isinstance(value, int) else value or ""


def summarize(summary: Summary, records: Iterable[Record], rules: Sequence[str]) -> FilterSummary:
    """Return a summary with the sums over the records of shards, which have levels of these rules."""
    sums: dict[str, dict[str, Any]] = {}
    for record in records:
        for group, own in record.info.get("passed", {}).items():
            known = sums.setdefault(group, {})
            for rule, numbers in own.items():
                known[rule] = known.get(rule, 0) + np.array(numbers)
    order = sorted(sums, key=lambda group: (not group, group))
    passed = {group: {rule: sum_.tolist() for rule, sum_ in sums[group].items()} for group in order}
    count = max((len(own[LEAST]) - 2 for own in passed.values()), default=0)
    known = vars(summary) | {"notes": (*summary.notes, *_notes(rules, passed))}
    return FilterSummary(**known, names=tuple(rules), levels=count, passed=passed)


def _notes(rules: Sequence[str], passed: Passed) -> Iterator[str]:
    """Warn of rules without a value in all documents, or in all of some groups."""
    for rule in rules:
        empty = [group for group, own in passed.items() if own[rule][-1] == sum(own[rule][:-1])]
        if empty:
            some = [group or "none" for group in empty] if len(empty) < len(passed) else []
            yield note_without_values(rule, some, any(passed[group][rule][0] for group in empty))
