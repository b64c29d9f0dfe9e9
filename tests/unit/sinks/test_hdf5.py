"""Files that plain h5py reads: content, layout, the same bytes each time, nothing after a failure."""

import errno
import subprocess
import sys
import tempfile
import time
import zlib
from types import SimpleNamespace

import h5py
import numpy as np
import pytest

from dolma_dask.errors import DataError, DiskFullError
from dolma_dask.formats.hdf5 import RowShape
from dolma_dask.io import files
from dolma_dask.metering import thread_cpu
from dolma_dask.sinks.hdf5 import Hdf5Writer

ROWS = np.random.default_rng(3).integers(0, 50_000, (7, 3, 16)).astype(np.int32)
ATTRIBUTES = {"mode": "LMData", "pad_id": 1, "features": ["input_ids", "é"]}


def write(root: str, rows: np.ndarray = ROWS, step: int = 3) -> Hdf5Writer:
    with Hdf5Writer(root, "a/part.h5", RowShape(len(rows), 3, 16), ATTRIBUTES) as writer:
        for start in range(0, len(rows), step):
            writer.write(rows[start : start + step])
    return writer


def test_content_and_layout(root, tmp_path):
    record = write(root).record
    url = files.join(root, "a/part.h5")
    assert (record.path, record.rows) == ("a/part.h5", 7)
    assert record.bytes == files.stat(url).bytes
    assert record.checksum == files.checksum(url)
    copy = tmp_path / "copy.h5"
    copy.write_bytes(files.read_bytes(url))
    with h5py.File(copy) as file:
        data = file["data"]
        assert np.array_equal(data[:], ROWS)
        assert np.array_equal(data[5], ROWS[5])
        assert list(file) == ["data"]
        assert (data.dtype, data.shape, data.chunks) == (np.dtype("<i4"), (7, 3, 16), (1, 3, 16))
        assert (data.compression, data.compression_opts, data.shuffle) == ("gzip", 4, False)
        assert type(file.attrs["n_examples"]) is np.int64
        assert dict(file.attrs) | {"features": list(file.attrs["features"])} == {
            "n_examples": 7,
            **ATTRIBUTES,
        }
        chunk = data.id.read_direct_chunk((4, 0, 0))
        assert zlib.decompress(chunk[1]) == ROWS[4].tobytes(), "HDF5's own gzip filter and no other"


@pytest.mark.parametrize("waiting", [-1, 99])
def test_the_same_bytes_whoever_deflates_them(tmp_path, monkeypatch, waiting):
    expected = write(str(tmp_path / "a"), step=1).record
    monkeypatch.setattr("dolma_dask.sinks.hdf5._WAITING", waiting)
    assert write(str(tmp_path / "b")).record.checksum == expected.checksum


@pytest.mark.slow
def test_the_same_bytes_in_any_batches_and_any_process(tmp_path):
    write(str(tmp_path / "a"))
    write(str(tmp_path / "b"), step=1)
    script = f"import runpy, sys; runpy.run_path({__file__!r})['write'](sys.argv[1], step=7)"
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "c")], check=True)
    found = {(tmp_path / name / "a/part.h5").read_bytes() for name in "abc"}
    assert len(found) == 1


def fail_after(root: str, announced: int, rows: np.ndarray, error: Exception | None = None) -> None:
    with Hdf5Writer(root, "x.h5", RowShape(announced, 3, 16)) as writer:
        writer.write(rows)
        if error is not None:
            raise error


def test_a_failure_leaves_nothing(root):
    with pytest.raises(ZeroDivisionError):
        fail_after(root, 7, ROWS, ZeroDivisionError())
    with pytest.raises(DataError, match="3 rows were written; expected 7"):
        fail_after(root, 7, ROWS[:3])
    with pytest.raises(DataError, match="7 rows for a file of 2"):
        fail_after(root, 2, ROWS)
    assert files.list_files(root) == []


def test_what_cannot_be_stored_is_raised_by_a_later_call_or_on_leaving(root, monkeypatch):
    """A thread stores rows: none of its failures may be lost."""

    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    def write(by_row: bool) -> None:
        with Hdf5Writer(root, "x.h5", RowShape(7, 3, 16)) as writer:
            monkeypatch.setattr(writer, "_chunks", SimpleNamespace(write_direct_chunk=broken))
            for rows in np.split(ROWS, len(ROWS)) if by_row else [ROWS]:
                writer.write(rows)
            assert not by_row, "the first failure was not raised"

    for by_row in (True, False):
        with pytest.raises(OSError, match="Input/output error"):
            write(by_row)
    assert files.list_files(root) == []


def test_a_full_disk_says_which(root, monkeypatch):
    """It is that of the temporary folder, in which the file is made; the output may lie on another."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def write() -> None:
        with Hdf5Writer(root, "x.h5", RowShape(7, 3, 16)) as writer:
            monkeypatch.setattr(writer, "_chunks", SimpleNamespace(write_direct_chunk=full))
            writer.write(ROWS)

    with pytest.raises(
        DiskFullError, match=f"{tempfile.gettempdir()}: No space left .* room for x.h5.*Set TMPDIR"
    ):
        write()


def test_cpu_of_the_thread_that_stores_is_that_of_the_writer(root):
    rows = np.random.default_rng(3).integers(0, 50_000, (400, 3, 2048)).astype(np.int32)
    before, own = thread_cpu(), time.thread_time()
    with Hdf5Writer(root, "x.h5", RowShape(400, 3, 2048)) as writer:
        writer.write(rows)
    assert thread_cpu() - before > time.thread_time() - own
