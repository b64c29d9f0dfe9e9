"""Hosts and addresses of URLs in one spelling, so that they can be compared with lists: small letters, internationalised names in ASCII, no scheme, user, query or
final dot or slash. What is no URL has none.
"""

import re
from collections.abc import Iterator
from ipaddress import ip_address

_URL = re.compile(r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]*+://|//)?(?P<authority>[^/?#]*+)(?P<path>/[^?#]*+)?")
_PORT = re.compile(r":(\d*+)\Z", re.ASCII)
_HOST = re.compile(r"[a-z0-9_-]++(?:\.[a-z0-9_-]++)*+", re.ASCII)

LONGEST_HOST = 253
"""Characters of the longest host that DNS has."""


def split_url(url: str) -> tuple[str, str]:
    """Return the host of a URL, and its address: the host with the port and the path. Both are empty where there is no host, as in ``mailto:a@b.example``."""
    found = _URL.match(url.strip())
    if found is None:
        return "", ""
    scheme, authority, path = found.groups("")
    _, at, place = authority.rpartition("@")
    # without a scheme this is an address of mail
    if at and not scheme:
        return "", ""
    port = _PORT.search(place)
    host = host_of(place[: port.start()] if port else place)
    if not host:
        return "", ""
    behind = f":{port[1]}" if port and port[1] else ""
    return host, f"{host}{behind}{path.lower()}".rstrip("/")


def host_of(name: str) -> str:
    """Return a host in its one spelling; empty if it is none."""
    if name.startswith("["):
        return _address_of(name.removeprefix("[").removesuffix("]"))
    name = name.lower().removesuffix(".")
    if len(name) > LONGEST_HOST:
        return ""
    if not name.isascii():
        try:
            name = name.encode("idna").decode().removesuffix(".")
        except UnicodeError:
            return ""
    return name if _HOST.fullmatch(name) else ""


def _address_of(number: str) -> str:
    try:
        return ip_address(number).compressed
    except ValueError:
        return ""


def domains_of(host: str) -> Iterator[str]:
    """Yield a host and the domains that it lies in: ``a.b.example``, ``b.example``, ``example``."""
    yield host
    at = host.find(".")
    while at >= 0:
        yield host[at + 1 :]
        at = host.find(".", at + 1)
