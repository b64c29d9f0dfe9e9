"""Names of signals on a page: short where no other signal of the page has the same short name; the whole key is their tooltip."""

from collections.abc import Iterable, Mapping
from typing import Any

from markupsafe import Markup
from msgspec.structs import replace

from dolma_dask.pages.markup import beginning, breakable, visible
from dolma_dask.pages.model import ReportData
from dolma_dask.results.table import Table
from dolma_dask.rules.signal_names import short_names

_NAME = Markup('<span class="name" title="{}">{}</span>')


def shown_names(keys: Iterable[str]) -> dict[str, str]:
    """Return how a page calls each signal."""
    return {key: name or key for key, name in short_names(list(dict.fromkeys(keys))).items()}


def key_name(key: str, names: Mapping[str, str]) -> Markup:
    """Write the name of a signal."""
    return _NAME.format(visible(beginning(key)), breakable(beginning(names.get(key, key))))


def shortened(text: str, names: Mapping[str, str]) -> str:
    """Return a rule with short names."""
    for key in sorted((key for key in names if names[key] != key), key=len, reverse=True):
        text = text.replace(key, names[key])
    return text


def with_short_names(data: ReportData, names: Mapping[str, str]) -> ReportData:
    """Return the content of a page with short names in rules and tables; those of its signals and examples are written by `key_name`."""
    return replace(
        data,
        rules=[replace(row, rule=shortened(row.rule, names)) for row in data.rules],
        examples=[replace(one, rule=shortened(one.rule, names)) for one in data.examples],
        results=[_with_names(table, names) for table in data.results],
    )


def _with_names(table: Table, names: Mapping[str, str]) -> Table:
    def cell(value: Any) -> Any:
        return names.get(value, value) if isinstance(value, str) else value

    return replace(table, rows=[[cell(value) for value in row] for row in table.rows])
