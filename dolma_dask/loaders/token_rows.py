"""The ids of one row of a token file, in any format, without the others."""

import struct
from typing import Any

import h5py  # type: ignore[import-untyped]
import msgspec
import numpy as np
from numpy.typing import NDArray

from dolma_dask.errors import CorruptFileError
from dolma_dask.formats.hdf5 import DATASET, LM_FEATURES
from dolma_dask.formats.ragged import MAX_SIDECAR_BYTES, parse_npy_header
from dolma_dask.formats.token_files import FORMATS
from dolma_dask.io import files
from dolma_dask.io.parquet import open_parquet

Ids = NDArray[np.integer[Any]]

_HEAD_BYTES = 4096
_MEGATRON_DTYPES = {8: "<u2", 4: "<i4"}


def read_ids(url: str, row: int, first: int, size: int) -> Ids:
    """Return the ids of a document of a token file, or the inputs of a row of HDF5 and, behind them, the last label.

    Parameters
    ----------
    url : str
        The file of ids.
    row : int
        From 0.
    first, size : int
        Tokens of the rows before it, and its own; of files with a row per document.

    Raises
    ------
    CorruptFileError
        The file is not as its format says.
    """
    try:
        if url.endswith(".h5"):
            return _hdf5_row(url, row)
        if url.endswith(FORMATS["parquet"].data):
            return _parquet_row(url, row)
        if url.endswith(FORMATS["mds"].data):
            return _mds_row(url, row)
        dtype, start = _stream(url)
        data = _bytes_at(url, start + first * dtype.itemsize, size * dtype.itemsize)
        return np.frombuffer(data, dtype, size)
    except (LookupError, ValueError, TypeError, OSError, struct.error, msgspec.DecodeError) as error:
        if isinstance(error, OSError) and (error.errno or type(error) is not OSError):
            raise  # the file cannot be opened: OSError without a number is h5py's, of what a file holds
        raise CorruptFileError(
            f"{url}: row {row:,} cannot be read ({error}); expected a token file as this package writes it.",
            url=url,
        ) from error


def _stream(url: str) -> tuple[np.dtype[Any], int]:
    """Return the type of ids that stand back to back, and the byte at which they begin."""
    if url.endswith(FORMATS["numpy"].data):
        header = parse_npy_header(_bytes_at(url, 0, _HEAD_BYTES), url)
        return header.dtype, header.offset
    if url.endswith(FORMATS["megatron"].data):
        index = _bytes_at(f"{url.removesuffix('.bin')}.idx", 0, 18)
        return np.dtype(_MEGATRON_DTYPES[index[17]]), 0
    if url.endswith(FORMATS["datatrove"].data):
        about = files.read_bytes(f"{url}.metadata").decode().partition("\n")[0]
        return np.dtype(f"<u{int(about.rpartition('|')[2])}"), 0
    sidecar = msgspec.json.decode(
        _bytes_at(f"{url.removesuffix('.npy')}.json", 0, MAX_SIDECAR_BYTES), type=dict[str, Any]
    )
    return np.dtype(sidecar["dtype"]), 0


def _bytes_at(url: str, start: int, size: int) -> bytes:
    """Return bytes of a file; fewer at its end."""
    with files.open_read(url, scattered=True) as handle:
        handle.seek(start)
        return handle.read(size)


def _hdf5_row(url: str, row: int) -> Ids:
    with files.open_read(url, scattered=True) as handle, h5py.File(handle, "r") as file:
        channels = file[DATASET][row]
    labels = channels[LM_FEATURES.index("labels")]
    return np.append(channels[0], labels[-1])


def _parquet_row(url: str, row: int) -> Ids:
    with open_parquet(url) as file:
        for number in range(file.num_row_groups):
            count = file.metadata.row_group(number).num_rows
            if row < count:
                group = file.read_row_group(number, columns=["input_ids"], use_threads=False)
                return np.array(group.column(0)[row].as_py(), np.int64)
            row -= count
    raise LookupError("there is no such row")


def _mds_row(url: str, row: int) -> Ids:
    (start,) = struct.unpack("<I", _bytes_at(url, 4 + 4 * row, 4))
    of_id, of_tokens = struct.unpack("<II", _bytes_at(url, start, 8))
    tokens = _bytes_at(url, start + 8 + of_id, of_tokens)
    form = "<" + "BHI"[tokens[0] & 3]
    (length,) = struct.unpack_from(form, tokens, 1)
    return np.frombuffer(tokens, "<i4", length, 1 + struct.calcsize(form))
