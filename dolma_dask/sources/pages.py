"""Text of web pages: what stands in the main part of each, without menus and footers, and its title (resiliparse, extra ``web``, or trafilatura, extra of that name)."""

import re
from itertools import accumulate
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from dolma_dask.extras import require
from dolma_dask.io.artifacts import Artifacts
from dolma_dask.taggers.base import Tagger
from dolma_dask.taggers.scoring import identity_of

Extractor = Literal["resiliparse", "trafilatura"]
"""Packages that find the main text of a page."""


MAX_DEPTH = 1_000
"""Depth of a page up to which its main part is looked for (20 ms); browsers stop at 512."""

_NESTED = re.compile("<(/?)(?:div|article)(?![a-z-])")


class Page(NamedTuple):
    """What a web page says."""

    text: str
    title: str


class InlineTaggers(Struct, frozen=True):
    """Taggers before and after the text of a page is found, and whether a page is left out in which they find nothing."""

    pre: tuple[Tagger, ...] = ()
    post: tuple[Tagger, ...] = ()
    pre_skip: bool = False
    post_skip: bool = False
    artifacts: Artifacts = Artifacts()

    def __bool__(self) -> bool:
        return bool(self.pre or self.post)

    @property
    def params(self) -> dict[str, Any]:
        """What decides attributes and documents, for keys."""
        if not self:
            return {}
        params: dict[str, Any] = {}
        for name, taggers, skips in (
            ("pre", self.pre, self.pre_skip),
            ("post", self.post, self.post_skip),
        ):
            used = [self.artifacts.used_by(tagger) for tagger in taggers]
            params[name] = [list(map(identity_of, taggers)), used, skips]
        return {"taggers": params}


class Pages(Struct, frozen=True):
    """How documents are made of web pages."""

    extractor: Extractor = "resiliparse"
    keeps_html: bool = False  # each document holds its page, too
    taggers: InlineTaggers = InlineTaggers()  # of pages in archives of the web alone

    @property
    def params(self) -> dict[str, Any]:
        """What decides documents, for keys."""
        if self == Pages():
            return {}
        return {"extractor": self.extractor, "keeps_html": self.keeps_html, **self.taggers.params}

    def read(self, html: str, *, alt_texts: bool = True) -> Page:
        """Return the main text and the title of a page; `alt_texts`: with the words that stand for pictures, which trafilatura leaves out.

        Raises `UsageError`: the extra is not installed.
        """
        if self.extractor == "trafilatura":
            return _by_trafilatura(html)
        return text_of_html(html, alt_texts=alt_texts)


def text_of_html(html: str, *, alt_texts: bool = True) -> Page:
    """Return the main text and the title of a page; all of its text where no part is the main one.

    Raises `UsageError`: the extra is not installed.
    """
    require("resiliparse", "text of web pages")
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.html import HTMLTree

    tree = HTMLTree.parse(html)
    text = "" if _is_deep(html) else extract_plain_text(tree, main_content=True, alt_texts=alt_texts)
    text = text or extract_plain_text(tree, alt_texts=alt_texts)
    return Page(text, (tree.title or "").strip())


def _is_deep(html: str) -> bool:
    """Tell whether elements stand so deep in each other that the search for the main part, whose time rises with the square of that, would take minutes."""
    small = html.lower()
    if small.count("<div") + small.count("<article") <= MAX_DEPTH:
        return False
    steps = (-1 if found[1] else 1 for found in _NESTED.finditer(small))
    return max(accumulate(steps), default=0) > MAX_DEPTH


def _by_trafilatura(html: str) -> Page:
    require("trafilatura", "text of web pages by trafilatura")
    from trafilatura import bare_extraction

    found = bare_extraction(html, with_metadata=True, include_comments=False, include_tables=False)
    return Page(found.text or "", found.title or "") if found else Page("", "")
