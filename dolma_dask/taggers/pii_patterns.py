"""The patterns of `dolma_dask.taggers.pii` as kernels: each match is found from the one character that it cannot lack, ``@``, or a digit at the right place.

A search by the pattern itself tries every character, and takes quadratic time in long runs of white space, points or ``@``.
"""

import numpy as np

from dolma_dask.text.bits import ONE, find_byte, first_bit, low_bits, range_bits
from dolma_dask.text.columns import for_kernel
from dolma_dask.text.kernels import Bytes, Counts, Int, kernel
from dolma_dask.text.tables import SPACE, char_class, code_points, decode

_ZEROS = (
    "660 6F0 7C0 966 9E6 A66 AE6 B66 BE6 C66 CE6 D66 DE6 E50 ED0 F20 1040 1090 17E0 1810 1946 19D0 1A80 1A90 1B50 1BB0 1C40 1C50 A620 A8D0 A900 A9D0 "
    "A9F0 AA50 ABF0 FF10 104A0 10D30 11066 110F0 11136 111D0 112F0 11450 114D0 11650 116C0 11730 118E0 11950 11C50 11D50 11DA0 16A60 16AC0 16B50 "
    "1D7CE 1D7D8 1D7E2 1D7EC 1D7F6 1E140 1E2F0 1E950 1FBF0"
)
FIRST_DIGITS = for_kernel(np.array([int(zero, 16) for zero in _ZEROS.split()]))
"""Zeros of the decimal digits of Unicode 14 that are not ASCII, each followed by its nine others: with those of ASCII ``\\d`` of `re`."""

_AT, _DOT, _PARENTHESIS = np.uint8(ord("@")), np.uint8(ord(".")), np.uint8(ord("("))
_DIGIT_0, _DIGIT_9 = np.uint8(ord("0")), np.uint8(ord("9"))
_D9, _E1, _EA, _F0 = (np.uint8(byte) for byte in (0xD9, 0xE1, 0xEA, 0xF0))
_GAPS = tuple(map(ord, "-. "))
_MARKS = tuple(map(ord, "@,?!;:)("))
_NO_MATCH = -1


@kernel
def _is_space(data: Bytes, at: Int, numbers: Bytes, blocks: Bytes) -> bool:
    return bool(char_class(numbers, blocks, decode(data, at)[0]) & SPACE)


@kernel
def _is_mark(data: Bytes, at: Int) -> bool:
    """Tell whether one of ``@,?!;:)(`` begins at byte `at`: what ends a domain, as white space does."""
    return data[at] in _MARKS


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
    group: Int = _NO_MATCH
    domain_end, stop = _NO_MATCH, _NO_MATCH
    at = first
    while at < local:
        domain, behind = _ends_at(data, at, start, end, numbers, blocks)
        if behind != _NO_MATCH:
            group, domain_end, stop = _before(data, at), domain, behind
        at = find_byte(data, at + 1, local, _AT)
    return group, domain_end, stop


@kernel
def _is_address(data: Bytes, start: Int, end: Int, numbers: Bytes, blocks: Bytes) -> bool:
    """Tell whether the domain between the first ``@`` and the next one or the end has a point, and more than ``(`` and white space stands before."""
    at = find_byte(data, start, end, _AT)
    domain_end = find_byte(data, at + 1, end, _AT)
    if find_byte(data, at + 1, domain_end, _DOT) == domain_end:
        return False
    others, parentheses = 0, 0
    while start < at:
        if not _is_space(data, start, numbers, blocks):
            others += 1
            parentheses += data[start] == _PARENTHESIS
        start += _width(data, start)
    return others != 1 or parentheses != 1


