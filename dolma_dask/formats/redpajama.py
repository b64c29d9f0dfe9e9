"""The MinHash tables of RedPajama-V2, ``<snapshot>/<shard>/<lang>_<bucket>.minhash.parquet``: columns and what their bytes mean.

A row has the id of a document, ``<shard_id>/<row>`` (`shard_id` is the path of the file of documents, `row` its line from 0), the first eight bytes of
the SHA-1 of this id, and the signature of 128 values four times: cut into bands for similarities of 1.0, 0.9, 0.8 and 0.7. A band is a binary of
big-endian uint32; the bands in a row are a prefix of the signature, so that ``signature_sim1.0`` holds everything. Signatures of documents
of fewer than 13 words are null. A table may lack rows: documents whose records could not be read.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.errors import DataError, UsageError
from dolma_dask.text.columns import string_parts
from dolma_dask.text.joined import parts_with_margin
from dolma_dask.text.kernels import Bools, Counts, Words
from dolma_dask.text.sha1 import sha1_words

BANDS = {
    "signature_sim1.0": (1, 128),
    "signature_sim0.9": (5, 25),
    "signature_sim0.8": (9, 13),
    "signature_sim0.7": (14, 9),
}
"""Bands, and values of a band, of each column of signatures."""

NUM_PERM = 128
"""Values of a signature."""

GROUP_ROWS = 5000
"""Rows of a row group."""

MINHASH_SCHEMA = pa.schema(
    [
        ("shard_id", pa.string()),
        ("id", pa.string()),
        ("id_int", pa.uint64()),
        *((name, pa.list_(pa.binary())) for name in BANDS),
    ]
)

_VALUE_BYTES = 4

Values = npt.NDArray[np.uint32]


def minhash_columns(shard_id: str, rows: Counts, values: Values, valid: Bools) -> list[pa.Array]:
    """Return the columns of `MINHASH_SCHEMA` for documents with these row numbers (n,): their signatures (n, `NUM_PERM`), null where not `valid`.

    Raises `UsageError`: signatures have another number of values.
    """
    if values.shape[1] != NUM_PERM:
        raise UsageError(
            f"signatures of {values.shape[1]} values; expected {NUM_PERM}, as the tables of RedPajama-V2 have them. Sign with num_perm={NUM_PERM}."
        )
    numbers = pa.array(rows, pa.int64()).cast(pa.string())
    ids = pc.binary_join_element_wise(pa.scalar(shard_id), numbers, "/")
    signatures = [_banded(values, valid, *shape) for shape in BANDS.values()]
    return [pa.repeat(pa.scalar(shard_id), len(rows)), ids, pa.array(id_numbers(ids)), *signatures]


def id_numbers(ids: pa.Array) -> Words:
    """Return the first eight bytes of the SHA-1 of each id (n,), as little-endian numbers."""
    offsets, data = parts_with_margin(ids)
    return sha1_words(data, offsets[:-1], offsets[1:])


def row_numbers(ids: pa.Array, url: str) -> Counts:
    """Return the row numbers (n,) at the end of ids. Raises `DataError`: an id has none; the message names `url`."""
    tails = pc.replace_substring_regex(ids, r"^.*/", "")
    is_number = pc.fill_null(pc.match_substring_regex(tails, r"^[0-9]{1,18}$"), False)
    if not pc.all(is_number).as_py():
        row = pc.index(is_number, False).as_py()
        raise DataError(
            f"{url}: id {ids[row].as_py()!r} has no row number; expected ids as 2023-06/0000/en_head.json.gz/17 in a table of RedPajama-V2.",
            url=url,
        )
    return np.asarray(tails.cast(pa.int64()))


def _banded(values: Values, valid: Bools, bands: int, rows_per_band: int) -> pa.ListArray:
    """Return the bands of each signature as binaries, null where not `valid`."""
    data = np.ascontiguousarray(values[valid, : bands * rows_per_band], ">u4")
    size = rows_per_band * _VALUE_BYTES
    offsets = np.arange(data.nbytes // size + 1, dtype=np.int32) * np.int32(size)
    binaries = pa.Array.from_buffers(
        pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    ends = np.concatenate([np.zeros(1, np.int32), np.cumsum(valid, dtype=np.int32)]) * np.int32(bands)
    return pa.ListArray.from_arrays(pa.array(ends), binaries, mask=pa.array(~valid))


def signature_values(column: pa.ListArray, name: str, url: str) -> tuple[Values, Bools]:
    """Return the first values of each signature, uint32 (n, bands * rows_per_band) by `BANDS`, and which rows (n,) have one; others are 0.

    Raises `DataError`: bands have another number or size than those of a column of this name; the message names `url`.
    """
    bands, rows_per_band = BANDS[name]
    valid = np.asarray(column.is_valid())
    binaries = column.flatten()
    counts = pc.drop_null(pc.list_value_length(column)).unique().to_pylist()
    sizes = pc.binary_length(binaries).unique().to_pylist()
    size = rows_per_band * _VALUE_BYTES
    if not {*counts} <= {bands} or not {*sizes} <= {size}:
        raise DataError(
            f"{url}: {name} has signatures of {counts} bands of {sizes} bytes; expected {bands} of {size}, as RedPajama-V2 has them. "
            "It was made with other options, or is another kind of table.",
            url=url,
            column=name,
        )
    values = np.zeros((len(column), bands * rows_per_band), np.uint32)
    if valid.any():
        offsets, data = string_parts(binaries.cast(pa.large_binary()))
        values[valid] = data[offsets[0] : offsets[-1]].view(">u4").reshape(-1, values.shape[1])
    return values, valid
