"""Lists of domains and addresses in the formats in which they are published: plain, as files of hosts, and as rules of Adblock Plus.

Domains and addresses are sorted 64-bit hashes, 8 bytes each, of half a million a second; a URL is compared with its host, or with each domain that it lies in. Other rules of Adblock Plus
are patterns with ``*`` and ``^``, matched part by part without going back; those with a whole word are tried only on addresses that have it.

Rules of Adblock Plus for parts of pages (images, scripts, elements) or for some pages alone do not concern a document. They are left out, and so is what cannot be read; `UrlList.left_out` counts both.
"""

import functools
import gzip
import re
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct

from dolma_dask.errors import DataError
from dolma_dask.taggers.base import Open
from dolma_dask.taggers.word_lists import hash_strings
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import large_strings
from dolma_dask.text.hosts import domains_of, host_of, split_url
from dolma_dask.text.kernels import Bools, Words

_LOCAL = {
    "localhost", "localdomain", "localhost.localdomain", "local", "broadcasthost", "ip6-localhost", "ip6-loopback", "ip6-localnet",
    "ip6-mcastprefix", "ip6-allnodes", "ip6-allrouters", "ip6-allhosts", "0.0.0.0", "127.0.0.1", "255.255.255.255", "::", "::1", "fe80::1",
}  # fmt: skip
"""What files of hosts name without blocking it."""

_HOST = r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*"
_BEFORE_HOST = r"^(?:0\.0\.0\.0|127\.0\.0\.1)[ \t]+|^\|\||^\*\."
_FIRST = ("0.0.0.0", "127.0.0.1", "||", "*.")
"""Beginnings of the lines that have it: few do, and a search for these is cheap."""

_COMMENT = re.compile(r"\s+[#!].*|(?<=\^).*")
_SIGNS = ("#", "!", ";", "[")

Lines: TypeAlias = pa.LargeStringArray
"""Lines of a list in small letters, without the white space around them; none is empty."""


class Place(Struct, frozen=True):
    """Where a document comes from; see `dolma_dask.text.hosts.split_url`."""

    host: str
    address: str


def places_of(urls: pa.LargeStringArray) -> list[Place]:
    """Return the place of each URL (n,), an empty one for a null."""
    return [Place(*split_url(url or "")) for url in urls.to_pylist()]


def _hashes(names: Iterable[str]) -> Words:
    return np.sort(hash_strings(pa.array(list(names), pa.large_string())))


def _held(keys: Words, names: Sequence[Sequence[str]]) -> Bools:
    """Tell which rows (n,) have one or more names among sorted hashes."""
    hashes = hash_strings(pa.array([name for row in names for name in row], pa.large_string()))
    parents = np.repeat(np.arange(len(names)), [len(row) for row in names])
    found = np.zeros(len(names), np.bool_)
    if len(keys):
        places = np.minimum(np.searchsorted(keys, hashes), len(keys) - 1)
        found[parents[keys[places] == hashes]] = True
    return found


class UrlList(Struct, frozen=True):
    """What one list says."""

    find: Callable[[Sequence[Place]], Bools]  # which places (n,) it has
    entries: int  # domains, addresses and rules that it has
    left_out: int = 0  # lines that say nothing here, or cannot be read


def read_text(open_file: Open, name: str) -> Lines:
    """Return the lines of a list, plain or in gzip; raise `DataError` if it is no text."""
    with open_file() as file:
        stored = file.read()
    try:
        text = gzip.decompress(stored) if name.endswith(".gz") else stored
        text.decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        kind = "UTF-8 in gzip" if name.endswith(".gz") else "UTF-8"
        raise DataError(f"{name}: {error}; expected a list in {kind}. Get it anew.", name=name) from None
    return lines_of(text.removeprefix(BOM_UTF8))


def lines_of(text: bytes) -> Lines:
    """Return the lines of a text."""
    data = np.frombuffer(text.replace(b"\r", b"\n"), np.uint8)
    offsets = np.concatenate(([0], np.flatnonzero(data == ord("\n")) + 1, [len(data)]))
    lines = pc.utf8_lower(pc.utf8_trim_whitespace(large_strings(offsets, data)))
    return lines.filter(pc.not_equal(lines, ""))


def _without_comments(lines: Lines) -> Lines:
    return lines.filter(pc.invert(_begin_with(lines, *_SIGNS)))


def _begin_with(lines: Lines, *starts: str) -> pa.BooleanArray:
    return functools.reduce(pc.or_, [pc.starts_with(lines, start) for start in starts])


def _changed(lines: Lines, chosen: pa.BooleanArray, change: Callable[[Lines], Lines]) -> Lines:
    """Change some lines; the others cost nothing."""
    return pc.replace_with_mask(lines, chosen, change(lines.filter(chosen)))


