"""Room behind texts, and slices of them."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from dolma_dask.text.joined import MARGIN, cut_texts, parts_with_margin


def column(data, *offsets):
    buffers = [None, pa.py_buffer(np.array(offsets, np.int64)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers)


@pytest.mark.parametrize("behind", [0, 1, MARGIN - 1, MARGIN, 1000])
def test_texts_are_copied_only_where_there_is_no_room(behind):
    """Kernels read behind a text; where it ends with a mapped file, the next page may not be there."""
    content = np.frombuffer(b"skipped" + b"one two" * 20 + b"." * behind, np.uint8)
    offsets, data = parts_with_margin(column(content, 0, 7, 10, 147).slice(1))
    assert [bytes(data[a:b]) for a, b in pairwise(offsets)] == [
        b"one",
        b" two" + b"one two" * 19,
    ]
    assert data.size >= offsets[-1] + MARGIN
    assert np.shares_memory(data, content) == (behind >= MARGIN)


def test_slices_of_a_few_bytes():
    texts = pa.array(["", "abc", "defg", "", "h" * 20, "i", ""], pa.large_string()).slice(1)
    parts = [part.to_pylist() for part in cut_texts(texts, 7)]
    assert parts == [["abc", "defg", ""], ["h" * 20], ["i", ""]]
    assert list(cut_texts(texts.slice(0, 0), 7)) == []
