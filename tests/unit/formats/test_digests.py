"""Digests of rows against one that hashes value by value."""

import os
import struct

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from dolma_dask.errors import SchemaError
from dolma_dask.formats import digests
from dolma_dask.formats.digests import RowDigest

values = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def oracle(rows):
    digest = xxhash.xxh3_128()
    for row in rows:
        for value in row:
            data = b"" if value is None else value.encode()
            digest.update(struct.pack("<I", 0xFFFFFFFF if value is None else len(data)) + data)
    return digest.hexdigest()


def columns_of(rows, width, offset=0):
    padded = [("padding",) * width] * offset + list(rows)
    return [pa.array([row[k] for row in padded], pa.large_string()).slice(offset) for k in range(width)]


@given(st.data(), st.integers(1, 3), st.integers(16, 200), st.integers(0, 3))
@settings(deadline=None)
def test_equals_the_oracle_however_it_is_cut(data, width, buffer_bytes, offset):
    rows = data.draw(st.lists(st.tuples(*[values] * width), max_size=30))
    cut = data.draw(st.integers(0, len(rows)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digests, "BUFFER_BYTES", buffer_bytes)  # long rows, and many fillings of the buffer
        digest = RowDigest()
        for part in (rows[:cut], rows[cut:]):
            digest.update(*columns_of(part, width, offset))
    assert digest.hexdigest() == oracle(rows)
    assert digest.rows == len(rows)


def test_rows_around_the_size_of_the_buffer():
    sizes = [0, 1, digests.BUFFER_BYTES - 4, digests.BUFFER_BYTES - 3, 3 * digests.BUFFER_BYTES, 5]
    rows = [(os.urandom(size // 2).hex() + "x" * (size % 2),) for size in sizes]
    digest = RowDigest()
    digest.update(*columns_of(rows, 1))
    assert digest.hexdigest() == oracle(rows)


def test_values_cannot_move_between_columns():
    seen = set()
    for rows in (
        [("ab", "c")],
        [("a", "bc")],
        [("abc", "")],
        [("abc", None)],
        [(None, "abc")],
        [("", "abc")],
    ):
        digest = RowDigest()
        digest.update(*columns_of(rows, 2))
        seen.add(digest.hexdigest())
    assert len(seen) == 6


def test_value_hidden_below_a_null_does_not_count():
    hidden = pa.Array.from_buffers(
        pa.large_string(),
        1,
        [pa.py_buffer(b"\x00"), pa.py_buffer(struct.pack("<qq", 0, 3)), pa.py_buffer(b"abc")],
    )
    assert hidden.to_pylist() == [None]
    digest = RowDigest()
    digest.update(hidden)
    assert digest.hexdigest() == oracle([(None,)])


def test_no_rows():
    assert RowDigest().hexdigest() == oracle([])


def test_columns_that_cannot_be_digested_together():
    digest = RowDigest()
    digest.update(*columns_of([("a", "b")], 2))
    with pytest.raises(SchemaError, match="over 2 columns was given 1"):
        digest.update(*columns_of([("a",)], 1))
    with pytest.raises(SchemaError, match=r"\[1, 2\] rows"):
        digest.update(pa.array(["a"], pa.large_string()), pa.array(["a", "b"], pa.large_string()))
