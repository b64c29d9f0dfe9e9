"""Web pages that are a file each: their fields. The encoding is what a byte order mark or the page itself says, else UTF-8, or what the user names. The id is the path."""

import re

import msgspec

from dolma_dask.sources.documents import Record
from dolma_dask.sources.encoding import Decoder, known_encoding, mark_of, on_pages
from dolma_dask.sources.pages import Pages

_DECLARED = re.compile(rb"""<meta[^>]+charset\s*=\s*(?:["']\s*)?([\w.:-]+)""", re.IGNORECASE)
_HEAD_BYTES = 4096

_encode = msgspec.json.Encoder().encode


def read_html(data: bytes, path: str, decoder: Decoder, pages: Pages) -> Record:
    """Return the fields of one page.

    Raises `LineError`: it is in another encoding than it says. Raises `UsageError`: the extra is not installed.
    """
    html = _decoded(data, decoder)
    page = pages.read(html)
    fields = {"id": path, "text": page.text, "path": path, "title": page.title, "encoding": decoder.found}
    fields |= {"html": html} if pages.keeps_html else {}
    return {name: _encode(value) for name, value in fields.items() if value or name == "text"}


def declared_encoding(data: bytes) -> str:
    """Return the encoding that a page says it is in, in small letters; empty if it says none."""
    declared = _DECLARED.search(data[:_HEAD_BYTES])
    return declared[1].decode().lower() if declared else ""


def _decoded(data: bytes, decoder: Decoder) -> str:
    name = on_pages(declared_encoding(data))
    if not name or decoder.found or mark_of(data) is not None:
        return decoder.text(data)
    try:
        text = data.decode(name)
        decoder.found = known_encoding(name) or ""
    except ValueError:
        return decoder.text(data)
    return text
