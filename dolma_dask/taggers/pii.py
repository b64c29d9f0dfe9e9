"""Taggers of personal data: addresses of electronic mail, telephone numbers and IP addresses by patterns. Source: ``pii.py`` of the Dolma toolkit, release 1.2.1.

A match of a pattern is found from the one character that it cannot lack, ``@``, or a digit at the right place: a search by the pattern
itself tries every character, and takes quadratic time in long runs of white space, points or ``@``.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.taggers.base import SPANS, Kind, Part, ViewTagger
from dolma_dask.text.bits import ONE, first_bit, low_bits, range_bits
from dolma_dask.text.columns import for_kernel
from dolma_dask.text.kernels import Bools, Bytes, Counts, Floats, Int, kernel
from dolma_dask.text.tables import SPACE, char_class, code_points, decode, load_tables
from dolma_dask.text.view import TextView

CONTEXT = 100
"""Characters on both sides of a number that tell what it is."""
OTHER_NUMBERS = ("isbn", "doi", "#")
"""What stands there if it is neither a telephone number nor an IP address."""

_ZEROS = (
    "660 6F0 7C0 966 9E6 A66 AE6 B66 BE6 C66 CE6 D66 DE6 E50 ED0 F20 1040 1090 17E0 1810 1946 19D0 1A80 1A90 1B50 1BB0 1C40 1C50 A620 A8D0 A900 A9D0 "
    "A9F0 AA50 ABF0 FF10 104A0 10D30 11066 110F0 11136 111D0 112F0 11450 114D0 11650 116C0 11730 118E0 11950 11C50 11D50 11DA0 16A60 16AC0 16B50 "
    "1D7CE 1D7D8 1D7E2 1D7EC 1D7F6 1E140 1E2F0 1E950 1FBF0"
)
_FIRST_DIGITS = for_kernel(np.array([int(zero, 16) for zero in _ZEROS.split()]))
"""Zeros of the decimal digits of Unicode 14 that are not ASCII, each followed by its nine others: with those of ASCII ``\\d`` of `re`."""

_AT, _DOT, _PARENTHESIS = np.uint8(ord("@")), np.uint8(ord(".")), np.uint8(ord("("))
_DIGIT_0, _DIGIT_9 = np.uint8(ord("0")), np.uint8(ord("9"))
_FIRST_LEAD, _LAST_BYTE = np.uint8(0xC0), np.uint8(0xFF)
_NO_MATCH = -1


@kernel
def _is_space(data: Bytes, at: Int, numbers: Bytes, blocks: Bytes) -> bool:
    return char_class(numbers, blocks, decode(data, at)[0]) & SPACE != 0


@kernel
def _is_mark(data: Bytes, at: Int) -> bool:
    """Tell whether one of ``@,?!;:)(`` begins at byte `at`: what ends a domain, as white space does."""
    byte = data[at]
    return (
        byte == 0x40 or byte == 0x2C or byte == 0x3F or byte == 0x21 or byte == 0x3B or byte == 0x3A or byte == 0x29 or byte == 0x28
    )  # fmt: skip


@kernel
def _is_around(data: Bytes, at: Int, numbers: Bytes, blocks: Bytes) -> bool:
    """Tell whether one of ``[.\\s@,?!;:)(]`` begins at byte `at`."""
    return data[at] == _DOT or _is_mark(data, at) or _is_space(data, at, numbers, blocks)


@kernel
def _is_local(data: Bytes, at: Int, numbers: Bytes, blocks: Bytes) -> bool:
    """Tell whether one of ``[^\\s@]`` begins at byte `at`: what the part before an ``@`` is made of."""
    return data[at] != _AT and not _is_space(data, at, numbers, blocks)


@kernel
def _before(data: Bytes, at: Int) -> Int:
    """Return where the character before byte `at` begins."""
    at -= 1
    while data[at] & 0xC0 == 0x80:
        at -= 1
    return at


@kernel
def _width(data: Bytes, at: Int) -> Int:
    return decode(data, at)[1]


@kernel
def _find(data: Bytes, at: Int, end: Int, byte: np.uint8) -> Int:
    """Return where a byte is first found from byte `at`, or `end`."""
    while at < end:
        found = range_bits(data, at, byte, byte)
        if found:
            return min(at + first_bit(found), end)
        at += 64
    return end


@kernel
def _ends_of(data: Bytes, at: Int, end: Int, numbers: Bytes, blocks: Bytes) -> tuple[Int, Int]:
    """Return where the domain behind the ``@`` at byte `at` ends, and the match; `_NO_MATCH` twice if none has this ``@``."""
    last: Int = at
    stop: Int = at + 1
    while stop < end and not _is_mark(data, stop) and not _is_space(data, stop, numbers, blocks):
        last = stop
        stop += _width(data, stop)
    if last == at:
        return _NO_MATCH, _NO_MATCH
    if stop == end or _is_space(data, stop, numbers, blocks):
        behind = stop if stop == end else stop + _width(data, stop)
        # a point at the end of the sentence is none of the domain
        if data[last] == _DOT and last > at + 1:
            return last, behind
        if stop == end:
            return stop, stop
    # one character of those around may stand before the white space, which may be white space too
    more = stop + _width(data, stop)
    if more == end:
        return stop, end
    if _is_space(data, more, numbers, blocks):
        return stop, more + _width(data, more)
    if _is_space(data, stop, numbers, blocks):
        return stop, more
    return _NO_MATCH, _NO_MATCH


@kernel
def _ends_at(data: Bytes, at: Int, begin: Int, end: Int, numbers: Bytes, blocks: Bytes) -> tuple[Int, Int]:
    """Return the same, if a character that may stand before an ``@`` lies between byte `begin` and the one at byte `at`."""
    if at == begin or not _is_local(data, _before(data, at), numbers, blocks):
        return _NO_MATCH, _NO_MATCH
    return _ends_of(data, at, end, numbers, blocks)


@kernel
def _start_of(data: Bytes, at: Int, begin: Int, numbers: Bytes, blocks: Bytes) -> Int:
    """Return where the first match with the ``@`` at byte `at` begins: before the characters of the local part, and before those around it."""
    while at > begin and _is_local(data, _before(data, at), numbers, blocks):
        at = _before(data, at)
    while at > begin and _is_around(data, _before(data, at), numbers, blocks):
        at = _before(data, at)
    return at


@kernel
def _match_from(
    data: Bytes, start: Int, first: Int, end: Int, numbers: Bytes, blocks: Bytes
) -> tuple[Int, Int, Int]:
    """Return the group of the match that begins at byte `start`, and its end, where `first` is the first ``@`` that can be its own.

    Characters around come before the group, as many as there are; only if no match follows some are given back, the last ones first.
    """
    local: Int = start
    while local < end and _is_around(data, local, numbers, blocks):
        local += _width(data, local)
    at: Int = local
    while at < end and _is_local(data, at, numbers, blocks):
        at += _width(data, at)
    if local < at < end and data[at] == _AT:
        domain_end, stop = _ends_of(data, at, end, numbers, blocks)
        if stop != _NO_MATCH:
            return local, domain_end, stop
    group, domain_end, stop = _NO_MATCH, _NO_MATCH, _NO_MATCH
    at = first
    while at < local:
        domain, behind = _ends_at(data, at, start, end, numbers, blocks)
        if behind != _NO_MATCH:
            group, domain_end, stop = _before(data, at), domain, behind
        at = _find(data, at + 1, local, _AT)
    return group, domain_end, stop


@kernel
def _is_address(data: Bytes, start: Int, end: Int, numbers: Bytes, blocks: Bytes) -> bool:
    """Tell whether the domain between the first ``@`` and the next one or the end has a point, and more than ``(`` and white space stands before."""
    at = _find(data, start, end, _AT)
    domain_end = _find(data, at + 1, end, _AT)
    if _find(data, at + 1, domain_end, _DOT) == domain_end:
        return False
    others, parentheses = 0, 0
    while start < at:
        if not _is_space(data, start, numbers, blocks):
            others += 1
            parentheses += data[start] == _PARENTHESIS
        start += _width(data, start)
    return others != 1 or parentheses != 1


@kernel
def _find_mail(
    data: Bytes, offsets: Counts, numbers: Bytes, blocks: Bytes, judges_group: bool, bounds: Counts, starts: Counts, ends: Counts
) -> None:  # fmt: skip
    """Find the matches of ``[.\\s@,?!;:)(]*([^\\s@]+@[^\\s@,?!;:)(]+?)[.\\s@,?!;:)(]?(?:\\s|\\Z)`` that hold an address, by the group or by all of the match."""
    count = 0
    for row in range(offsets.size - 1):
        begin, end = offsets[row], offsets[row + 1]
        at = _find(data, begin, end, _AT)
        while at < end:
            _, stop = _ends_at(data, at, begin, end, numbers, blocks)
            if stop == _NO_MATCH:
                at = _find(data, at + 1, end, _AT)
                continue
            start = _start_of(data, at, begin, numbers, blocks)
            group, domain_end, stop = _match_from(data, start, at, end, numbers, blocks)
            judged = (group, domain_end) if judges_group else (start, stop)
            if _is_address(data, judged[0], judged[1], numbers, blocks):
                starts[count], ends[count] = start, stop
                count += 1
            begin = stop
            at = _find(data, begin, end, _AT)
        bounds[row + 1] = count


@kernel
def _is_digit(code: Int, zeros: Counts) -> bool:
    """Tell whether a code point is a decimal digit."""
    if code < 0x80:
        return 0x30 <= code <= 0x39
    low, high = 0, zeros.size
    while low < high:
        middle = (low + high) // 2
        if zeros[middle] <= code:
            low = middle + 1
        else:
            high = middle
    return low > 0 and code - zeros[low - 1] < 10


@kernel
def _behind_digits(data: Bytes, at: Int, end: Int, count: Int, zeros: Counts) -> Int:
    """Return where that many digits from byte `at` end, `_NO_MATCH` if others stand there."""
    for _ in range(count):
        if not 0 <= at < end:
            return _NO_MATCH
        code, width = decode(data, at)
        if not _is_digit(code, zeros):
            return _NO_MATCH
        at += width
    return at


@kernel
def _is_gap(byte: np.uint8) -> bool:
    """Tell whether a byte is one of ``[-. ]``."""
    return byte == 0x2D or byte == 0x2E or byte == 0x20


@kernel
def _end_of_phone(data: Bytes, at: Int, end: Int, zeros: Counts) -> Int:
    """Return where a telephone number whose digits begin at byte `at` ends, `_NO_MATCH` if it is none."""
    at = _behind_digits(data, at, end, 3, zeros)
    if at == _NO_MATCH:
        return at
    if at < end and data[at] == 0x29:
        at += 1
    while at < end and _is_gap(data[at]):
        at += 1
    at = _behind_digits(data, at, end, 3, zeros)
    if at != _NO_MATCH and at < end and _is_gap(data[at]):
        at += 1
    return _behind_digits(data, at, end, 4, zeros)


@kernel
def _start_of_phone(data: Bytes, at: Int, begin: Int, numbers: Bytes, blocks: Bytes) -> Int:
    """Return where the white space before the digits at byte `at` begins, `_NO_MATCH` if there is none."""
    if at > begin and data[at - 1] == _PARENTHESIS:
        at -= 1
    start = at
    while start > begin and _is_space(data, _before(data, start), numbers, blocks):
        start = _before(data, start)
    return start if start < at else _NO_MATCH


@kernel
def _find_phones(
    data: Bytes, offsets: Counts, numbers: Bytes, blocks: Bytes, zeros: Counts, bounds: Counts, starts: Counts, ends: Counts
) -> None:  # fmt: skip
    """Find the matches of ``\\s+\\(?(\\d{3})\\)?[-. ]*(\\d{3})[-. ]?(\\d{4})``."""
    count = 0
    for row in range(offsets.size - 1):
        begin, end = offsets[row], offsets[row + 1]
        at: Int = begin
        while at < end:
            digits = range_bits(data, at, _DIGIT_0, _DIGIT_9)
            # the digit before is none of the same window, or the number would begin there
            found = digits & ~(digits << ONE) | range_bits(data, at, _FIRST_LEAD, _LAST_BYTE)
            found &= low_bits(end - at)
            while found:
                place = at + first_bit(found)
                found &= found - ONE
                if place < begin:
                    continue
                stop = _end_of_phone(data, place, end, zeros)
                if stop == _NO_MATCH:
                    continue
                start = _start_of_phone(data, place, begin, numbers, blocks)
                if start != _NO_MATCH:
                    starts[count], ends[count] = start, stop
                    count += 1
                    begin = stop
            at += 64
        bounds[row + 1] = count


@kernel
def _octet(data: Bytes, at: Int, end: Int) -> Int:
    """Return how many digits from byte `at` are one number of an IP address: three up to 255, else two or one."""
    width: Int = 0
    value: Int = 0
    while width < 3 and at + width < end and _DIGIT_0 <= data[at + width] <= _DIGIT_9:
        value = 10 * value + data[at + width] - 0x30
        width += 1
    return 2 if value > 255 else width


@kernel
def _end_of_ip(data: Bytes, at: Int, end: Int) -> Int:
    """Return where an IP address that begins at byte `at` ends, `_NO_MATCH` if it is none."""
    for _ in range(3):
        width = _octet(data, at, end)
        at += width
        if width == 0 or at >= end or data[at] != _DOT:
            return _NO_MATCH
        at += 1
    width = _octet(data, at, end)
    return at + width if width else _NO_MATCH


@kernel
def _find_ips(data: Bytes, offsets: Counts, bounds: Counts, starts: Counts, ends: Counts) -> None:
    """Find four numbers from 0 to 255 with points between, wherever they stand."""
    count = 0
    for row in range(offsets.size - 1):
        begin, end = offsets[row], offsets[row + 1]
        at: Int = begin
        while at < end:
            # the last bit lacks the byte behind it: the window is one of 63
            dots = range_bits(data, at, _DOT, _DOT) & low_bits(end - at)
            found = range_bits(data, at, _DIGIT_0, _DIGIT_9) & dots >> ONE
            while found:
                last = at + first_bit(found)
                found &= found - ONE
                place: Int = last
                while place > max(begin, last - 2) and _DIGIT_0 <= data[place - 1] <= _DIGIT_9:
                    place -= 1
                while begin <= place <= last:
                    stop = _end_of_ip(data, place, end)
                    if stop != _NO_MATCH:
                        starts[count], ends[count] = place, stop
                        count += 1
                        begin = stop
                    place += 1
            at += 63
        bounds[row + 1] = count


@kernel
def _count_code_points(data: Bytes, offsets: Counts, bounds: Counts, starts: Counts, ends: Counts) -> None:
    """Turn the bytes of spans of a block into code points of their texts."""
    for row in range(offsets.size - 1):
        at, place = offsets[row], np.int64(0)
        for span in range(bounds[row], bounds[row + 1]):
            start, end = starts[span], ends[span]
            starts[span] = place + code_points(data, at, start)
            ends[span] = starts[span] + code_points(data, start, end)
            at, place = end, ends[span]


MAIL = "EMAIL_ADDRESS"
_KINDS: dict[str, Kind] = dict.fromkeys((MAIL, "PHONE_NUMBER", "IP_ADDRESS"), "spans")


def _find_all(view: TextView, *, judges_group: bool) -> Iterator[tuple[Counts, Counts, Counts]]:
    """Yield the spans of each type: which are of each text (n + 1,), where they start and where they end."""
    tables, size = load_tables(), int(view.offsets[-1] - view.offsets[0])
    for find, shortest, more in (
        (_find_mail, 4, (*tables, judges_group)),
        (_find_phones, 11, (*tables, _FIRST_DIGITS)),
        (_find_ips, 7, ()),
    ):
        bounds = np.zeros(len(view) + 1, np.int64)
        # address space: only what is reached becomes memory; at the end of a text a match may be shorter
        starts, ends = (np.empty(size // shortest + len(view), np.int64) for _ in range(2))
        find(view.data, view.offsets, *more, bounds, starts, ends)
        _count_code_points(view.data, view.offsets, bounds, starts, ends)
        yield bounds, starts[: bounds[-1]], ends[: bounds[-1]]


def _column(bounds: Counts, starts: Counts, ends: Counts) -> pa.Array:
    scores = np.ones(len(starts))
    spans = pa.StructArray.from_arrays(
        [pa.array(part) for part in (starts, ends, scores)], fields=list(SPANS.value_type)
    )
    return pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), spans, mask=pa.array(np.diff(bounds) == 0))


def _are_others(view: TextView, bounds: Counts, starts: Counts, ends: Counts) -> Bools:
    """Tell of which spans the context says that they are other numbers."""
    found = np.zeros(len(starts), np.bool_)
    for row in np.flatnonzero(np.diff(bounds)).tolist():
        text = view.texts[row].as_py()
        for span in range(bounds[row], bounds[row + 1]):
            context = text[max(0, starts[span] - CONTEXT) : ends[span] + CONTEXT]
            found[span] = any(word in context for word in OTHER_NUMBERS)
    return found


def _in_documents(view: TextView) -> Iterator[pa.Array]:
    """Yield the spans of each type, where the context does not speak against them."""
    for name, (bounds, starts, ends) in zip(_KINDS, _find_all(view, judges_group=False), strict=True):
        if name == MAIL:
            yield _column(bounds, starts, ends)
            continue
        kept = ~_are_others(view, bounds, starts, ends)
        bounds = np.concatenate(([0], np.cumsum(kept)))[bounds]
        yield _column(bounds, starts[kept], ends[kept])


def _in_paragraphs(view: TextView) -> Iterator[pa.Array]:
    for found in _find_all(view, judges_group=True):
        yield _column(*found)


def _by_context(view: TextView) -> Iterator[pa.Array | np.ndarray]:
    """Yield spans, their number by the words of the text, and their number."""
    columns = list(_in_documents(view))
    yield from columns
    count, words = sum(map(_count, columns)), np.diff(view.words.bounds)
    yield np.where(words == 0, -1.0, count / np.maximum(words, 1))
    yield count


def _without_count(view: TextView) -> list[pa.Array | np.ndarray]:
    return list(_by_context(view))[:-1]


def _by_paragraph(view: TextView) -> Iterator[pa.Array | np.ndarray]:
    """Yield spans, their number, and their characters by those of the text."""
    columns = list(Part(_in_paragraphs, _KINDS, "paragraph").score(view))
    yield from columns
    yield sum(map(_count, columns))
    yield np.where(view.lengths == 0, -1.0, sum(map(_characters, columns)) / np.maximum(view.lengths, 1))


def _count(column: pa.Array) -> Floats:
    """Count the spans of each text."""
    return np.diff(np.asarray(column.offsets)).astype(float)


def _characters(column: pa.Array) -> Floats:
    """Count the characters in the spans of each text."""
    spans = column.flatten()
    sizes = np.asarray(spans.field("end")) - np.asarray(spans.field("start"))
    parents = np.asarray(pc.list_parent_indices(column))
    return np.bincount(parents, sizes, minlength=len(column))


_MEANINGS = {
    MAIL: "Addresses of electronic mail, with what stands around them: white space before, and a mark and one white space behind, be it the end of the line.",
    "PHONE_NUMBER": "Telephone numbers of ten digits, with the white space before.",
    "IP_ADDRESS": "IP addresses of four numbers.",
    "doc": "Spans by the words of the text, -1 without words.",
    "doc_count": "Number of spans.",
    "doc_frac": "Characters in spans by those of the text, -1 for an empty text.",
}
_AT_THE_END = "An address at the end of the text is found"
_DIFFERS = (
    f"{_AT_THE_END}; a text without words has -1, where version 1 and the one with counts fail; a backspace character before a web address does "
    "not take the telephone numbers away."
)


def _row(name: str, description: str, part: Part, differs: str) -> ViewTagger:
    meanings = {type: _MEANINGS[type] for type in part.types}
    return ViewTagger.of(name, description, part, meanings=meanings, differs=differs)


_COUNTED = "Addresses and numbers of persons, unless the context speaks against them"
TAGGERS = (
    _row(
        "pii_regex_v1",
        f"{_COUNTED}, and their number by the words.",
        Part(_without_count, {**_KINDS, "doc": "document"}),
        _DIFFERS,
    ),
    _row(
        "pii_regex_v2",
        f"{_COUNTED}, and their number by the words.",
        Part(_without_count, {**_KINDS, "doc": "document"}),
        _DIFFERS,
    ),
    _row(
        "pii_regex_with_counts_v2",
        f"{_COUNTED}, their number, and that by the words.",
        Part(_by_context, {**_KINDS, "doc": "document", "doc_count": "document"}),
        _DIFFERS,
    ),
    _row(
        "pii_regex_with_counts_fast_v2",
        "Addresses and numbers of persons in each paragraph, their number, and their share of the characters.",
        Part(_by_paragraph, {**_KINDS, "doc_count": "document", "doc_frac": "document"}),
        f"{_AT_THE_END}; doc_frac does not count the span that stands for the whole text, which adds 1 to each; texts of more than 10,000 question "
        "marks are not left out.",
    ),
)
