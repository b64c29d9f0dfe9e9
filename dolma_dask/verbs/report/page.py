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
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dolma_dask.display import counted
from dolma_dask.verbs.report import numbers, plots, views
from dolma_dask.verbs.report.model import ReportData
from dolma_dask.verbs.report.names import public_name

FORMAT, FORMAT_VERSION = "dolma_dask.report", 1

_CONTROL = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n\r"} | {0x7F: 0x2421}
_JOINT = re.compile("(?<=[_/])(?![_/])")
_SURROGATE = re.compile("[\ud800-\udfff]")


def render(data: ReportData) -> str:
    """Draw the report as one self-contained HTML page; write it as UTF-8."""
    signals = views.signal_views(data.signals)
    bokeh = plots.library() if any(view.figure for view in signals) else []
    scripts = [Markup(script) for script in [*bokeh, _part("page.js")]]
    context = {
        "data": data,
        "dataset": public_name(data.dataset),
        "style": Markup(_part("style.css")),
        "scripts": scripts,
        "policy": _policy(scripts),
        "totals": views.totals(data.stages),
        "funnel": views.funnel(data.stages),
        "groups": views.example_groups(data.examples),
        "views": signals,
        "sections": views.sections(data.results),
        "split_key": views.split_key,
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
        environment.filters[name] = getattr(numbers, name)
    environment.filters["counted"] = counted
    environment.filters["breakable"] = breakable
    return environment
