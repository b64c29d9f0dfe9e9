"""Lines and their repetition."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from dolma_dask.text.ngrams import count_duplicates
from dolma_dask.text.view import TextView
from dolma_dask.text.words import line_end


def buffer(text):
    return np.frombuffer(text.encode("utf-8").ljust(64, b"\n"), np.uint8)


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 127, 128, 200])
def test_line_ends_at_the_newline(length):
    text = "\r" * length + "\nrest" + "x" * 100
    assert line_end(buffer(text), 0, len(text)) == length


def test_line_ends_at_the_end():
    data = buffer("x" * 100 + "\n")
    for end in (0, 5, 64, 70, 100):
        assert line_end(data, 0, end) == end


@pytest.mark.parametrize(
    "lines", [["a"], ["a", "a"], ["é", "b", "é", "é"], ["", "x", ""], ["l" * 100 + "é", "y"] * 5 + ["z"]]
)
def test_all_copies_are_counted(lines):
    view = TextView(pa.array(["before", "\n".join(lines)], pa.large_string()))
    found = view.lines
    kept = np.arange(found.bounds[1], found.bounds[2])
    table, repeated = np.zeros(128, np.uint64), np.ones(len(lines), np.bool_)
    counts = Counter(lines)
    expected = (
        sum(count for count in counts.values() if count > 1),
        sum(count * len(line) for line, count in counts.items() if count > 1),
    )
    columns = (found.starts, found.sizes, found.hashes, kept)
    for generation in (1, 2, 3):
        assert (
            count_duplicates(view.data, view.offsets[1], *columns, len(kept), table, generation, repeated)
            == expected
        )
