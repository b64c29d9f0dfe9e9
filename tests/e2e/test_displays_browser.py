"""Displays of notebooks on a page with the variables of JupyterLab's themes: readable, no wider than the page, nothing hostile becomes markup."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import CONTRAST, HOSTILE, IN_BROWSER, Browser, assert_clean

import dolma_dask as dk
from dolma_dask.errors import Failure
from dolma_dask.results.summary import Summary

pytestmark = IN_BROWSER

HERE: Any = {"scheduler": "synchronous", "progress": False}
THEMES = Path(sys.prefix) / "share/jupyter/lab/themes/@jupyterlab"

# what JupyterLab says of tables in outputs, as far as it could make them hard to read
OUTPUTS = """
body { background: var(--jp-layout-color0); margin: 0 }
.out table { border-collapse: collapse; color: var(--jp-ui-font-color1); table-layout: fixed; margin-left: auto }
:not(.markdown).out td, :not(.markdown).out th { text-align: right; padding: .5em; white-space: normal }
.out tbody tr:nth-child(even) { background: var(--jp-rendermime-table-row-background) }
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    tab = Browser(tmp_path_factory.mktemp("chromium"))
    yield tab
    tab.close()


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """HTML of every kind of display."""
    home = tmp_path_factory.mktemp("displays")
    root = home / "v0"
    words = " ".join(f"word{number}" for number in range(80))
    for source in ("a", "b"):
        path = root / f"documents/{source}{HOSTILE.replace('/', '')}/one.jsonl"
        path.parent.mkdir(parents=True)
        rows = [
            {"id": f"{n}{HOSTILE}", "source": f"{source}{HOSTILE}", "text": f"{words} {HOSTILE * n}"}
            for n in range(3)
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tagged = dk.tag(str(root), ["char_length_v1"], **HERE)
    cuts = dk.quantiles(str(root), ["length"], level="regular", by="source", **HERE)
    found = dk.dedupe(str(root), how="fuzzy", **HERE)
    (home / "p.yaml").write_text(f"stages:\n- tag: {{dataset: {root}, taggers: [char_length_v1]}}\n")
    failures = tuple(Failure(f"{n}{HOSTILE}.jsonl.gz", "DataError", HOSTILE) for n in range(2))
    objects = [
        dk.open_dataset(str(root)),
        dk.status(str(root)),
        tagged,
        cuts,
        cuts & ~dk.duplicates("fuzzy"),
        found,
        dk.show_cluster(str(root), f"0{HOSTILE}", of_source=f"a{HOSTILE}"),
        dk.pipeline(str(home / "p.yaml")),
        Summary("mix", "v" * 300, failed=2, notes=(HOSTILE,), failures=failures),
    ]
    return [one._repr_html_() for one in objects]


@pytest.mark.skipif(not THEMES.exists(), reason="JupyterLab is not installed; it brings the themes")
@pytest.mark.parametrize("dark", [False, True])
def test_displays_fit_the_themes_of_jupyterlab(
    browser: Browser, shown: list[str], tmp_path: Path, dark: bool
) -> None:
    theme = (THEMES / f"theme-{'dark' if dark else 'light'}-extension/index.css").read_text()
    path = tmp_path / "page.html"
    cells = "".join(f"<div class='out'>{one}</div>" for one in shown)
    path.write_text(
        f"<!doctype html><meta charset=utf-8><meta name=viewport content='width=device-width'><style>{theme}{OUTPUTS}</style><body>{cells}"
    )
    for width in (400, 1280):
        browser.open(path, width, dark)
        browser.run("for (const part of document.querySelectorAll('details')) part.open = true")
        ratio, where = browser.run(CONTRAST)
        assert ratio >= 4.5, where  # WCAG 2.1 AA
        assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.run("window.hit") is None
        assert browser.run("document.images.length") == 0
        alignment = (
            "[...document.querySelectorAll('td:not([align])')].map(cell => getComputedStyle(cell).textAlign)"
        )
        assert set(browser.run(alignment)) == {"left"}
    assert_clean(browser, path)
