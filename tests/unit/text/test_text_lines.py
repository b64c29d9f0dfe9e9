"""Lines and their repetition."""

from collections import Counter

import numpy as np
import pytest

from dolma_dask.text.bits import hash_bytes
from dolma_dask.text.lines import count_duplicates, line_end, newlines_end


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


def test_run_of_newlines():
    data = buffer("a\n\n\n\rb")
    assert newlines_end(data, 1, 6) == 4
    assert newlines_end(data, 1, 3) == 3
    assert newlines_end(data, 0, 6) == 0


@pytest.mark.parametrize(
    "lines", [["a"], ["a", "a"], ["é", "b", "é", "é"], ["", "x", ""], ["l" * 100 + "é", "y"] * 5 + ["z"]]
)
def test_all_copies_are_counted(lines):
    text = "\n".join(lines)
    data, end = buffer(text), len(text.encode())
    starts = np.cumsum([0, *(len(line.encode()) + 1 for line in lines[:-1])]).astype(np.int64)
    hashes = np.array(
        [hash_bytes(data, s, s + len(x.encode())) for s, x in zip(starts, lines, strict=True)], np.uint64
    )
    table, repeated = np.zeros(128, np.uint64), np.ones(len(lines), np.bool_)
    counts = Counter(lines)
    expected = (
        sum(count for count in counts.values() if count > 1),
        sum(count * len(line) for line, count in counts.items() if count > 1),
    )
    for generation in (1, 2, 3):
        assert (
            count_duplicates(data, end, len(lines), hashes, starts, table, generation, repeated) == expected
        )
