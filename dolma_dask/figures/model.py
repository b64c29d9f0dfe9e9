"""What a figure shows, as plain frozen records with no idea of how it looks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

Scale = Literal["linear", "log"]
"""How the bins of a histogram are spaced; ``log`` bins are drawn equally wide."""


@dataclass(frozen=True)
class SignalHistogram:
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
    quantiles: Mapping[float, float] = field(default_factory=dict)  # probability to value
    # (str, float) What the rule keeps: operator and bound, such as ``(">=", 50.0)``
    threshold: Sequence[tuple[str, float]] = ()
    scale: Scale = "linear"  # how `edges` are spaced
    infinite: int = 0
    count_scale: Scale | None = None  # axis of the counts; None: as the reader chooses


@dataclass(frozen=True)
class Line:
    """A share as a function of another, both in 0..1."""

    key: str  # name of the figure
    x: npt.NDArray[np.float64]  # (n,) ascending
    y: npt.NDArray[np.float64]  # (n,)
    # names of both axes
    x_label: str
    y_label: str
    threshold: Sequence[tuple[str, float]] = ()  # as in `SignalHistogram`, of `x`
