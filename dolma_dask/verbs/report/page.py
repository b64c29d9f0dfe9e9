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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dolma_dask import display
from dolma_dask.display import counted
from dolma_dask.verbs.report import plots
from dolma_dask.verbs.report.history import public_name
from dolma_dask.verbs.report.model import Example, ReportData, ResultTable, SignalHistogram, StageRow

FORMAT, FORMAT_VERSION = "dolma_dask.report", 1

_CONTROL = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n\r"} | {0x7F: 0x2421}
_JOINT = re.compile("(?<=[_/])(?![_/])")
_SURROGATE = re.compile("[\ud800-\udfff]")


def render(data: ReportData) -> str:
    """Draw the report as one self-contained HTML page; write it as UTF-8."""
    views = signal_views(data.signals)
    bokeh = plots.library() if any(view.figure for view in views) else []
    scripts = [Markup(script) for script in [*bokeh, _part("page.js")]]
    context = {
        "data": data,
        "dataset": public_name(data.dataset),
        "style": Markup(_part("style.css")),
        "scripts": scripts,
        "policy": _policy(scripts),
        "totals": totals(data.stages),
        "funnel": funnel(data.stages),
        "groups": example_groups(data.examples),
        "views": views,
        "sections": sections(data.results),
        "split_key": split_key,
    }
    return _environment().get_template("report.html.j2").render(context)


def write_json(data: ReportData) -> bytes:
    """Return the content of the report as UTF-8 JSON; infinite numbers are the strings ``Infinity`` and ``-Infinity``."""
    content = {"format": FORMAT, "format_version": FORMAT_VERSION, **_plain(data)}
    content["dataset"] = public_name(data.dataset)
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


@dataclass(frozen=True)
class Totals:
    """First and last known numbers of the run."""

    documents_in: int | None
    documents_out: int | None
    text_in: int | None
    text_out: int | None
    bytes_out: int | None
    tokens: int | None
    seconds: float | None
    failed: int
    bad_records: int


def totals(stages: Sequence[StageRow]) -> Totals:
    """Sum up a run: what went into its first verb, what came out of its last one that counted it."""
    documents = [n for stage in stages for n in (stage.documents_in, stage.documents_out) if n is not None]
    text = [stage.text_bytes for stage in stages if stage.text_bytes is not None]
    tokens = [stage.tokens for stage in stages if stage.tokens is not None]
    size = [stage.bytes_out for stage in stages if stage.bytes_out is not None]
    times = [stage.seconds for stage in stages if stage.seconds is not None]
    return Totals(
        documents[0] if documents else None,
        documents[-1] if documents else None,
        text[0] if text else None,
        text[-1] if text else None,
        size[-1] if size else None,
        tokens[-1] if tokens else None,
        math.fsum(times) if times else None,
        sum(stage.failed for stage in stages),
        sum(stage.bad_records for stage in stages),
    )


@dataclass(frozen=True)
class Bar:
    """One bar of the funnel: the number, its share of the first known one, and its width in percent of the widest."""

    value: int | None
    share: float | None
    width: float


@dataclass(frozen=True)
class FunnelRow:
    """One stage of the funnel."""

    verb: str
    documents: Bar
    text: Bar
    tokens: Bar


def funnel(stages: Sequence[StageRow]) -> list[FunnelRow]:
    """Lay out documents, text and tokens after every stage, headed by what went into the first one."""
    if not stages:
        return []
    verbs = [stage.verb for stage in stages]
    documents = [stage.documents_out for stage in stages]
    text = [stage.text_bytes for stage in stages]
    tokens = [stage.tokens for stage in stages]
    if stages[0].documents_in is not None:
        verbs, documents = ["input", *verbs], [stages[0].documents_in, *documents]
        text, tokens = [None, *text], [None, *tokens]
    return [FunnelRow(*row) for row in zip(verbs, _bars(documents), _bars(text), _bars(tokens), strict=True)]


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


@dataclass(frozen=True)
class ExampleGroup:
    """The examples on both sides of one rule."""

    rule: str
    outside: list[Example]
    inside: list[Example]


def example_groups(examples: Sequence[Example]) -> list[ExampleGroup]:
    """Gather the examples by rule, in the order in which the rules first appear."""
    groups: dict[str, ExampleGroup] = {}
    for example in examples:
        group = groups.setdefault(example.rule, ExampleGroup(example.rule, [], []))
        (group.inside if example.kind == "just inside" else group.outside).append(example)
    return list(groups.values())


def sections(results: Sequence[ResultTable]) -> list[tuple[str, list[ResultTable]]]:
    """Gather the tables by section, in the order in which the sections first appear."""
    gathered: dict[str, list[ResultTable]] = {}
    for table in results:
        gathered.setdefault(table.section, []).append(table)
    return list(gathered.items())


@dataclass(frozen=True)
class SignalView:
    """One signal as the page needs it; `figure` is None when there is nothing to draw."""

    number: int
    prefix: str
    name: str
    signal: SignalHistogram
    kept: int | None
    drawn: list[bool]
    outlines: dict[str, str]
    figure: Markup | None


def signal_views(signals: Sequence[SignalHistogram]) -> list[SignalView]:
    """Prepare every signal for the page: its plot, outline, and which thresholds lie within the plot."""
    items = map(script_json, plots.figure_items([s for s in signals if len(s.counts)]))
    return [
        SignalView(
            number,
            *split_key(signal.key),
            signal,
            None if signal.kept_counts is None else int(signal.kept_counts.sum()),
            [plots.inside(bound, signal) for _, bound in signal.threshold],
            outlines(signal),
            next(items) if len(signal.counts) else None,
        )
        for number, signal in enumerate(signals, 1)
    ]


def split_key(key: str) -> tuple[str, str]:
    """Split ``experiment__tagger__type`` into what precedes the type, and the type."""
    before, separator, name = key.rpartition("__")
    return (before + separator, name) if name else ("", key)


def outlines(signal: SignalHistogram, width: int = 120, height: int = 26) -> dict[str, str]:
    """Outline the histogram as two SVG paths, ``all`` and ``kept``, in a box of `width` by `height`."""
    kept = signal.counts if signal.kept_counts is None else signal.kept_counts
    return {"all": _path(signal.counts, signal, width, height), "kept": _path(kept, signal, width, height)}


def _path(counts: Any, signal: SignalHistogram, width: int, height: int) -> str:
    most = int(signal.counts.max(initial=0))
    if not most:
        return ""
    ends = plots.positions(signal.edges, signal)
    x = (ends - ends[0]) / (ends[-1] - ends[0]) * width
    y = height - counts / most * height
    steps = "".join(f"V{y[i]:.1f}H{x[i + 1]:.1f}" for i in range(len(counts)))
    return f"M0 {height}{steps}V{height}Z"


def script_json(value: Any) -> Markup:
    """Return JSON that can stand inside a script element: no ``<``, ``>`` or ``&`` in it."""
    text = json.dumps(value, separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))
