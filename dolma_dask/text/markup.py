"""Markup in running text: tags and entities of HTML, commands of LaTeX, links, templates and headings of wikis.

Sixty-four bytes are looked at at once for the six bytes that can begin markup. Where one stands, the markup ends at the first byte that cannot be inside of it, so
that no byte is read more often than a few times.
"""

from functools import cache

import numpy as np

from dolma_dask.text.bits import ONE, first_bit, first_from, low_bits, range_bits
from dolma_dask.text.columns import for_kernel
from dolma_dask.text.kernels import Bytes, Counts, Int, Words, kernel
from dolma_dask.text.tables import code_points

TAGS = frozenset(
    [
        "a",
        "abbr",
        "article",
        "aside",
        "b",
        "big",
        "body",
        "br",
        "button",
        "center",
        "cite",
        "code",
        "dd",
        "del",
        "div",
        "dl",
        "dt",
        "em",
        "embed",
        "fieldset",
        "figure",
        "font",
        "footer",
        "form",
        "frame",
        "frameset",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "head",
        "header",
        "hr",
        "html",
        "i",
        "iframe",
        "img",
        "input",
        "ins",
        "label",
        "legend",
        "li",
        "link",
        "main",
        "map",
        "meta",
        "nav",
        "noscript",
        "ol",
        "option",
        "p",
        "param",
        "path",
        "picture",
        "pre",
        "q",
        "s",
        "script",
        "section",
        "select",
        "small",
        "source",
        "span",
        "strike",
        "strong",
        "style",
        "sub",
        "sup",
        "svg",
        "table",
        "tbody",
        "td",
        "textarea",
        "tfoot",
        "th",
        "thead",
        "title",
        "tr",
        "tt",
        "u",
        "ul",
        "video",
    ]
)
"""Names of tags that count, of eight letters at most: others in angle brackets are placeholders and addresses as often as tags."""

_LESS, _AND, _BACKSLASH, _BRACKET, _BRACE, _EQUALS = (np.uint8(ord(char)) for char in "<&\\[{=")
_STOPS = tuple(map(ord, "{[\\\n"))
_BEGINS = tuple(map(ord, ":/#"))
_NAME = 8
HTML, WIKI, LATEX = range(3)


@cache
def load_tags() -> Words:
    """Return the names of tags as words of eight bytes, sorted (tags,)."""
    words = sorted(int.from_bytes(name.encode(), "little") for name in TAGS if len(name) <= _NAME)
    return for_kernel(np.array(words, np.uint64))


@kernel
def is_letter(byte: Int) -> bool:
    """Tell whether a byte is a letter of ASCII."""
    return bool(ord("a") <= (byte | 0x20) <= ord("z"))


@kernel
def _is_digit(byte: Int, is_hex: bool) -> bool:
    return bool(0x30 <= byte <= 0x39 or (is_hex and ord("a") <= (byte | 0x20) <= ord("f")))


@kernel
def _is_tag(name: np.uint64, tags: Words) -> bool:
    place = first_from(tags, name)
    return bool(place < tags.size and tags[place] == name)


@kernel
def _tag_end(data: Bytes, begin: Int, end: Int, tags: Words) -> Int:
    """Byte after the tag or comment that begins with the ``<`` at `begin`; `begin` if none does."""
    at = begin + 1
    if at < end and data[at] == ord("!"):
        # a comment or a type of documents
        if at + 1 >= end or not (data[at + 1] == ord("-") or data[at + 1] | 0x20 == ord("d")):
            return begin
    else:
        at += at < end and data[at] == ord("/")
        name, size = np.uint64(0), 0
        while at < end and size < _NAME and (is_letter(data[at]) or _is_digit(data[at], False)):
            name |= np.uint64(data[at] | 0x20) << np.uint64(8 * size)
            at, size = at + 1, size + 1
        if at >= end or not _is_tag(name, tags):
            return begin
        after = data[at]
        if not (after == 0x20 or 0x09 <= after <= 0x0D or after == ord("/") or after == ord(">")):
            return begin
    while at < end and data[at] != _LESS and data[at] != ord(">"):
        at += 1
    return at + 1 if at < end and data[at] == ord(">") else begin


