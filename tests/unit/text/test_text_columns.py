"""Arrow columns as arrays, and lengths in code points."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from dolma_dask.testing.taggers import WILD_TEXTS
from dolma_dask.text import columns
from dolma_dask.text.bits import WINDOW
from dolma_dask.text.columns import code_point_lengths, string_parts

CASES = {
    "none": pa.array([], pa.large_string()),
    "windows": pa.array(["é" * 31, "é" * 32, "x" + "語" * 100, ""], pa.large_string()),
    "only empty": pa.array(["", ""], pa.large_string()),
    "short": pa.array(["é", "", "ab"], pa.large_string()),
    "wild": pa.array(WILD_TEXTS, pa.large_string()),
    "slice": pa.array(WILD_TEXTS, pa.large_string()).slice(3, 5),
    "slice of nothing": pa.array(WILD_TEXTS, pa.large_string()).slice(4, 0),
    "slice at the end": pa.array(["x" * 100, "yz"], pa.large_string()).slice(1),
    "narrow slice": pa.array(["x" * 100, "yz"]).slice(1),
    "foreign memory": pa.Array.from_buffers(
        pa.large_string(), 1, [None, pa.py_buffer(np.array([0, 65])), pa.py_buffer(bytearray(b"x" * 65))]
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_buffers_hold_the_texts(case):
    texts = CASES[case]
    offsets, data = string_parts(texts)
    assert (data.dtype, offsets.dtype) == (np.uint8, np.int64)
    assert data.size >= WINDOW
    assert not data.flags.writeable
    assert not offsets.flags.writeable
    found = [bytes(data[a:b]).decode() for a, b in itertools.pairwise(offsets)]
    assert found == texts.to_pylist()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("many", [0, 1 << 18], ids=["kernel", "arrow"])
def test_lengths(case, many, monkeypatch):
    monkeypatch.setattr(columns, "MANY_BYTES", many)
    lengths = code_point_lengths(CASES[case])
    assert lengths.dtype == np.int64
    assert lengths.tolist() == [len(text) for text in CASES[case].to_pylist()]


def test_long_buffers_are_not_copied():
    texts = pa.array(["x" * 1000], pa.large_string())
    assert string_parts(texts)[1].ctypes.data == texts.buffers()[2].address
