"""Times in ISO 8601 as numbers, against Python's datetime."""

import re
from datetime import datetime, timedelta

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.text.timestamps import UNREADABLE, timestamps

DAY = r"(?P<year>\d{4})(?:-(?P<month>\d\d)-(?P<day>\d\d)|(?P<month2>\d\d)(?P<day2>\d\d))"
CLOCK = r"(?P<hour>\d\d)(?:(?P<colon>:?)(?P<minute>\d\d)(?:(?P=colon)(?P<second>\d\d)(?:[.,](?P<fraction>\d+))?)?)?"
ZONE = r"(?: ?(?:z|utc|(?P<sign>[+-])(?P<ahead>\d\d)(?::?(?P<ahead2>\d\d))?))?"
SPELLINGS = [re.compile(rf"{DAY}(?:[t ]{CLOCK}{ZONE})?", re.ASCII | re.IGNORECASE)]
SPELLINGS += [re.compile(r"(?P<year>\d{4})(?:-(?P<month>\d\d))?", re.ASCII)]
YEAR = 365 * 86_400_000_000
"""From 1 March of the year 0 to 1 March of the year 1, the first that datetime knows."""


def time_of(text):
    """Read a string as datetime does, whose least year is 1."""
    found = next((match for each in SPELLINGS if (match := each.fullmatch(text))), None)
    if found is None:
        return UNREADABLE
    known = {name: value for name, value in found.groupdict().items() if value}
    month, day = (int(known.get(name) or known.get(f"{name}2") or 1) for name in ("month", "day"))
    hour, minute, second, ahead, ahead2 = (
        int(known.get(name, 0)) for name in ("hour", "minute", "second", "ahead", "ahead2")
    )
    if second > 60 or ahead > 23 or ahead2 > 59:
        return UNREADABLE
    try:
        time = datetime(int(known["year"]), month, day, hour, minute)
    except ValueError:
        return UNREADABLE
    micros = (time - datetime(1, 3, 1)) // timedelta(microseconds=1) + 1_000_000 * second
    offset = 60_000_000 * (60 * ahead + ahead2) * (-1 if known.get("sign") == "-" else 1)
    return YEAR + micros + int(known.get("fraction", "0")[:6].ljust(6, "0")) - offset


def read(*texts):
    return timestamps(pa.array(texts, pa.large_string())).tolist()


digits = st.integers(0, 99).map("{:02}".format)
near_times = st.tuples(
    st.sampled_from(["2024", "1900", "2000", "0001", "9999", "0000", "202"]),
    st.sampled_from(["", "-02-29", "0228", "-02-28", "-12-31", "-00-10", "-05", "-5-05", "0505-", "-04-31"]),
    st.sampled_from(["", "T", "t", " ", "  ", "x"]),
    st.one_of(st.just(""), digits, st.sampled_from(["23", "12:30", "1230", "12:30:59", "12:3059", "235960"])),
    st.one_of(st.just(""), st.sampled_from([".", ",5", ".000001", ".1234567891", ":00"])),
    st.sampled_from(["", "Z", "z", " UTC", "utc", "+02:00", "-0230", "+14", " +00:00", "+24:00", "+0", "?"]),
).map("".join)


@given(st.lists(st.one_of(near_times, st.text("0123456789-:T+ .Z", max_size=30))))
def test_every_string_is_read_as_datetime_has_it(texts):
    assert read(*texts) == [time_of(text) for text in texts]


@given(
    st.lists(st.tuples(st.datetimes(), st.sampled_from("T "), st.sampled_from(["seconds", "microseconds"])))
)
def test_the_order_is_that_of_time(times):
    texts = [time.isoformat(*spelling) for time, *spelling in times]
    assert read(*texts) == [time_of(text) for text in texts]
    shown = [datetime.fromisoformat(text) for text in texts]
    by_value = sorted(range(len(texts)), key=read(*texts).__getitem__)
    assert by_value == sorted(range(len(texts)), key=shown.__getitem__)


def test_null_and_slices():
    column = pa.array(["x", "2024-01-01", None, "2024-01-01T00:00:00Z"], pa.large_string())
    first, null, last = timestamps(column.slice(1)).tolist()
    assert first == last == time_of("20240101")
    assert null == UNREADABLE
