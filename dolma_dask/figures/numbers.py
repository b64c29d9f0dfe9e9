"""The numbers of a panel: columns for a frame, lines for a terminal, and a sentence for those who do not see the picture."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dolma_dask.display import counted, integer, listed, percent, real
from dolma_dask.figures.model import Bars, HeatMap, Line, Panel, Ranges, SignalHistogram
from dolma_dask.results.table import Column, Kind, Table

MAX_LINES = 20
"""Lines of a histogram in a terminal: neighbouring bins are added up."""

BAR_CHARACTERS = 30


def columns_of(panel: Panel) -> dict[str, Any]:
    """Return the numbers of a panel by name of column, all of one length."""
    match panel:
        case SignalHistogram():
            return _bins(panel)
        case Line():
            return {panel.x_label: panel.x, panel.y_label: panel.y}
        case Bars():
            return {panel.label_name: panel.labels, panel.value_name: panel.values}
        case HeatMap():
            shares = {f"share: {label}": panel.shares[:, number] for number, label in enumerate(panel.labels)}
            return {panel.label_name: panel.labels, **panel.counts, **shares}
        case Ranges():
            ends = {name: getattr(panel, name) for name in ("lower", "upper", "p1", "median", "p99")}
            return {"signal": [panel.key] * len(panel.groups), "group": panel.groups, **ends}


def listed_columns(panel: Panel) -> dict[str, list[Any]]:
    """Return `columns_of` as JSON-able lists; None stands for what is no finite number."""
    return {
        name: [
            None if isinstance(value, float) and not math.isfinite(value) else value
            for value in np.asarray(column).tolist()
        ]
        for name, column in columns_of(panel).items()
    }


def _bins(signal: SignalHistogram) -> dict[str, Any]:
    kept = {} if signal.kept_counts is None else {"kept_documents": signal.kept_counts}
    return {"from": signal.edges[:-1], "to_below": signal.edges[1:], "documents": signal.counts, **kept}


def table_of(panel: Panel, title: str = "") -> Table:
    """Return the numbers as a table for people."""
    match panel:
        case SignalHistogram():
            return _bin_table(panel, title)
        case HeatMap():
            return _heat_table(panel, title)
        case _:
            names = columns_of(panel)
            cells = [np.asarray(column).tolist() for column in names.values()]
            columns = [Column(name, _kind(own)) for name, own in zip(names, cells, strict=True)]
            return Table(title, columns, list(zip(*cells, strict=True)), max_rows=max(map(len, cells)))


def _kind(cells: Sequence[Any]) -> Kind:
    if any(isinstance(cell, str) for cell in cells):
        return "name"
    return "integer" if all(isinstance(cell, int) for cell in cells) else "real"


def _bin_table(signal: SignalHistogram, title: str) -> Table:
    """Return a histogram as rows with bars of characters: `#` for what is kept, `-` for the rest."""
    columns = (
        Column("from", "real"),
        Column("to below", "real"),
        Column("documents"),
        Column("kept"),
        Column("", "words"),
    )
    if not len(signal.counts):
        return Table(title, columns, ())
    starts = np.arange(0, len(signal.counts), -(-len(signal.counts) // MAX_LINES))
    every = np.add.reduceat(signal.counts, starts)
    has_kept = signal.kept_counts is not None
    kept = every if signal.kept_counts is None else np.add.reduceat(signal.kept_counts, starts)
    edges = [*signal.edges[starts].tolist(), float(signal.edges[-1])]
    size = BAR_CHARACTERS / max(int(every.max()), 1)
    rows = []
    for number, (n, k) in enumerate(zip(every.tolist(), kept.tolist(), strict=True)):
        whole, part = -round(-n * size // 1), -round(-k * size // 1)
        bar = "#" * part + "-" * (whole - part)
        rows.append((edges[number], edges[number + 1], n, k if has_kept else None, bar))
    return Table(title, columns, rows)


def _heat_table(panel: HeatMap, title: str) -> Table:
    numbers = [f"({number})" for number in range(1, len(panel.labels) + 1)]
    rows = [
        (
            f"{label} {number}",
            *(counts[row] for counts in panel.counts.values()),
            *(None if np.isnan(share) else share for share in panel.shares[row].tolist()),
        )
        for row, (label, number) in enumerate(zip(panel.labels, numbers, strict=True))
    ]
    columns = (
        Column(panel.label_name, "words"),
        *(Column(name.replace("_", " ")) for name in panel.counts),
        *(Column(number, "share", is_always=True) for number in numbers),
    )
    return Table(title, columns, rows)


def sentence_of(panel: Panel) -> str:
    """Say what the picture of a panel shows, with its main numbers."""
    match panel:
        case SignalHistogram():
            return _about_histogram(panel)
        case Line():
            return (
                f"{panel.y_label} from {percent(panel.y[0])} to {percent(panel.y[-1])} over {panel.x_label}."
            )
        case Bars():
            if not panel.labels:
                return f"No {panel.value_name}."
            most = max(range(len(panel.values)), key=lambda number: panel.values[number])
            return f"{real(sum(panel.values))} {panel.value_name} in all, most of them ({real(panel.values[most])}) with {panel.label_name} {panel.labels[most]}."
        case HeatMap():
            return _about_heat(panel)
        case Ranges():
            return f"{panel.key}: what the bounds keep in {counted(len(panel.groups), 'group')}: {'; '.join(_range(panel, number) for number in range(min(len(panel.groups), 8)))}."


def _about_histogram(signal: SignalHistogram) -> str:
    if signal.min is None or signal.max is None:
        return f"{signal.key}: no values."
    kept = ""
    if signal.kept_counts is not None:
        total = int(signal.kept_counts.sum())
        kept = f"; {integer(total)} of them ({percent(total, signal.n)}) {'is' if total == 1 else 'are'} kept"
    median = f", median {real(signal.quantiles[0.5])}" if 0.5 in signal.quantiles else ""
    bounds = [f"{sign} {real(value)}" for sign, value in signal.threshold]
    cut = f", bounds {listed(bounds)}" if bounds else ""
    return f"{signal.key}: {counted(signal.n, 'value')} from {real(signal.min)} to {real(signal.max)}{median}{cut}{kept}."


def _about_heat(panel: HeatMap) -> str:
    if np.isnan(panel.shares).all():
        return f"{counted(len(panel.labels), panel.label_name)}."
    row, column = np.unravel_index(int(np.nanargmax(panel.shares)), panel.shares.shape)
    return (
        f"{counted(len(panel.labels), panel.label_name)}; of what {panel.labels[row]} drops, {panel.labels[column]} drops most: "
        f"{percent(panel.shares[row, column])}."
    )


def _range(panel: Ranges, number: int) -> str:
    low, high = float(panel.lower[number]), float(panel.upper[number])
    if np.isnan(low) or np.isnan(high):
        return f"{panel.groups[number]} nothing"
    if np.isinf(low):
        return f"{panel.groups[number]} " + ("all" if np.isinf(high) else f"up to {real(high)}")
    return f"{panel.groups[number]} from {real(low)}" + ("" if np.isinf(high) else f" to {real(high)}")
