"""The page of what-if in a real browser: sliders count exactly, levels and groups switch, nothing leaves the page."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import CONTRAST, HOSTILE, IN_BROWSER, Browser, assert_clean

import dolma_dask as dk

pytestmark = IN_BROWSER

HERE: Any = {"scheduler": "synchronous", "progress": False}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    tab = Browser(tmp_path_factory.mktemp("chromium"))
    yield tab
    tab.close()


def rows_of(count: int) -> list[dict[str, Any]]:
    draw = np.random.default_rng(0)
    return [
        {
            "id": f"d{number}{HOSTILE if number % 3 == 0 else ''}",
            "source": ("en", f"de{HOSTILE}")[number % 2],
            "text": f"{HOSTILE} {number} " * 3,
            "words": float(draw.integers(1, 500)),
            "score": float(draw.normal()) if number % 10 else None,
        }
        for number in range(count)
    ]


ROWS = rows_of(600)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("what_if") / "v0"
    for name, lines in (
        ("documents", [{key: row[key] for key in ("id", "source", "text")} for row in ROWS]),
        ("attributes/own", [
            {"id": row["id"], "source": row["source"], "attributes": {f"own__{key}": [[0, 9, row[key]]] for key in ("words", "score") if row[key] is not None}}
            for row in ROWS
        ]),
    ):  # fmt: skip
        path = root / name / "a.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    dk.quantiles(str(root), ["words", "score"], level="regular", tails=["words=lower"], **HERE)
    return str(root)


@pytest.fixture(scope="module")
def page(root: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    dk.what_if(root, "regular", to=str(path), **HERE)
    return path


def opened(browser: Browser, page: Path, width: int = 1280, dark: bool = False) -> None:
    browser.open(page, width, dark)
    browser.wait_for("document.documentElement.dataset.drawn === 'yes'")


def text_of(browser: Browser, selector: str) -> str:
    found = browser.run(f"document.querySelector({json.dumps(selector)}).textContent")
    assert isinstance(found, str)
    return found


def click(browser: Browser, name: str) -> None:
    browser.run(
        f"[...document.querySelectorAll('#levels button')].find(one => one.textContent === {json.dumps(name)}).click()"
    )


def choose(browser: Browser, group: int) -> None:
    browser.run(
        f"(() => {{ const all = document.getElementById('group'); all.value = {group}; all.dispatchEvent(new Event('change')); }})()"
    )


def test_levels_keep_what_the_answer_says(browser: Browser, root: str, page: Path) -> None:
    answer = dk.what_if(root, "regular", **HERE)
    opened(browser, page)
    assert "is the rule that costs most" in text_of(browser, ".answers")
    assert "next stricter level" in text_of(browser, ".answers")
    for level in ("strict", "strictest", "regular"):
        click(browser, level)
        kept = {row.group: row.kept.documents for row in answer.levels if row.level == level}
        assert text_of(browser, "#kept") == f"{kept['all']:,}"
        assert "exact" in text_of(browser, "#detail")
        choose(browser, 0)
        assert text_of(browser, "#kept") in {f"{count:,}" for count in kept.values()}
        choose(browser, -1)
    assert_clean(browser, page)


def test_a_slider_counts_the_documents_of_a_rule_exactly(browser: Browser, page: Path) -> None:
    opened(browser, page)
    name = browser.run("JSON.parse(document.getElementById('data').textContent).groups[0].name")
    values = [row["words"] for row in ROWS if row["source"] == name]
    choose(browser, 0)
    slider = "[...document.querySelectorAll('input[type=range]')].find(one => one.ariaLabel === 'lower bound of words')"
    for share in (0.05, 0.31, 0.5, 0.77):
        browser.run(
            f"(() => {{ const one = {slider}; one.value = {share} * one.max; one.dispatchEvent(new Event('input')); }})()"
        )
        says = browser.run(f"{slider}.getAttribute('aria-valuetext')")
        bound, dropped = says.split(", drops ")
        limit = float(bound.split()[1].replace(",", ""))
        assert int(dropped.replace(",", "")) == sum(value < limit for value in values) > 0
    cuts = json.loads(text_of(browser, "#json"))
    assert cuts["by"] == "source"
    assert cuts["bounds"]["own__words"][name] == {"lower": limit, "upper": None}
    assert_clean(browser, page)


def test_rules_together_are_estimated_and_say_so(
    browser: Browser, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dolma_dask.questions.what_if import sums

    monkeypatch.setattr(sums, "SAMPLE_ROWS", 400)
    path = tmp_path / "page.html"
    dk.what_if(root, "regular", to=str(path), **HERE)
    opened(browser, path)
    browser.run("document.querySelector('.rule input[type=checkbox]').click()")  # the rule that costs most
    assert text_of(browser, "#kept").startswith("\u2248")
    assert "estimate from 400 documents" in text_of(browser, "#detail")
    browser.run(
        "document.querySelectorAll('.rule input[type=checkbox]').forEach(one => { if (one.checked) one.click(); })"
    )
    assert text_of(browser, "#kept") == "\u2248 600"
    assert json.loads(text_of(browser, "#json"))["bounds"] == {}
    assert_clean(browser, path)


def test_thresholds_of_the_page_can_be_used(browser: Browser, root: str, page: Path, tmp_path: Path) -> None:
    """Mix keeps with the bounds of the page what the page counts."""
    opened(browser, page)
    choose(browser, 1)
    browser.run(
        "document.querySelectorAll('input[type=range]').forEach(one => { one.value = 0.42 * one.max; one.dispatchEvent(new Event('input')); })"
    )
    choose(browser, -1)
    kept = int(text_of(browser, "#kept").removeprefix("\u2248 ").replace(",", ""))
    path = tmp_path / "mine.json"
    path.write_text(text_of(browser, "#json"))
    done = dk.mix(root, to=str(tmp_path / "v1"), thresholds=str(path), **HERE)
    assert done.counts["documents_out"] == kept


def test_keys_move_a_slider_by_one_cut(browser: Browser, page: Path) -> None:
    opened(browser, page)
    choose(browser, 0)
    says = "document.activeElement.getAttribute('aria-valuetext')"
    browser.run("document.querySelector('input[type=range]').focus()")
    found = []
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
        browser.run(
            f"document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {{key: {key!r}, cancelable: true}}))"
        )
        found.append(browser.run(says))
    assert found[0] == found[2] != found[1]
    assert_clean(browser, page)


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_readable_at_any_width_in_light_and_dark(
    browser: Browser, page: Path, width: int, dark: bool
) -> None:
    opened(browser, page, width, dark)
    for group in (-1, 0):
        choose(browser, group)
        assert browser.run("document.documentElement.scrollWidth") <= width
        ratio, where = browser.run(CONTRAST)
        assert ratio >= 4.5, where  # WCAG 2.1 AA
    assert browser.run("window.hit") is None
    assert browser.run("document.images.length") == 0
    assert HOSTILE in text_of(browser, "#examples")
    assert_clean(browser, page)


def test_a_page_in_a_notebook(browser: Browser, root: str, tmp_path: Path) -> None:
    path = tmp_path / "notebook.html"
    path.write_text(
        f"<!doctype html><meta charset=utf-8><body>{dk.what_if(root, 'regular', **HERE)._repr_html_()}</body>"
    )
    browser.open(path)
    browser.wait_for("document.querySelector('iframe')")
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith(("data:", "about:srcdoc"))] == [
        path.as_uri()
    ]


def test_nothing_to_slide(browser: Browser, root: str, tmp_path: Path) -> None:
    cuts = {"by": "source", "bounds": {"words": {"xx": {"lower": 1}, "yy": {"lower": 1}}}}
    (tmp_path / "mine.json").write_text(json.dumps(cuts))
    path = tmp_path / "page.html"
    dk.what_if(root, str(tmp_path / "mine.json"), name="none", to=str(path), **HERE)
    opened(browser, path)
    assert "no document belongs" in text_of(browser, "#notes")
    assert_clean(browser, path)


@pytest.mark.parametrize("width", [390, 1280])
def test_sliders_inside_of_a_report(browser: Browser, root: str, tmp_path: Path, width: int) -> None:
    """In a frame of its own, whose script the policy of the page lets run, and no other."""
    path = tmp_path / "report.html"
    dk.report(root, to=str(path), **HERE)
    browser.open(path, width)
    browser.run("document.querySelector('iframe').scrollIntoView()")
    assert browser.run("document.documentElement.scrollWidth") <= width
    with browser.in_frame():
        browser.wait_for("document.documentElement.dataset.drawn === 'yes'")
        click(browser, "strictest")
        kept = {
            row.level: row.kept.documents for row in dk.what_if(root, **HERE).levels if row.group == "all"
        }
        assert text_of(browser, "#kept") == f"{kept['strictest']:,}"
    assert_clean(browser, path)
