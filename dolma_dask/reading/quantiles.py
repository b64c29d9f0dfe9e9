"""The outcome of `quantiles`: a table of signals and groups, and the thresholds of a level, as a rule."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dolma_dask.errors import UsageError
from dolma_dask.figures.figure import Figure
from dolma_dask.rules.groups import ALL
from dolma_dask.rules.quantile_table import QuantileTable
from dolma_dask.rules.rules import Rule
from dolma_dask.rules.signal_names import short_names
from dolma_dask.rules.thresholds import By, Thresholds, shown_by
from dolma_dask.summary import Summary

MOST_SHOWN = 40
"""Lines of the table, which says how many more there are."""

_SHOWN = ("0.1", "0.5", "0.9")


@dataclass(frozen=True, repr=False)
class QuantilesSummary(Summary):
    """The outcome of `quantiles`; joins with rules by ``& | ~`` if a level was requested.

    Attributes
    ----------
    file : str
        Where the quantiles stand, relative to the dataset.
    parameters : Mapping
        Signals, groups, probabilities, sample and method (exact).
    quantiles : Mapping
        What the file holds: signal to group to ``n``, ``nulls``, ``min``, ``max`` and ``q``; empty under ``dry_run``.
    thresholds : Thresholds or None
        Of the requested level.
    """

    file: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    quantiles: QuantileTable = field(default_factory=dict)
    thresholds: Thresholds | None = None

    def inside(self, signals: Sequence[str] | str | None = None) -> Thresholds:
        """Return the rule that rows lie inside of the thresholds; see `Thresholds.inside`.

        Raises
        ------
        UsageError
            No level was requested.
        """
        if self.thresholds is None:
            raise UsageError(
                "these quantiles have no thresholds, because no level was asked for; expected level='regular', 'strict', 'even_stricter' "
                "or 'strictest'. Take them now: dk.thresholds(summary, level='regular')."
            )
        return self.thresholds.inside(signals)

    def lower(self, signal: str, group: str | None = None) -> float | None:
        """Return a lower bound; see `Thresholds.lower`."""
        return self.inside().lower(signal, group)

    def upper(self, signal: str, group: str | None = None) -> float | None:
        """Return an upper bound; see `Thresholds.upper`."""
        return self.inside().upper(signal, group)

    def plot(self, signal: str | None = None) -> Figure:
        """Return what the bounds keep in each group as a figure; see `Thresholds.plot`."""
        return self.inside().with_spreads(self.quantiles).plot(signal)

    def __and__(self, other: Rule) -> Rule:
        return self.inside() & other

    def __rand__(self, other: Rule) -> Rule:
        return other & self.inside()

    def __or__(self, other: Rule) -> Rule:
        return self.inside() | other

    def __ror__(self, other: Rule) -> Rule:
        return other | self.inside()

    def __invert__(self) -> Rule:
        return ~self.inside()

    def to_json(self) -> dict[str, Any]:
        more = {"file": self.file, "parameters": dict(self.parameters), "quantiles": self.quantiles}
        bounds = {} if self.thresholds is None else {"thresholds": self.thresholds.to_json()}
        return {**super().to_json(), **more, **bounds}

    def more(self) -> list[tuple[str, str]]:
        return [*([("file", self.file)] if self.file else []), *self._method()]

    def tables(self) -> list[tuple[str, Sequence[Sequence[str]]]]:
        return [("quantiles", self.table())] if self.quantiles else []

    def parts(self) -> Iterator[str]:
        yield from super().parts()
        if self.thresholds is not None:
            yield from self.thresholds.parts()

    def _method(self) -> list[tuple[str, str]]:
        known = self.parameters
        if not known:
            return []
        how = "exact"
        if "sample" in known:
            how += f", of a sample of {known['sample']:g} of the documents (seed {known['seed']})"
        return [("quantiles", how)]

    def table(self) -> list[tuple[str, ...]]:
        """Return the lines of the table, its heading first: signal, group, number of values, and some quantiles."""
        shown, short = self._shown(), short_names(list(self.quantiles))
        lines = [
            (short[signal], group, f"{entry['n']:,}", *(_number(entry["q"].get(name)) for name in shown))
            for signal, groups in self.quantiles.items()
            for group, entry in groups.items()
        ]
        heading = (
            "signal",
            shown_by(_as_by(self.parameters.get("by"))),
            "n",
            *(f"p{float(name) * 100:g}" for name in shown),
        )
        more = (f"and {len(lines) - MOST_SHOWN:,} more", *[""] * (len(heading) - 1))
        return [heading, *lines[:MOST_SHOWN], *([more] if len(lines) > MOST_SHOWN else [])]

    def _shown(self) -> list[str]:
        """Return the quantiles to show: the usual ones as far as they are there, else the first, middle and last."""
        known = [name for groups in self.quantiles.values() for name in groups[ALL]["q"]]
        names = list(dict.fromkeys(known))
        usual = [name for name in _SHOWN if name in names]
        return usual or list(dict.fromkeys((names[0], names[len(names) // 2], names[-1])))


def _as_by(by: Any) -> By:
    return tuple(by) if isinstance(by, list) else by


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.6g}"
