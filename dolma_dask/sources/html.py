"""Web pages: the main text of each, without menus and footers, and its title (resiliparse, extra ``web``).

The encoding is what a byte order mark or the page itself says, else UTF-8, or what the user names. The id is the path.
"""

import re
from typing import NamedTuple

import msgspec

from dolma_dask.extras import require
from dolma_dask.sources.documents import Record
from dolma_dask.sources.encoding import WESTERN, Decoder, known_encoding, mark_of

_DECLARED = re.compile(rb"""<meta[^>]+charset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
_HEAD_BYTES = 4096

_encode = msgspec.json.Encoder().encode


class Page(NamedTuple):
    """What a web page says."""

    text: str
    title: str


def read_html(data: bytes, path: str, decoder: Decoder) -> Record:
    """Return the fields of one page.

    Raises `LineError`: it is in another encoding than it says. Raises `UsageError`: the extra is not installed.
    """
    page = text_of_html(_decoded(data, decoder))
    fields = {"id": path, "text": page.text, "path": path, "title": page.title, "encoding": decoder.found}
    return {name: _encode(value) for name, value in fields.items() if value or name == "text"}


def _decoded(data: bytes, decoder: Decoder) -> str:
    declared = _DECLARED.search(data[:_HEAD_BYTES])
    if declared is None or decoder.found or mark_of(data) is not None:
        return decoder.text(data)
    name = declared[1].decode().lower()
    name = WESTERN if name in ("iso-8859-1", "latin1", "us-ascii", "ascii") else name  # as browsers do
    try:
        text = data.decode(name)
        decoder.found = known_encoding(name) or ""
    except (LookupError, ValueError):
        return decoder.text(data)
    return text


def text_of_html(html: str) -> Page:
    """Return the main text and the title of a page; all of its text where no part is the main one.

    Raises `UsageError`: the extra is not installed.
    """
    require("resiliparse", "text of web pages")
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.html import HTMLTree

    tree = HTMLTree.parse(html)
    text = extract_plain_text(tree, main_content=True) or extract_plain_text(tree)
    return Page(text, (tree.title or "").strip())
