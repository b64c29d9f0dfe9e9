"""Keys: the bytes of xxhash itself, whatever the text, its length and its place in a buffer."""

import math
import random
import struct

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.errors import SchemaError
from dolma_dask.formats.digests import LOWEST, keys128, number_keys, rank_bits, text_keys
from dolma_dask.text.xxh3 import hash_strings

TEXTS = st.lists(st.one_of(st.none(), st.text(max_size=40), st.text(min_size=100, max_size=300)), max_size=20)


def numbers(keys):
    """Return pairs of halves as 128-bit integers."""
    return [int(high) << 64 | int(low) for high, low in zip(*keys, strict=True)]


def row_bytes(*values):
    parts = (
        b"\xff\xff\xff\xff" if value is None else struct.pack("<I", len(value.encode())) + value.encode()
        for value in values
    )
    return b"".join(parts)


def test_every_length_up_to_a_thousand_equals_the_library():
    draw = random.Random(3)
    strings = [draw.randbytes(size) for size in [*range(1100), 5000, 100_000] for _ in range(2)]
    data, offsets = np.frombuffer(b"".join(strings), np.uint8), np.cumsum([0, *map(len, strings)])
    assert numbers(hash_strings(data, offsets)) == [xxhash.xxh3_128_intdigest(string) for string in strings]


def test_writable_and_empty_buffers():
    assert numbers(hash_strings(np.zeros(0, np.uint8), np.zeros(1, np.int64))) == []
    assert (
        numbers(hash_strings(np.zeros(0, np.uint8), np.zeros(3, np.int64)))
        == [xxhash.xxh3_128_intdigest(b"")] * 2
    )
    assert numbers(text_keys(pa.array([], pa.large_string()))) == []


@given(TEXTS, st.integers(0, 3))
def test_text_keys_are_those_of_the_bare_text(texts, skip):
    column = pa.array(texts, pa.large_string()).slice(skip)
    for text, key in zip(column.to_pylist(), numbers(text_keys(column)), strict=True):
        assert text is None or key == xxhash.xxh3_128_intdigest(text.encode())


@pytest.mark.slow
@given(TEXTS, TEXTS, st.integers(0, 3))
def test_row_keys_are_those_of_the_length_prefixed_values(ones, others, skip):
    rows = min(len(ones), len(others))
    columns = [pa.array(values[:rows], pa.large_string()).slice(skip) for values in (ones, others)]
    pairs = list(zip(*(column.to_pylist() for column in columns), strict=True))
    assert numbers(keys128(*columns)) == [xxhash.xxh3_128_intdigest(row_bytes(*pair)) for pair in pairs]
    assert numbers(keys128(columns[0])) == [xxhash.xxh3_128_intdigest(row_bytes(one)) for one, _ in pairs]


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(SchemaError, match="2, 3"):
        keys128(pa.array(["a"] * 2, pa.large_string()), pa.array(["a"] * 3, pa.large_string()))


@given(st.lists(st.floats(allow_nan=False), max_size=50))
def test_equal_numbers_have_equal_keys(values):
    keys = numbers(number_keys(np.array(values, np.float64)))
    expected = [xxhash.xxh3_128_intdigest(struct.pack("<d", value + 0.0)) for value in values]
    assert keys == expected
    assert numbers(number_keys(np.array([0.0]))) == numbers(number_keys(np.array([-0.0])))


@given(st.lists(st.tuples(st.floats(), st.booleans()), max_size=50), st.booleans())
def test_ranks_sort_as_the_numbers_and_missing_ones_last(pairs, highest_first):
    values, valid = (
        np.array([value for value, _ in pairs], np.float64),
        np.array([ok for _, ok in pairs], bool),
    )
    ranks = rank_bits(values, valid, highest_first=highest_first)

    def place(row):
        value = values[row]
        missing = not valid[row] or math.isnan(value)
        return (missing, 0.0 if missing else -value if highest_first else value)

    rows = range(len(pairs))
    assert sorted(rows, key=lambda row: int(ranks[row])) == sorted(rows, key=place)
    assert all((ranks[row] == LOWEST) == place(row)[0] for row in rows)
