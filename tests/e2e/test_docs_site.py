"""The site of the documentation, built as `make docs` does, and opened from its folder."""

import re
import subprocess
import sys
from pathlib import Path

from browser import IN_BROWSER, Browser

pytestmark = IN_BROWSER
ROOT = Path(__file__).resolve().parents[2]


def test_the_site_is_read_and_searched_without_a_network(tmp_path):
    site = tmp_path / "site"
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    subprocess.run(words, cwd=ROOT, check=True, timeout=250, capture_output=True)
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r"<(?:script|img|iframe|link rel=.?stylesheet)[^>]*(?:src|href)=.?http[^>]*", page.read_text()
        )
        assert not loaded, (page, loaded)
    browser = Browser(tmp_path / "profile")
    try:
        browser.open(site / "how_it_works.html", 400, False)
        assert browser.run("document.documentElement.scrollWidth") == 400
        assert browser.run("[...document.images].every(image => image.alt && image.naturalWidth > 0)")
        browser.open(site / "tutorial.html", 1280, False)
        browser.run("document.querySelector('input[name=query]').focus()")
        for letter in "shuffle":
            for kind in ("keyDown", "keyUp"):
                browser.call("Input.dispatchKeyEvent", type=kind, text=letter, key=letter)
        browser.wait_for("document.querySelectorAll('.md-search-result__item').length > 2")
        assert browser.complaints() == []
        assert all(url.startswith(("file:", "data:", "blob:", "about:")) for url in browser.requests())
    finally:
        browser.close()
