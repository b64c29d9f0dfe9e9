"""Objects behind http and https: ranges under the condition that the object is still the same, and every way in which a server may fail told apart."""

import re
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from functools import partial
from http.client import InvalidURL

from msgspec.structs import replace
from urllib3 import BaseHTTPResponse, Retry
from urllib3.exceptions import HTTPError, InvalidHeader

from dolma_dask.errors import StoreAccessError, StoreError, StoreUnreachableError
from dolma_dask.io import http
from dolma_dask.io.decompress import compression_of
from dolma_dask.io.files import is_web
from dolma_dask.io.objects import MAX_WAIT_SECONDS, BrokenOffError, ObjectBytes, ObjectSource, Version, shown
from dolma_dask.io.stores import reason

_OK, _PART, _NO_SUCH_RANGE = 200, 206, 416
_REDIRECTS, _SERVER_ERRORS = 300, 500
"""First statuses of their kind."""

_GONE = (404, 410)
_FORBIDDEN = (401, 403, 407)
_LATER = (429, 503)
_AWAY = (408, 425, 502, 504)
_NEVER = (501, 505)
"""Errors of a server that stay: it cannot do what is asked."""

_ENCODINGS = {"gzip": "gzip", "x-gzip": "gzip", "zstd": "zstd"}
"""Compression of what servers send in an encoding; some name that of a file which is compressed itself."""

_READ_BYTES = 1 << 18
"""Maximum of bytes read at a time."""


class Web(ObjectSource, frozen=True):
    """Objects of web servers, besides those of files and stores."""

    redirects_to: tuple[str, ...] = ()  # patterns of other hosts that may send them

    def look(self, url: str) -> Version | None:
        """See `ObjectSource.look`; of an object whose server does not answer without sending it, nothing is known."""
        if not is_web(url):
            return super().look(url)

        def ask() -> Version:
            with self._ask(url, "HEAD", {}) as (response, _):
                return _version(response.headers, _length(response.headers))

        try:
            return self.persistently(url, ask)
        except FileNotFoundError:
            return None
        except StoreUnreachableError:
            raise
        except StoreError:
            return Version()

    @contextmanager
    def open(self, url: str, start: int = 0, held: Version | None = None) -> Iterator[ObjectBytes]:
        """See `ObjectSource.open`."""
        if not is_web(url):
            with super().open(url, start, held) as answer:
                yield answer
            return
        if start and held is not None and held.if_range:
            condition = {"Range": f"bytes={start}-", "If-Range": held.if_range}
            with self._ask(url, "GET", condition, (_OK, _PART, _NO_SUCH_RANGE)) as (response, host):
                if response.status == _OK:
                    yield _answer(url, response, host)
                    return
                if response.status == _PART and _is_part_of(held, response.headers, start):
                    yield _answer(url, response, host, held, start)
                    return
        # nothing is held, it is shorter now, or the server took the old one for the same
        with self._ask(url, "GET", {}, (_OK,)) as (response, host):
            yield _answer(url, response, host)

    @contextmanager
    def _ask(
        self, url: str, method: str, headers: dict[str, str], expected: tuple[int, ...] = ()
    ) -> Iterator[tuple[BaseHTTPResponse, str]]:
        """Open the answer to a request, together with the host that it comes from if that is another one; by default every success is `expected`."""
        try:
            response, place = http.send(
                method, url, headers, self.timeout, self.connections, partial(self._check_place, url)
            )
        except (ValueError, InvalidURL) as error:
            raise StoreAccessError(
                f"{shown(url)}: it leads to an address that is none ({reason(error)}); expected one of http or https. Correct it, or leave it out.",
                url=shown(url),
            ) from None
        except InvalidHeader as error:
            raise BrokenOffError(f"its headers contradict each other ({reason(error)})", "answer") from None
        except http.ERRORS as error:
            raise _unreached(url, http.cause(error)) from None
        try:
            if response.status < _REDIRECTS or response.status in _GONE:
                self.host(url).answered = time.monotonic()
            if response.status not in (expected or range(_OK, _REDIRECTS)):
                raise _refusal(url, response)
            yield response, "" if _is_same_host(url, place) else http.place_of(place)
        finally:
            http.release(response)

    def _check_place(self, url: str, place: str) -> None:
        """Refuse a redirection to another host that nobody has allowed; one with a private address has to be named in full.

        Else whoever publishes a list could have anything fetched that this machine reaches.
        """
        host = http.place_of(place)
        if _is_same_host(url, place) or host in self.redirects_to:
            return
        if any(fnmatchcase(host, pattern) for pattern in self.redirects_to) and not http.is_private(place):
            return
        raise StoreAccessError(
            f"{shown(url)}: its server redirects to {reason(host)}, another host{' with a private address' * http.is_private(place)}; expected its own answer. "
            f"If that is meant, allow it with --redirects-to {reason(host)}.",
            url=shown(url),
        )


def _is_same_host(url: str, place: str) -> bool:
    """Tell whether a place is the same host and port, or the secure one of the same host."""
    there, here = http.place_of(place), http.place_of(url)
    return there == here and not (url.startswith("https:") and place.startswith("http:"))


