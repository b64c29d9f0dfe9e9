"""Times as numbers: ISO 8601 in its usual spellings.

``2024``, ``2024-05``, ``2024-05-01`` or ``20240501``; behind a day ``T`` or a space and ``12``, ``12:30``, ``12:30:59`` or the same without colons, seconds
with a fraction; behind that ``Z``, ``UTC`` or an offset such as ``+02:00``, ``+0200`` or ``+02``, after a space if there is one. Without any it is UTC.
"""

import numpy as np
import pyarrow as pa

from dolma_dask.text.columns import string_parts
from dolma_dask.text.kernels import Bytes, Counts, Int, kernel

UNREADABLE = -1
"""Time of a value that is null, or no time."""

_DASH, _PLUS, _COLON, _POINT, _COMMA, _SPACE = (np.uint8(ord(sign)) for sign in "-+:., ")
_LOWER = np.uint8(0x20)
_T, _U, _C, _Z = (np.uint8(ord(letter)) for letter in "tucz")

_DAY, _MINUTE, _SECOND = 86_400_000_000, 60_000_000, 1_000_000


def timestamps(column: pa.LargeStringArray) -> Counts:
    """Return strings (n,) as microseconds since 1 March of the year 0, UTC, by the Gregorian calendar, int64 (n,); `UNREADABLE` where there is no time.

    Digits behind the microsecond do not count.
    """
    offsets, data = string_parts(column)
    times = np.empty(len(column), np.int64)
    _read_all(data, offsets, times)
    return times


@kernel
def _read_all(data: Bytes, offsets: Counts, times: Counts) -> None:
    for row in range(times.size):
        end = offsets[row + 1]
        days, at = _date(data, offsets[row], end)
        micros: Int = 0
        minutes: Int = 0
        # a date alone is midnight
        if 0 <= at < end:
            is_time = data[at] == _SPACE or data[at] | _LOWER == _T
            micros, at = _clock(data, at + 1 if is_time else -1, end)
            minutes, at = _offset(data, at, end)
        times[row] = days * _DAY + micros - minutes * _MINUTE if at == end else UNREADABLE


# Each part returns its value and where it ends, -1 where it cannot be read; a part behind one that cannot be read cannot be read either.


@kernel
def _date(data: Bytes, at: Int, end: Int) -> tuple[Int, Int]:
    """Read a date as days since 1 March of the year 0."""
    year, at = _number(data, at, 4, end)
    month: Int = 1
    day: Int = 1
    if 0 <= at < end:
        is_dashed = data[at] == _DASH
        month, at = _number(data, at + is_dashed, 2, end)
        # `2019-05` is a month; without dashes a day must follow
        if not is_dashed or 0 <= at < end:
            # dashes stand at both places or at none
            is_second = is_dashed and at >= 0 and data[at] == _DASH
            day, at = _number(data, at + is_second if is_second == is_dashed else -1, 2, end)
    if year < 1 or not 1 <= month <= 12 or not 1 <= day <= _days_of(year, month):
        return 0, -1
    return _days_since(year, month, day), at


@kernel
def _days_of(year: Int, month: Int) -> Int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


@kernel
def _days_since(year: Int, month: Int, day: Int) -> Int:
    """Count the days since 1 March of the year 0: years begin in March, so that the leap day is their last."""
    # January and February are the last months of the year before
    years, months = (year, month - 3) if month > 2 else (year - 1, month + 9)
    # months from March on have 31, 30, 31, 30 and 31 days, and again: 153 in five
    return 365 * years + years // 4 - years // 100 + years // 400 + (153 * months + 2) // 5 + day - 1


@kernel
def _clock(data: Bytes, at: Int, end: Int) -> tuple[Int, Int]:
    """Read a time of the day as microseconds."""
    hour, at = _number(data, at, 2, end)
    minute: Int = 0
    second: Int = 0
    micros: Int = 0
    # `12:30:15` or `123015`, never mixed
    has_colons = bool(0 <= at < end and data[at] == _COLON)
    if _goes_on(data, at, end, has_colons):
        minute, at = _number(data, at + has_colons, 2, end)
        if _goes_on(data, at, end, has_colons):
            second, at = _number(data, at + has_colons, 2, end)
            if 0 <= at < end and (data[at] == _POINT or data[at] == _COMMA):
                micros, at = _fraction(data, at + 1, end)
    if hour > 23 or minute > 59 or second > 60:  # a leap second
        return 0, -1
    return (60 * hour + minute) * _MINUTE + second * _SECOND + micros, at


@kernel
def _goes_on(data: Bytes, at: Int, end: Int, has_colons: bool) -> bool:
    """Tell whether minutes or seconds follow."""
    if has_colons:
        return bool(0 <= at < end and data[at] == _COLON)
    return bool(_digit(data, at, end) >= 0)


@kernel
def _fraction(data: Bytes, at: Int, end: Int) -> tuple[Int, Int]:
    """Read the digits of a fraction of a second as microseconds."""
    first = at
    micros: Int = 0
    unit = _SECOND // 10
    while _digit(data, at, end) >= 0:
        micros += unit * _digit(data, at, end)
        # 0 behind the sixth digit: further ones are read and add nothing
        unit //= 10
        at += 1
    return micros, at if at > first else -1


@kernel
def _offset(data: Bytes, at: Int, end: Int) -> tuple[Int, Int]:
    """Read what a clock is ahead of UTC, in minutes."""
    if at < 0 or at == end:
        return 0, at
    at += data[at] == _SPACE
    # Z and UTC stand at the end or not at all
    if at + 1 == end and data[at] | _LOWER == _Z:
        return 0, end
    if (
        at + 3 == end
        and data[at] | _LOWER == _U
        and data[at + 1] | _LOWER == _T
        and data[at + 2] | _LOWER == _C
    ):
        return 0, end
    if at >= end or (data[at] != _PLUS and data[at] != _DASH):
        return 0, -1
    is_behind = data[at] == _DASH
    hours, at = _number(data, at + 1, 2, end)
    minutes: Int = 0
    if 0 <= at < end:
        minutes, at = _number(data, at + (data[at] == _COLON), 2, end)
    if hours > 23 or minutes > 59:
        return 0, -1
    total = 60 * hours + minutes
    return -total if is_behind else total, at


@kernel
def _number(data: Bytes, at: Int, count: Int, end: Int) -> tuple[Int, Int]:
    """Read a number of so many digits."""
    value: Int = 0
    for place in range(at, at + count):
        digit = _digit(data, place, end)
        if digit < 0:
            return 0, -1
        value = 10 * value + digit
    return value, at + count


@kernel
def _digit(data: Bytes, at: Int, end: Int) -> Int:
    """Return the digit at a place, -1 if there is none."""
    if not 0 <= at < end:
        return -1
    # signed: bytes below 0 are none either
    digit = np.int64(data[at]) - 48
    return digit if 0 <= digit <= 9 else -1
