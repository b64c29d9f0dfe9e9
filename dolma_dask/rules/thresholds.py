"""Thresholds: lower and upper bounds per signal and group, taken from quantiles, as a rule over rows.

``Thresholds`` is a rule itself: it joins with others by ``& | ~`` and stands in ``where=``. Bounds are inclusive. A missing group and a group
that had no values are not inside; of a missing value the policy for nulls decides.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, cast, get_args

from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.display import listed, real
from dolma_dask.errors import UsageError
from dolma_dask.figures.figure import Figure
from dolma_dask.results.answer import terminal_text
from dolma_dask.results.parts import Heading, Part
from dolma_dask.results.table import Column, Table
from dolma_dask.rules.groups import ALL, LabelKind, is_label, unspelled
from dolma_dask.rules.labels import BETWEEN, Labels, split_label
from dolma_dask.rules.quantile_table import Entry, QuantileTable, probability_name
from dolma_dask.rules.rules import And, Constant, Required, Rule
from dolma_dask.rules.signal_names import one_signal, short_name, short_names, some
from dolma_dask.rules.strictness import LEVELS, Level, LevelLike, Place, Strictness, level_at
from dolma_dask.rules.tails import CUTS, Tail, tails_of
from dolma_dask.rules.values import Name, Value
from dolma_dask.rules.within import Bound, Within, bounded, labelled

MAX_SHOWN = 30
"""Lines of a table; how many more there are is told."""

MAX_COLUMNS = 8
"""Groups of a table with a column each; how many more there are is told."""

MAX_LISTED = 5
"""Groups that a warning names."""

NullPolicy = Literal["drop", "keep", "fail"]
"""Fate of a document without a value: it is outside, it is inside, or it is an error."""

By = str | tuple[str, ...] | None
"""Column of the groups, or several of them."""

Kind = LabelKind | tuple[LabelKind, ...]
"""Type of that column, or of each of several."""

Spreads = Mapping[str, tuple[float | None, ...]]
"""Group to its quantiles 0.01, 0.5 and 0.99, as far as they are known."""


class Bounds(Struct, frozen=True):
    """The bounds of one signal."""

    signal: str  # full name of its column
    groups: tuple[Bound, ...]  # without groups that have no values
    spreads: Spreads = {}  # for pictures: bounds with others are equal

    @property
    def tail(self) -> Tail:
        """Ends of the distribution that the bounds cut."""
        has_lower = any(low is not None for _, low, _ in self.groups)
        has_upper = any(high is not None for _, _, high in self.groups)
        return "lower" if not has_upper else "upper" if not has_lower else "both"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bounds) and (self.signal, self.groups) == (other.signal, other.groups)

    def __hash__(self) -> int:
        return hash((self.signal, self.groups))


class Thresholds(And, frozen=True):
    """Rows inside of the bounds of all signals; make them with `thresholds_of` or `Thresholds.from_json`.

    Attributes
    ----------
    rules : tuple of Rule
        That must all hold.
    bounds : tuple of Bounds
        What the rules were made of.
    strictness : str or None
        Name of the level, with those of single signals and groups behind it: ``strict de=regular``.
    by : str, tuple of str or None
        Column whose value chooses the bounds of a row, or several columns.
    kind : {"string", "number", "bool"}, or a tuple of them
        Type of each column.
    nulls : {"drop", "keep", "fail"}
        Fate of a row without a value.
    """

    bounds: tuple[Bounds, ...] = ()
    strictness: str | None = None
    by: By = None
    kind: Kind = "string"
    nulls: NullPolicy = "drop"

    @classmethod
    def of(
        cls,
        bounds: Sequence[Bounds],
        strictness: str | None,
        by: By,
        kind: Kind,
        nulls: NullPolicy = "drop",
    ) -> "Thresholds":
        """Return thresholds with these bounds; raise `UsageError` if there is no signal."""
        if not bounds:
            raise UsageError("thresholds of no signals; expected one or more. Name them: signals=[...].")
        keeps = nulls == "keep"
        if by is None:
            rules = _plain(bounds, ALL, keeps)
        else:
            labels, of = labels_of(by, kind), one_kind(kind)
            ends = f"within {strictness or 'thresholds'} by {shown_by(by)}"
            rules = _of_groups(bounds, labels, of, ends, keeps)
        if nulls == "fail":
            rules = [Required(rule) for rule in rules]
        return cls(tuple(dict.fromkeys(rules)), tuple(bounds), strictness, by, kind, nulls)

    @property
    def signals(self) -> tuple[str, ...]:
        """Full names of the columns that have bounds."""
        return tuple(one.signal for one in self.bounds)

    @property
    def groups(self) -> tuple[str, ...]:
        """Groups that have bounds, "all" among them."""
        return tuple(dict.fromkeys(label for one in self.bounds for label, _, _ in one.groups))

    def lower(self, signal: str, group: str | None = None) -> float | None:
        """Return the lower bound of a signal, None if it has none there.

        Parameters
        ----------
        signal : str
            Column; a unique ending of an attribute key is enough.
        group : str, optional
            As the quantiles name it; default: all rows.

        Raises
        ------
        UsageError
            There is no such signal or group.
        """
        return self._bound(signal, group)[1]

    def upper(self, signal: str, group: str | None = None) -> float | None:
        """Return the upper bound of a signal; see `lower`."""
        return self._bound(signal, group)[2]

    def _bound(self, signal: str, group: str | None) -> Bound:
        name = ALL if group is None else group
        one = self._find(signal)
        for bound in one.groups:
            if bound[0] == name:
                return bound
        raise UsageError(
            f"{one.signal} has no bounds in the group {name!r}; expected one of {some([bound[0] for bound in one.groups])}.",
            group=name,
        )

    def _find(self, signal: str) -> Bounds:
        names = list(self.signals)
        return self.bounds[names.index(one_signal("no thresholds for", signal, names))]

    def inside(self, signals: Sequence[str] | str | None = None) -> "Thresholds":
        """Return the rule that rows lie inside of the bounds of some signals; default: of all.

        Raises
        ------
        UsageError
            There is no such signal.
        """
        if signals is None:
            return self
        names = [signals] if isinstance(signals, str) else signals
        chosen = list(dict.fromkeys(self._find(name) for name in names))
        return Thresholds.of(chosen, self.strictness, self.by, self.kind, self.nulls)

    def with_spreads(self, table: QuantileTable) -> "Thresholds":
        """Return the same thresholds, with what `plot` draws beside the bounds of the signals that quantiles know."""
        known = (
            replace(one, spreads=spreads_of(table[one.signal])) if one.signal in table else one
            for one in self.bounds
        )
        return replace(self, bounds=tuple(known))

    def plot(self, signal: str | None = None) -> Figure:
        """Return what the bounds of each group keep as a figure: a bar from bound to bound, the median as a line, and the middle 98 % behind it.

        Nothing is read. Thresholds that a person wrote know no medians.

        Parameters
        ----------
        signal : str, optional
            Column; a unique ending of an attribute key is enough; default: a panel for each.

        Raises
        ------
        UsageError
            There is no such signal.

        Examples
        --------
        >>> dk.thresholds("corpus/v0", "strict").plot("word_count")  # doctest: +SKIP
        """
        from dolma_dask.rules.threshold_figure import figure_of

        return figure_of(self if signal is None else self.inside(signal))

    def canonical(self) -> list[Any]:
        return And(self.rules).canonical()

    def to_lumi(self) -> dict[str, dict[str, dict[str, str]]]:
        """Return the JSON form of the LUMI chain; see `dolma_dask.rules.lumi_thresholds`."""
        from dolma_dask.rules.lumi_thresholds import to_lumi  # which makes thresholds

        return to_lumi(self)

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads: level, column of the groups, policy for nulls, and bounds by signal and group."""
        bounds = {
            one.signal: {label: {"lower": lower, "upper": upper} for label, lower, upper in one.groups}
            for one in self.bounds
        }
        groups = {"by": _plain_json(self.by), "kind": _plain_json(self.kind)}
        return {"level": self.strictness, **groups, "nulls": self.nulls, "bounds": bounds}

    @classmethod
    def from_json(cls, content: Any, where: str = "thresholds") -> "Thresholds":
        """Return thresholds from what `to_json` gave, or a person wrote; `where` is what the content was read from, for messages.

        ``{"bounds": {signal: {group: {"lower":, "upper":}}}}`` with ``by``, ``kind``, ``nulls`` and ``level`` if need be; raises `UsageError` for anything else.
        """
        expected = 'expected {"by": ..., "bounds": {signal: {group: {"lower": number, "upper": number}}}}'
        if not isinstance(content, dict) or not isinstance(content.get("bounds"), dict):
            raise UsageError(
                f"{where}: no thresholds; {expected}. Make them: dolma-dask quantiles ... --level regular."
            )
        level, by, kind = content.get("level"), content.get("by"), content.get("kind", "string")
        if not _are_columns(by, kind):
            raise UsageError(
                f"{where}: by={by!r}, kind={kind!r}; expected a column of strings, numbers or bools, or a list of columns and one of their types."
            )
        bounds = [
            _read_bounds(name, groups, f"{where}, {name!r}", expected)
            for name, groups in content["bounds"].items()
        ]
        _check_groups(bounds, by, kind, where)
        strictness = None if level is None else str(Strictness.of(level))
        nulls = check_nulls(content.get("nulls", "drop"), where)
        return cls.of(bounds, strictness, _tuples(by), _tuples(kind), nulls)

    def table(self) -> Table:
        """Return signal, group, lower and upper bound."""
        short = short_names(list(self.signals))
        columns = (
            Column("signal", "name"),
            Column(shown_by(self.by), "name", is_data=True),
            Column("lower", "real"),
            Column("upper", "real"),
        )
        rows = [(short[one.signal], *bound) for one in self.bounds for bound in one.groups]
        return Table("", columns, rows, max_rows=MAX_SHOWN)

    def __repr__(self) -> str:
        return terminal_text([Heading(f"Thresholds, {self.title}"), self.table()])

    @property
    def title(self) -> str:
        """Level, columns of the groups and policy for nulls in words."""
        groups = f" by {self.by if isinstance(self.by, str) else BETWEEN.join(self.by)}" if self.by else ""
        nulls = "" if self.nulls == "drop" else f", nulls: {self.nulls}"
        return f"{self.strictness or 'no level'}{groups}{nulls}"

    def parts(self) -> Iterator[Part]:
        yield self.wide_table()

    def wide_table(self) -> Table:
        """Return a table of signals by groups: each cell a range."""
        short, groups = short_names(list(self.signals)), self.groups[:MAX_COLUMNS]
        left = len(self.groups) - len(groups)
        ranges = [{label: _range(lower, upper) for label, lower, upper in one.groups} for one in self.bounds]
        columns = [Column(label, "words", is_data=True) for label in groups]
        more = [Column(f"and {left:,} more", "words")] if left else []
        rows = [
            (
                short[one.signal],
                CUTS[one.tail],
                *(own.get(label, "") for label in groups),
                *["..."] * bool(left),
            )
            for one, own in zip(self.bounds, ranges, strict=True)
        ]
        head = Column("signal", "name"), Column("drops", "words")
        return Table(f"thresholds, {self.title}", (*head, *columns, *more), rows, max_rows=MAX_SHOWN)


