"""The report as one HTML file that needs no network, and the same content as JSON.

Everything is inside the file: style, script, Bokeh. Text of documents is hostile until shown otherwise: the template escapes all of
it, figures hold none of it, and a content security policy lets run only the scripts whose hashes it names and
load nothing from anywhere. Equal data gives equal bytes.

Cost: about 1.3 MB and half a second for a page with plots (0.02 MB without), 40 ms more per signal. Importing this module
imports Bokeh (0.6 CPU-seconds); nothing else in the package does so at import.
"""

import base64
import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dolma_dask import display
from dolma_dask.display import counted
from dolma_dask.figures import axes, interactive
from dolma_dask.figures.model import SignalHistogram
from dolma_dask.questions.what_if.page import page_script
from dolma_dask.verbs.report.model import ReportData, ResultTable, StageRow

FORMAT, FORMAT_VERSION = "dolma_dask.report", 1

_CONTROL = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n\r"} | {0x7F: 0x2421}
_JOINT = re.compile("(?<=[_/])(?![_/])")
_SURROGATE = re.compile("[\ud800-\udfff]")


def render(data: ReportData) -> str:
    """Draw the report as one self-contained HTML page; write it as UTF-8."""
    views, results = _views(data)
    drawn = any(view.figure for view in views) or any(view.figure for view in results)
    bokeh = interactive.library() if drawn else []
    scripts = [Markup(script) for script in [*bokeh, _part("page.js")]]
    frames = [page_script()] if data.thresholds else []  # a frame inherits the policy
    context = {
        "data": data,
        "style": Markup(_part("style.css")),
        "scripts": scripts,
        "policy": _policy([*scripts, *frames]),
        "frame": Markup(data.thresholds.page) if data.thresholds else None,
        "totals": totals(data.stages),
        "funnel": funnel(data.stages),
        "groups": grouped(data.examples, "rule"),
        "views": views,
        "sections": grouped(results, "section"),
        "split_key": split_key,
        "outline": outline,
    }
    return _environment().get_template("report.html.j2").render(context)


def write_json(data: ReportData) -> bytes:
    """Return the content of the report as UTF-8 JSON; infinite numbers are the strings ``Infinity`` and ``-Infinity``."""
    content = {"format": FORMAT, "format_version": FORMAT_VERSION, **_plain(data)}
    content["thresholds"] = _plain(data.thresholds.answer) if data.thresholds else None
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode() + b"\n"


