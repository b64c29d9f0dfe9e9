"""Rows from counts: no token is lost, and shards, files and batches do not matter."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.tokens.packing import (
    count_segments,
    cut_files,
    document_segments,
    pieces_of,
    stream_rows,
    stream_segments,
)

LENGTHS = st.lists(st.integers(0, 40), max_size=12)


def windows_of(tokens: list[int], length: int) -> list[list[int]]:
    """Cut as the original does: windows of length + 1 tokens, each beginning with the last token of the one before."""
    return [tokens[start : start + length + 1] for start in range(0, len(tokens), length)]


@given(st.integers(0, 300), st.integers(1, 20))
def test_a_stream_is_cut_as_the_original_cuts_it(count, length):
    tokens = list(range(count))
    rows = [window for window in windows_of(tokens, length) if len(window) > 1]
    windows = stream_segments(0, stream_rows(count, length, "pad"), count, length)
    found = [tokens[start : start + size] for start, size in zip(windows.starts, windows.sizes, strict=True)]
    assert found == rows
    assert stream_rows(count, length, "drop") == sum(len(window) == length + 1 for window in rows)


@given(LENGTHS, st.integers(1, 9), st.integers(0, 12))
def test_documents_by_themselves_are_cut_as_the_original_cuts_them(lengths, length, least):
    expected, begin = [], 0
    for count in lengths:
        tokens = list(range(begin, begin + count))
        cut = windows_of(tokens, length)
        expected.append([window for window in cut if len(window) >= max(2, least)])
        begin += count
    counted = np.array(lengths, np.int32)
    windows = document_segments(counted, length, least)
    found = [
        list(range(start, start + size)) for start, size in zip(windows.starts, windows.sizes, strict=True)
    ]
    assert found == [window for document in expected for window in document]
    assert count_segments(counted, length, least).tolist() == [len(document) for document in expected]


@given(st.integers(0, 1000), st.integers(1, 60))
def test_files_are_even_and_hold_every_row(rows, most):
    cut = cut_files(rows, most)
    assert [row for first, stop in cut for row in range(first, stop)] == list(range(rows))
    sizes = [stop - first for first, stop in cut]
    assert not sizes or (max(sizes) <= most and max(sizes) - min(sizes) <= 1)
    assert len(cut) == -(-rows // most)


@given(LENGTHS, st.data())
def test_pieces_are_what_one_partition_would_give(sizes, data):
    whole = [(partition, item) for partition, size in enumerate(sizes) for item in range(size)]
    first = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(first, len(whole)))
    pieces = list(pieces_of(sizes, first, stop))
    assert [(part, item) for part, start, end in pieces for item in range(start, end)] == whole[first:stop]
    assert all(start < end for _, start, end in pieces)