def _domain(host: str) -> str:
    return host.removeprefix("www.")


def domain_list(lines: Lines, *, deep: bool) -> UrlList:
    """Make a list of domains; with `deep` all that lies in one of them is in the list too. ``www.`` before a domain stands for the domain."""
    given = _without_comments(lines)
    without = _changed(
        given, _begin_with(given, *_FIRST), lambda some: pc.replace_substring_regex(some, _BEFORE_HOST, "")
    )
    hosts = pc.utf8_rtrim(without, "^.")
    is_host = pc.match_substring_regex(hosts, f"^{_HOST}$")
    hosts, rest = hosts.filter(is_host), given.filter(pc.invert(is_host))
    hosts = hosts.filter(pc.invert(pc.is_in(hosts, value_set=pa.array(sorted(_LOCAL), pa.large_string()))))
    names = _changed(hosts, _begin_with(hosts, "www."), lambda some: pc.utf8_slice_codeunits(some, 4))
    others, left_out = set[str](), 0
    for line in rest.to_pylist():
        found = list(_hosts_of(line))
        others |= {*found}
        left_out += not found
    keys = np.sort(np.append(hash_strings(names), _hashes(map(_domain, others - _LOCAL))))

    def find(places: Sequence[Place]) -> Bools:
        bare = [_domain(place.host) for place in places]
        return _held(keys, [[*domains_of(host)] if deep else [host] for host in bare])

    return UrlList(find, len(keys), left_out)


def _hosts_of(line: str) -> Iterator[str]:
    """Yield the hosts of a line that is not a plain one: several behind a number, a URL, a name that is not ASCII."""
    words = _COMMENT.sub("", line).removeprefix("||").removesuffix("^").split()
    if len(words) == 1 or (words and host_of(f"[{words[0]}]")):
        for word in words:
            if host := host_of(f"[{word}]") or split_url(word)[0]:
                yield host


def address_list(lines: Lines) -> UrlList:
    """Make a list of addresses, each with or without a scheme."""
    found = [split_url(line)[1] for line in _without_comments(lines).to_pylist()]
    keys = _hashes(filter(None, found))
    return UrlList(
        lambda places: _held(keys, [[place.address] for place in places]), len(keys), found.count("")
    )


def wikidata_list(lines: Lines, name: str) -> UrlList:
    """Make a list of the domains of entries that Wikidata has answered a query with: objects with an ``url``."""
    try:
        entries = [entry for line in lines.to_pylist() for entry in msgspec.json.decode(line, type=list[Any])]
    except msgspec.DecodeError as error:
        raise DataError(
            f"{name}: {error}; expected a JSON list of objects with an url in each line.", name=name
        ) from None
    hosts = [
        split_url(str(entry.get("url") or ""))[0] if isinstance(entry, dict) else "" for entry in entries
    ]
    known = pa.array([host for host in hosts if host], pa.large_string())
    return UrlList(domain_list(known, deep=True).find, len(known), hosts.count(""))


_HIDING = re.compile(r"#[@?$%]{0,3}#")
_OPTION = re.compile(r"third-party|3p|important|other|match-case|redirect(?:-rule)?=.*|~[a-z-]+", re.ASCII)
"""Options of rules that hold for documents too: requests of no kind, from no page."""
_NEVER = frozenset(("~third-party", "~other", "~3p"))


def adblock_list(lines: Lines) -> UrlList:
    """Make a list of rules of Adblock Plus: what is blocked, unless a rule that begins with ``@@`` lets it through, which gives way to an important one."""
    is_host = pc.match_substring_regex(lines, rf"^\|\|{_HOST}\^$")
    hosts = pc.utf8_trim(lines.filter(is_host), "|^")
    rules: dict[str, list[str]] = {"blocked": [], "excepted": [], "important": []}
    left_out = 0
    for line in pc.unique(lines.filter(pc.invert(is_host))).to_pylist():
        if line.startswith(("!", "[adblock")):
            continue
        kind, rule = _read_rule(line)
        rules[kind] += [rule] if rule else []
        left_out += not rule
    blocked, excepted, important = (
        _rules(given, hosts.slice(0, len(hosts) * (kind == "blocked"))) for kind, given in rules.items()
    )

    def find(places: Sequence[Place]) -> Bools:
        found: Bools = important(places) | blocked(places) & ~excepted(places)
        return found

    return UrlList(find, len(hosts) + sum(map(len, rules.values())), left_out)


