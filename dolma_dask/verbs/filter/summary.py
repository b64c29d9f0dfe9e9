"""The outcome of `filter`: the documents that each rule keeps at each level, and all of them together, by group."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import asdict, replace

from dolma_dask.display import isolated, shown_name
from dolma_dask.formats import layout
from dolma_dask.formats.levels import LEVEL_KEY
from dolma_dask.journal import Record
from dolma_dask.results.summary import Recorded, Summary
from dolma_dask.results.table import Column, Table
from dolma_dask.rules.groups import ALL
from dolma_dask.rules.levels import Levels
from dolma_dask.rules.thresholds import note_without_values
from dolma_dask.text.kernels import Counts

MAX_SHOWN = 40
"""Rows of the table that a summary shows."""

TOGETHER = "all rules"
"""Name of the line of documents that all rules keep."""

Passed = Mapping[str, Mapping[str, list[int]]]
"""By group (empty: of no group) and rule (`LEVEL_KEY`: all together): documents by level passed, 0 first, and last those without a value."""


def counts_by_group(levels: Levels, counts: Counts) -> dict[str, dict[str, list[int]]]:
    """Return counts of `Levels.passed` (groups, rules + 1, levels + 2) by name, without groups that no document has."""
    rules = (*levels.names, LEVEL_KEY)
    sums: dict[str, Counts] = {}
    for group, own in zip(levels.groups, counts, strict=True) if counts.ndim else ():
        if own[-1].any():
            sums[group] = sums.get(group, 0) + own  # a label may be empty too
    return {
        group: {rule: numbers.tolist() for rule, numbers in zip(rules, own, strict=True)}
        for group, own in sums.items()
    }


class FilterSummary(Summary, frozen=True):
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
    passed: Passed = msgspec.field(default_factory=dict)

    def kept(self, level: int, rule: str = LEVEL_KEY, group: str | None = None) -> int:
        """Return how many documents pass at least this level of a rule, by default of all together, in a group or in all."""
        return sum(
            sum(rules[rule][level : self.levels + 1])
            for name, rules in self.passed.items()
            if group in (None, name)
        )

    def lines(self) -> Iterator[tuple[str | int | None, ...]]:
        """Yield the rows of the table: rule, group, documents kept at each level, and those without a value."""
        groups = [None, *self.passed] if len(self.passed) > 1 else [None]
        of_groups = [(rule, group) for rule in self.names for group in groups[1:]]  # the longest part is last
        for rule, group in (
            *((LEVEL_KEY, group) for group in groups),
            *((rule, None) for rule in self.names),
            *of_groups,
        ):
            kept = (self.kept(level, rule, group) for level in range(1, self.levels + 1))
            rules = [own for name, own in self.passed.items() if group in (None, name)]
            missing = None if rule == LEVEL_KEY else sum(own[rule][-1] for own in rules)
            shown = ALL if group is None else group or "none"
            yield (TOGETHER if rule == LEVEL_KEY else rule, shown, *kept, missing)

    def tables(self) -> list[Table]:
        columns = (
            Column("rule", "name"),
            Column("group", "name"),
            *(Column(f">= {level}") for level in range(1, self.levels + 1)),
            Column("no value"),
        )
        caption = "Documents that pass at least so many levels of thresholds, from the loosest on."
        return (
            [Table("documents kept", columns, list(self.lines()), caption, MAX_SHOWN)] if self.passed else []
        )


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
    count = max((len(own[LEVEL_KEY]) - 2 for own in passed.values()), default=0)
    known = asdict(summary) | {"notes": (*summary.notes, *_notes(rules, passed))}
    return FilterSummary(**known, names=tuple(rules), levels=count, passed=passed)


def _notes(rules: Sequence[str], passed: Passed) -> Iterator[str]:
    """Warn of rules without a value in all documents, or in all of some groups."""
    for rule in rules:
        empty = [group for group, own in passed.items() if own[rule][-1] == sum(own[rule][:-1])]
        if empty:
            some = [group or "none" for group in empty] if len(empty) < len(passed) else []
            yield note_without_values(rule, some, any(passed[group][rule][0] for group in empty))


def recorded_tables(step: Recorded) -> Iterator[Table]:
    """Yield the table of each set of levels for a report: the documents that each rule keeps at each level, and all rules together."""
    known = {
        record.unit.split("/")[1]: record.info["rules"] for record in step.records if "rules" in record.info
    }
    for name, rules in known.items():
        own = [record for record in step.records if record.unit.startswith(f"{layout.ATTRIBUTES}/{name}/")]
        title = f"{isolated(name)} in {shown_name(step.root)}"
        for table in summarize(Summary("filter", step.root), own, rules).tables():
            yield replace(table, section="Levels", title=title)
