"""UTF-8 that was read as Windows-1252 or Latin-1 and written as UTF-8 again: "Ã©" for "é", "â€™" for an apostrophe.

Each character of such a sequence stands for a byte of Windows-1252 (of Latin-1 where that has none), and the bytes are the UTF-8 of one character. Two kinds are also
written on purpose, and count only beside another sequence: those whose first byte leads to scripts and signs that are rarely met (an É or a ß before a quote), and
those behind any letter but Â and Ã whose other characters are all typographic punctuation ("é…»").
"""

from functools import cache

import numpy as np

from dolma_dask.text.bits import ONE, first_bit, low_bits, range_bits
from dolma_dask.text.columns import for_kernel
from dolma_dask.text.kernels import Bytes, Int, kernel
from dolma_dask.text.tables import decode

_C3 = np.uint8(0xC3)
RARE_LEADS = (*range(0xC7, 0xCC), 0xCD, *range(0xD2, 0xD7), *range(0xDC, 0xE0))
"""Bytes that begin the UTF-8 of U+01C0 to U+02FF, U+0340 to U+037F, U+0480 to U+05BF and U+0700 to U+07FF."""
PUNCTUATION = (0x85, 0x8B, 0x91, 0x92, 0x93, 0x94, 0x96, 0x97, 0x9B, 0xA0, 0xAB, 0xBB)
"""Bytes of an ellipsis, quotes, dashes and the no-break space."""
_CONTINUES, _IS_PUNCTUATION = 0x40, 0x80
_IS_RARE = 4


@cache
def load_bytes() -> Bytes:
    """Return what each code point up to U+2122 can be in a sequence behind its first: the low six bits of a byte from 80 to BF and two flags; else 0."""
    table = np.zeros(0x2123, np.uint8)
    for byte in range(0x80, 0xC0):
        flags = _CONTINUES | (_IS_PUNCTUATION if byte in PUNCTUATION else 0)
        table[byte] = flags | byte & 0x3F
        for char in bytes([byte]).decode("cp1252", "ignore"):
            table[ord(char)] = flags | byte & 0x3F
    return for_kernel(table)


@cache
def load_leads() -> Bytes:
    """Return how many characters follow each first one, by its byte, uint8 (256,), and whether the sequence needs another beside it; 0 where it begins none."""
    leads = np.zeros(256, np.uint8)
    for first, last, following in ((0xC2, 0xDF, 1), (0xE0, 0xEF, 2), (0xF0, 0xF4, 3)):
        leads[first : last + 1] = following
    leads[list(RARE_LEADS)] |= _IS_RARE
    return for_kernel(leads)


@kernel
def _sequence(data: Bytes, begin: Int, end: Int, leads: Bytes, continues: Bytes) -> tuple[Int, Int, bool]:
    """Return (byte after, characters, whether it needs another beside it) of the sequence that begins at byte `begin`; no characters if none does."""
    lead, at = decode(data, begin)
    at += begin
    following = np.int64(leads[lead]) & 3
    punctuation, code = np.int64(_IS_PUNCTUATION), np.int64(lead & (0x3F >> following))
    for _ in range(following):
        if at >= end:
            return begin, 0, False
        char, width = decode(data, at)
        entry = np.int64(continues[char]) if char < continues.size else 0
        if entry == 0:
            return begin, 0, False
        punctuation &= entry
        code = code << 6 | entry & 0x3F
        at += width
    if following > 1 and (code < 0x800 or 0xD800 <= code < 0xE000 or code > 0x10FFFF):
        return begin, 0, False
    if following == 0 or (following == 3 and code < 0x10000):
        return begin, 0, False
    return at, following + 1, bool(leads[lead] & _IS_RARE != 0 or (punctuation != 0 and lead > 0xC3))


@kernel
def count_mojibake(data: Bytes, begin: Int, end: Int, leads: Bytes, continues: Bytes) -> Int:
    """Count the characters in sequences in the text from byte `begin` to `end`; tables as from `load_leads` and `load_bytes`."""
    count, alone, at = np.int64(0), np.int64(0), begin
    done, after = begin, begin - 1
    while at < end:
        # what a sequence begins with, U+00C2 to U+00F4, is C3 and a byte
        marks = range_bits(data, at, _C3, _C3) & low_bits(end - at)
        while marks:
            place = at + first_bit(marks)
            marks &= marks - ONE
            if place < done:
                continue
            stop, size, is_weak = _sequence(data, place, end, leads, continues)
            if size == 0:
                continue
            is_beside = place == after
            # one that needs another waits for the next
            waits = is_weak and not is_beside
            if is_beside:
                count += alone
            if not waits:
                count += size
            alone = np.int64(size if waits else 0)
            done = after = stop
        at += 64
    return count
