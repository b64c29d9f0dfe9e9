"""A `where` rule as bounds that what-if can move, and the rest of it, which is taken as given."""

import math
from typing import NamedTuple

from dolma_dask.errors import UsageError
from dolma_dask.formats.exact_numbers import LIMIT
from dolma_dask.reading.selection import conjuncts
from dolma_dask.rules.comparisons import comparison
from dolma_dask.rules.groups import ALL
from dolma_dask.rules.rules import Rule, all_of
from dolma_dask.rules.thresholds import Bounds, Thresholds
from dolma_dask.rules.values import Name
from dolma_dask.rules.where import parse


class Split(NamedTuple):
    """A rule in two parts."""

    bounds: Thresholds  # its conditions `signal op number`
    given: Rule | None  # all other conditions


def split(where: str | Rule) -> Split:
    """Split a rule; raise `UsageError` if none of its conditions compares a signal with a number."""
    if isinstance(where, Thresholds):
        return Split(where, None)
    ends: dict[str, tuple[float, float]] = {}
    given: list[Rule] = []
    for part in conjuncts(parse(where) if isinstance(where, str) else where):
        found = comparison(part)
        if found is None or not isinstance(found[0], Name) or found[1] == "!=" or abs(found[2]) >= LIMIT:
            given.append(part)  # from LIMIT on a rule compares all digits, and bounds are doubles
            continue
        low, high = _ends(found[1], found[2])
        known = ends.get(found[0].name, (-math.inf, math.inf))
        ends[found[0].name] = max(known[0], low), min(known[1], high)
    if not ends:
        raise UsageError(
            f"no condition of {' and '.join(rule.short for rule in given)} compares a signal with a number below 2**53; expected one that does, such as word_count >= 50."
        )
    bounds = [
        Bounds(signal, ((ALL, None if low == -math.inf else low, None if high == math.inf else high),))
        for signal, (low, high) in ends.items()
    ]
    return Split(Thresholds.of(bounds, None, None, "string"), all_of(*given) if given else None)


def _ends(sign: str, number: float) -> tuple[float, float]:
    """Return the inclusive ends of what a comparison keeps; those of > and < are the neighbours of the number."""
    match sign:
        case ">":
            return math.nextafter(number, math.inf), math.inf
        case ">=":
            return number, math.inf
        case "<":
            return -math.inf, math.nextafter(number, -math.inf)
        case "<=":
            return -math.inf, number
    return number, number


def spelled(sign: str, end: float) -> tuple[str, float]:
    """Return a bound as people write it: from the neighbour of a short number on is more than that number."""
    toward = -math.inf if sign == ">=" else math.inf
    other = math.nextafter(end, toward)
    return (sign[0], other) if len(repr(other)) + 8 < len(repr(end)) else (sign, end)
