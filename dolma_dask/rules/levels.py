"""Levels: how much of a distribution thresholds leave inside, and which quantiles that needs."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Literal, get_args

from dolma_dask.errors import UsageError

Level = Literal["regular", "strict", "even_stricter", "strictest"]

LEVELS: Mapping[Level, tuple[float, float]] = {
    "regular": (0.1, 0.9),
    "strict": (0.2, 0.8),
    "even_stricter": (0.3, 0.7),
    "strictest": (0.4, 0.6),
}
"""Probabilities of the lower and the upper bound; names and numbers of the LUMI chain."""


def check_level(level: str) -> Level:
    """Return `level` if it names one; raise `UsageError` otherwise."""
    for known in get_args(Level):
        if level == known:
            return known  # type: ignore[no-any-return]
    near = get_close_matches(str(level), get_args(Level), n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise UsageError(
        f"level={level!r} is unknown; {hint}Expected regular (10 and 90 %), strict (20 and 80 %), even_stricter (30 and 70 %) or strictest "
        "(40 and 60 %)."
    )