def thresholds_of(
    table: QuantileTable,
    level: LevelLike,
    by: By = None,
    kind: Kind = "string",
    tails: Mapping[str, str] | None = None,
    nulls: NullPolicy = "drop",
) -> Thresholds:
    """Make thresholds of quantiles by signal and group, `by` the column of the groups (without one the bounds of all rows hold for each).

    `tails` says which bounds of a signal are used, by default those of `KNOWN_TAILS` and `OTHER_TAILS`, both for the rest. Raises `UsageError`: a level is
    unknown, or what it is for, its probabilities are not among the quantiles, or a tail or its signal is unknown.
    """
    levels, sides = Strictness.of(level), tails_of(list(table), tails)
    places = places_in(table, levels)
    bounds = [
        Bounds(
            signal,
            tuple(
                _bound(signal, group, entry, level_at(places, group, signal), sides[signal])
                for group, entry in sorted(groups.items())
                if entry["n"]
            ),
            spreads_of(groups),
        )
        for signal, groups in table.items()
    ]
    return Thresholds.of(bounds, str(levels), by, kind, nulls)


def spreads_of(groups: Mapping[str, Entry]) -> Spreads:
    """Return what pictures show of the quantiles of a signal."""
    return {
        group: tuple(entry["q"].get(name) for name in ("0.01", "0.5", "0.99"))
        for group, entry in groups.items()
    }


