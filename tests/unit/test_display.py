"""Counts and tables as people see them."""

import pytest

from dolma_dask import display
from dolma_dask.display import counted


def test_one_is_no_plural():
    assert [counted(n, "shard") for n in (0, 1, 2000)] == ["0 shards", "1 shard", "2,000 shards"]


@pytest.mark.parametrize(
    "value, text",
    [
        (None, "\N{EN DASH}"),
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (999_499, "999 kB"),
        (999_500, "1.00 MB"),
        (20_000_000, "20.0 MB"),
        (1_234_567_890_123, "1.23 TB"),
        (5 * 10**21, "5,000 EB"),
    ],
)
def test_byte_size_is_decimal(value, text):
    assert display.byte_size(value) == text


@pytest.mark.parametrize(
    "value, text",
    [(None, "\N{EN DASH}"), (0.0, "0.00 s"), (9.99, "9.99 s"), (9.999, "10.0 s"), (59.96, "1 min 0 s"), (200, "3 min 20 s"),
     (3599.9, "1 h 0 min"), (7500, "2 h 5 min"), (float("nan"), "\N{EN DASH}")],
)  # fmt: skip
def test_seconds(value, text):
    assert display.seconds(value) == text


@pytest.mark.parametrize(
    "part, whole, text",
    [(None, 1, "\N{EN DASH}"), (1, 0, "\N{EN DASH}"), (1, None, "\N{EN DASH}"), (0, 5, "0 %"), (5, 5, "100 %"),
     (1, 10**6, "< 0.1 %"), (10**6 - 1, 10**6, "> 99.9 %"), (1, 3, "33.3 %"), (float("nan"), 1, "\N{EN DASH}")],
)  # fmt: skip
def test_percent_never_rounds_to_none_or_all(part, whole, text):
    assert display.percent(part, whole) == text


@pytest.mark.parametrize(
    "value, text",
    [(None, "\N{EN DASH}"), (float("nan"), "\N{EN DASH}"), (float("-inf"), "\N{MINUS SIGN}\N{INFINITY}"), (1234567.0, "1,234,567"),
     (1234.56, "1,234.6"), (0.012345, "0.01235"), (-2.5, "\N{MINUS SIGN}2.5"), (1.5e-7, "1.5e-07"), (1e300, "1e+300"), (0.0, "0")],
)  # fmt: skip
def test_real(value, text):
    assert display.real(value) == text


def test_counts():
    assert display.integer(1234567) == "1,234,567"
    assert display.integer(None) == "\N{EN DASH}"


@pytest.mark.parametrize("name", [" ", "\t", "\u3000 "])
def test_a_name_of_white_space_is_seen(name):
    assert display.printable(name) == display.isolated(name) == repr(name)
    assert display.printable("") == display.isolated("") == ""
