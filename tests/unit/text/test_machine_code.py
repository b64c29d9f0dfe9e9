"""Machine code that is kept does what numba's does, and nothing that is not known for certain is run."""

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
import pytest

from dolma_dask.text.machine_code import types_of

KERNELS = """
from typing import NamedTuple
from dolma_dask.text.kernels import kernel

class Pair(NamedTuple):
    left: object
    right: object

@kernel
def twice(value):
    return value + value

@kernel
def fill(array, value):
    for row in range(len(array)):
        array[row] = twice(value)

@kernel
def last(array):
    return array[-1]

@kernel
def both(pair):
    return pair[0][0], pair[1]

@kernel
def refuse(value):
    if value < 0:
        raise ValueError("below zero")
"""

CALLS = """
import sys
import numpy as np
from some import Pair, both, fill, last, refuse, twice

table = np.arange(12).reshape(3, 4)[:, ::2]
bytes_ = np.frombuffer(bytes(range(9)), np.uint8)
print(twice(2), twice(2.5), twice(np.uint64(7)), last(bytes_), last(table[:, 0]), last(bytes_.astype(np.float64)))
fill(table[:, 0], 3)
print(table.tolist(), both((table[0], 2)), both(Pair(table[0], 2)), refuse(1))
print("numba" in sys.modules)
try:
    refuse(-1)
except ValueError as error:
    print(error)
print(last(bytes_[1:].view(np.int32)), last(np.frombuffer(bytes(9), np.uint8)[1:].view(np.int64)))
"""


@pytest.fixture
def run(tmp_path):
    """Run the calls in a process of their own; return what they print, and whether numba was needed."""

    def run(**variables: str) -> tuple[list[str], bool]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]), **variables}
        environment["NUMBA_CACHE_DIR"] = str(tmp_path / "kernels")
        done = subprocess.run(
            [sys.executable, "-c", CALLS], env=environment, capture_output=True, text=True, check=True
        )
        *told, needed, error, others = done.stdout.splitlines()
        return [*told, error, others], needed == "True"

    (tmp_path / "some.py").write_text(KERNELS)
    return run


def kept(tmp_path: Path) -> list[Path]:
    return sorted(tmp_path.rglob("*.nbm"))


@pytest.mark.slow
def test_kept_code_is_used_where_it_is_right_and_nowhere_else(run, tmp_path):
    first = run()
    assert first == (run()[0], True)
    assert first[0][0].split() == ["4", "5.0", "14", "8", "8", "8.0"]
    assert first[0][2] == "below zero"
    assert not run()[1]
    assert run(NUMBA_BOUNDSCHECK="1")[1], "numba has settings"
    for damaged in (b"", b"\x96", kept(tmp_path)[0].read_bytes()[:-1]):
        kept(tmp_path)[0].write_bytes(damaged)
        assert run() == first
        assert not run()[1], "kept again"
    content = kept(tmp_path)[0].read_bytes()
    kept(tmp_path)[0].write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    assert run() == first, "a bit has changed"
    (tmp_path / "some.py").write_text(KERNELS.replace("value + value", "value * 3.0"))
    assert run()[0][0].split()[:3] == ["6.0", "7.5", "21.0"], "the source has changed"


class Pair(NamedTuple):
    left: object
    right: object


class Other(NamedTuple):
    left: object
    right: object


def _readonly(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


VALUES = [
    *(
        None,
        True,
        0,
        -(1 << 63),
        (1 << 63) - 1,
        0.5,
        np.int64(3),
        np.int32(3),
        np.uint64(3),
        np.uint32(3),
        np.uint8(3),
    ),
    *(
        np.float64(3),
        np.bool_(True),
        np.float32(3),
        1 << 63,
        "text",
        b"bytes",
        [1],
        np.zeros(2, np.float32).view(np.recarray),
    ),
    *(
        np.zeros(shape, kind)
        for shape in ((0,), (2,), (2, 3), (1, 3), ())
        for kind in (np.uint8, np.int64, "S3")
    ),
    *(
        np.zeros((4, 3))[::2],
        np.zeros(6)[::2],
        np.zeros((4, 3)).T,
        np.zeros((4, 3), np.int64).T,
        _readonly(np.zeros(3)),
    ),
    *(
        np.zeros(3, [("key", "u8"), ("row", "u4")]),
        np.zeros(3, [("key", "u8"), ("row", "i4")]),
        np.frombuffer(b"ab", np.uint8),
    ),
    *(
        np.zeros(9, np.uint8)[1:].view(np.int64),
        (),
        (1, 2),
        (1, 2.0),
        ((1,), 2),
        (np.zeros(2), 1),
        Pair(1, 2),
        Other(1, 2),
        Pair(1, 2.0),
    ),
]


def test_types_are_told_apart_as_numba_does():
    known = [value for value in VALUES if types_of((value,)) is not None]
    assert len(known) > len(VALUES) - 12
    for one, other in itertools.product(known, repeat=2):
        are_same = numba.typeof(one) == numba.typeof(other)
        assert (types_of((one,)) == types_of((other,))) == are_same, (one, other)
