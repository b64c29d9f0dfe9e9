"""Digests of rows against one that hashes value by value."""

import struct

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.formats.digests import DocumentDigests

NAMES = ("source", "id", "text")
values = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def oracle(rows):
    digest = xxhash.xxh3_128()
    for row in rows:
        for value in row:
            data = b"" if value is None else value.encode()
            digest.update(struct.pack("<I", 0xFFFFFFFF if value is None else len(data)) + data)
    return digest.hexdigest()


def batch_of(rows, width=3, offset=0):
    padded = [("padding",) * width] * offset + list(rows)
    columns = [pa.array([row[k] for row in padded], pa.large_string()).slice(offset) for k in range(width)]
    return pa.record_batch(columns, NAMES[:width])


@given(st.data(), st.lists(st.tuples(values, values, values), max_size=30), st.integers(0, 3))
def test_equal_the_oracle_however_they_are_cut(data, rows, offset):
    cut = data.draw(st.integers(0, len(rows)))
    digests = DocumentDigests()
    for part in (rows[:cut], rows[cut:]):
        digests.update(batch_of(part, offset=offset))
    assert digests.ids == oracle(row[:2] for row in rows)
    assert digests.content == oracle(rows)


@given(st.lists(st.tuples(values, values, values, st.booleans()), max_size=30), st.booleans())
def test_rows_that_are_not_taken_do_not_count(rows, are_long):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dolma_dask.formats.digests._LONG_BYTES", 0 if are_long else 1 << 30)
        digests = DocumentDigests()
        digests.update(batch_of([row[:3] for row in rows]), np.array([row[3] for row in rows], np.bool_))
    assert digests.ids == oracle(row[:2] for row in rows if row[3])
    assert digests.content == oracle(row[:3] for row in rows if row[3])


def test_values_cannot_move_between_columns():
    pairs = [("ab", "c"), ("a", "bc"), ("abc", ""), ("abc", None), (None, "abc"), ("", "abc")]
    seen = set()
    for pair in pairs:
        digests = DocumentDigests()
        digests.update(batch_of([pair], 2))
        seen.add(digests.ids)
    assert len(seen) == len(pairs)


def test_value_hidden_below_a_null_does_not_count():
    buffers = [pa.py_buffer(b"\x00"), pa.py_buffer(struct.pack("<qq", 0, 3)), pa.py_buffer(b"abc")]
    hidden = pa.Array.from_buffers(pa.large_string(), 1, buffers)
    assert hidden.to_pylist() == [None]
    digests = DocumentDigests()
    digests.update(pa.record_batch([hidden, hidden], ["source", "id"]))
    assert digests.ids == oracle([(None, None)])


def test_rows_without_such_columns_have_the_digests_of_nothing():
    digests = DocumentDigests()
    digests.update(pa.record_batch([pa.array(["x"], pa.large_string())], ["text"]))
    assert digests.ids == digests.content == oracle([])
