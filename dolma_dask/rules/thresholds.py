"""Thresholds: lower and upper bounds per signal and group, taken from quantiles, as a rule over rows.

``Thresholds`` is a rule itself: it joins with others by ``& | ~`` and stands in ``where=``. Bounds are inclusive. A missing value, a
missing group and a group that had no values are not inside.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, cast, get_args

from dolma_dask.display import html_table, text_table
from dolma_dask.errors import UsageError
from dolma_dask.rules.groups import ALL, LabelKind, unspelled
from dolma_dask.rules.quantile_table import Entry, QuantileTable, probability_name
from dolma_dask.rules.rules import And, Constant, Rule
from dolma_dask.rules.values import Name
from dolma_dask.rules.within import Bound, Within, bounded, labelled

MOST_SHOWN = 30
"""Lines of a table; how many more there are is told."""

MOST_NAMED = 20
"""Names that a message lists."""

Level = Literal["regular", "strict", "even_stricter", "strictest"]

LEVELS: Mapping[Level, tuple[float, float]] = {
    "regular": (0.1, 0.9),
    "strict": (0.2, 0.8),
    "even_stricter": (0.3, 0.7),
    "strictest": (0.4, 0.6),
}
"""Probabilities of the lower and the upper bound; names and numbers of the LUMI chain."""

Tail = Literal["lower", "upper", "both"]

KNOWN_TAILS: Mapping[str, Tail] = {
    "rps_doc_word_count": "lower",
    "ccnet_nlines": "lower",
    "ccnet_length": "lower",
    "ccnet_language_score": "lower",
    "ccnet_perplexity": "upper",
    "rps_doc_stop_word_fraction": "lower",
    "rps_doc_frac_no_alph_words": "upper",
    "rps_doc_ldnoobw_words": "upper",
    "rps_doc_frac_chars_dupe_10grams": "upper",
    "rps_doc_frac_chars_dupe_5grams": "upper",
    "rps_doc_frac_unique_words": "both",
    "rps_doc_unigram_entropy": "both",
    "metadata.nlines": "lower",
    "metadata.length": "lower",
    "metadata.language_score": "lower",
    "number_of_words": "lower",
    "number_of_lines": "lower",
    "number_of_characters": "lower",
    "language_identification": "lower",
    "perplexity": "upper",
    "stop_words": "lower",
    "special_characters": "upper",
    "flagged_words": "upper",
    "words_per_line_mean": "lower",
    "short_line_ratio": "upper",
    "character_repetition10": "upper",
    "character_repetition5": "upper",
    "word_repetition": "both",
    "unigram_entropy": "both",
    "lines_end_in_punct": "lower",
}
"""End of a signal's distribution that is cut, in the LUMI chain over RedPajama-V2 signals, under the names of the signals, of its metrics and of the fields of the
documents."""


@dataclass(frozen=True)
class Bounds:
    """The bounds of one signal."""

    signal: str  # full name of its column
    groups: tuple[Bound, ...]  # without groups that have no values


@dataclass(frozen=True)
class Thresholds(And):
    """Rows inside of the bounds of all signals; make them with `thresholds_of` or `Thresholds.from_json`.

    Attributes
    ----------
    rules : tuple of Rule
        That must all hold.
    bounds : tuple of Bounds
        What the rules were made of.
    strictness : str or None
        Name of the level.
    by : str or None
        Column whose value chooses the bounds of a row.
    kind : {"string", "number", "bool"}
        Type of that column.
    """

    bounds: tuple[Bounds, ...] = ()
    strictness: Level | None = None
    by: str | None = None
    kind: LabelKind = "string"

    @classmethod
    def of(
        cls, bounds: Sequence[Bounds], strictness: Level | None, by: str | None, kind: LabelKind
    ) -> "Thresholds":
        """Return thresholds with these bounds; raise `UsageError` if there is no signal."""
        if not bounds:
            raise UsageError("thresholds of no signals; expected one or more. Name them: signals=[...].")
        groups = sorted({label for one in bounds for label, _, _ in one.groups if label != ALL})
        if by is None:
            rules = [rule for one in bounds for rule in _plain(one, ALL)]
        elif len(groups) == 1:
            member = labelled(Name(by), unspelled(groups[0]), kind)
            rules = [member, *(rule for one in bounds for rule in _plain(one, groups[0]))]
        else:
            ends = f"within {strictness or 'thresholds'} by {short_name(by)}"
            rules = [
                Within(Name(one.signal), Name(by), kind, _by_label(one), f"{short_name(one.signal)} {ends}")
                for one in bounds
            ]
        return cls(tuple(dict.fromkeys(rules)), tuple(bounds), strictness, by, kind)

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
            f"{one.signal} has no bounds in the group {name!r}; expected one of {_some([bound[0] for bound in one.groups])}.",
            group=name,
        )

    def _find(self, signal: str) -> Bounds:
        names = list(self.signals)
        return self.bounds[names.index(_one_signal("no thresholds for", signal, names))]

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
        return Thresholds.of(chosen, self.strictness, self.by, self.kind)

    def canonical(self) -> list[Any]:
        return And(self.rules).canonical()

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads: level, column of the groups, and bounds by signal and group."""
        bounds = {
            one.signal: {label: {"lower": lower, "upper": upper} for label, lower, upper in one.groups}
            for one in self.bounds
        }
        return {"level": self.strictness, "by": self.by, "kind": self.kind, "bounds": bounds}

    @classmethod
    def from_json(cls, content: Any, where: str = "thresholds") -> "Thresholds":
        """Return thresholds from what `to_json` gave, or a person wrote; `where` is what the content was read from, for messages.

        ``{"bounds": {signal: {group: {"lower":, "upper":}}}}`` with ``by``, ``kind`` and ``level`` if need be; raises `UsageError` for anything else.
        """
        expected = 'expected {"by": ..., "bounds": {signal: {group: {"lower": number, "upper": number}}}}'
        if not isinstance(content, dict) or not isinstance(content.get("bounds"), dict):
            raise UsageError(f"{where}: no thresholds; {expected}. Make them: dolma-dask quantiles --level.")
        level, by, kind = content.get("level"), content.get("by"), content.get("kind", "string")
        if kind not in get_args(LabelKind) or not isinstance(by, str | None):
            raise UsageError(
                f"{where}: by={by!r}, kind={kind!r}; expected a column of strings, numbers or bools."
            )
        bounds = [
            _read_bounds(name, groups, f"{where}, {name!r}", expected)
            for name, groups in content["bounds"].items()
        ]
        return cls.of(bounds, None if level is None else check_level(level), by, kind)

    def table(self) -> list[tuple[str, str, str, str]]:
        """Return the lines of a table, its heading first: signal, group, lower and upper bound."""
        short = short_names(list(self.signals))
        lines = [
            (short[one.signal], label, _shown(lower), _shown(upper))
            for one in self.bounds
            for label, lower, upper in one.groups
        ]
        heading = ("signal", short_name(self.by or ""), "lower", "upper")
        more = [(f"and {len(lines) - MOST_SHOWN:,} more", "", "", "")]
        return [heading, *lines[:MOST_SHOWN], *(more if len(lines) > MOST_SHOWN else [])]

    def __repr__(self) -> str:
        return "\n".join([f"Thresholds, {self._title()}", *text_table(self.table())])

    def _title(self) -> str:
        groups = f" by {self.by}" if self.by else ""
        return f"{self.strictness or 'no level'}{groups}"

    def _repr_html_(self) -> str:
        return html_table(f"thresholds, {self._title()}", self.table())


