"""Levels: how many of up to four thresholds, each inside of the one before, a document passes in each rule.

A rule is a signal with its bounds; both ends of a distribution are one rule. All levels of a rule are counted in one look at each value, in the bounds of
the document's group. Cost: 5 ns per rule and document, and 10 ns per document for the group.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.errors import DataError, UsageError
from dolma_dask.formats.exact_numbers import nearest
from dolma_dask.formats.levels import BITS, LEVEL_KEY, MAX_LEVELS, RULES
from dolma_dask.rules.groups import ALL, places_of, spelled, unspelled
from dolma_dask.rules.signal_names import short_names
from dolma_dask.rules.thresholds import By, Kind, NullPolicy, Thresholds, check_nulls, labels_of
from dolma_dask.rules.values import Columns
from dolma_dask.rules.within import check_kind
from dolma_dask.text.kernels import Bytes, Counts, Floats, kernel

Limits = npt.NDArray[np.float64]


class LevelRule(Struct, frozen=True):
    """The bounds of one signal at all levels."""

    name: str  # short
    signal: str  # full name of its column
    bounds: tuple[tuple[tuple[float, float], ...], ...]  # of each level in each group


class Levels(Struct, frozen=True, dict=True):
    """Rules, and the groups in whose bounds they are looked at; make them with `Levels.of`."""

    rules: tuple[LevelRule, ...]
    count: int  # levels
    by: By  # column of the groups, or several
    kind: Kind  # type of each
    labels: tuple[str, ...]  # of the groups; one if there are none
    nulls: NullPolicy = "drop"

    @classmethod
    def of(cls, thresholds: Sequence[Thresholds], nulls: NullPolicy | None = None) -> "Levels":
        """Return the levels of thresholds, the loosest first; `nulls` replaces their policy for missing values.

        Raises `UsageError`: there are none or too many, they are of other signals or groups, or not each inside of the one before.
        """
        if not 1 <= len(thresholds) <= MAX_LEVELS:
            raise UsageError(
                f"thresholds of {len(thresholds)} levels; expected 1 to {MAX_LEVELS}, the loosest first."
            )
        first = thresholds[0]
        policy = check_nulls(nulls or first.nulls)
        for number, other in enumerate(thresholds, 1):
            if (set(other.signals), other.by, other.kind) != (set(first.signals), first.by, first.kind):
                raise UsageError(
                    f"the thresholds of level {number} are of {', '.join(other.signals)} by {other.by}, those of level 1 of {', '.join(first.signals)} by "
                    f"{first.by}; expected the same signals and groups at all levels."
                )
            if not nulls and other.nulls != policy:
                raise UsageError(
                    f"the thresholds of level {number} {other.nulls} documents without a value, those of level 1 {policy} them; expected one policy. Say "
                    "which: --nulls."
                )
        labels = (ALL,) if first.by is None else _labels(thresholds)
        names = _rule_names(list(first.signals))
        rules = tuple(
            LevelRule(names[signal], signal, _bounds(thresholds, signal, labels)) for signal in first.signals
        )
        return cls(rules, len(thresholds), first.by, first.kind, tuple(map(unspelled, labels)), policy)

    def renamed(self, names: Mapping[str, str]) -> "Levels":
        """Return the same of columns with other names."""
        rules = tuple(replace(rule, signal=names.get(rule.signal, rule.signal)) for rule in self.rules)
        full = tuple(names.get(name, name) for name in self._by)
        return replace(self, rules=rules, by=full if isinstance(self.by, tuple) else next(iter(full), None))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the rules."""
        return tuple(rule.name for rule in self.rules)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that are read."""
        return tuple(dict.fromkeys([*(rule.signal for rule in self.rules), *self._by]))

    @property
    def _by(self) -> tuple[str, ...]:
        return (self.by,) if isinstance(self.by, str) else self.by or ()

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups, and of the documents that are in none of them."""
        return (*(self.labels if self.by is None else map(spelled, self.labels)), "")

    def canonical(self) -> list[Any]:
        """Return what decides the levels, as JSON-able values; None is no bound."""
        rules = [[rule.name, rule.signal, _plain(rule.bounds)] for rule in self.rules]
        return [rules, self.count, self.by, self.kind, list(self.labels), self.nulls]

    def passed(self, columns: Columns, rows: int) -> tuple[list[Counts], Counts]:
        """Return the levels that rows pass as numbers (n,), see `dolma_dask.formats.levels`, and counts (groups, rules + 1, levels + 2) of rows by level, the
        last those without a value; behind the rules the least level of each row.

        Raises `DataError` with the row, if nulls are to fail.
        """
        groups = self._groups(columns, rows)
        counts = np.zeros((len(self.groups), len(self.rules) + 1, self.count + 2), np.int64)
        least = np.full(rows, self.count, np.uint8)
        numbers = [np.zeros(rows, np.int64) for _ in range(-(-len(self.rules) // RULES))]
        keeps = self.nulls == "keep"
        for place, (rule, limits) in enumerate(zip(self.rules, self._limits, strict=True)):
            number, shift = numbers[place // RULES], BITS * (place % RULES)
            values = _numbers(columns, rule.signal)
            _pass(values, groups, *limits, keeps, number, shift, least, counts[:, place])
            if self.nulls == "fail" and counts[:, place, -1].any():
                raise self._missing(rule, columns)
        _count(least, groups, counts[:, -1])
        return numbers, counts

    @cached_property
    def _limits(self) -> list[tuple[Limits, Limits]]:
        """Lower and upper bounds of each rule, (groups, levels) each; the last group is that of all others, where nothing is inside."""
        outside = np.full((1, self.count), np.nan)
        return [
            (np.concatenate([ends[..., 0], outside]), np.concatenate([ends[..., 1], outside]))
            for ends in (np.array(rule.bounds, np.float64).reshape(-1, self.count, 2) for rule in self.rules)
        ]

    def _groups(self, columns: Columns, rows: int) -> Counts:
        """Return the group of each row (n,)."""
        if self.by is None:
            return np.zeros(rows, np.int64)
        found = labels_of(self.by, self.kind).evaluate(columns)
        check_kind(found.kind, "string" if isinstance(self.kind, tuple) else self.kind, found.called)
        if found.kind == "missing":
            return np.full(rows, len(self.labels))
        return places_of(nearest(found.data), self.labels)

    def _missing(self, rule: LevelRule, columns: Columns) -> DataError:
        row = int(np.flatnonzero(np.isnan(_numbers(columns, rule.signal)))[0])
        return DataError(
            f"row {row} of the batch has no value of {rule.signal}; expected one, since nulls='fail'. Make the signal for all documents, or choose: "
            "--nulls drop or keep.",
            row=row,
        )


def _rule_names(signals: list[str]) -> dict[str, str]:
    """Return the names of the rules of signals: short, without what stands in brackets, unless two signals share it or it is that of the least level."""
    short = {signal: name.partition("(")[0] for signal, name in short_names(signals).items()}
    taken = Counter([*short.values(), LEVEL_KEY])
    return {signal: signal if taken[name] > 1 else name for signal, name in short.items()}


def _labels(thresholds: Sequence[Thresholds]) -> tuple[str, ...]:
    return tuple(sorted({label for one in thresholds for label in one.groups if label != ALL}))


def _bounds(
    thresholds: Sequence[Thresholds], signal: str, labels: Sequence[str]
) -> tuple[tuple[tuple[float, float], ...], ...]:
    """Return the bounds of a signal at each level in each group: NaN, where nothing is inside, in a group that has none there."""
    known = [
        {label: (lower, upper) for one in level.bounds if one.signal == signal for label, lower, upper in one.groups}
        for level in thresholds
    ]  # fmt: skip
    found = []
    for label in labels:
        ends = tuple(_ends(level.get(label)) for level in known)
        for number, (outer, inner) in enumerate(pairwise(ends), 2):
            if not (inner[0] != inner[0] or (outer[0] <= inner[0] and inner[1] <= outer[1])):
                raise UsageError(
                    f"the bounds of {signal} at level {number} in group {label!r} are {inner}, at the level before {outer}; expected them inside of those: "
                    "thresholds are given from the loosest to the strictest.",
                    signal=signal,
                )
        found.append(ends)
    return tuple(found)


def _ends(pair: tuple[float | None, float | None] | None) -> tuple[float, float]:
    if pair is None:
        return np.nan, np.nan
    lower, upper = pair
    return -np.inf if lower is None else lower, np.inf if upper is None else upper


def _plain(bounds: Any) -> Any:
    """Return nested bounds as JSON can hold them."""
    if isinstance(bounds, tuple):
        return [_plain(item) for item in bounds]
    return bounds if np.isfinite(bounds) else str(bounds)


def _numbers(columns: Columns, signal: str) -> Floats:
    """Return a signal (n,) as float64, NaN where it is missing."""
    column = nearest(columns[signal])
    if not pa.types.is_floating(column.type):
        column = column.cast(pa.float64(), safe=False)
    return np.asarray(column.to_numpy(zero_copy_only=False), np.float64)


@kernel
def _pass(
    values: Floats,
    groups: Counts,
    lower: Floats,
    upper: Floats,
    keeps: bool,
    number: Counts,
    shift: int,
    least: Bytes,
    counts: Counts,
) -> None:
    """Put the levels whose bounds each value is inside of into a number, and count them; as they are nested, these are the first ones."""
    levels = lower.shape[1]
    for row in range(values.size):
        value, group = values[row], groups[row]
        passed = 0
        for at in range(levels):
            passed += (lower[group, at] <= value) & (value <= upper[group, at])
        if value != value:
            counts[group, levels + 1] += 1
            for at in range(levels):
                passed += keeps & (lower[group, at] == lower[group, at])
        counts[group, passed] += 1
        number[row] |= passed << shift
        if passed < least[row]:
            least[row] = passed


@kernel
def _count(level: Bytes, groups: Counts, counts: Counts) -> None:
    for row in range(level.size):
        counts[groups[row], level[row]] += 1
