"""Thresholds in the JSON form of the LUMI chain: ``{"de": {"number_of_words": {">": "62.5"}, ...}, ...}``, a group for each language.

There ``>`` means at least and ``<`` at most. ``words_per_line``, of single lines, stands in the chain's files and is in none of its filters: it is passed over.
"""

from typing import Any

from dolma_dask.errors import UsageError
from dolma_dask.rules.groups import ALL
from dolma_dask.rules.metrics import METRICS
from dolma_dask.rules.signal_names import short_name
from dolma_dask.rules.thresholds import Bounds, Thresholds
from dolma_dask.rules.values import Name
from dolma_dask.rules.within import Bound

LANGUAGE = "metadata.language"
"""Column of the groups; the form does not name it."""

_LOWER, _UPPER = ">", "<"
_NOT_FILTERED = "words_per_line"

_METRIC_OF = {value.name: metric for metric, value in METRICS.items() if isinstance(value, Name)}


def is_lumi(content: Any) -> bool:
    """Tell whether JSON has the form."""
    return (
        isinstance(content, dict)
        and len(content) > 0
        and "bounds" not in content
        and all(isinstance(metrics, dict) for metrics in content.values())
        and all(
            isinstance(ends, dict) and ends.keys() <= {_LOWER, _UPPER}
            for metrics in content.values()
            for ends in metrics.values()
        )
    )


def from_lumi(content: dict[str, Any], where: str) -> Thresholds:
    """Return thresholds from the form; a language without bounds of a metric asks for its value alone. `where` is for the messages of `UsageError`."""
    names = dict.fromkeys(name for metrics in content.values() for name in metrics if name != _NOT_FILTERED)
    bounds = [
        Bounds(
            name,
            tuple(
                _bound(language, metrics.get(name, {}), f"{where}, {language!r}, {name!r}")
                for language, metrics in sorted(content.items())
            ),
        )
        for name in names
    ]
    return Thresholds.of(bounds, None, LANGUAGE, "string")


def to_lumi(thresholds: Thresholds) -> dict[str, dict[str, dict[str, str]]]:
    """Return the form: numbers are strings that read back as they are.

    Raises
    ------
    UsageError
        The thresholds have no groups by one column of strings, which are languages there.
    """
    if not isinstance(thresholds.by, str) or thresholds.kind != "string":
        raise UsageError(
            f"thresholds by {thresholds.by!r}; expected those by one column of languages, which the form has. Make them: dolma-dask quantiles ... "
            f"--by {LANGUAGE}."
        )
    return {
        group: {
            _metric(one.signal): _ends(*bound[1:])
            for one in thresholds.bounds
            for bound in one.groups
            if bound[0] == group
        }
        for group in thresholds.groups
        if group != ALL
    }


def _bound(language: str, ends: dict[str, Any], where: str) -> Bound:
    return language, _number(ends.get(_LOWER), where), _number(ends.get(_UPPER), where)


def _number(value: Any, where: str) -> float | None:
    if value is None:
        return None
    try:
        number = float("nan" if isinstance(value, bool) else value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not abs(number) < float("inf"):
        raise UsageError(f'{where}: found {value!r}; expected a number, or one as a string: {{">": "62.5"}}.')
    return number


def _metric(signal: str) -> str:
    """Return what the chain calls a signal."""
    short = short_name(signal).partition("(")[0]
    return _METRIC_OF.get(short, short)


def _ends(lower: float | None, upper: float | None) -> dict[str, str]:
    ends = ((_LOWER, lower), (_UPPER, upper))
    return {sign: repr(bound) for sign, bound in ends if bound is not None}
