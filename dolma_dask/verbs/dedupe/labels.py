"""Arrays with a number per document, in files of which slices are read and checked; numbers are little-endian."""

from typing import Any

import numpy as np
import numpy.typing as npt

from dolma_dask.io import files
from dolma_dask.io.records import FileRecord
from dolma_dask.io.staging import StagingReader, stage

Labels = npt.NDArray[np.uint32] | npt.NDArray[np.uint64]


def label_type(documents: int) -> np.dtype[np.unsignedinteger]:
    """Return the type of labels: the top bit tells roots, so that 4 bytes are enough for fewer than 2**31 documents."""
    return np.dtype("<u4" if documents < 1 << 31 else "<u8")


def write_numbers(folder: str, path: str, numbers: npt.NDArray[Any]) -> FileRecord:
    """Write a number per document to a file below `folder`."""
    with stage(files.join(folder, path)) as out:
        out.write(numbers.view(np.uint8).data)
    return FileRecord(path, out.bytes, out.checksum, len(numbers))


def read_labels(folder: str, file: FileRecord, first: int, count: int) -> Labels:
    """Return the labels of `count` documents from `first` on; see `read_numbers`."""
    return read_numbers(folder, file, label_type(file.rows), first, count)


def read_numbers(
    folder: str, file: FileRecord, kind: np.dtype[Any], first: int, count: int
) -> npt.NDArray[Any]:
    """Return the numbers, of type `kind`, of `count` documents from `first` on.

    Raises `CorruptFileError`: the file is damaged; it is removed, so that the same command makes it again.
    """
    with StagingReader(files.join(folder, file.path), file.checksum, scattered=True) as opened:
        return np.frombuffer(opened.read(first * kind.itemsize, count * kind.itemsize), kind)