def _plain(value: Any) -> Any:
    """Turn dataclasses, arrays and mappings into what JSON knows."""
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, Mapping):
        return {_plain(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, str):
        return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


# ------------------------------------------------------------------------------------------------ text made safe


def visible(value: Any) -> Any:
    """Replace characters that HTML cannot hold: control characters by their pictures, lone surrogates by U+FFFD."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value.translate(_CONTROL))


def breakable(value: str) -> Markup:
    """Escape `value` and let lines break after the joints of keys and paths."""
    return Markup("<wbr>").join(_JOINT.split(visible(value)))


def _policy(scripts: Sequence[str]) -> str:
    """Content security policy: these scripts and no others, nothing from the network."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _part(name: str) -> str:
    return (resources.files(__package__) / "templates" / name).read_text("utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("dolma_dask.verbs.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("integer", "byte_size", "seconds", "percent", "real"):
        environment.filters[name] = getattr(display, name)
    environment.filters["counted"] = counted
    environment.filters["breakable"] = breakable
    return environment


def totals(stages: Sequence[StageRow]) -> dict[str, Any]:
    """Sum up a run: what went into its first verb, what came out of its last one that counted it; None if none did."""

    def counted_by(*names: str) -> list[Any]:
        values = [getattr(stage, name) for stage in stages for name in names]
        return [value for value in values if value is not None] or [None]

    documents, text = counted_by("documents_in", "documents_out"), counted_by("text_bytes")
    seconds = counted_by("seconds")
    return {
        "documents_in": documents[0],
        "documents_out": documents[-1],
        "text_in": text[0],
        "text_out": text[-1],
        "bytes_out": counted_by("bytes_out")[-1],
        "tokens": counted_by("tokens")[-1],
        "seconds": None if seconds == [None] else math.fsum(seconds),
        "failed": sum(stage.failed for stage in stages),
        "bad_records": sum(stage.bad_records for stage in stages),
    }


class Bar(NamedTuple):
    """One bar of the funnel: the number, its share of the first known one, and its width in percent of the widest."""

    value: int | None
    share: float | None
    width: float


_Row = tuple[str, int | None, int | None, int | None]
"""Stage, documents, bytes of text and tokens."""


def funnel(stages: Sequence[StageRow]) -> list[tuple[str, Bar, Bar, Bar]]:
    """Lay out documents, text and tokens after every stage, headed by what went into the first one; stages without change are one line."""
    rows: list[_Row] = []
    if stages and stages[0].documents_in is not None:
        rows.append(("input", stages[0].documents_in, None, None))
    for stage in stages:
        row = (stage.verb, stage.documents_out, stage.text_bytes, stage.tokens)
        joined = _without_change(rows[-1], row) if rows else None
        rows[-1:] = [joined] if joined else [*rows[-1:], row]
    verbs, *columns = zip(*rows, strict=True) if rows else ((), (), (), ())
    return list(zip(verbs, *map(_bars, columns), strict=True))


def _without_change(before: _Row, row: _Row) -> _Row | None:
    """Return two lines as one if the second tells no other number, and has no new one to tell but that of the input's text."""
    if row[1] != before[1] or (row[3] is not None and row[3] != before[3]):
        return None
    if before[0] == "input" or (None not in (row[2], before[2]) and row[2] != before[2]):
        return None
    text = before[2] if row[2] is None else row[2]
    return f"{before[0]}, {row[0]}", before[1], text, before[3]


def _bars(values: Sequence[int | None]) -> list[Bar]:
    known = [value for value in values if value is not None]
    first, most = (known[0], max(known)) if known else (0, 0)
    return [
        Bar(
            value,
            value / first if value is not None and first else None,
            round(100 * (value or 0) / most, 2) if most else 0.0,
        )
        for value in values
    ]


def grouped(items: Sequence[Any], name: str) -> list[tuple[str, list[Any]]]:
    """Gather items by an attribute, in the order in which its values first appear."""
    groups: dict[str, list[Any]] = {}
    for item in items:
        groups.setdefault(getattr(item, name), []).append(item)
    return list(groups.items())


@dataclass(frozen=True)
class SignalView:
    """One signal as the page needs it."""

    signal: SignalHistogram
    kept: int | None
    drawn: list[bool]  # whether each threshold lies within the plot
    figure: Markup | None  # None: there is nothing to draw


@dataclass(frozen=True)
class ResultView:
    """One table of a result as the page needs it."""

    table: ResultTable
    figure: Markup | None  # None: there is nothing to draw
    number: int  # of the table

    @property
    def section(self) -> str:
        """Heading of its section."""
        return self.table.section


def _views(data: ReportData) -> tuple[list[SignalView], list[ResultView]]:
    """Prepare all signals and results; their figures are numbered together."""
    drawn = [signal for signal in data.signals if _is_drawn(signal)]
    drawn_results = [table.plot for table in data.results if table.plot]
    items = map(script_json, interactive.figure_items([*drawn, *drawn_results]))
    return signal_views(data.signals, items), [
        ResultView(table, next(items) if table.plot else None, number)
        for number, table in enumerate(data.results)
    ]


def signal_views(signals: Sequence[SignalHistogram], items: Iterator[Markup]) -> list[SignalView]:
    """Prepare every signal for the page; `items` are the figures of those that are drawn."""
    return [
        SignalView(
            signal,
            None if signal.kept_counts is None else int(signal.kept_counts.sum()),
            [axes.inside(bound, signal) for _, bound in signal.threshold],
            next(items) if _is_drawn(signal) else None,
        )
        for signal in signals
    ]


def _is_drawn(signal: SignalHistogram) -> bool:
    """Tell whether a plot says something: of flags, which are all 1, it does not."""
    return bool(len(signal.counts)) and signal.min != signal.max


def split_key(key: str) -> tuple[str, str]:
    """Split ``experiment__tagger__type`` into what precedes the type, and the type."""
    before, separator, name = key.rpartition("__")
    return (before + separator, name) if name else ("", key)


def outline(counts: npt.NDArray[np.int64], signal: SignalHistogram) -> str:
    """Outline the histogram of some counts as an SVG path in a box of 120 by 26."""
    most = int(signal.counts.max(initial=0))
    if not most or not _is_drawn(signal):
        return ""
    ends = axes.positions(signal.edges, signal)
    x = (ends - ends[0]) / (ends[-1] - ends[0]) * 120
    y = 26 - counts / most * 26
    steps = "".join(f"V{y[i]:.1f}H{x[i + 1]:.1f}" for i in range(len(counts)))
    return f"M0 26{steps}V26Z"


def script_json(value: Any) -> Markup:
    """Return JSON that can stand inside a script element: no ``<``, ``>`` or ``&`` in it."""
    text = json.dumps(value, separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))
