"""Arrays with a number per document, in files of which slices are read and checked.

The numbers little-endian, then the xxh3-64 of each block of `BLOCK` bytes.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from dolma_dask.io import files
from dolma_dask.io.publish import publish
from dolma_dask.io.records import FileRecord

BLOCK = 1 << 20
"""Bytes that are checked together."""

Labels = npt.NDArray[np.uint32] | npt.NDArray[np.uint64]


def label_type(documents: int) -> np.dtype[np.unsignedinteger]:
    """Return the type of labels: the top bit tells roots, so that 4 bytes are enough for fewer than 2**31 documents."""
    return np.dtype("<u4" if documents < 1 << 31 else "<u8")


def write_numbers(url: str, path: str, numbers: npt.NDArray[Any]) -> FileRecord:
    """Write a number per document to the file at `url`; `path` is how records name it."""
    data = memoryview(numbers.view(np.uint8).data)
    with publish(url) as out:
        digests = np.empty(-(-len(data) // BLOCK), "<u8")
        for number in range(len(digests)):
            block = data[number * BLOCK : (number + 1) * BLOCK]
            out.write(block)
            digests[number] = xxhash.xxh3_64_intdigest(block)
        if len(digests):
            out.write(digests)
    return FileRecord(path, out.bytes, out.checksum, len(numbers))


def read_labels(url: str, documents: int, first: int, count: int) -> Labels:
    """Return the labels of `count` documents from `first` on, of a file with `documents`; see `read_numbers`."""
    return read_numbers(url, label_type(documents), documents, first, count)


def read_numbers(url: str, kind: np.dtype[Any], documents: int, first: int, count: int) -> npt.NDArray[Any]:
    """Return the numbers of `count` documents from `first` on, of a file with `documents` of type `kind`.

    Raises `CorruptFileError`: the file is damaged; it is removed, so that the same command makes it again.
    """
    numbers = np.empty(count, kind)
    begin, end, size = first * kind.itemsize, (first + count) * kind.itemsize, documents * kind.itemsize
    blocks = range(begin // BLOCK, -(-end // BLOCK)) if count else range(0)
    digests = np.empty(len(blocks), "<u8")
    view = memoryview(numbers.view(np.uint8).data)
    buffer = bytearray(BLOCK)
    with files.open_read(url, scattered=True) as handle:
        files.read_into(handle, size + 8 * blocks.start, memoryview(digests.view(np.uint8).data), url)
        for number, digest in zip(blocks, digests.tolist(), strict=True):
            at = number * BLOCK
            block = memoryview(buffer)[: min(BLOCK, size - at)]
            files.read_into(handle, at, block, url)
            if xxhash.xxh3_64_intdigest(block) != digest:
                raise files.damaged(url, f"another checksum in block {number}")
            low, high = max(at, begin), min(at + len(block), end)
            view[low - begin : high - begin] = block[low - at : high - at]
    return numbers
