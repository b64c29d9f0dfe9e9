"""URLs in one spelling, as the Dolma toolkit writes ``metadata.url``: without scheme, ``www.``, fragment and final slash, the query sorted.

The toolkit gets there by way of w3lib and url-normalize; a table of their outputs is in the tests.
"""

import re
from contextlib import suppress
from posixpath import normpath
from urllib.parse import parse_qsl, quote, quote_plus, unquote_to_bytes, urlsplit

from dolma_dask.text.hosts import LONGEST_HOST

_WWW = re.compile(r"www\d*\.", re.IGNORECASE)
_PORTS = {"http": 80, "https": 443}
_OF_PATH = "!$&'()*+,;=:@/~[]"
_OF_QUERY = "!$'()*,;:@/?~[]"
_STAYS = re.compile(r"%(2[fF]|3[bBfF])")
"""Escapes in a path that mean something else when they are undone."""

_EMPTY = re.compile(r"(/[^/;]*);$")
"""The last part of a path with empty parameters."""


def normalized_url(url: str) -> str:
    """Return a URL in its one spelling; empty for what is no URL with a host."""
    try:
        parts = urlsplit(url.lstrip(" \t\r\n'\"<").rstrip(" \t\r\n/'\">"))
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return ""
    if not host or not parts.scheme:
        return ""
    user, at, _ = parts.netloc.rpartition("@")
    where = _host(host) if port in (None, _PORTS.get(parts.scheme)) else f"{_host(host)}:{port}"
    whole = f"{user}{at}{where}{_path(parts.path)}{_query(parts.query)}"
    found = _WWW.match(whole)
    return whole[found.end() if found else 0 :].rstrip("/")


def _host(host: str) -> str:
    if ":" in host:
        return f"[{host}]"
    name = host.removesuffix(".")
    if not name.isascii() and len(name) <= LONGEST_HOST:
        with suppress(UnicodeError):
            name = name.encode("idna").decode()
    return name


def _path(path: str) -> str:
    """Return a path with as few escapes as there may be, and without its dots."""
    kept = _STAYS.sub(r"%25\1", _EMPTY.sub(r"\1", path.replace("\\", "/")))
    plain = quote(unquote_to_bytes(kept), safe=_OF_PATH)
    plain = re.sub(r"%25(2[fF]|3[bBfF])", lambda found: f"%{found[1].upper()}", plain)
    end = "/" if plain.endswith(("/", "/.", "/..")) else ""
    return ("/" + normpath(f"/{plain}").lstrip("/") + end).replace("//", "/") if plain else "/"


def _query(query: str) -> str:
    pairs = sorted(parse_qsl(query, keep_blank_values=True, errors="surrogateescape"))
    return "?" + "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in pairs) if pairs else ""


def _quoted(text: str) -> str:
    return quote_plus(text.encode("utf-8", "surrogateescape"), safe=_OF_QUERY)
