"""Taggers of repetitions: pieces of a line that stand four times or more in a row. Source: ``repetitions`` of the Dolma toolkit, release 1.2.1.

They are the matches of ``(.+?)(\\s?\\1){3,}``: the leftmost start, the shortest period that has a match there, as many copies as follow. A search by the pattern
tries each period at each start. Here a period is tried at every start of a line at once: the first copy of a piece of `p` characters holds one of every `p` characters of its
line, and there the text equals itself `p` characters further, or `p` + 1 where white space stands between. How far it does is found by halving,
with hashes of what lies between: all periods together look at n log n characters.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dolma_dask.taggers.base import Part, ViewTagger, span_column
from dolma_dask.text.bits import high_product
from dolma_dask.text.kernels import Bytes, Counts, Floats, Int, Positions, Words, kernel
from dolma_dask.text.tables import SPACE, char_class, decode, load_tables
from dolma_dask.text.units import Unit
from dolma_dask.text.view import TextView

_COPIES = 4
_NEWLINE = 0x0A
_NO_MATCH = -1
_DIRECTLY = 16
"""Characters that are compared without their hash."""
_PRIME, _BASE = np.uint64(2**61 - 1), np.uint64(0x1B4F7C2D9E3A6581 % (2**61 - 1))
_THREE, _S61 = np.uint64(3), np.uint64(61)


@kernel
def _reduced(number: np.uint64) -> np.uint64:
    while number >= _PRIME:
        number -= _PRIME
    return number


@kernel
def _product(one: np.uint64, other: np.uint64) -> np.uint64:
    """Multiply two numbers below the prime, modulo the prime."""
    low, high = one * other, high_product(one, other)
    return _reduced((low & _PRIME) + (low >> _S61 | high << _THREE))


@kernel
def _read(data: Bytes, at: Int, end: Int, codes: Positions, hashes: Words) -> Int:
    """Set the code points of a text, and the hash of those before each; return how many there are."""
    size: Int = 0
    hashes[0] = 0
    while at < end:
        code, width = decode(data, at)
        codes[size] = code
        hashes[size + 1] = _reduced(_product(hashes[size], _BASE) + np.uint64(code + 1))
        size += 1
        at += width
    return size


@kernel
def _set_powers(powers: Words) -> None:
    powers[0] = 1
    for number in range(1, powers.size):
        powers[number] = _product(powers[number - 1], _BASE)


@kernel
def _hash(hashes: Words, powers: Words, at: Int, size: Int) -> np.uint64:
    return _reduced(hashes[at + size] + _PRIME - _product(hashes[at], powers[size]))


@kernel
def _are_equal(codes: Positions, hashes: Words, powers: Words, one: Int, other: Int, size: Int) -> bool:
    """Tell whether the same `size` characters stand at two places."""
    for number in range(min(size, _DIRECTLY)):
        if codes[one + number] != codes[other + number]:
            return False
    return bool(size <= _DIRECTLY or _hash(hashes, powers, one, size) == _hash(hashes, powers, other, size))


@kernel
def _reach(
    codes: Positions, hashes: Words, powers: Words, one: Int, other: Int, most: Int, goes_back: bool
) -> Int:
    """Count the characters from two places on that are the same, or those before them, `most` at most."""
    low: Int = 0
    high = most
    while low < high:
        middle = (low + high + 1) // 2
        back = middle if goes_back else 0
        if _are_equal(codes, hashes, powers, one - back, other - back, middle):
            low = middle
        else:
            high = middle - 1
    return low


@kernel
def _next_copy(
    codes: Positions, hashes: Words, powers: Words, numbers: Bytes, blocks: Bytes, size: Int, start: Int, period: Int, at: Int, after_space: bool
) -> Int:  # fmt: skip
    """Return where a copy of a piece ends that begins at a place, or behind white space there; `_NO_MATCH` if there is none."""
    if after_space:
        if at >= size or char_class(numbers, blocks, codes[at]) & SPACE == 0:
            return _NO_MATCH
        at += 1
    if at + period > size or not _are_equal(codes, hashes, powers, start, at, period):
        return _NO_MATCH
    return at + period


@kernel
def _fourth_end(
    codes: Positions, hashes: Words, powers: Words, numbers: Bytes, blocks: Bytes, size: Int, start: Int, period: Int
) -> Int:  # fmt: skip
    """Return where the fourth copy of a piece ends; `_NO_MATCH` where it has fewer."""
    # white space is tried before none, and given back where too few copies follow: the last one first
    for way in range(1 << (_COPIES - 1)):
        at = start + period
        for copy in range(_COPIES - 1):
            after_space = way >> (_COPIES - 2 - copy) & 1 == 0
            at = _next_copy(codes, hashes, powers, numbers, blocks, size, start, period, at, after_space)
            if at == _NO_MATCH:
                break
        if at != _NO_MATCH:
            return at
    return _NO_MATCH


@kernel
def _match(
    codes: Positions, hashes: Words, powers: Words, numbers: Bytes, blocks: Bytes, size: Int, start: Int, period: Int
) -> tuple[Int, Int]:  # fmt: skip
    """Return where all copies of a piece end that has four, and how many there are."""
    stop = _fourth_end(codes, hashes, powers, numbers, blocks, size, start, period)
    copies: Int = _COPIES
    at = stop
    while at != _NO_MATCH:
        stop = at
        at = _next_copy(codes, hashes, powers, numbers, blocks, size, start, period, stop, True)
        if at == _NO_MATCH:
            at = _next_copy(codes, hashes, powers, numbers, blocks, size, start, period, stop, False)
        copies += at != _NO_MATCH
    if period == 1:
        # white space may be copies of itself: all that stand there count
        copies = 0
        for place in range(start, stop):
            copies += codes[place] == codes[start]
    return stop, copies


@kernel
def _open(following: Positions, start: Int) -> Int:
    """Return the first start from this one on that has no period yet."""
    found: Int = start
    while following[found] != found:
        found = following[found]
    while following[start] != start:
        behind = following[start]
        following[start] = found
        start = behind
    return found


@kernel
def _set_periods(
    codes: Positions, hashes: Words, powers: Words, numbers: Bytes, blocks: Bytes, size: Int, begin: Int, end: Int, periods: Positions, following: Positions
) -> None:  # fmt: skip
    """Set the shortest period of each start in the line from `begin` to `end`, 0 where there is none."""
    for number in range(end - begin + 1):
        periods[number], following[number] = 0, number
    for period in range(1, min(end - begin, (size - begin) // _COPIES) + 1):
        for at in range(begin, min(end, size - (_COPIES - 1) * period), period):
            first = max(begin, at - period + 1)
            for shift in range(period, period + 2):
                other = at + shift
                if other >= size or codes[at] != codes[other]:
                    continue
                if _open(following, first - begin) + begin > at:
                    break
                # half of the copy does so too, before this character or from it on
                half = (period + 1) // 2
                ahead = min(period, end - at, size - other)
                if (ahead < half or not _are_equal(codes, hashes, powers, at, other, half)) and (
                    at - first < half or not _are_equal(codes, hashes, powers, at - half, other - half, half)
                ):
                    continue
                ahead = _reach(codes, hashes, powers, at, other, ahead, False)
                start = at - _reach(codes, hashes, powers, at, other, at - first, True)
                start = begin + _open(following, start - begin)
                while start <= min(at, at + ahead - period):
                    is_near = shift == period or char_class(numbers, blocks, codes[start + period]) & SPACE
                    if (
                        is_near
                        and _fourth_end(codes, hashes, powers, numbers, blocks, size, start, period)
                        != _NO_MATCH
                    ):
                        periods[start - begin], following[start - begin] = period, start - begin + 1
                    start = begin + _open(following, start - begin + 1)


@kernel
def _find_repetitions(
    data: Bytes, offsets: Counts, numbers: Bytes, blocks: Bytes, powers: Words, codes: Positions, hashes: Words, periods: Positions, following: Positions,
    bounds: Counts, starts: Counts, ends: Counts, counts: Floats,
) -> None:  # fmt: skip
    """Find the repetitions of all texts, line by line: no piece has a newline."""
    found = 0
    for row in range(offsets.size - 1):
        size = _read(data, offsets[row], offsets[row + 1], codes, hashes)
        start: Int = 0
        while start < size:
            end = start
            while end < size and codes[end] != _NEWLINE:
                end += 1
            begin = start
            _set_periods(codes, hashes, powers, numbers, blocks, size, begin, end, periods, following)
            while start < end:
                period = periods[start - begin]
                if period == 0:
                    start += 1
                    continue
                stop, copies = _match(codes, hashes, powers, numbers, blocks, size, start, period)
                starts[found], ends[found], counts[found] = start, stop, copies
                found += 1
                start = stop
            # copies may have gone on in lines behind
            if start == end:
                start += 1
        bounds[row + 1] = found


def _repetitions(view: TextView) -> Iterator[pa.Array]:
    """Yield the repetitions in each text, and how many copies they have."""
    bounds = np.zeros(len(view) + 1, np.int64)
    most = int(view.lengths.max(initial=0))
    codes, periods, following = (np.empty(most + 1, np.int32) for _ in range(3))
    hashes, powers = (np.empty(most + 1, np.uint64) for _ in range(2))
    _set_powers(powers)
    # address space: only what is reached becomes memory
    room = int(view.offsets[-1] - view.offsets[0]) // _COPIES
    starts, ends, counts = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)
    _find_repetitions(
        view.data, view.offsets, *load_tables(), powers, codes, hashes, periods, following, bounds, starts, ends, counts
    )  # fmt: skip
    found = slice(0, bounds[-1])
    yield span_column(bounds, starts[found], ends[found], counts[found])


def _with_sums(unit: Unit, view: TextView) -> Iterator[pa.Array | Floats]:
    """Yield the repetitions, the copies and the length of the largest ones, and the share of the text that they are."""
    column: Any = next(Part(_repetitions, {"repetition": "spans"}, unit).score(view))
    yield column
    spans, bounds = column.flatten(), np.asarray(column.offsets)
    sizes = np.asarray(spans.field("end")) - np.asarray(spans.field("start"))
    yield _by_text(np.maximum, np.asarray(spans.field("score")), bounds)
    yield _by_text(np.maximum, sizes.astype(float), bounds)
    yield _by_text(np.add, sizes.astype(float), bounds) / np.maximum(view.lengths, 1)


def _by_text(function: np.ufunc, values: npt.NDArray[np.float64], bounds: npt.NDArray[np.int32]) -> Floats:
    """Return the largest value of each text, or their sum, 0 where it has none."""
    result = np.zeros(len(bounds) - 1)
    has_some = np.diff(bounds) > 0
    if len(values):
        result[has_some] = function.reduceat(values, bounds[:-1][has_some])
    return result


def _row(name: str, where: str, unit: Unit) -> ViewTagger:
    meanings = {
        "repetition": f"Repetitions{where}, each with its number of copies.",
        "doc_max_score_repetition": "Copies in the repetition that has most.",
        "doc_max_length_repetition": "Characters of the longest repetition.",
        "doc_frac_repetition": "Characters in repetitions by those of the text.",
    }
    part = Part(
        partial(_with_sums, unit), {"repetition": "spans", **dict.fromkeys(list(meanings)[1:], "document")}
    )
    return ViewTagger.of(
        name,
        f"Pieces of a line that stand four times or more in a row{where}, with or without white space between.",
        part,
        meanings=meanings,
    )


TAGGERS = (
    _row("repetitions_v1", "", "document"),
    _row("paragraph_repetitions_v1", " in a paragraph", "any_paragraph"),
)
