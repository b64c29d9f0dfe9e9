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

from dolma_dask.text import machine_code
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

    def run(calls: str = CALLS, **variables: str) -> tuple[list[str], bool]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]), **variables}
        environment["NUMBA_CACHE_DIR"] = str(tmp_path / "kernels")
        done = subprocess.run(
            [sys.executable, "-c", calls],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
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
    *_, refuse, twice, _, _ = kept(tmp_path)
    twice.write_bytes(refuse.read_bytes())
    assert run() == first, "the code of another kernel"
    (tmp_path / ".numba_config.yaml").write_text("boundscheck: 1\n")
    assert run()[1], "numba has settings"
    (tmp_path / ".numba_config.yaml").unlink()
    assert not run(NUMBA_DISABLE_JIT="1")[1]
    source = tmp_path / "some.py"
    status = source.stat()
    source.write_text(KERNELS.replace("value + value", "value * 3.500"))
    os.utime(source, ns=(status.st_mtime_ns, status.st_mtime_ns))
    assert source.stat().st_size == status.st_size
    assert run()[0][0].split()[:3] == ["7.0", "8.75", "24.5"], "the source has changed, but for size and time"


SMALL = """
import sys
{before}
from some import twice
{between}
print(twice(2))
print("numba" in sys.modules)
print(twice.calls)
print()
"""


def small(before: str = "", between: str = "") -> str:
    return SMALL.format(before=before, between=between)


@pytest.mark.slow
def test_a_damaged_file_is_not_run(run, tmp_path):
    """Whatever byte has changed: names of symbols that are not there would end the process."""
    run(small())
    (file,) = kept(tmp_path)
    content = file.read_bytes()
    places = [*range(0, 300, 3), *range(300, len(content), 97)]
    for at in places:
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        assert machine_code._read(file) is None
    file.write_bytes(content)
    assert machine_code._read(file)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["nbi", "nbc"])
def test_what_numba_keeps_is_made_again_where_it_is_damaged(run, tmp_path, kind):
    run(small())
    (file,) = tmp_path.rglob(f"*.{kind}")
    content = file.read_bytes()
    for damaged in (b"", content[: len(content) // 2], bytes(len(content))):
        kept(tmp_path)[0].unlink()
        file.write_bytes(damaged)
        assert run(small())[0][0] == "4"
        assert len(file.read_bytes()) == len(content)
        assert not run(small())[1]


EDITED = """
from pathlib import Path
path = Path("some.py")
path.write_text(path.read_text().replace("value + value", "value * 5"))
"""


@pytest.mark.slow
def test_a_process_that_began_before_an_upgrade_keeps_nothing_for_those_after_it(run):
    assert run(small(between=EDITED))[0][0] == "4"
    assert run(small())[0][0] == "10"
    assert run(small())[0][0] == "10"


FORKED = """
import os, signal, threading, time
from dolma_dask.text import kernels

def hold():
    with kernels._making:
        held.set()
        time.sleep(0.2)

held = threading.Event()
threading.Thread(target=hold).start()
held.wait()
if (child := os.fork()) == 0:
    signal.alarm(120)
    twice(2)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.slow
def test_a_fork_waits_for_no_lock_of_a_thread_that_it_lacks(run):
    run(small())
    assert run(small(between=FORKED))[0][0] == "4"


@pytest.mark.slow
def test_kernels_compile_where_users_keep_numba_from_their_functions(run):
    assert run(small(), NUMBA_DISABLE_JIT="1")[0][0] == "4"
    assert run(small("import numba", "assert numba.config.DISABLE_JIT"), NUMBA_DISABLE_JIT="1")[0][0] == "4"


def test_another_numba_has_other_files(tmp_path):
    helpers, version = tmp_path / "helpers.so", tmp_path / "_version.py"
    helpers.write_bytes(b"")
    version.write_text("0.1")
    one = machine_code._version_of_numba(helpers)
    version.write_text("0.2")
    assert machine_code._version_of_numba(helpers) != one


def test_a_user_without_a_home_has_kernels(monkeypatch):
    for name in ("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    assert len(list(machine_code._folders(small))) == 2


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
        np.zeros(3, [("key", "u8")]),
        np.zeros(3, np.dtype([("key", "u8")], align=True)),
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
