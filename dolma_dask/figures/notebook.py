"""Figures in notebooks and as pages: the picture, and Bokeh's figure in its place where scripts run and the library is there.

The library, 1.3 MB, is shown once per kernel, before the first figure; each figure is some 10 KB and its picture. A figure that comes
before the library waits for it. Where nothing of this runs (a web page that shows notebooks, a notebook that is not trusted) the picture stays.
Nothing is fetched from anywhere. ``DOLMA_DASK_STATIC=1`` in the environment leaves the pictures alone, for notebooks that are kept.
"""

import base64
import html
import os
import sys
from hashlib import sha256
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from dolma_dask.display import printable
from dolma_dask.figures.model import SignalHistogram
from dolma_dask.figures.static import WIDTH
from dolma_dask.results.answer import script_json

if TYPE_CHECKING:
    from dolma_dask.figures.figure import Figure

STATIC = "DOLMA_DASK_STATIC"
"""Environment variable: if it is set, notebooks show pictures alone."""

WIDTH_PX = int(100 * WIDTH)

_READY = "dolma-dask-bokeh"

_DRAW = """
(() => {
  const draw = () => {
    for (const box of document.querySelectorAll('[data-dolma-figure="%(name)s"]')) {
      if (box.dataset.drawn || !window.Bokeh || !Bokeh.embed) continue;
      box.dataset.drawn = "1";
      const picture = box.querySelector("img"), panels = box.querySelectorAll("[data-panel]");
      const items = %(items)s;
      Promise.all(items.map((item, at) => Bokeh.embed.embed_item(item, panels[at]))).then(
        () => { picture.style.display = "none"; for (const part of box.querySelectorAll("[data-live]")) part.style.display = ""; window.dispatchEvent(new Event("resize")); },
        (error) => { console.warn("dolma-dask: the picture stays,", error); }
      );
    }
  };
  draw();
  window.addEventListener("%(ready)s", draw);
})();
"""


def mime_bundle(figure: "Figure") -> Any:
    """Return what a notebook shows: picture, text, and if possible the interactive figure."""
    picture = figure.png()
    bundle: dict[str, Any] = {"text/plain": str(figure), "image/png": picture}
    if not os.environ.get(STATIC) and _can_draw(figure):
        _show_library()
        bundle["text/html"] = fragment(figure, picture)
    return bundle, {"image/png": {"width": WIDTH_PX, "alt": figure.describe()}}


def _can_draw(figure: "Figure") -> bool:
    has_bins = all(len(panel.counts) for panel in figure.panels if isinstance(panel, SignalHistogram))
    return has_bins and find_spec("bokeh") is not None


def fragment(figure: "Figure", picture: bytes) -> str:
    """Return the picture as HTML, with a script that puts Bokeh's figure in its place."""
    from dolma_dask.figures.interactive import figure_items

    items = script_json(list(figure_items(figure.panels)))
    name = sha256(items.encode() + picture).hexdigest()[:16]
    live = [f"<b>{_escaped(figure.title)}</b>", *map(_escaped, figure.notes), *_legend(figure)]
    captions = [_caption(panel) if len(figure.panels) > 1 else "" for panel in figure.panels]
    panels = "".join(
        f'<div style="min-width:0"><div style="opacity:0.8">{each}</div><div data-panel></div></div>'
        for each in captions
    )
    columns = (
        "repeat(auto-fit, minmax(min(100%, 330px), 1fr))" if len(figure.panels) > 1 else "minmax(0, 1fr)"
    )
    script = _DRAW % {"name": name, "items": items, "ready": _READY}
    return (
        f'<div data-dolma-figure="{name}" style="max-width:{WIDTH_PX}px;font:13px/1.5 system-ui,sans-serif">'
        f"{picture_html(figure, picture)}"
        f'<div data-live style="display:none">{"<br>".join(live)}</div>'
        f'<div style="display:grid;grid-template-columns:{columns};gap:0 12px">{panels}</div>'
        f"</div><script>{script}</script>"
    )


def picture_html(figure: "Figure", picture: bytes) -> str:
    """Return the picture alone as HTML, with its description."""
    content = base64.b64encode(picture).decode()
    return f'<img alt="{html.escape(figure.describe())}" style="max-width:100%" width="{WIDTH_PX}" src="data:image/png;base64,{content}">'


def _legend(figure: "Figure") -> list[str]:
    from dolma_dask.figures.interactive import ALL, KEPT

    if all(getattr(panel, "kept_counts", None) is None for panel in figure.panels):
        return []
    return [
        f'<span style="color:{KEPT}">\N{BLACK SQUARE}</span> kept <span style="color:{ALL}">\N{BLACK SQUARE}</span> dropped'
    ]


def _caption(panel: Any) -> str:
    number = f" ({panel.n:,})" if isinstance(panel, SignalHistogram) else ""
    return _escaped(panel.key) + number


def _escaped(text: str) -> str:
    """Return a text of the data as HTML, without what turns the text around it or is no character of HTML."""
    return html.escape(printable(text))


def library_html() -> str:
    """Return the library as HTML; figures that wait for it are drawn then."""
    from dolma_dask.figures.interactive import library

    scripts = "".join(f"<script>{script}</script>" for script in library())
    return f'{scripts}<script>window.dispatchEvent(new Event("{_READY}"))</script>'


def page(figure: "Figure") -> str:
    """Return a page of its own that needs no network."""
    shown = (
        library_html() + fragment(figure, figure.png())
        if _can_draw(figure)
        else picture_html(figure, figure.png())
    )
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{_escaped(figure.title)}</title><style>:root{{color-scheme:light dark}}body{{margin:16px}}[data-panel]:focus-within{{outline:2px solid}}</style>"
        f"{shown}</html>"
    )


_shown_by: list[Any] = []
"""Kernel that the library was shown by."""


def _show_library() -> None:
    """Show the library in the notebook, once for each kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or shell in _shown_by:
        return
    _shown_by[:] = [shell]
    from IPython.display import publish_display_data

    publish_display_data({"text/html": library_html(), "text/plain": ""})
