"""The report as one HTML file that needs no network, and the same content as JSON.

Everything is inside the file: style, script, Bokeh. Text of documents is hostile until shown otherwise: the template escapes all of
it, figures hold none of it, and a content security policy lets run only the scripts whose hashes it names and
load nothing from anywhere. Equal data gives equal bytes.

Cost: about 1.3 MB and half a second for a page with plots (0.02 MB without), 40 ms more per signal. Importing this module
imports Bokeh (0.6 CPU-seconds); nothing else in the package does so at import.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dolma_dask import display
from dolma_dask.figures import interactive
from dolma_dask.pages import markup, story, views
from dolma_dask.pages.highlights import highlights
from dolma_dask.pages.markup import visible
from dolma_dask.pages.model import ReportData
from dolma_dask.pages.names import key_name, shown_names, with_short_names
from dolma_dask.pages.outlines import is_drawn, still
from dolma_dask.pages.record import VERSION
from dolma_dask.questions.what_if.page import page_script
from dolma_dask.results.answer import plain, script_json
from dolma_dask.results.table import MAX_ROWS, written

FORMAT, FORMAT_VERSION = "dolma_dask.report", 1


def render(data: ReportData) -> str:
    """Draw the report as one self-contained HTML page; write it as UTF-8."""
    names = shown_names([signal.key for signal in data.signals] + [one.signal for one in data.examples])
    found = highlights(data, names)
    data = with_short_names(data, names)
    drawn = [signal for signal in data.signals if is_drawn(signal)]
    drawn_results = [table.plot for table in data.results if table.plot]
    items = (Markup(script_json(item)) for item in interactive.figure_items([*drawn, *drawn_results]))
    signals, results = (
        views.signal_views(data.signals, items, views.kept_of_all(data)),
        views.result_views(data, items),
    )
    frames = [page_script()] if data.thresholds else []  # a frame inherits the policy
    return render_page(
        "report.html.j2",
        data.title,
        interactive.library() if drawn or drawn_results else [],
        frames,
        data=data,
        chapters=story.chapters(data, bool(found)),
        findings=found,
        totals=story.totals(data),
        frame=Markup(data.thresholds.page) if data.thresholds else None,
        key_name=lambda key: key_name(key, names),
        groups=grouped(data.examples, "rule"),
        signals=signals,
        results=results,
        views=views,
        still=still,
    )


def render_page(
    template: str, title: str, libraries: Sequence[str], frames: Sequence[str], **context: Any
) -> str:
    """Render a page with the style and the script of all pages; `frames` are scripts of frames in it."""
    scripts = [Markup(script) for script in [*libraries, _part("page.js")]]
    policy = _policy([*scripts, *frames])
    style = Markup(_part("style.css"))
    page = {"title": title, "style": style, "scripts": scripts, "policy": policy, "stamp": stamp()}
    return _environment().get_template(template).render(**page, **context)


def stamp() -> str:
    """Return what a page is of: `VERSION`, and a digest of all templates. A page with another one is outdated."""
    folder = resources.files(__package__) / "templates"
    parts = sorted(folder.iterdir(), key=lambda part: part.name)
    digest = hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()
    return f"{VERSION}-{digest[:16]}"


def write_json(data: ReportData) -> bytes:
    """Return the content of the report as UTF-8 JSON; infinite numbers are the strings ``Infinity`` and ``-Infinity``."""
    content = {"format": FORMAT, "format_version": FORMAT_VERSION, **plain(data)}
    content["thresholds"] = plain(data.thresholds.answer) if data.thresholds else None
    return json_bytes(content)


def json_bytes(content: Any) -> bytes:
    """Write JSON-able values as UTF-8."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode() + b"\n"


# ------------------------------------------------------------------------------------------------ text made safe


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
        loader=PackageLoader("dolma_dask.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("integer", "byte_size", "seconds", "percent", "real", "counted"):
        environment.filters[name] = getattr(display, name)
    for name in ("beginning", "breakable", "folded"):
        environment.filters[name] = getattr(markup, name)
    environment.filters["written"] = written
    environment.globals["max_rows"] = MAX_ROWS
    return environment


def grouped(items: Sequence[Any], name: str) -> list[tuple[str, list[Any]]]:
    """Gather items by an attribute, in the order in which its values first appear."""
    groups: dict[str, list[Any]] = {}
    for item in items:
        groups.setdefault(getattr(item, name), []).append(item)
    return list(groups.items())
