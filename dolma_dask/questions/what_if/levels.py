"""The bounds of all rules in all groups as arrays, as given and at each level, and where they come from: levels, files, quantiles, or a `where` rule."""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from os import PathLike, fspath

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.dataset import Dataset
from dolma_dask.errors import UsageError
from dolma_dask.formats.exact_numbers import LIMIT, nearest
from dolma_dask.io import files
from dolma_dask.reading.quantiles import QuantilesSummary
from dolma_dask.reading.selection import conjuncts
from dolma_dask.reading.thresholds import (
    quantiles_path,
    read_table,
    read_thresholds,
    thresholds,
    thresholds_path,
)
from dolma_dask.rules.comparisons import comparison
from dolma_dask.rules.groups import ALL, places_of, unspelled
from dolma_dask.rules.ordered_bits import Codes
from dolma_dask.rules.quantile_table import QuantileTable
from dolma_dask.rules.rules import Rule, all_of
from dolma_dask.rules.signal_names import matching
from dolma_dask.rules.strictness import LEVELS, Level, Strictness, level_at
from dolma_dask.rules.thresholds import (
    Bounds,
    By,
    Kind,
    NullPolicy,
    Thresholds,
    labels_of,
    one_kind,
    thresholds_of,
)
from dolma_dask.rules.values import Columns, Name
from dolma_dask.rules.where import parse
from dolma_dask.rules.within import check_kind
from dolma_dask.text.kernels import Counts, Floats

ThresholdsLike = str | Thresholds | QuantilesSummary
"""A level of the quantiles of the dataset, a file of thresholds, or what `thresholds` or `quantiles` returned."""

MAX_RULES = 64

MAX_PLACES = 24
"""Groups that have histograms, overlaps and examples of their own: the largest, as far as the quantiles tell; all have counts."""

MAX_HISTOGRAMS = 256
"""Rules times groups that have histograms, of 0.4 MB each while they are counted; one group has them in any case."""

MAX_LABELS = 2**16 - 2
"""Groups that have a code."""

GIVEN = 0
"""Step of the bounds as they were given; levels come behind it."""

NO_GROUP = "(no thresholds)"
"""Group of the documents whose group has no bounds, or that have none: every rule drops them."""


class LevelBounds(Struct, frozen=True, eq=False, dict=True):
    """Bounds by rule, group and step. Group 0 is `NO_GROUP`."""

    signals: tuple[str, ...]  # full names of the columns, one for each rule
    by: By  # column whose value chooses the bounds, or several; None: all documents have group 1
    kind: Kind  # type of that column
    nulls: NullPolicy  # whether documents without a value are dropped
    labels: tuple[str, ...]  # of group 1, 2, ...
    levels: tuple[Level, ...]  # of step 1, 2, ...
    strictness: str | None  # of the given bounds, if they are those of a level, or of several
    # (rules, groups, steps); infinite where there is no bound, NaN where nothing is inside
    lower: Floats
    upper: Floats
    # (rules, groups) step that is one level stricter than the given bounds; 0 if there is none
    following: Counts
    shown: list[int]  # groups that have a place, which is that in this list
    sizes: Mapping[str, int]  # documents of the groups, as far as the quantiles tell

    @classmethod
    def of(
        cls, given: Thresholds, levels: Mapping[Level, Thresholds], sizes: Mapping[str, int]
    ) -> "LevelBounds":
        """Arrange thresholds and those of the levels."""
        labels = _checked_labels(given)
        lower, upper = _ends([given, *levels.values()], labels)
        own = _steps_by_name(lower, upper, labels, list(levels), given)
        return cls(
            given.signals,
            given.by,
            given.kind,
            given.nulls,
            labels,
            tuple(levels),
            given.strictness if own is not None or not levels else None,
            lower,
            upper,
            _stricter_steps(lower, upper) if own is None else (own + (own > 0)) % (len(levels) + 1),
            _shown(labels, sizes, len(given.bounds)),
            sizes,
        )

    def renamed(self, names: Mapping[str, str]) -> "LevelBounds":
        """Return the same of columns with other names."""
        by = tuple(names.get(name, name) for name in self.by_columns)
        signals = tuple(names.get(name, name) for name in self.signals)
        return replace(self, signals=signals, by=by if isinstance(self.by, tuple) else next(iter(by), None))

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """Names of all groups, `NO_GROUP` first."""
        return (NO_GROUP, *self.labels)

    @cached_property
    def places(self) -> Counts:
        """Places of the groups (groups,); those without one, and group 0, come behind the last."""
        places = np.full(len(self.groups), len(self.shown), np.int64)
        places[self.shown] = np.arange(len(self.shown))
        return places

    @cached_property
    def step(self) -> int:
        """Step of the level whose bounds were given; 0 if they are of none, or of several."""
        names: list[str] = list(self.levels)
        return names.index(self.strictness) + 1 if self.strictness in names else GIVEN

    @property
    def by_columns(self) -> tuple[str, ...]:
        """Columns of the groups."""
        return (self.by,) if isinstance(self.by, str) else self.by or ()

    def codes(self, columns: Columns, count: int) -> Codes:
        """Return the group of each of `count` rows (n,)."""
        if self.by is None:
            return np.ones(count, np.uint16)
        value = labels_of(self.by, self.kind).evaluate(columns)
        check_kind(value.kind, one_kind(self.kind), value.called)
        if value.kind == "missing":
            return np.zeros(count, np.uint16)
        places = places_of(nearest(value.data), [unspelled(label) for label in self.labels])
        return np.where(places == len(self.labels), 0, places + 1).astype(np.uint16)