def places_in(table: QuantileTable, levels: Strictness) -> Mapping[Place, Level]:
    """Return the levels by group and signal of quantiles; raise `UsageError` if one is for what is not there."""
    return levels.places(list(table), sorted({group for groups in table.values() for group in groups}))


def check_nulls(nulls: object, where: str = "nulls") -> NullPolicy:
    """Return `nulls` if it is a policy; raise `UsageError` otherwise."""
    for policy in get_args(NullPolicy):
        if nulls == policy:
            return cast(NullPolicy, policy)
    raise UsageError(f"{where}: nulls={nulls!r}; expected drop, keep or fail.")


def labels_of(by: str | tuple[str, ...], kind: Kind) -> Value:
    """Return the value that chooses the group of a row."""
    if isinstance(by, str):
        return Name(by)
    return Labels(tuple(map(Name, by)), kind if isinstance(kind, tuple) else (kind,) * len(by))


def _check_labels(groups: Sequence[str], labels: Value) -> None:
    """Refuse labels of several columns that name another number of values."""
    for group in groups if isinstance(labels, Labels) else ():
        if len(split_label(unspelled(group))) != len(list(labels.children())):
            raise UsageError(
                f"the group {group!r} has another number of values than there are columns in {labels}; expected one of each, with {BETWEEN} between them. "
                f"A {BETWEEN} in a value stands behind a backslash."
            )