def _answer(
    url: str, response: BaseHTTPResponse, host: str, held: Version | None = None, start: int = 0
) -> ObjectBytes:
    """Return the bytes of a response: the rest of the version that is `held`, or all of what its headers describe."""
    headers = response.headers
    _check_encoding(url, headers)
    length, is_chunked = _length(headers), _is_chunked(headers)
    if length is None and "Content-Length" in headers and not is_chunked:
        found = reason(headers["Content-Length"])[:100]
        raise BrokenOffError(f"its Content-Length is {found}, which is no size", "answer")
    version = held or _version(headers, length)
    if version.bytes is None and length is not None:
        version = replace(version, bytes=start + length)
    is_proved = is_chunked or version.bytes is not None
    return ObjectBytes(version, start, partial(_read, response), is_proved, host)


def _read(response: BaseHTTPResponse) -> bytes:
    """Return what has arrived: whoever waits for more loses it when the connection stalls."""
    try:
        return response.read1(_READ_BYTES)
    except (*http.ERRORS, ValueError) as error:
        raise BrokenOffError(f"the connection broke off ({reason(http.cause(error))})") from None


def _is_chunked(headers: Mapping[str, str]) -> bool:
    """Tell whether a body comes in chunks, whose last one proves that it is whole."""
    return "chunked" in headers.get("Transfer-Encoding", "").lower()


def _length(headers: Mapping[str, str]) -> int | None:
    """Return the length of a body; None where its headers give none that is possible. Some proxies give it twice."""
    found = re.fullmatch(r"([0-9]{1,18})(?:\s*,\s*\1)*", headers.get("Content-Length", "").strip())
    return int(found[1]) if found and not _is_chunked(headers) else None


def _version(headers: Mapping[str, str], size: int | None) -> Version:
    """Return what the headers of an answer say of the whole object, of which they tell the size or not."""
    tag, modified = headers.get("ETag", ""), headers.get("Last-Modified", "")
    is_strong = tag and not tag.startswith("W/")
    stamp = tag.removeprefix("W/").strip('"') or modified
    return Version(size, f"tag:{stamp}" if stamp else "", tag if is_strong else modified)


def _is_part_of(held: Version, headers: Mapping[str, str], start: int) -> bool:
    """Tell whether what a server sends is the rest of an object."""
    found = re.fullmatch(
        r"bytes ([0-9]{1,18})-[0-9]+/(?:([0-9]{1,18})|\*)", headers.get("Content-Range", "").strip()
    )
    if found is None or int(found[1]) != start:
        return False
    now = _version(headers, int(found[2]) if found[2] else None)
    return now.stamp in ("", held.stamp) and (None in (now.bytes, held.bytes) or now.bytes == held.bytes)


def _check_encoding(url: str, headers: Mapping[str, str]) -> None:
    """Refuse what a server has compressed although it was asked for the bytes as they are: they would be taken for those of the object."""
    encoding = headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("", "identity") and _ENCODINGS.get(encoding, "") != compression_of(shown(url)):
        raise StoreAccessError(
            f"{shown(url)}: its server sends it in the encoding {reason(encoding)}; expected its bytes as they are. Fetch it by other means, or leave it out.",
            url=shown(url),
        )


def _refusal(url: str, response: BaseHTTPResponse) -> Exception:
    """Return the error for a status that brings no bytes."""
    status = response.status
    if status < _REDIRECTS:
        return BrokenOffError(f"HTTP status {status} in place of the object", "answer")
    said = f"HTTP status {status} ({reason(response.reason or '')})"
    if status in _GONE:
        return FileNotFoundError(f"{shown(url)}: {said}")
    if status in _LATER:
        return BrokenOffError(said, "later", _retry_after(response.headers.get("Retry-After")))
    if status in _AWAY:
        return BrokenOffError(said)
    if status == _NO_SUCH_RANGE or (status >= _SERVER_ERRORS and status not in _NEVER):
        return BrokenOffError(said, "answer")
    hint = "a login in ~/.netrc" if status in _FORBIDDEN else "a URL that it knows"
    return StoreAccessError(
        f"{shown(url)}: {said}; expected the object. Give {hint}, or leave it out.", url=shown(url)
    )


def _retry_after(given: str | None) -> float:
    """Return the seconds that a server asks for, as a number or a date; 0 if it does not."""
    with suppress(HTTPError, ValueError, OverflowError):
        return 0.0 if given is None else Retry().parse_retry_after(given)
    return MAX_WAIT_SECONDS


def _unreached(url: str, error: BaseException) -> Exception:
    """Return the error for a connection that did not come about."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return StoreAccessError(
            f"{shown(url)}: its certificate is not trusted ({error.verify_message}); expected one of an authority that this machine knows. Correct "
            "the address, or name the file of authorities in SSL_CERT_FILE.",
            url=shown(url),
        )
    return BrokenOffError(f"no answer ({reason(error)})")