def _read_rule(line: str) -> tuple[str, str]:
    """Return the kind and the pattern of a rule; an empty one if it does not concern documents, or is no pattern."""
    kind = "excepted" if line.startswith("@@") else "blocked"
    rule, dollar, listed = line.removeprefix("@@").rpartition("$")
    rule, options = (rule, listed.split(",")) if dollar else (listed, [])
    if _HIDING.search(line) or " " in rule or any(not _OPTION.fullmatch(o) or o in _NEVER for o in options):
        return kind, ""
    if len(rule) > 1 and rule[0] == rule[-1] == "/":
        # an expression, which is a pattern only if it has no signs
        rule = rule[1:-1] if rule[1:-1].isalnum() else ""
    kind = "important" if "important" in options and kind == "blocked" else kind
    return kind, rule if len(rule.strip("*|")) > 1 else ""


def _rules(rules: Sequence[str], plain: Lines) -> Callable[[Sequence[Place]], Bools]:
    """Return what tells which places rules match, or which lie in `plain` hosts."""
    hosts, patterns = set[str](), list[Pattern]()
    for rule in rules:
        name = host_of(rule[2:-1]) if rule.startswith("||") and rule.endswith("^") else ""
        if name:
            hosts.add(name)
        else:
            patterns.append(Pattern.of(rule))
    keys = np.sort(np.append(hash_strings(plain), _hashes(hosts)))
    by_word: dict[str, list[Pattern]] = {}
    for pattern in patterns:
        by_word.setdefault(pattern.word, []).append(pattern)

    def find(places: Sequence[Place]) -> Bools:
        found = _held(keys, [[*domains_of(place.host)] for place in places])
        for row in np.flatnonzero(~found).tolist() if by_word else ():
            address = f"http://{places[row].address}" if places[row].host else ""
            words = {"", *_WORD.findall(address)}
            found[row] = any(one.matches(address) for word in words for one in by_word.get(word, ()))
        return found

    return find


_WORD = re.compile("[a-z0-9]+")
_WHOLE_WORD = re.compile(r"(?<![a-z0-9*])[a-z0-9]{2,}(?![a-z0-9*])")
_BEFORE_DOMAIN = r"\A[a-z]++://(?:[^/?#]*?\.)??"


class Pattern(Struct, frozen=True):
    """A pattern of Adblock Plus: ``*`` for anything, ``^`` for a sign that parts words or the end, ``|`` at the ends for the ends, ``||`` for where a domain begins."""

    parts: tuple[re.Pattern[str], ...]  # between the stars
    word: str  # that an address has whole; empty: any

    @classmethod
    def of(cls, rule: str) -> "Pattern":
        """Read a pattern."""
        start = _BEFORE_DOMAIN if rule.startswith("||") else r"\A" if rule.startswith("|") else ""
        end = r"\Z" if rule.endswith("|") else ""
        inner = rule.strip("|")
        pieces = [re.escape(piece).replace(r"\^", r"(?:[^\w.%-]|\Z)") for piece in inner.split("*")]
        pieces[0] = start + pieces[0]
        pieces[-1] += end
        # an end that is open may lie within a word
        bounded = ("" if start else "*") + inner + ("" if end else "*")
        words = _WHOLE_WORD.findall(bounded)
        return cls(
            tuple(re.compile(piece, re.ASCII) for piece in pieces if piece), max(words, key=len, default="")
        )

    def matches(self, address: str) -> bool:
        """Tell whether an address has the parts one behind the other."""
        at = 0
        for part in self.parts:
            found = part.search(address, at)
            if found is None:
                return False
            at = found.end()
        return bool(address)


def any_list(lines: Lines) -> UrlList:
    """Make a list of the user's: of rules if it has any, else of domains with all that lies in them, and of addresses where a path follows."""
    if pc.any(_begin_with(lines, "||", "@@", "[adblock")).as_py():
        return adblock_list(lines)
    has_slash = pc.match_substring(lines, "/")
    with_path = pc.match_substring_regex(lines.filter(has_slash), r"^(?:[a-z]+://)?[^/ ]+/[^?#]")
    is_address = pc.replace_with_mask(has_slash, has_slash, with_path)
    domains = domain_list(lines.filter(pc.invert(is_address)), deep=True)
    exact = address_list(lines.filter(is_address))

    def find(places: Sequence[Place]) -> Bools:
        found: Bools = domains.find(places) | exact.find(places)
        return found

    return UrlList(find, domains.entries + exact.entries, domains.left_out + exact.left_out)


def joined(lists: Sequence[UrlList]) -> UrlList:
    """Return several lists as one."""

    def find(places: Sequence[Place]) -> Bools:
        return np.logical_or.reduce([one.find(places) for one in lists])  # type: ignore[no-any-return]

    return UrlList(find, sum(one.entries for one in lists), sum(one.left_out for one in lists))


def read_all(files: Mapping[str, Open]) -> Iterator[tuple[str, Lines]]:
    """Yield each file's name and lines."""
    for name in sorted(files):
        yield name, read_text(files[name], name)
