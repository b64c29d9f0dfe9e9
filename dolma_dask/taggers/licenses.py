"""Taggers of licences: links to Creative Commons in the page that a document was made from, ``metadata.html``. Source: ``licenses.py`` of the Dolma toolkit, release 1.2.1.

``cc_re`` takes a link for one of a licence if it is an attribute ``href`` or ``content`` of a tag ``a`` or ``meta``, of several in a tag the last; ``cc_re_fast`` takes any
address. The toolkit's pattern takes quadratic time in the length of a tag; here each link is looked at once, and what stands before and behind it is found on the way.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa

from dolma_dask.formats.metadata import scan_metadata
from dolma_dask.taggers.base import NUMBERS_BY_NAME, Part, ViewTagger
from dolma_dask.text import compute as pc
from dolma_dask.text.tables import REGEX_SPACE, REGEX_WORD, load_tables
from dolma_dask.text.view import TextView

_HTML = "metadata.html"

_LINK = re.compile(
    r"""(?=((?:href|HREF|content)=(?:'|"|&quot;)?https*://creativecommons\.org/"""
    r"(?:licenses/(by(?:-nc)?(?:-nd)?(?:-sa)?)|(publicdomain/(?:zero|certification|mark)))"
    r"(?:/(\d+\.\d+))?(?:(?:/\w{2})?/(?:(?:deed|legalcode)\.)?(\w{2}))?))",
    re.ASCII,
)
"""Matches nothing, so that none is missed that begins in another; the link is its first group."""
_ADDRESS = re.compile(
    r"""https?://creativecommons\.org/licenses/(by|by-sa|by-nd|by-nc|by-nc-sa|by-nc-nd|publicdomain)["/ >]"""
)
_QUOTE, _CLOSE, _NEWLINE = re.compile("""['"]|&quot;"""), re.compile(">"), re.compile("\n")
_TAG = re.compile(r"<(?:a|A|meta)(?=[^\S\x1c-\x1f])")
_OUTSIDE = re.compile(r"[\x00-\x08\x0e-\x1f$+<>^`|~\x7f]|[^\x00-\x7f]")
"""ASCII that stands in no attribute as the pattern has them, which lets through words, punctuation and white space; other characters are asked for their category."""


class _Next:
    """The first match of a pattern at or behind a place; places rise, so that the whole takes one pass."""

    def __init__(self, pattern: re.Pattern[str], text: str) -> None:
        self._pattern, self._text = pattern, text
        self._start = self._end = -1

    def find(self, place: int) -> tuple[int, int]:
        """Return where it begins and ends: both behind the text if there is none."""
        if self._start < place:
            found = self._pattern.search(self._text, place)
            self._start, self._end = found.span() if found else (len(self._text) + 1,) * 2
        return self._start, self._end


def _is_outside(char: str) -> bool:
    if char < "\x80":
        return True
    numbers, blocks = load_tables()
    kind = blocks[int(numbers[ord(char) >> 8]) * 256 + (ord(char) & 255)]
    return not kind & (REGEX_WORD | REGEX_SPACE) and not unicodedata.category(char).startswith("P")


class _Inside:
    """Which places only characters of attributes lie between; asked for places that rise."""

    def __init__(self, text: str) -> None:
        self._text, self._checked, self._last = text, 0, -1

    def since(self, start: int, place: int) -> bool:
        """Tell whether there is no other from `start` to `place`."""
        for found in _OUTSIDE.finditer(self._text, self._checked, place):
            if _is_outside(found.group()):
                self._last = found.start()
        self._checked = max(self._checked, place)
        return self._last < start


def _links_in_tags(html: str) -> Iterator[str]:
    """Yield the licence of each tag with a link."""
    quotes, closes, newlines = (_Next(pattern, html) for pattern in (_QUOTE, _CLOSE, _NEWLINE))
    inside = _Inside(html)
    label, tag, behind, free = (
        "",
        -1,
        0,
        0,
    )  # the licence of a tag, its end, and from where the next may begin
    seen = 0
    for link in _LINK.finditer(html):
        begin = html.rfind("<", seen, link.start())
        seen = link.start()
        if begin >= 0 and begin != tag:
            if label and tag >= free:
                yield label
                free = behind
            label, tag = "", begin
        head = _TAG.match(html, tag) if tag >= free else None
        _, quoted = quotes.find(link.end(1))
        _, end = closes.find(quoted)
        line_end = min(newlines.find(link.end(1))[0], len(html))
        if head and end <= line_end and inside.since(head.end(), link.start()):
            kind, public, version, language = link.groups()[1:]
            label, behind = "_".join(filter(None, (kind or public, version, language))), end
    if label and tag >= free:
        yield label


def _addresses(html: str) -> Iterator[str]:
    """Yield the licence of each address."""
    for found in _ADDRESS.finditer(html):
        yield found.group(1)


def _licences(find: Callable[[str], Iterator[str]], html: str) -> list[tuple[str, float]]:
    scores: dict[str, float] = {}
    for number, label in enumerate(find(html), 1):
        scores.setdefault(f"cc_{label}", 0.5 + 0.5 / number)
    return list(scores.items())


def _score(
    find: Callable[[str], Iterator[str]], view: TextView, metadata: pa.LargeStringArray
) -> Sequence[pa.Array]:
    pages = scan_metadata(metadata, {_HTML: "string"})[0][_HTML]
    linked = pc.fill_null(pc.match_substring(pages, "creativecommons.org/"), False)
    found = {row: _licences(find, pages[row].as_py()) for row in pc.indices_nonzero(linked).to_pylist()}
    return [pa.array([found.get(row) or None for row in range(len(view))], NUMBERS_BY_NAME)]


def _tagger(name: str, description: str, find: Callable[[str], Iterator[str]]) -> ViewTagger:
    part = Part(partial(_score, find), {"licence": "labels"})
    return ViewTagger.of(name, description, part, reads=("text", "metadata"), differs=_DIFFERS)


_DIFFERS = "A licence that several links name has the score of the first alone; versions and languages are ASCII. A document without metadata.html has no value, where the toolkit fails."

TAGGERS = (
    _tagger(
        "cc_re",
        "Licences of Creative Commons that attributes of a or meta tags of metadata.html link to: 1 for the first, 0.75, 0.667 and so on.",
        _links_in_tags,
    ),
    _tagger(
        "cc_re_fast",
        "Licences of Creative Commons whose addresses stand in metadata.html: 1 for the first, 0.75, 0.667 and so on.",
        _addresses,
    ),
)
