"""Content of a figure, as plain frozen records with no idea of how it looks: one record for each panel."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.display import printable

Scale = Literal["linear", "log"]
"""Spacing of the bins of a histogram; ``log`` bins are drawn equally wide."""


class SignalHistogram(Struct, frozen=True):
    """The values of one signal in at most some 60 bins, and where the rule cuts."""

    key: str  # attribute key, such as ``gopher_v2__gopher_v2__word_count``
    # (n_bins + 1,) Ascending; bin `i` holds ``edges[i] <= value < edges[i + 1]``. Empty when there is no finite value.
    edges: npt.NDArray[np.float64]
    counts: npt.NDArray[np.int64]  # (n_bins,) Values per bin
    # (n_bins,) Of these, the values of documents that were kept; None where nothing was selected
    kept_counts: npt.NDArray[np.int64] | None = None
    # values, infinite ones included; missing values; infinite values (in no bin)
    n: int = 0
    nulls: int = 0
    # smallest and largest finite value
    min: float | None = None
    max: float | None = None
    quantiles: Mapping[float, float] = {}  # probability to value
    # (str, float) What the rule keeps: operator and bound, such as ``(">=", 50.0)``
    threshold: Sequence[tuple[str, float]] = ()
    scale: Scale = "linear"  # how `edges` are spaced
    infinite: int = 0
    count_scale: Scale | None = None  # axis of the counts; None: as the reader chooses
    is_cut: bool = False  # whether the rule reads it, with a bound for all documents or in another way
    # (str, float) Bounds that hold together with other conditions, such as those of groups; they are not drawn
    partial: Sequence[tuple[str, float]] = ()


class Line(Struct, frozen=True):
    """A share as a function of another, both in 0..1."""

    key: str  # name of the figure
    x: npt.NDArray[np.float64]  # (n,) ascending
    y: npt.NDArray[np.float64]  # (n,)
    # names of both axes
    x_label: str
    y_label: str
    threshold: Sequence[tuple[str, float]] = ()  # as in `SignalHistogram`, of `x`


class Bars(Struct, frozen=True):
    """A number for each of some categories, in their order."""

    key: str  # name of the panel
    labels: tuple[str, ...]
    values: tuple[float, ...]
    label_name: str  # what a category is, such as "documents in a cluster"
    value_name: str  # what is counted, such as "clusters"
    has_log_axis: bool = False


class HeatMap(Struct, frozen=True):
    """A share in 0..1 for each pair of a row and a column; NaN where there is none."""

    key: str
    labels: tuple[str, ...]  # of the rows, and in the same order of the columns
    shares: npt.NDArray[np.float64]  # (n, n)
    label_name: str  # what a row is, such as "condition"
    counts: Mapping[str, tuple[int, ...]] = {}  # of the rows, by name


class Ranges(Struct, frozen=True):
    """Ranges of one signal that bounds keep, for each group; infinite where there is no bound, NaN where it is not known."""

    key: str  # name of the signal
    groups: tuple[str, ...]
    # (n,) bounds, inclusive
    lower: npt.NDArray[np.float64]
    upper: npt.NDArray[np.float64]
    # (n,) quantiles 0.01, 0.5 and 0.99
    p1: npt.NDArray[np.float64]
    median: npt.NDArray[np.float64]
    p99: npt.NDArray[np.float64]
    scale: Scale = "linear"


Panel = SignalHistogram | Line | Bars | HeatMap | Ranges

MAX_CHARACTERS = 100
"""Characters of a name that are shown."""


def cut(name: str, max_characters: int = MAX_CHARACTERS) -> str:
    """Return a name of the data as it is shown, or its beginning if it is very long."""
    shown = printable(name[: max_characters + 1])
    return shown if len(shown) <= max_characters else f"{shown[: max_characters - 1]}\N{HORIZONTAL ELLIPSIS}"


def with_short_names(panel: Panel) -> Panel:
    """Return the same panel with the beginnings of very long names."""
    values = {name: _cut_each(getattr(panel, name)) for name in panel.__struct_fields__}
    return replace(panel, **values)


def _cut_each(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_cut_each, value))
    return cut(value) if isinstance(value, str) else value