@kernel
def find_mail(
    data: Bytes, begins: Counts, stops: Counts, numbers: Bytes, blocks: Bytes, judges_group: bool, bounds: Counts, starts: Counts, ends: Counts
) -> None:  # fmt: skip
    """Find the matches of ``[.\\s@,?!;:)(]*([^\\s@]+@[^\\s@,?!;:)(]+?)[.\\s@,?!;:)(]?(?:\\s|\\Z)`` that hold an address, by the group or by all of the match."""
    count = 0
    for piece in range(begins.size):
        begin, end = begins[piece], stops[piece]
        at = find_byte(data, begin, end, _AT)
        while at < end:
            _, stop = _ends_at(data, at, begin, end, numbers, blocks)
            if stop == _NO_MATCH:
                at = find_byte(data, at + 1, end, _AT)
                continue
            start = _start_of(data, at, begin, numbers, blocks)
            group, domain_end, stop = _match_from(data, start, at, end, numbers, blocks)
            judged = (group, domain_end) if judges_group else (start, stop)
            if _is_address(data, judged[0], judged[1], numbers, blocks):
                starts[count], ends[count] = start, stop
                count += 1
            begin = stop
            at = find_byte(data, begin, end, _AT)
        bounds[piece + 1] = count


@kernel
def is_digit(code: Int, zeros: Counts) -> bool:
    """Tell whether a code point is a decimal digit."""
    if code < 0x80:
        return bool(0x30 <= code <= 0x39)
    low, high = np.int64(0), np.int64(zeros.size)
    while low < high:
        middle = (low + high) // 2
        if zeros[middle] <= code:
            low = middle + 1
        else:
            high = middle
    return bool(low > 0 and code - zeros[low - 1] < 10)


@kernel
def other_digit_bits(data: Bytes, at: Int) -> np.uint64:
    """Bits of the window at byte `at` where a digit that is not ASCII may begin."""
    return range_bits(data, at, _D9, _E1) | range_bits(data, at, _EA, _F0)


@kernel
def _behind_digits(data: Bytes, at: Int, end: Int, count: Int, zeros: Counts) -> Int:
    """Return where that many digits from byte `at` end, `_NO_MATCH` if others stand there."""
    for _ in range(count):
        if not 0 <= at < end:
            return _NO_MATCH
        code, width = decode(data, at)
        if not is_digit(code, zeros):
            return _NO_MATCH
        at += width
    return at


@kernel
def _is_gap(byte: np.uint8) -> bool:
    """Tell whether a byte is one of ``[-. ]``."""
    return byte in _GAPS


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
def find_phones(
    data: Bytes, begins: Counts, stops: Counts, numbers: Bytes, blocks: Bytes, zeros: Counts, bounds: Counts, starts: Counts, ends: Counts
) -> None:  # fmt: skip
    """Find the matches of ``\\s+\\(?(\\d{3})\\)?[-. ]*(\\d{3})[-. ]?(\\d{4})``."""
    count = 0
    for piece in range(begins.size):
        begin, end = begins[piece], stops[piece]
        at: Int = begin
        while at < end:
            digits = range_bits(data, at, _DIGIT_0, _DIGIT_9)
            # the digit before is none of the same window, or the number would begin there
            found = digits & ~(digits << ONE) | other_digit_bits(data, at)
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
        bounds[piece + 1] = count


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
def find_ips(
    data: Bytes, begins: Counts, stops: Counts, bounds: Counts, starts: Counts, ends: Counts
) -> None:
    """Find four numbers from 0 to 255 with points between, wherever they stand."""
    count = 0
    for piece in range(begins.size):
        begin, end = begins[piece], stops[piece]
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
        bounds[piece + 1] = count


@kernel
def count_code_points(data: Bytes, offsets: Counts, bounds: Counts, starts: Counts, ends: Counts) -> None:
    """Turn the bytes of spans of a block into code points of their texts."""
    for row in range(offsets.size - 1):
        at, place = offsets[row], np.int64(0)
        for span in range(bounds[row], bounds[row + 1]):
            start, end = starts[span], ends[span]
            starts[span] = place + code_points(data, at, start)
            ends[span] = starts[span] + code_points(data, start, end)
            at, place = end, ends[span]
