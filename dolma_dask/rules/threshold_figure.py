"""The picture of thresholds: what the bounds of each group keep."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dolma_dask.display import counted
from dolma_dask.figures.figure import Figure
from dolma_dask.figures.histogram import Floats
from dolma_dask.figures.model import Ranges
from dolma_dask.rules.groups import ALL
from dolma_dask.rules.signal_names import short_names

if TYPE_CHECKING:
    from dolma_dask.rules.thresholds import Bounds, Thresholds
    from dolma_dask.rules.within import Bound

MAX_GROUPS = 40
"""Groups in a panel; how many more there are is told."""

MAX_ROWS = 400
"""Groups in all panels together: a picture of more takes a minute, and nobody looks at it."""

WIDE = 50
"""Times that the largest number is the smallest one where a logarithmic axis is drawn."""


def figure_of(thresholds: "Thresholds") -> Figure:
    """Return a panel for each signal."""
    names = short_names(list(thresholds.signals))
    most = min(MAX_GROUPS, max(MAX_ROWS // max(len(names), 1), 1))
    groups = [_groups(one, thresholds.by is not None) for one in thresholds.bounds]
    panels = tuple(
        _ranges(names[one.signal], one, shown[:most])
        for one, shown in zip(thresholds.bounds, groups, strict=True)
    )
    left = max(map(len, groups), default=0) - most
    notes = ("bars: what the bounds keep; dark line: median; thin line: the middle 98 % of the documents",)
    more = (f"{counted(left, 'more group')} {'is' if left == 1 else 'are'} not shown",) if left > 0 else ()
    return Figure(f"Thresholds, {thresholds.title}", panels, notes=(*notes, *more))


def _groups(bounds: "Bounds", has_groups: bool) -> list["Bound"]:
    """Return the groups with their bounds; all documents together only where there are no others."""
    return [each for each in bounds.groups if each[0] != ALL or not has_groups]


def _ranges(name: str, bounds: "Bounds", shown: Sequence["Bound"]) -> Ranges:
    spreads = [bounds.spreads.get(group, (None, None, None)) for group, _, _ in shown]
    p1, median, p99 = (_floats([spread[place] for spread in spreads], math.nan) for place in range(3))
    lower, upper = (
        _floats([low for _, low, _ in shown], -math.inf),
        _floats([high for _, _, high in shown], math.inf),
    )
    known = np.concatenate([lower, upper, p1, median, p99])
    known = known[np.isfinite(known)]
    is_wide = len(known) > 0 and known.min() > 0 and known.max() / WIDE >= known.min()
    return Ranges(
        name,
        tuple(group for group, _, _ in shown),
        lower,
        upper,
        p1,
        median,
        p99,
        "log" if is_wide else "linear",
    )


def _floats(values: Sequence[float | None], missing: float) -> Floats:
    return np.array([missing if value is None else value for value in values], np.float64)