def thresholds_of(
    table: QuantileTable,
    level: str,
    by: str | None = None,
    kind: LabelKind = "string",
    tails: Mapping[str, str] | None = None,
) -> Thresholds:
    """Make thresholds of quantiles by signal and group, `by` the column of the groups (without one the bounds of all rows hold for each).

    `tails` says which bounds of a signal are used, by default those of `KNOWN_TAILS`, both for other signals. Raises `UsageError`: the level is
    unknown, its probabilities are not among the quantiles, or a tail or its signal is unknown.
    """
    strictness = check_level(level)
    sides = tails_of(list(table), tails)
    bounds = [_bounds(signal, groups, strictness, sides[signal]) for signal, groups in table.items()]
    return Thresholds.of(bounds, strictness, by, kind)


def check_level(level: str) -> Level:
    """Return `level` if it names one; raise `UsageError` otherwise."""
    if level in get_args(Level):
        return cast(Level, level)
    near = get_close_matches(str(level), get_args(Level), n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise UsageError(
        f"level={level!r} is unknown; {hint}Expected regular (10 and 90 %), strict (20 and 80 %), even_stricter (30 and 70 %) or strictest "
        "(40 and 60 %)."
    )


def _bounds(signal: str, groups: Mapping[str, Entry], level: Level, tail: Tail) -> Bounds:
    low, high = (probability_name(item) for item in LEVELS[level])
    found: list[Bound] = []
    for group, entry in sorted(groups.items()):
        missing = [name for name in (low, high) if name not in entry["q"]]
        if missing:
            raise UsageError(
                f"{signal}: the level {level!r} needs the quantiles {low} and {high}, there are {_some(list(entry['q']))}. Make them again: "
                f"dolma-dask quantiles --probabilities {low} {high}, or without --probabilities."
            )
        if entry["n"]:
            lower = None if tail == "upper" else entry["q"][low]
            upper = None if tail == "lower" else entry["q"][high]
            found.append((group, lower, upper))
    return Bounds(signal, tuple(found))


def _plain(one: Bounds, group: str) -> tuple[Rule, ...]:
    """Return the plain rules of one group of a signal; none of its rows are inside if it had no values."""
    found = [bounded(Name(one.signal), lower, upper) for label, lower, upper in one.groups if label == group]
    return found[0] if found else (Constant(False),)


def _by_label(one: Bounds) -> tuple[Bound, ...]:
    real = ((unspelled(label), lower, upper) for label, lower, upper in one.groups if label != ALL)
    return tuple(sorted(real, key=lambda bound: bound[0]))


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:,.6g}"


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
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")
    )