@kernel
def _entity_end(data: Bytes, begin: Int, end: Int) -> Int:
    """Byte after the entity that begins with the ``&`` at `begin`; `begin` if none does."""
    at, size = begin + 1, 0
    if at < end and data[at] == ord("#"):
        at += 1
        is_hex = bool(at < end and data[at] | 0x20 == ord("x"))
        at += is_hex
        while at < end and size < 7 and _is_digit(data[at], is_hex):
            at, size = at + 1, size + 1
    else:
        while at < end and size < 8 and is_letter(data[at]):
            at, size = at + 1, size + 1
    return at + 1 if size > 1 and at < end and data[at] == ord(";") else begin


@kernel
def _command_end(data: Bytes, begin: Int, end: Int) -> Int:
    """Byte after the command of LaTeX, with the beginning of its argument, whose backslash is at `begin`; `begin` if none is."""
    at = begin + 1
    # \fB is of roff
    if at + 1 < end and data[at] == ord("f") and ord("A") <= data[at + 1] <= ord("Z"):
        return begin
    while at < end and is_letter(data[at]):
        at += 1
    if at - begin < 3:
        return begin
    opens = at + (at < end and data[at] == ord("*"))
    if opens < end and (data[opens] == _BRACE or data[opens] == _BRACKET):
        at = opens + 1
        while at < end:
            byte = data[at]
            if byte == ord("}") or byte == ord("]"):
                return at + 1
            if np.int64(byte) in _STOPS:
                return at
            at += 1
    return at


@kernel
def _pair_end(data: Bytes, begin: Int, end: Int) -> Int:
    """Byte after the link or the template that begins with the two brackets at `begin`; `begin` if none does."""
    opens, closes = data[begin], data[begin] + 2
    at = begin + 2
    if (
        at >= end
        or data[begin + 1] != opens
        or not (is_letter(data[at]) or data[at] >= 0x80 or np.int64(data[at]) in _BEGINS)
    ):
        return begin
    while at < end and data[at] != opens and data[at] != closes:
        if data[at] == 0x0A and opens == _BRACKET:
            return begin
        at += 1
    is_closed = at > begin + 2 and at + 1 < end and data[at] == closes and data[at + 1] == closes
    return at + 2 if is_closed else begin


@kernel
def _heading_end(data: Bytes, begin: Int, end: Int) -> Int:
    """Byte after the heading ``== words ==`` that is the whole line from byte `begin`; `begin` if it is none."""
    at = begin
    while at < end and data[at] == _EQUALS:
        at += 1
    size, words = at - begin, at
    while at < end and data[at] != _EQUALS and data[at] != 0x0A:
        at += 1
    if size < 2 or size > 6 or at == words:
        return begin
    for _ in range(size):
        if at >= end or data[at] != _EQUALS:
            return begin
        at += 1
    while at < end and (data[at] == 0x20 or data[at] == 0x09 or data[at] == 0x0D):
        at += 1
    return at if at == end or data[at] == 0x0A else begin


@kernel
def count_markup(data: Bytes, begin: Int, end: Int, tags: Words, counts: Counts) -> None:
    """Set the code points of the text from byte `begin` to `end` that are markup: `HTML`, `WIKI`, `LATEX`."""
    counts[HTML], counts[WIKI], counts[LATEX] = 0, 0, 0
    done = at = begin
    while at < end:
        marks = range_bits(data, at, _LESS, _LESS) | range_bits(data, at, _AND, _AND)
        marks |= range_bits(data, at, _BRACKET, _BACKSLASH) | range_bits(data, at, _BRACE, _BRACE)
        marks |= range_bits(data, at, _EQUALS, _EQUALS)
        marks &= low_bits(end - at)
        while marks:
            place = at + first_bit(marks)
            marks &= marks - ONE
            if place < done:
                continue
            byte = data[place]
            stop, kind = place, HTML
            if byte == _LESS:
                stop = _tag_end(data, place, end, tags)
            elif byte == _AND:
                stop = _entity_end(data, place, end)
            elif byte == _BACKSLASH:
                stop, kind = _command_end(data, place, end), LATEX
            elif byte != _EQUALS:
                stop, kind = _pair_end(data, place, end), WIKI
            elif place == begin or data[place - 1] == 0x0A:
                stop, kind = _heading_end(data, place, end), WIKI
            if stop > place:
                counts[kind] += code_points(data, place, stop)
                done = stop
        at += 64
