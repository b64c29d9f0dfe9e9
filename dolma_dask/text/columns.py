"""A text column as the two numpy arrays that kernels read: its bytes and its offsets, without a copy."""

import numpy as np
import pyarrow as pa

from dolma_dask.text.bits import WINDOW
from dolma_dask.text.kernels import Bytes, Counts


def text_buffers(text: pa.LargeStringArray) -> tuple[Bytes, Counts]:
    """View the buffers of a text column, slices included.

    Both arrays are marked read-only: numba compiles a kernel once per mutability of its arguments, and Arrow
    gives either.

    Parameters
    ----------
    text : pa.LargeStringArray
        Column without nulls, of n texts.

    Returns
    -------
    data : ndarray of uint8, shape (bytes,)
        UTF-8 of the whole buffer, at least up to the end of the last text. At least `WINDOW` bytes, for which a buffer
        that is shorter is copied; what follows the last text means nothing.
    offsets : ndarray of int64, shape (n + 1,)
        Text ``i`` is ``data[offsets[i]:offsets[i + 1]]``; the first offset of a slice is not 0.
    """
    _, offsets_buffer, data_buffer = text.buffers()
    offsets = np.zeros(1, np.int64)
    if len(text) > 0:
        offsets = np.frombuffer(offsets_buffer, np.int64, len(text) + 1, 8 * text.offset)
    data = np.zeros(WINDOW, np.uint8)
    if data_buffer is not None and data_buffer.size >= WINDOW:
        data = np.frombuffer(data_buffer, np.uint8)
    elif data_buffer is not None:
        data[: data_buffer.size] = np.frombuffer(data_buffer, np.uint8)
    offsets.flags.writeable = data.flags.writeable = False
    return data, offsets
