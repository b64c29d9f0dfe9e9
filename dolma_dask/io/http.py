"""Requests over http and https, as the environment wants them: its proxies and certificates, and the logins of ``~/.netrc``. urllib3 sends them."""

import io
import ipaddress
import netrc
import os
import socket
import ssl
import string
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.parse import quote, unquote, urljoin, urlsplit

import urllib3
from urllib3 import BaseHTTPResponse
from urllib3.exceptions import HTTPError

from dolma_dask.io.files import is_web
from dolma_dask.io.objects import MIN_BYTES_PER_SECOND, shown

ERRORS = (HTTPError, HTTPException, OSError)
"""Errors of requests, and of reading their answers, where a host or a connection fails; `cause` is the reason behind one."""

_MAX_REDIRECTIONS = 10
"""Redirections of one request that are followed, one after another."""

_PORTS = {"http": 80, "https": 443}


def send(
    method: str,
    url: str,
    headers: dict[str, str],
    timeout: float,
    connections: int,
    check_place: Callable[[str], None],
) -> tuple[BaseHTTPResponse, str]:
    """Send a request, and again to the place that it is redirected to, which has a proxy of its own and learns no login; return the answer, which is to be
    released, and the URL that it comes from. `check_place` refuses such a place.

    Raises `ValueError`: a place is none. Raises `ERRORS`: nobody answers.
    """
    place, login = url.partition("#")[0], _login(urlsplit(url).hostname or "")
    for _ in range(_MAX_REDIRECTIONS + 1):
        response = pools(_proxy(place), connections).urlopen(
            method,
            place,
            headers={"User-Agent": "dolma-dask", "Accept-Encoding": "identity", **headers, **login},
            timeout=timeout,
            retries=False,
            redirect=False,
            preload_content=False,
            decode_content=False,
            enforce_content_length=False,
        )
        location = response.get_redirect_location()
        if not location:
            break
        release(response)
        place, login = urljoin(place, quote(location, string.punctuation, "latin-1")), {}
        if not is_web(place):
            raise ValueError(shown(place))
        check_place(place)
    return response, place


def place_of(url: str) -> str:
    """Return the host of a URL, with its port where that is not the one of its scheme."""
    parts = urlsplit(url)
    port = parts.port or _PORTS[parts.scheme]
    host = (parts.hostname or "").rstrip(".")
    return host if port == _PORTS[parts.scheme] else f"{host}:{port}"


def is_private(url: str) -> bool:
    """Tell whether the host of a URL has an address that is not of the internet: this machine, a network of an office, or the metadata of a cloud.

    A host that only a proxy knows is its affair.
    """
    with suppress(OSError, UnicodeError):
        found = socket.getaddrinfo(urlsplit(url).hostname, None, type=socket.SOCK_STREAM)
        return not all(ipaddress.ip_address(one[4][0]).is_global for one in found)
    return False


def release(response: BaseHTTPResponse) -> None:
    """Give the connection of an answer back: open if nothing more comes over it, closed otherwise."""
    if response.length_remaining == 0:
        response.drain_conn()  # an answer to HEAD ends when it is read, although it has no bytes
    response.close()
    response.release_conn()


def cause(error: BaseException) -> BaseException:
    """Return what the client has wrapped in an error of its own."""
    inner = next((one for one in (error.__cause__, *error.args) if isinstance(one, BaseException)), None)
    return error if inner is None else cause(inner)


@cache
def pools(proxy: str, connections: int) -> urllib3.PoolManager:
    """Return the connections of this process that go through a proxy, or through none; certificates are read once."""
    options: dict[str, Any] = {"maxsize": connections, "ssl_context": ssl.create_default_context()}
    if proxy:
        login = urllib3.util.parse_url(proxy).auth
        headers = urllib3.make_headers(proxy_basic_auth=unquote(login)) if login else {}
        manager: urllib3.PoolManager = urllib3.ProxyManager(proxy, proxy_headers=headers, **options)
    else:
        manager = urllib3.PoolManager(**options)
    kinds = manager.pool_classes_by_scheme
    manager.pool_classes_by_scheme = {scheme: _paced(kind) for scheme, kind in kinds.items()}
    return manager


os.register_at_fork(after_in_child=pools.cache_clear)


class _Paced(io.RawIOBase):
    """Bytes that come over a connection. A server that sends a byte now and then, headers without end among them, has stalled as much as one that is silent."""

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
            if count and self._bytes < MIN_BYTES_PER_SECOND * self._waited:
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
            return urllib3.make_headers(basic_auth=f"{user}:{password}".encode().decode("latin-1"))
    return {}
