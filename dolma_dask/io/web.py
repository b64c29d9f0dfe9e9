"""Objects behind http and https: ranges under the condition that the object is still the same, and every way in which a server may fail told apart.

urllib3 sends the requests: proxies and certificates are those of the environment, logins those of ``~/.netrc``.
"""

import io
import netrc
import os
import re
import ssl
import string
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from http.client import HTTPException, HTTPResponse, InvalidURL
from typing import Any
from urllib.parse import quote, unquote, urljoin, urlsplit

import urllib3
from urllib3.exceptions import HTTPError

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

_OK, _PART, _NO_SUCH_RANGE = 200, 206, 416
_REDIRECTS, _ERRORS, _SERVER_ERRORS = 300, 400, 500
"""Least statuses of their kind."""

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

_MAX_REQUESTS = 10
"""Requests for one object, each at the place that the one before was redirected to."""


@dataclass(frozen=True)
class Web(Source):
    """Objects of web servers, besides those of files and stores."""

    def look(self, url: str) -> Version | None:
        """See `Source.look`; of an object whose server does not answer without sending it, nothing is known."""
        if not is_web(url):
            return super().look(url)

        def ask() -> Version:
            with self._ask(url, "HEAD", {}) as response:
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
        if not is_web(url):
            with super().open(url, start, held) as answer:
                yield answer
            return
        if start and held is not None and held.if_range:
            condition = {"Range": f"bytes={start}-", "If-Range": held.if_range}
            with self._ask(url, "GET", condition, (_OK, _PART, _NO_SUCH_RANGE)) as response:
                if response.status == _OK:
                    yield _answer(url, response)
                    return
                if response.status == _PART and _is_part_of(held, response.headers, start):
                    yield _answer(url, response, held, start)
                    return
        # nothing is held, it is shorter now, or the server took the old one for the same
        with self._ask(url, "GET", {}, (_OK,)) as response:
            yield _answer(url, response)

    @contextmanager
    def _ask(
        self, url: str, method: str, condition: Mapping[str, str], expected: tuple[int, ...] = ()
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        """Open the answer to a request; by default every success is `expected`."""
        try:
            response = self._send(url, method, condition)
        except (ValueError, InvalidURL) as error:
            raise StoreAccessError(
                f"{shown(url)}: it leads to an address that is none ({reason(error)}); expected one of http or https. Correct it, or leave it out.",
                url=shown(url),
            ) from None
        except (HTTPError, OSError, HTTPException) as error:
            raise _unreached(url, _cause(error)) from None
        try:
            if response.status < _REDIRECTS or response.status in _GONE:
                self.host(url).answered = time.monotonic()
            if response.status not in (expected or range(_OK, _REDIRECTS)):
                raise _refusal(url, response)
            yield response
        finally:
            _close(response)

    def _send(self, url: str, method: str, condition: Mapping[str, str]) -> urllib3.BaseHTTPResponse:
        """Send a request, and again to the place that it is redirected to, which has a proxy of its own and learns no login."""
        place, login = url.partition("#")[0], _login(urlsplit(url).hostname or "")
        headers = {"User-Agent": "dolma-dask", "Accept-Encoding": "identity", **condition}
        for _ in range(_MAX_REQUESTS):
            response = client(_proxy(place), self.connections).urlopen(
                method,
                place,
                headers={**headers, **login},
                timeout=self.timeout,
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
                enforce_content_length=False,
            )
            location = response.get_redirect_location()
            if not location:
                break
            _close(response)
            place = urljoin(place, quote(location, string.punctuation, "latin-1"))
            if not is_web(place):
                raise ValueError(shown(place))
            login = {}
        return response


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

    def __init__(self, sock: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp = io.BufferedReader(_Paced(self.fp.detach(), 2 * (sock.gettimeout() or 0.0)))


def _paced(pool: Any) -> Any:
    """Return a kind of pool whose answers are paced."""
    connection = type("PacedConnection", (pool.ConnectionCls,), {"response_class": _PacedResponse})
    return type("PacedPool", (pool,), {"ConnectionCls": connection})


@cache
def client(proxy: str, connections: int) -> urllib3.PoolManager:
    """Return what holds the connections of this process that go through a proxy, or through none; certificates are read once."""
    options: dict[str, Any] = {"maxsize": connections, "ssl_context": ssl.create_default_context()}
    if proxy:
        login = urllib3.util.parse_url(proxy).auth
        headers = urllib3.make_headers(proxy_basic_auth=unquote(login)) if login else {}
        pools: urllib3.PoolManager = urllib3.ProxyManager(proxy, proxy_headers=headers, **options)
    else:
        pools = urllib3.PoolManager(**options)
    pools.pool_classes_by_scheme = {
        scheme: _paced(kind) for scheme, kind in pools.pool_classes_by_scheme.items()
    }
    return pools


os.register_at_fork(after_in_child=client.cache_clear)


def _proxy(url: str) -> str:
    """Return the proxy that the environment names for a URL; empty for none."""
    parts = urlsplit(url)
    proxy = urllib.request.getproxies().get(parts.scheme, "")
    if not proxy or urllib.request.proxy_bypass(parts.netloc):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _login(host: str) -> dict[str, str]:
    """Return the header with a host's login in ``~/.netrc``, if there is one."""
    with suppress(OSError, netrc.NetrcParseError):
        if entry := netrc.netrc().hosts.get(host):
            user, _, password = entry
            return urllib3.make_headers(basic_auth=f"{user}:{password}")
    return {}


def _close(response: urllib3.BaseHTTPResponse) -> None:
    """Give the connection of an answer back, closed if it was not read to its end."""
    response.close()
    response.release_conn()


def _answer(
    url: str, response: urllib3.BaseHTTPResponse, held: Version | None = None, start: int = 0
) -> Answer:
    """Return the bytes of a response: the rest of the version that is `held`, or all of what its headers describe."""
    _check_encoding(url, response.headers)
    return Answer(held or _version(response.headers), start, _reader(response))


def _reader(response: urllib3.BaseHTTPResponse) -> Callable[[], bytes]:
    """Return what reads what has arrived: whoever waits for more loses it when the connection stalls."""

    def read() -> bytes:
        try:
            return response.read1(_READ_BYTES)
        except (HTTPError, OSError, HTTPException, ValueError) as error:
            raise BrokenOffError(f"the connection broke off ({reason(_cause(error))})") from None

    return read


def _version(headers: Mapping[str, str], size: str | None = None) -> Version:
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


def _is_part_of(held: Version, headers: Mapping[str, str], start: int) -> bool:
    """Tell whether what a server sends is the rest of an object."""
    found = re.fullmatch(r"bytes ([0-9]{1,18})-[0-9]+/([0-9]+|\*)", headers.get("Content-Range", "").strip())
    if found is None or int(found[1]) != start:
        return False
    now = _version(headers, found[2])
    return now.stamp in ("", held.stamp) and (None in (now.bytes, held.bytes) or now.bytes == held.bytes)


def _check_encoding(url: str, headers: Mapping[str, str]) -> None:
    """Refuse what a server has compressed although it was asked for the bytes as they are: they would be taken for those of the object."""
    encoding = headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("", "identity") and _ENCODINGS.get(encoding, "") != compression_of(shown(url)):
        raise StoreAccessError(
            f"{shown(url)}: its server sends it in the encoding {reason(encoding)}; expected its bytes as they are. Fetch it by other means, or leave it out.",
            url=shown(url),
        )


def _refusal(url: str, response: urllib3.BaseHTTPResponse) -> Exception:
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
        return 0.0 if given is None else urllib3.Retry().parse_retry_after(given)
    return LONGEST_WAIT_SECONDS


def _cause(error: BaseException) -> BaseException:
    """Return what the client has wrapped in an error of its own."""
    inner = next((one for one in (error.__cause__, *error.args) if isinstance(one, BaseException)), None)
    return error if inner is None else _cause(inner)


def _unreached(url: str, error: BaseException) -> Exception:
    """Return the error for a connection that did not come about."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return StoreAccessError(
            f"{shown(url)}: its certificate is not trusted ({error.verify_message}); expected one of an authority that this machine knows. Correct "
            "the address, or name the file of authorities in SSL_CERT_FILE.",
            url=shown(url),
        )
    return BrokenOffError(f"no answer ({reason(error)})")
