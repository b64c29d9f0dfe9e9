"""Objects behind http and https: ranges under the condition that the object is still the same, and every way in which a server may fail told apart.

Requests go through the standard library: proxies and certificates are those of the environment, logins those of ``~/.netrc``.
"""

import base64
import netrc
import re
import ssl
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from http.client import HTTPException, HTTPMessage
from types import MappingProxyType
from typing import Any, cast
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit

from dolma_dask.errors import StoreAccessError, StoreError, StoreUnreachableError
from dolma_dask.io.objects import LONGEST_WAIT_SECONDS, Answer, BrokenOffError, Source, Version, shown
from dolma_dask.io.stores import reason

_GONE = (404, 410)
_FORBIDDEN = (401, 403, 407)
_LATER = (429, 503)
_AWAY = (408, 425, 502, 504)
_NO_SUCH_RANGE = 416
_PART = 206
_SERVER_ERROR = 500

_READ_BYTES = 1 << 18
"""Most bytes read at a time."""

_KEPT = "%/:=&?~#+!$,;'@()*[]"
"""Characters of a URL that stay as they are."""


@dataclass(frozen=True)
class Web(Source):
    """Objects of web servers."""

    def look(self, url: str) -> Version | None:
        """See `Source.look`; a server that does not say without sending it gets an empty version."""

        def ask() -> Version:
            with self._ask(url, "HEAD") as response:
                return _version(response.headers)

        try:
            return self.persistently(url, ask)
        except FileNotFoundError:
            return None
        except StoreUnreachableError:
            raise
        except StoreError:
            return Version()

    @contextmanager
    def open(self, url: str, start: int = 0, held: Version | None = None) -> Iterator[Answer]:
        """See `Source.open`."""
        with self._range(url, start, held) as response:
            if response.status != _PART or held is None:
                yield Answer(_version(response.headers), 0, _reader(response))
                return
            if is_same := _is_part_of(held, response.headers, start):
                yield Answer(held, start, _reader(response))
        if not is_same:  # the server took the old one for the same
            with self._ask(url, "GET") as response:
                yield Answer(_version(response.headers), 0, _reader(response))

    def _range(self, url: str, start: int, held: Version | None) -> Any:
        """Ask for the rest of an object if it is still the same, and for all of it otherwise."""
        if start and held is not None and held.if_range:
            with suppress(_RangeError):
                return self._ask(url, "GET", {"Range": f"bytes={start}-", "If-Range": held.if_range})
        return self._ask(url, "GET")

    def _ask(self, url: str, method: str, headers: Mapping[str, str] = MappingProxyType({})) -> Any:
        request = urllib.request.Request(
            quote(url.partition("#")[0], safe=_KEPT),
            headers={"User-Agent": "dolma-dask", "Accept-Encoding": "identity", **headers},
            method=method,
        )
        if login := _login(urlsplit(url).hostname or ""):
            request.add_unredirected_header("Authorization", login)
        try:
            response = _opener().open(request, timeout=self.timeout)
        except HTTPError as error:
            with error:
                if error.code in _GONE:
                    self.host(url).answered = time.monotonic()
                raise _refusal(url, error) from None
        except URLError as error:
            raise _unreached(url, error.reason) from None
        except (OSError, HTTPException) as error:
            raise _unreached(url, error) from None
        self.host(url).answered = time.monotonic()
        return response


class _RangeError(Exception):
    """The object has no such range: it is shorter now."""


@cache
def _opener() -> urllib.request.OpenerDirector:
    """Make an opener; certificates are read once."""
    return urllib.request.build_opener(
        urllib.request.HTTPSHandler(context=ssl.create_default_context()),
    )


@cache
def _login(host: str) -> str:
    """Return the header of a host's login in ``~/.netrc``; empty if there is none."""
    with suppress(OSError, netrc.NetrcParseError):
        if known := netrc.netrc().hosts.get(host):
            user, _, password = known
            return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"
    return ""


def _reader(response: Any) -> Callable[[], bytes]:
    """Return what reads what has arrived: whoever waits for more loses it when the connection stalls."""

    def read() -> bytes:
        try:
            return cast(bytes, response.read1(_READ_BYTES))
        except (OSError, HTTPException, ValueError) as error:
            raise BrokenOffError(f"the connection broke off ({reason(error)})") from None

    return read


def _version(headers: HTTPMessage, size: str | None = None) -> Version:
    """Return what the headers of an answer say of the whole object."""
    size = headers.get("Content-Length") if size is None else size
    tag, modified = headers.get("ETag", ""), headers.get("Last-Modified", "")
    is_strong = tag and not tag.startswith("W/")
    stamp = tag.removeprefix("W/").strip('"') or modified
    return Version(
        int(size) if size and size.isdecimal() else None,
        f"tag:{stamp}" if stamp else "",
        tag if is_strong else modified,
    )


def _is_part_of(held: Version, headers: HTTPMessage, start: int) -> bool:
    """Tell whether what a server sends is the rest of an object."""
    found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", headers.get("Content-Range", "").strip())
    if found is None or int(found[1]) != start:
        return False
    now = _version(headers, found[2])
    return now.stamp in ("", held.stamp) and (None in (now.bytes, held.bytes) or now.bytes == held.bytes)


def _refusal(url: str, error: HTTPError) -> Exception:
    """Return the error for a status that brings no bytes."""
    said = f"HTTP status {error.code} ({error.reason})"
    if error.code in _GONE:
        return FileNotFoundError(f"{shown(url)}: {said}")
    if error.code == _NO_SUCH_RANGE:
        return _RangeError()
    if error.code in _LATER:
        return BrokenOffError(said, "later", _retry_after(error.headers.get("Retry-After")))
    if error.code in _AWAY:
        return BrokenOffError(said)
    if error.code >= _SERVER_ERROR:
        return BrokenOffError(said, "answer")
    hint = "a login in ~/.netrc" if error.code in _FORBIDDEN else "a URL that it knows"
    return StoreAccessError(
        f"{shown(url)}: {said}; expected the object. Give {hint}, or leave it out.", url=shown(url)
    )


def _retry_after(given: str | None) -> float:
    """Return the seconds that a server asks for, as a number or a date; 0 if it does not."""
    if given is None:
        return 0.0
    if given.strip().isdecimal():
        return float(given)
    with suppress(ValueError, TypeError):
        until = parsedate_to_datetime(given)
        return max((until - datetime.now(UTC if until.tzinfo else None)).total_seconds(), 0.0)
    return LONGEST_WAIT_SECONDS


def _unreached(url: str, error: object) -> Exception:
    """Return the error for a connection that did not come about."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return StoreAccessError(
            f"{shown(url)}: its certificate is not trusted ({error.verify_message}); expected one of an authority that this machine knows. Correct "
            "the address, or name the file of authorities in SSL_CERT_FILE.",
            url=shown(url),
        )
    said = reason(error) if isinstance(error, BaseException) else str(error)
    return BrokenOffError(f"no answer ({said})")