def _checked_labels(given: Thresholds) -> tuple[str, ...]:
    """Return the groups that have bounds; refuse too many of them, or of signals."""
    labels = (ALL,) if given.by is None else tuple(label for label in given.groups if label != ALL)
    if len(given.bounds) > MAX_RULES:
        raise UsageError(
            f"thresholds of {len(given.bounds):,} signals; expected at most {MAX_RULES}. Choose some: thresholds.inside([...])."
        )
    if len(labels) > MAX_LABELS:
        raise UsageError(
            f"thresholds of {len(labels):,} groups; expected at most {MAX_LABELS:,}. Leave out those that no document has."
        )
    return labels


def _shown(labels: Sequence[str], sizes: Mapping[str, int], rules: int) -> list[int]:
    """Return the largest groups, as many as there is room for."""
    room = min(MAX_PLACES, max(MAX_HISTOGRAMS // rules, 1))
    by_size = sorted(enumerate(labels, 1), key=lambda group: (-sizes.get(group[1], 0), group[0]))
    return sorted(group for group, _ in by_size[:room])


def _ends(steps: Sequence[Thresholds], labels: Sequence[str]) -> tuple[Floats, Floats]:
    """Return lower and upper bounds (rules, groups, steps)."""
    numbers = {label: number for number, label in enumerate(labels, 1)}
    ends = np.full((2, len(steps[0].bounds), len(labels) + 1, len(steps)), np.nan)
    for step, each in enumerate(steps):
        for rule, bounds in enumerate(each.bounds):
            for label, low, high in bounds.groups:
                if group := numbers.get(label):
                    ends[0, rule, group, step] = -np.inf if low is None else low
                    ends[1, rule, group, step] = np.inf if high is None else high
    return ends[0], ends[1]


def _steps_by_name(
    lower: Floats, upper: Floats, labels: Sequence[str], levels: Sequence[Level], given: Thresholds
) -> Counts | None:
    """Return the steps (rules, groups) of the level that the given bounds are called after; None if they are not those of its steps: a person has changed
    them, or they are of other quantiles."""
    if given.strictness is None or not levels:
        return None
    signals = list(given.signals)
    known = Strictness.of(given.strictness).among(signals, labels).places(signals, labels)
    steps = np.zeros(lower.shape[:2], np.int64)
    for rule, signal in enumerate(signals):
        for group, label in enumerate(labels, 1):
            steps[rule, group] = levels.index(level_at(known, label, signal)) + 1
    for ends in (lower, upper):
        at_steps = np.take_along_axis(ends, steps[..., None], axis=-1)
        if not np.array_equal(at_steps, ends[..., : GIVEN + 1], equal_nan=True):
            return None
    return steps


def _stricter_steps(lower: Floats, upper: Floats) -> Counts:
    """Return the first steps (rules, groups) that are stricter than the given bounds on one side and milder on none; 0 where there is none."""
    tighter = (lower >= lower[..., :1]) & (upper <= upper[..., :1])
    differs = (lower > lower[..., :1]) | (upper < upper[..., :1])
    stricter = tighter & differs
    return np.where(stricter.any(axis=-1), stricter.argmax(axis=-1), 0).astype(np.int64)


# ------------------------------------------------------------------------------------------------ where they come from


def find_bounds(
    dataset: Dataset, requested: ThresholdsLike, name: str
) -> tuple[LevelBounds, tuple[str, ...]]:
    """Return the bounds that were requested with those of all levels, and what a person should know; `name` is that of the quantiles."""
    given, table = _requested(dataset, requested, name)
    if isinstance(requested, str) and (levels := _levels_beside(requested, given)):
        return LevelBounds.of(given, levels, {}), ()
    try:
        levels, sizes = _levels_and_sizes(given, table)
    except UsageError as error:
        return LevelBounds.of(given, {}, {}), (_NO_LEVELS.format(error),)
    bounds = LevelBounds.of(given, levels, sizes)
    return bounds, () if bounds.strictness == given.strictness else (_OTHER_BOUNDS.format(given.strictness),)


_OTHER_BOUNDS = "the bounds are called {}, and are not what the quantiles give for that: they were changed, or made of other quantiles"

_NO_LEVELS = "what stricter levels would cost is not known: {}. Make quantiles of the same signals and groups: dolma-dask quantiles"


def _levels_beside(file: str, given: Thresholds) -> dict[Level, Thresholds]:
    """Return the thresholds of all levels where each has a file of the same name but for the level: ``thresholds_strict.json``; none elsewhere."""
    ends = [level for level in LEVELS if file.endswith(f"{level}.json")]
    if not ends:
        return {}
    stem = file.removesuffix(f"{max(ends, key=len)}.json")
    urls = {level: f"{stem}{level}.json" for level in LEVELS}
    if any(files.stat(files.normalize(url)) is None for url in urls.values()):
        return {}
    levels = {level: read_thresholds(url) for level, url in urls.items()}
    columns = given.signals, given.by, given.kind
    return levels if all((each.signals, each.by, each.kind) == columns for each in levels.values()) else {}


def _requested(
    dataset: Dataset, requested: ThresholdsLike, name: str
) -> tuple[Thresholds, QuantileTable | None]:
    """Return thresholds, and the quantiles to take levels from."""
    table_url = files.join(dataset.root, quantiles_path(name))
    if isinstance(requested, QuantilesSummary):
        return requested.inside(), requested.quantiles
    if isinstance(requested, Thresholds):
        return requested, _table_at(table_url)
    if not isinstance(requested, str | PathLike):
        raise UsageError(
            f"thresholds={requested!r} is of type {type(requested).__name__}; expected a level such as 'regular', a file of thresholds, or what "
            "thresholds() or quantiles() returned."
        )
    word = fspath(requested)
    if not word.endswith(".json"):
        level = Strictness.of(word)
        made = files.join(dataset.root, thresholds_path(name, level.name))  # with tails of its own, perhaps
        found = read_thresholds(made) if files.stat(made) is not None else None
        is_same = found is not None and found.strictness == str(level)
        given = found if found is not None and is_same else thresholds(dataset, word, name=name)
        return given, _table_at(table_url)
    given = read_thresholds(word)
    url = files.normalize(word)
    ends = [f".{level}.json" for level in LEVELS if url.endswith(f".{level}.json")]
    beside = _table_at(f"{url.removesuffix(ends[0])}.json") if ends else None
    return given, beside or _table_at(table_url)


def _table_at(url: str) -> QuantileTable | None:
    return read_table(url) if files.stat(url) is not None else None


def _levels_and_sizes(
    given: Thresholds, table: QuantileTable | None
) -> tuple[dict[Level, Thresholds], dict[str, int]]:
    """Return the thresholds of every level with the signals, groups and tails of those that were given, and the documents of each group."""
    if table is None:
        raise UsageError("there are no quantiles")
    chosen: dict[str, str] = {}
    for bounds in given.bounds:
        found = matching(bounds.signal, list(table))
        if len(found) != 1:
            raise UsageError(f"the quantiles have no {bounds.signal}")
        chosen[bounds.signal] = found[0]
    for bounds in given.bounds:
        groups = table[chosen[bounds.signal]]
        if unknown := [label for label, _, _ in bounds.groups if label not in groups]:
            raise UsageError(f"the quantiles of {bounds.signal} have no group {unknown[0]!r}")
    part = {found: table[found] for found in chosen.values()}
    tails = {chosen[bounds.signal]: bounds.tail for bounds in given.bounds}
    levels = {level: thresholds_of(part, level, given.by, given.kind, tails, given.nulls) for level in LEVELS}
    return levels, {label: entry["n"] + entry["nulls"] for label, entry in next(iter(table.values())).items()}


def split(where: str | Rule) -> tuple[Thresholds, Rule | None]:
    """Split a rule into its conditions `signal op number` as bounds, and all others, which are taken as given.

    Raises `UsageError`: none of its conditions compares a signal with a number.
    """
    if isinstance(where, Thresholds):
        return where, None
    ends: dict[str, tuple[float, float]] = {}
    given: list[Rule] = []
    for part in conjuncts(parse(where) if isinstance(where, str) else where):
        found = comparison(part)
        if found is None or not isinstance(found[0], Name) or found[1] == "!=" or abs(found[2]) >= LIMIT:
            given.append(part)  # from LIMIT on a rule compares all digits, and bounds are doubles
            continue
        low, high = _ends_of(found[1], found[2])
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
    return Thresholds.of(bounds, None, None, "string"), all_of(*given) if given else None


def _ends_of(sign: str, number: float) -> tuple[float, float]:
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