def _some(names: Sequence[str]) -> str:
    """Return names for a message: all of few, the first of many."""
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more if names else "none"


# ------------------------------------------------------------------------------------------------ names and tails of signals


def short_name(signal: str) -> str:
    """Return the last part of an attribute key or of a field of the metadata."""
    return signal.removeprefix("metadata.").rpartition("__")[2]


def short_names(signals: list[str]) -> dict[str, str]:
    """Return how tables call each signal: by its short name, where no other has it too."""
    short = {signal: short_name(signal) for signal in signals}
    return {
        signal: name if list(short.values()).count(name) == 1 else signal for signal, name in short.items()
    }


def tails_of(signals: list[str], tails: Mapping[str, str] | None) -> dict[str, Tail]:
    """Return the tail of each signal: as requested for it or for its short name, else as known, else both."""
    requested = {
        _one_signal("tails: no signal is called", name, signals): _check_tail(name, tail)
        for name, tail in (tails or {}).items()
    }
    return {**{name: _known_tail(name) for name in signals}, **requested}


def _known_tail(name: str) -> Tail:
    metric = name.partition("(")[0]  # without the lengths of words
    return KNOWN_TAILS.get(metric) or KNOWN_TAILS.get(short_name(name), "both")


def _one_signal(problem: str, name: str, signals: list[str]) -> str:
    """Return the signal that a name stands for; `problem` begins the message if there is none, or several."""
    ours = matching(name, signals)
    if len(ours) == 1:
        return ours[0]
    near = ours or get_close_matches(name, [*signals, *map(short_name, signals)])
    hint = f"{'it is short for' if ours else 'near it are'} {', '.join(near)}; " if near else ""
    raise UsageError(f"{problem} {name!r}; {hint}expected one of {_some(signals)}.", name=name)


def matching(name: str, signals: list[str]) -> list[str]:
    """Return the signals that a name stands for: itself, else those that end in it."""
    if name in signals:
        return [name]
    return [signal for signal in signals if signal.endswith((f"__{name}", f"metadata.{name}"))]


def _check_tail(name: str, tail: str) -> Tail:
    if tail not in get_args(Tail):
        raise UsageError(f"tails: {name!r} has {tail!r}; expected lower, upper or both.", name=name)
    return cast(Tail, tail)
