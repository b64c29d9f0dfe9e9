"""Lower and upper bounds of a signal in each group, as they were taken from quantiles or stand in JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dolma_dask.errors import UsageError

MOST_NAMED = 20
"""Names that a message lists."""

Bound = tuple[str, float | None, float | None]
"""Label of a group, lower and upper bound, both inclusive; None: no bound."""


@dataclass(frozen=True)
class Bounds:
    """The bounds of one signal.

    Attributes
    ----------
    signal : str
        Full name of its column.
    groups : tuple of (str, float or None, float or None)
        Name of the group as JSON spells it, lower and upper bound; groups without values are left out.
    """

    signal: str
    groups: tuple[Bound, ...]


def read_bounds(signal: str, groups: Any, where: str, expected: str) -> Bounds:
    """Return the bounds of a signal from JSON; `where` and `expected` are for the message.

    Raises
    ------
    UsageError
        It has another form.
    """
    if not isinstance(groups, dict) or not all(isinstance(ends, dict) for ends in groups.values()):
        raise UsageError(f"{where}: found {groups!r}; {expected}.")
    found = []
    for label, ends in sorted(groups.items()):
        pair = [ends.get("lower"), ends.get("upper")]
        if not set(ends) <= {"lower", "upper"} or any(not _is_bound(end) for end in pair):
            raise UsageError(f"{where}, {label!r}: found {ends!r}; {expected}.")
        found.append((label, *(None if end is None else float(end) for end in pair)))
    return Bounds(signal, tuple(found))


def _is_bound(value: Any) -> bool:
    return value is None or (
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")
    )


def some(names: Sequence[str]) -> str:
    """Return names for a message: all of few, the first of many."""
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more if names else "none"
