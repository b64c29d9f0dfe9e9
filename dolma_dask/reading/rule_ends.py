"""The bounds that a rule has for one signal, for pictures of its values."""

from collections.abc import Iterator
from typing import NamedTuple

from dolma_dask.reading.columns import Columns
from dolma_dask.reading.selection import conjuncts
from dolma_dask.rules.comparisons import comparison
from dolma_dask.rules.labels import Labels
from dolma_dask.rules.rules import Missing, Or, Required, Rule
from dolma_dask.rules.thresholds import By
from dolma_dask.rules.values import Name, Value
from dolma_dask.rules.within import Within


class Ends(NamedTuple):
    """A bound, and the group that it is for; None: for all."""

    group: str | None
    bound: tuple[str, float]  # operator as it reads with the signal on its left, and number


def ends_of(rule: Rule | None, columns: Columns, signal: str, by: By) -> list[Ends]:
    """Return the bounds of a signal in the conditions of a rule that all must hold; of thresholds by group those of the groups that are shown."""
    values = [Name(signal), *([columns.computed[signal]] if signal in columns.computed else [])]
    return [end for part in conjuncts(rule) for end in _ends(part, values, by)]


def _ends(part: Rule, values: list[Value], by: By) -> Iterator[Ends]:
    rule = part.rule if isinstance(part, Required) else part
    if isinstance(rule, Or) and len(rule.rules) == 2 and isinstance(rule.rules[1], Missing):
        rule = rule.rules[0]  # thresholds that keep documents without a value
    if isinstance(rule, Within) and rule.signal in values and columns_of(rule.by) == by:
        for group, lower, upper in rule.bounds:
            yield from (Ends(group, (">=", lower)) for _ in [lower] if lower is not None)
            yield from (Ends(group, ("<=", upper)) for _ in [upper] if upper is not None)
    elif (found := comparison(rule)) is not None and found[0] in values:
        yield Ends(None, found[1:])


def columns_of(by: Value) -> By:
    """Return the columns that make the groups of a rule."""
    if isinstance(by, Labels):
        return tuple(column.name for column in by.columns if isinstance(column, Name))
    return by.name if isinstance(by, Name) else None