def _check_groups(bounds: Sequence[Bounds], by: object, kind: object, where: str) -> None:
    """Refuse groups of no column, and groups that are no values of the type of their column."""
    for one in bounds:
        labels = [label for label, _, _ in one.groups]
        if by is None and labels and ALL not in labels:
            raise UsageError(
                f'{where}, {one.signal!r}: found the group {labels[0]!r} and no column of groups; expected its name: "by": "source". The bounds of all rows are '
                f"those of {ALL!r}."
            )
        for label in labels if by is not None else ():
            kinds = kind if isinstance(kind, list) else [kind] * (len(by) if isinstance(by, list) else 1)
            parts = split_label(unspelled(label)) if isinstance(by, list) else [unspelled(label)]
            if label != ALL and not all(map(is_label, parts, kinds)):
                raise UsageError(
                    f"{where}, {one.signal!r}: the group {label!r} is no {BETWEEN.join(map(str, kinds))}, which kind={kind!r} says; expected such a value, spelled as "
                    "by quantiles: 2, 0.5, true or false."
                )


def one_kind(kind: Kind) -> LabelKind:
    """Return the type of the labels: those of several columns are strings."""
    return "string" if isinstance(kind, tuple) else kind


def shown_by(by: By) -> str:
    """Return how tables call the column of the groups."""
    return short_name(by or "") if not isinstance(by, tuple) else BETWEEN.join(map(short_name, by))


def note_without_values(rule: str, groups: Sequence[str], is_dropped: bool) -> str:
    """Return a warning that no document has a value of a rule, or none in some groups."""
    shown = [*groups[:MAX_LISTED], *([f"{len(groups) - MAX_LISTED:,} more"] if groups[MAX_LISTED:] else [])]
    where = f" of {listed(shown)}" if groups else ""
    if not is_dropped:
        return f"{rule} has no value in any document{where}: it drops none of them"
    return f"{rule} has no value in any document{where}, so it drops all of them; make or attach its signal, then the quantiles again, or leave the rule out"


