"""Kernels that read JSON numbers: decimal text to the nearest double, exactly, or not at all.

Short numbers take Clinger's fast path: a mantissa below 2**53 times or over a power of ten up to 10**22 is rounded once,
hence correctly. Longer ones (most doubles print with 17 digits) take the method of Eisel and Lemire ("Number parsing at a
gigabyte per second", 2021): multiply by a 128-bit approximation of the power of five. What neither settles is declined:
more than 19 significant digits, subnormal or infinite results, products that lie too near a tie.

Cost: about 7 ns for a number of six digits, 17 ns for seventeen.
"""

import numpy as np

from dolma_dask.text.bits import as_double, byte_at, high_product, leading_zeros
from dolma_dask.text.kernels import kernel

SMALLEST_POWER, LARGEST_POWER = -342, 308
"""Powers of ten outside this range make zero or infinity of every 64-bit mantissa."""

_POWERS_OF_TEN = 10.0 ** np.arange(23)
_ONE = np.uint64(1)
_ALL_ONES = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_FRACTION = np.uint64((1 << 52) - 1)
_MINUS, _PLUS, _DOT, _ZERO, _NINE, _LOWER_E = 0x2D, 0x2B, 0x2E, 0x30, 0x39, 0x65


def _powers_of_five() -> np.ndarray:
    """Return the 128 leading bits of 5**q, q = SMALLEST_POWER..LARGEST_POWER, as uint64[n, 2] (high, low).

    Positive powers are truncated, reciprocals rounded up, as the error bound of the method requires.
    """
    table = np.empty((LARGEST_POWER - SMALLEST_POWER + 1, 2), np.uint64)
    for row, power in enumerate(range(SMALLEST_POWER, LARGEST_POWER + 1)):
        five = 5 ** abs(power)
        bits = five.bit_length()
        if power >= 0:
            leading = five << (128 - bits) if bits <= 128 else five >> (bits - 128)
        else:
            leading = (1 << (bits + 127)) // five + 1
        table[row] = leading >> 64, leading & ((1 << 64) - 1)
    return table


_FIVES = _powers_of_five()


@kernel
def scaled(mantissa: np.uint64, power: int) -> tuple[bool, float]:
    """Return (whether it is certain, the double nearest to mantissa * 10**power), for a positive `mantissa`."""
    if power < SMALLEST_POWER or power > LARGEST_POWER:
        return False, 0.0
    # with its highest bit set the mantissa fills a word, so that the product has 127 or 128 bits
    shift = leading_zeros(mantissa)
    mantissa = mantissa << np.uint64(shift)
    row = power - SMALLEST_POWER
    high = high_product(mantissa, _FIVES[row, 0])
    low = mantissa * _FIVES[row, 0]
    # the nine bits below the result are all ones: what was left out of the power of five may carry into it
    if (high & np.uint64(0x1FF)) == np.uint64(0x1FF):
        carry = high_product(mantissa, _FIVES[row, 1])
        low += carry
        if low < carry:
            high += _ONE
        # the rest of the power may carry once more; between these powers its 128 bits are enough
        if low == _ALL_ONES and (power < -27 or power > 55):
            return False, 0.0
    top = high >> np.uint64(63)
    # 53 bits, and one more for rounding
    bits = high >> (top + np.uint64(9))
    # 152170 + 65536 over 2**16 is the logarithm of 10 to base 2, near enough for all powers of the table
    exponent = (((152170 + 65536) * power) >> 16) + 63 + np.int64(top) - shift + 1023
    # subnormal or infinite
    if exponent <= 0 or exponent >= 2046:
        return False, 0.0
    if (
        # only these powers have exact ties: their power of five fits in 64 bits, or divides a mantissa
        low <= _ONE
        and -4 <= power <= 23
        and (bits & np.uint64(3)) == _ONE
        and (bits << (top + np.uint64(9))) == high
    ):
        bits &= ~_ONE  # exactly half way: to even
    bits = (bits + (bits & _ONE)) >> _ONE
    # rounding up has carried into the next power of two
    if bits >> np.uint64(53):
        bits = np.uint64(1 << 52)
        exponent += 1
    return True, as_double((np.uint64(exponent) << np.uint64(52)) | (bits & _FRACTION))


@kernel
def read_number(at: int) -> tuple[int, float]:
    """Return (address after the number at `at`, its double); (0, 0.0) when it is bad JSON or declined."""
    negative = byte_at(at) == _MINUS
    if negative:
        at += 1
    mantissa, first, digits = np.uint64(0), at, 0
    byte = byte_at(at)
    while _ZERO <= byte <= _NINE:
        # wraps with 20 digits and more, which are declined below
        mantissa = mantissa * np.uint64(10) + np.uint64(byte - _ZERO)
        at += 1
        byte = byte_at(at)
    digits = at - first
    if digits == 0 or (digits > 1 and byte_at(first) == _ZERO):
        return 0, 0.0
    power = 0
    if byte == _DOT:
        at += 1
        point = at
        byte = byte_at(at)
        while _ZERO <= byte <= _NINE:
            mantissa = mantissa * np.uint64(10) + np.uint64(byte - _ZERO)
            at += 1
            byte = byte_at(at)
        power = point - at
        if power == 0:
            return 0, 0.0
        # `power` is minus the digits behind the point
        digits -= power
        # 19 digits are below 2**64, 20 need not be
        if digits > 19:
            while byte_at(first) == _ZERO or byte_at(first) == _DOT:  # leading zeros do not count
                digits -= byte_at(first) == _ZERO
                first += 1
    if (byte | 0x20) == _LOWER_E:
        at += 1
        byte = byte_at(at)
        downwards = byte == _MINUS
        if downwards or byte == _PLUS:
            at += 1
            byte = byte_at(at)
        if byte < _ZERO or byte > _NINE:
            return 0, 0.0
        exponent = 0
        while _ZERO <= byte <= _NINE:
            # enough to be out of range for any mantissa, and it cannot wrap
            if exponent < 100_000:
                exponent = exponent * 10 + byte - _ZERO
            at += 1
            byte = byte_at(at)
        power += -exponent if downwards else exponent
    if digits > 19:
        return 0, 0.0
    # both operands are exact doubles, so that one operation rounds once
    if mantissa < np.uint64(1 << 53) and -22 <= power <= 22:
        value: float = np.float64(mantissa)
        value = value / _POWERS_OF_TEN[-power] if power < 0 else value * _POWERS_OF_TEN[power]
    # a zero has no highest bit that could be shifted to the front
    elif mantissa == np.uint64(0):
        value = 0.0
    else:
        certain, value = scaled(mantissa, power)
        if not certain:
            return 0, 0.0
    return at, -value if negative else value


@kernel
def read_integer(at: int) -> tuple[int, int]:
    """Return (address after the integer at `at`, its value); (0, 0) for more than 18 digits, a fraction or an exponent."""
    negative = byte_at(at) == _MINUS
    if negative:
        at += 1
    first, value = at, 0
    byte = byte_at(at)
    while _ZERO <= byte <= _NINE:
        value = value * 10 + byte - _ZERO
        at += 1
        byte = byte_at(at)
    digits = at - first
    if (
        digits == 0
        # 18 digits always fit in an int64
        or digits > 18
        or (digits > 1 and byte_at(first) == _ZERO)
        or byte == _DOT
        or (byte | 0x20) == _LOWER_E
    ):
        return 0, 0
    return at, -value if negative else value
