"""Ids of token files in all formats, read in the order of documents."""

import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dolma_dask.errors import CorruptFileError
from dolma_dask.formats.ragged import RaggedSidecar, parse_npy_header, parse_sidecar
from dolma_dask.formats.token_files import FORMATS, SIDECAR, FormatName
from dolma_dask.io import files
from dolma_dask.io.parquet import open_parquet

Ids = NDArray[np.integer[Any]]

_NPY_HEAD = 1 << 12


def sidecar_of(url: str, name: FormatName) -> RaggedSidecar:
    """Return the record of origin of a token file, by the URL of its ids."""
    if name == "parquet":
        with open_parquet(url) as file:
            content = (file.metadata.metadata or {}).get(b"dolma_dask", b"")
        return parse_sidecar(content, url)
    beside = url.removesuffix(FORMATS[name].data) + SIDECAR
    return parse_sidecar(files.read_bytes(beside), beside)


def ids_of(url: str, name: FormatName, dtype: np.dtype[Any], counts: list[int]) -> Iterator[Ids]:
    """Yield the ids of so many documents at a time as `counts` say in tokens."""
    source = _of_table(url) if name == "parquet" else _of_samples(url) if name == "mds" else None
    if source is None:
        yield from _back_to_back(url, name, dtype, counts)
        return
    held: list[Ids] = []
    have = 0
    for count in counts:
        while have < count:
            piece = next(source, None)
            if piece is None:
                raise _short(url, have, count)
            held.append(piece)
            have += piece.size
        joined = np.concatenate(held) if held else np.empty(0, dtype)
        yield joined[:count]
        held, have = [joined[count:]], have - count


def _back_to_back(url: str, name: FormatName, dtype: np.dtype[Any], counts: list[int]) -> Iterator[Ids]:
    with files.open_read(url) as handle:
        if name == "numpy":
            handle.seek(parse_npy_header(handle.read(_NPY_HEAD), url).offset)
        for count in counts:
            data = _exactly(handle, count * dtype.itemsize)
            if len(data) < count * dtype.itemsize:
                raise _short(url, len(data) // dtype.itemsize, count)
            yield np.frombuffer(data, dtype)


def _exactly(handle: BinaryIO, size: int) -> bytes:
    pieces = []
    while size and (piece := handle.read(size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _of_table(url: str) -> Iterator[Ids]:
    with open_parquet(url) as file:
        for batch in file.iter_batches(columns=["input_ids"]):
            column: pa.ListArray = batch.column(0)
            yield column.flatten().to_numpy(zero_copy_only=False)


def _of_samples(url: str) -> Iterator[Ids]:
    """Yield the ids of each sample of an MDS file; see `dolma_dask.formats.mds`."""
    with files.open_read(url) as handle:
        (samples,) = struct.unpack("<I", _exactly(handle, 4))
        places = np.frombuffer(_exactly(handle, 4 * (samples + 1)), "<u4").tolist()
        handle.seek(places[0])
        for start, stop in pairwise(places):
            sample = _exactly(handle, stop - start)
            size, tokens = struct.unpack_from("<II", sample)
            array = sample[8 + size : 8 + size + tokens]
            head = 1 + (1, 2, 4)[array[0] & 3]
            yield np.frombuffer(array[head:], "<i4")


def _short(url: str, found: int, expected: int) -> CorruptFileError:
    return CorruptFileError(
        f"{url} ends after {found:,} of {expected:,} ids that its segments tell of; expected all of them. Write the token file again.",
        url=url,
    )