def _plain_json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _are_columns(by: object, kind: object) -> bool:
    """Tell whether JSON names a column and its type, or as many types as columns."""
    if isinstance(by, list):
        kinds = kind if isinstance(kind, list) else [kind] * len(by)
        are_names = len(by) > 0 and all(isinstance(name, str) for name in by)
        return are_names and len(kinds) == len(by) and all(one in get_args(LabelKind) for one in kinds)
    return isinstance(by, str | None) and kind in get_args(LabelKind)


def _bound(signal: str, group: str, entry: Entry, level: Level, tail: Tail) -> Bound:
    """Return the bounds of a signal in a group that has values."""
    low, high = (probability_name(item) for item in LEVELS[level])
    if low not in entry["q"] or high not in entry["q"]:
        raise UsageError(
            f"{signal}: the level {level!r} needs the quantiles {low} and {high}, there are {some(list(entry['q']))}. Make them again: "
            f"dolma-dask quantiles ... --probabilities {low} {high}, or without --probabilities."
        )
    lower = None if tail == "upper" else entry["q"][low]
    upper = None if tail == "lower" else entry["q"][high]
    return group, lower, upper


def _of_groups(
    bounds: Sequence[Bounds], labels: Value, kind: LabelKind, ends: str, keeps_nulls: bool
) -> list[Rule]:
    """Return the rules of rows with labels; how people are shown one ends with `ends`."""
    groups = sorted({label for one in bounds for label, _, _ in one.groups if label != ALL})
    _check_labels(groups, labels)
    if len(groups) == 1:
        member = labelled(labels, unspelled(groups[0]), kind)
        return [
            *(member.rules if isinstance(member, And) else [member]),
            *_plain(bounds, groups[0], keeps_nulls),
        ]
    short = short_names([one.signal for one in bounds])
    return [
        Within(
            Name(one.signal),
            labels,
            kind,
            _by_label(one),
            f"{short[one.signal]} {ends}",
            keeps_nulls,
        )
        for one in bounds
    ]


def _plain(bounds: Sequence[Bounds], group: str, keeps_nulls: bool) -> list[Rule]:
    """Return the plain rules of one group."""
    return [rule for one in bounds for rule in _plain_of(one, group, keeps_nulls)]


def _plain_of(one: Bounds, group: str, keeps_nulls: bool) -> tuple[Rule, ...]:
    """Return the plain rules of one group of a signal; none of its rows are inside if it had no values."""
    signal = Name(one.signal)
    found = [
        bounded(signal, lower, upper, keeps_nulls) for label, lower, upper in one.groups if label == group
    ]
    return found[0] if found else (Constant(False),)


def _by_label(one: Bounds) -> tuple[Bound, ...]:
    real = ((unspelled(label), lower, upper) for label, lower, upper in one.groups if label != ALL)
    return tuple(sorted(real, key=lambda bound: bound[0]))


def _range(lower: float | None, upper: float | None) -> str:
    """Return the values between two bounds as a cell."""
    if lower is None or upper is None:
        return (
            f"\N{LESS-THAN OR EQUAL TO} {real(upper)}"
            if lower is None
            else f"\N{GREATER-THAN OR EQUAL TO} {real(lower)}"
        )
    return f"{real(lower)} to {real(upper)}"


def _read_bounds(signal: str, groups: Any, where: str, expected: str) -> Bounds:
    """Return the bounds of a signal from JSON; `where` and `expected` are for the message."""
    if not isinstance(groups, dict) or not all(isinstance(ends, dict) for ends in groups.values()):
        raise UsageError(f"{where}: found {groups!r}; {expected}.")
    bounds = []
    for label, ends in sorted(groups.items()):
        pair = [ends.get("lower"), ends.get("upper")]
        if not set(ends) <= {"lower", "upper"} or any(not _is_bound(end) for end in pair):
            raise UsageError(f"{where}, {label!r}: found {ends!r}; {expected}.")
        bounds.append((label, *(None if end is None else float(end) for end in pair)))
    return Bounds(signal, tuple(bounds))


def _is_bound(value: Any) -> bool:
    return value is None or (
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    )
