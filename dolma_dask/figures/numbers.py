"""The numbers of a panel: columns for a frame, lines for a terminal, and a sentence for those who do not see the picture."""

import math
from typing import Any

import numpy as np

from dolma_dask.display import counted, integer, listed, percent, real
from dolma_dask.figures.model import Bars, HeatMap, Line, Panel, Ranges, SignalHistogram

MOST_LINES = 20
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


def table_of(panel: Panel) -> list[list[str]]:
    """Return the lines of a table for people, its heading first."""
    match panel:
        case SignalHistogram():
            return _bin_table(panel)
        case HeatMap():
            return _heat_table(panel)
        case _:
            columns = columns_of(panel)
            rows = zip(*columns.values(), strict=True)
            return [list(columns), *([_cell(value) for value in row] for row in rows)]


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    return integer(int(value)) if isinstance(value, int | np.integer) else real(float(value))


def _bin_table(signal: SignalHistogram) -> list[list[str]]:
    """Return a histogram as lines with bars of characters: `#` for what is kept, `-` for the rest."""
    if not len(signal.counts):
        return [["from", "to below", "documents"]]
    starts = np.arange(0, len(signal.counts), -(-len(signal.counts) // MOST_LINES))
    every = np.add.reduceat(signal.counts, starts)
    has_kept = signal.kept_counts is not None
    kept = every if signal.kept_counts is None else np.add.reduceat(signal.kept_counts, starts)
    edges = [*signal.edges[starts].tolist(), float(signal.edges[-1])]
    size = BAR_CHARACTERS / max(int(every.max()), 1)
    rows = []
    for number, (n, k) in enumerate(zip(every.tolist(), kept.tolist(), strict=True)):
        whole, part = -round(-n * size // 1), -round(-k * size // 1)
        cells = [real(edges[number]), real(edges[number + 1]), integer(n), *[integer(k)][: int(has_kept)]]
        rows.append([*cells, "#" * part + "-" * (whole - part)])
    return [["from", "to below", "documents", *["kept"][: int(has_kept)], ""], *rows]


def _heat_table(panel: HeatMap) -> list[list[str]]:
    numbers = [f"({number})" for number in range(1, len(panel.labels) + 1)]
    rows = [
        [
            f"{label} {number}",
            *(integer(counts[row]) for counts in panel.counts.values()),
            *("" if np.isnan(share) else percent(share) for share in panel.shares[row].tolist()),
        ]
        for row, (label, number) in enumerate(zip(panel.labels, numbers, strict=True))
    ]
    counts = [name.replace("_", " ") for name in panel.counts]
    return [[panel.label_name, *counts, *numbers], *rows]


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
