"""The outcome of `quantiles`: a table of signals and groups, and the thresholds of a level, as a rule."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from dolma_dask.errors import ExpressionError, UsageError
from dolma_dask.figures.figure import Figure
from dolma_dask.results.parts import Fact, Part
from dolma_dask.results.summary import Summary
from dolma_dask.results.table import Column, Table
from dolma_dask.rules.groups import ALL
from dolma_dask.rules.quantile_table import QuantileTable
from dolma_dask.rules.rules import Rule
from dolma_dask.rules.sampling import sample_in_words
from dolma_dask.rules.signal_names import short_name, short_names
from dolma_dask.rules.thresholds import By, Thresholds, shown_by

MAX_SHOWN = 40
"""Rows of the table that a summary shows."""

_USUAL = ("0.01", "0.1", "0.5", "0.9", "0.99")


class QuantilesSummary(Summary, frozen=True):
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
    levels : Mapping
        Documents and text that the thresholds of each level keep, if one was requested, as the journal has them: ``kept`` (rows of name, documents, and text in
        units of the column ``length``), ``shards`` that were read and ``shards_of``.
    """

    file: str = ""
    parameters: Mapping[str, Any] = {}
    quantiles: QuantileTable = msgspec.field(default_factory=dict)
    thresholds: Thresholds | None = None
    levels: Mapping[str, Any] = {}

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

    def __bool__(self) -> bool:
        """Refuse to stand before `and` or `or`, which would drop the thresholds in silence; raises `ExpressionError`."""
        raise ExpressionError("quantiles have no truth value of their own; combine rules with & | ~")

    def own_facts(self) -> Iterator[Fact]:
        if self.file:
            yield Fact("file", self.file)
        if self.parameters:
            yield Fact("quantiles", self._method())

    def tables(self) -> list[Table]:
        return (
            [quantile_table(self.quantiles, self.parameters, short_names(list(self.quantiles)))]
            if self.quantiles
            else []
        )

    def parts(self) -> Iterator[Part]:
        yield from super().parts()
        if self.thresholds is not None:
            yield self.thresholds.wide_table()
        if self.levels:
            yield level_table(self.levels)

    def _method(self) -> str:
        known = self.parameters
        if "sample" not in known:
            return "exact"
        return f"exact, of a sample of {sample_in_words(known['sample'])} of the documents (seed {known['seed']})"


def quantile_table(
    quantiles: QuantileTable, parameters: Mapping[str, Any], names: Mapping[str, str]
) -> Table:
    """Return signal, group, number of values, and some quantiles; `names` are those that signals are shown by."""
    shown = _shown(quantiles)
    rows = [
        (names.get(signal, signal), group, entry["n"], *(entry["q"].get(name) for name in shown))
        for signal, groups in quantiles.items()
        for group, entry in groups.items()
    ]
    by = shown_by(_as_by(parameters.get("by")))
    numbers = (Column(f"p{float(name) * 100:g}", "real") for name in shown)
    columns = (Column("signal", "name"), Column(by, "name", is_data=True), Column("n"), *numbers)
    return Table("quantiles", columns, rows, f"Method: {parameters.get('method')}.", MAX_SHOWN)


def level_table(levels: Mapping[str, Any]) -> Table:
    """Return the share of documents and of text that each level keeps."""
    (_, documents, text), *rows = levels.get("kept") or [("all", 0, 0)]
    length, shards, every = levels.get("length"), levels.get("shards"), levels.get("shards_of")
    columns = Column("level", "name"), Column("documents", "share"), Column("text", "share")
    cells = [
        (name, kept / documents if documents else None, size / text if text and length else None)
        for name, kept, size in rows
    ]
    if "note" in levels:
        return Table(f"what each level keeps was not counted: {levels['note']}", columns, [])
    where = f" in {shards:,} of {every:,} shards" if shards != every else ""
    how = (
        f"text by {short_name(length)}"
        if length
        else "no column tells how much text: tag --taggers char_length_v1"
    )
    return Table(
        f"what the thresholds of each level keep of {documents:,.0f} documents{where}; {how}", columns, cells
    )


def _shown(quantiles: QuantileTable) -> list[str]:
    """Return the quantiles to show: the usual ones as far as they are there, else the first, middle and last."""
    names = list(dict.fromkeys(name for groups in quantiles.values() for name in groups[ALL]["q"]))
    usual = [name for name in _USUAL if name in names]
    return usual or list(dict.fromkeys((names[0], names[len(names) // 2], names[-1])))


def _as_by(by: Any) -> By:
    return tuple(by) if isinstance(by, list) else by
