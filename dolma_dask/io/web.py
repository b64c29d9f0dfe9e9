"""Objects behind http and https: ranges under the condition that the object is still the same, and every way in which a server may fail told apart.

Requests go through the standard library: proxies and certificates are those of the environment, logins those of ``~/.netrc``.
"""

import base64
import http.client
import io
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
from http.client import HTTPException, HTTPMessage, HTTPResponse, InvalidURL
from types import MappingProxyType
from typing import Any, cast
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit

from dolma_dask.errors import StoreAccessError, StoreError, StoreUnreachableError
from dolma_dask.io.decompress import compression_of
from dolma_dask.io.files import is_web
from dolma_dask.io.objects import (
    LONGEST_WAIT_SECONDS,
    SLOWEST,
    Answer,
    BrokenOffError,
    Source,
    Version,
    shown,
)
from dolma_dask.io.stores import reason

_GONE = (404, 410)
_FORBIDDEN = (401, 403, 407)
_LATER = (429, 503)
_AWAY = (408, 425, 502, 504)
_NO_SUCH_RANGE = 416
_OK, _PART = 200, 206
_SERVER_ERROR = 500
_NEVER = (501, 505)
"""Errors of a server that stay: it cannot do what is asked."""

_ENCODINGS = {"gzip": "gzip", "x-gzip": "gzip", "zstd": "zstd"}
"""Compression of what servers send in an encoding; some name that of a file which is compressed itself."""

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
            with self._get(url) as response:
                yield Answer(_version(response.headers), 0, _reader(response))

    def _range(self, url: str, start: int, held: Version | None) -> Any:
        """Ask for the rest of an object if it is still the same, and for all of it otherwise."""
        if start and held is not None and held.if_range:
            with suppress(_RangeError):
                return self._get(url, {"Range": f"bytes={start}-", "If-Range": held.if_range})
        return self._get(url)

    def _get(self, url: str, headers: Mapping[str, str] = MappingProxyType({})) -> Any:
        """Ask for an object, or for the range that `headers` name; nothing else counts as an answer."""
        response = self._ask(url, "GET", headers)
        try:
            if response.status != _OK and not (response.status == _PART and headers):
                raise BrokenOffError(f"HTTP status {response.status} in place of the object", "answer")
            _check_encoding(url, response.headers)
        except BaseException:
            response.close()
            raise
        return response

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
        except (InvalidURL, ValueError) as error:
            raise StoreAccessError(
                f"{shown(url)}: it leads to an address that is none ({reason(error)}); expected one of http or https. Correct it, or leave it out.",
                url=shown(url),
            ) from None
        except (OSError, HTTPException) as error:
            raise _unreached(url, error) from None
        self.host(url).answered = time.monotonic()
        return response


class _RangeError(BrokenOffError):
    """The object has no such range: it is shorter now."""


class _Paced(io.RawIOBase):
    """What comes over a connection. A server that sends a byte now and then, headers without end among them, has stalled as much as one that is silent."""

    def __init__(self, raw: io.RawIOBase, window: float) -> None:
        self._raw, self._window = raw, window
        self._bytes, self._waited = 0, 0.0

    def readable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def readinto(self, out: Any) -> int:
        """Read what has arrived; raise `TimeoutError` where too little did while this waited for a whole window of seconds."""
        began = time.monotonic()
        count = self._raw.readinto(out) or 0
        self._waited += time.monotonic() - began
        self._bytes += count
        if self._waited > self._window:
            if count and self._bytes < SLOWEST * self._waited:
                raise TimeoutError(f"{self._bytes:,} bytes in {self._waited:.0f} s")
            self._bytes, self._waited = 0, 0.0
        return count

    def close(self) -> None:
        """Close the connection."""
        self._raw.close()
        super().close()


class _PacedResponse(HTTPResponse):
    """An answer that has to come at some pace, from its first byte to its last."""

    def __init__(self, sock: Any, *arguments: Any, **named: Any) -> None:
        super().__init__(sock, *arguments, **named)
        self.fp = io.BufferedReader(_Paced(self.fp.detach(), 2 * (sock.gettimeout() or 0.0)))


class _Connection(http.client.HTTPConnection):
    response_class = _PacedResponse


class _SafeConnection(http.client.HTTPSConnection):
    response_class = _PacedResponse


class _Handler(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_Connection, req)


class _SafeHandler(urllib.request.HTTPSHandler):
    def __init__(self) -> None:
        super().__init__()
        self._trusted = ssl.create_default_context()

    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_SafeConnection, req, context=self._trusted)


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        """Follow what leads to the web alone."""
        if not is_web(newurl):
            raise HTTPError(req.full_url, code, f"it leads to {shown(newurl)}", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@cache
def _opener() -> urllib.request.OpenerDirector:
    """Make an opener; certificates are read once."""
    return urllib.request.build_opener(_Handler, _SafeHandler, _Redirects)


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
        int(size) if size and re.fullmatch("[0-9]{1,18}", size) else None,
        f"tag:{stamp}" if stamp else "",
        tag if is_strong else modified,
    )


def _is_part_of(held: Version, headers: HTTPMessage, start: int) -> bool:
    """Tell whether what a server sends is the rest of an object."""
    found = re.fullmatch(r"bytes ([0-9]{1,18})-[0-9]+/([0-9]+|\*)", headers.get("Content-Range", "").strip())
    if found is None or int(found[1]) != start:
        return False
    now = _version(headers, found[2])
    return now.stamp in ("", held.stamp) and (None in (now.bytes, held.bytes) or now.bytes == held.bytes)


def _check_encoding(url: str, headers: HTTPMessage) -> None:
    """Refuse what a server has compressed although it was asked for the bytes as they are: they would be taken for those of the object."""
    encoding = headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("", "identity") and _ENCODINGS.get(encoding, "") != compression_of(shown(url)):
        raise StoreAccessError(
            f"{shown(url)}: its server sends it in the encoding {reason(encoding)}; expected its bytes as they are. Fetch it by other means, or leave it out.",
            url=shown(url),
        )


def _refusal(url: str, error: HTTPError) -> Exception:
    """Return the error for a status that brings no bytes."""
    said = f"HTTP status {error.code} ({reason(str(error.reason))})"
    if error.code in _GONE:
        return FileNotFoundError(f"{shown(url)}: {said}")
    if error.code == _NO_SUCH_RANGE:
        return _RangeError(said, "answer")
    if error.code in _LATER:
        return BrokenOffError(said, "later", _retry_after(error.headers.get("Retry-After")))
    if error.code in _AWAY:
        return BrokenOffError(said)
    if error.code >= _SERVER_ERROR and error.code not in _NEVER:
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
    with suppress(ValueError, TypeError, OverflowError):
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
    said = reason(error if isinstance(error, BaseException) else str(error))
    return BrokenOffError(f"no answer ({said})")
