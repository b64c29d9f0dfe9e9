"""Arrays with a number per document, in files of which slices are read and checked; numbers are little-endian."""

from typing import Any

import numpy as np
import numpy.typing as npt

from dolma_dask.io.records import FileRecord
from dolma_dask.io.staging import StagingReader, stage

Labels = npt.NDArray[np.uint32] | npt.NDArray[np.uint64]


def label_type(documents: int) -> np.dtype[np.unsignedinteger]:
    """Return the type of labels: the top bit tells roots, so that 4 bytes are enough for fewer than 2**31 documents."""
    return np.dtype("<u4" if documents < 1 << 31 else "<u8")


def write_numbers(url: str, path: str, numbers: npt.NDArray[Any]) -> FileRecord:
    """Write a number per document to the file at `url`; `path` is how records name it."""
    with stage(url) as out:
        out.write(numbers.view(np.uint8).data)
    return FileRecord(path, out.bytes, out.checksum, len(numbers))


def read_labels(url: str, documents: int, first: int, count: int) -> Labels:
    """Return the labels of `count` documents from `first` on, of a file with `documents`; see `read_numbers`."""
    return read_numbers(url, label_type(documents), first, count)


def read_numbers(url: str, kind: np.dtype[Any], first: int, count: int) -> npt.NDArray[Any]:
    """Return the numbers, of type `kind`, of `count` documents from `first` on.

    Raises `CorruptFileError`: the file is damaged; it is removed, so that the same command makes it again.
    """
    with StagingReader(url) as file:
        return np.frombuffer(file.read(first * kind.itemsize, count * kind.itemsize), kind)
