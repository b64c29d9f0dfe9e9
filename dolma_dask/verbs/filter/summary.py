"""The outcome of `filter`: the documents that each rule keeps at each level, and all of them together, by group."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dolma_dask.display import html_table, text_table
from dolma_dask.engine import Ran
from dolma_dask.formats.levels import LEAST
from dolma_dask.rules.groups import ALL
from dolma_dask.rules.levels import Levels
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
    return {
        group: {rule: numbers.tolist() for rule, numbers in zip(rules, own, strict=True)}
        for group, own in (zip(levels.groups, counts, strict=True) if counts.ndim else ())
        if own[-1].any()
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
        By group, "" for documents in none, and rule, "level" for all together: documents by number of levels passed, 0 first, and last those without a
        value, which also count at the level that the policy for them gives.
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

    def table(self) -> list[tuple[str, ...]]:
        """Return the lines of the table, its heading first: rule, group, documents kept at each level, and those without a value."""
        heading = ("rule", "group", *(f">= {level}" for level in range(1, self.levels + 1)), "no value")
        groups = [None, *self.passed] if len(self.passed) > 1 else [None]
        lines = [self._line(rule, group) for rule in (LEAST, *self.names) for group in groups]
        more = (f"and {len(lines) - MOST_SHOWN:,} more", *[""] * (len(heading) - 1))
        return [heading, *lines[:MOST_SHOWN], *([more] if len(lines) > MOST_SHOWN else [])]

    def _line(self, rule: str, group: str | None) -> tuple[str, ...]:
        kept = (f"{self.kept(level, rule, group):,}" for level in range(1, self.levels + 1))
        missing = sum(rules[rule][-1] for name, rules in self.passed.items() if group in (None, name))
        shown = ALL if group is None else group or "none"
        return (TOGETHER if rule == LEAST else rule, shown, *kept, "" if rule == LEAST else f"{missing:,}")

    def __str__(self) -> str:
        table = [f"  {line}" for line in text_table(self.table())] if self.passed else []
        return "\n".join([super().__str__(), *table])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return super()._repr_html_() + (html_table("documents kept", self.table()) if self.passed else "")


def summarize(ran: Ran, levels: Levels) -> FilterSummary:
    """Return the summary of a run with the sums over all finished shards."""
    sums: dict[str, dict[str, Any]] = {}
    for record in ran.records.values():
        for group, rules in record.info.get("passed", {}).items():
            own = sums.setdefault(group, {})
            for rule, numbers in rules.items():
                own[rule] = own.get(rule, 0) + np.array(numbers)
    order = [group for group in levels.groups if group in sums]
    passed = {group: {rule: sum_.tolist() for rule, sum_ in sums[group].items()} for group in order}
    return FilterSummary(**vars(ran.summary), names=levels.names, levels=levels.count, passed=passed)
