"""Hashes of document rows: digests that prove that an attribute file belongs to its documents, and keys that find equal ones.

A row is hashed as, for each of its columns, the byte length (uint32, little endian) and the UTF-8 bytes. The lengths keep ``("ab", "c")``
and ``("a", "bc")`` apart. Digests (xxh3-128) depend on the rows only, never on how they were cut into batches.

Keys are 128 bits of xxh3 over a text, an identity or any value, and numbers as integers that sort alike. Equal keys stand for equal values:
among 10**12 different ones two agree with a probability of 10**-15. 10 to 35 ns per short value, 8 GB/s on texts of 3 kB; no Python object
is made for a value of up to 1,024 bytes.
"""

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from dolma_dask.errors import DataError, SchemaError
from dolma_dask.text.bits import address_of, memcpy, put_half
from dolma_dask.text.columns import for_kernel, string_parts, validity
from dolma_dask.text.kernels import Bools, Bytes, Counts, Words, kernel
from dolma_dask.text.xxh3 import hash_strings

NULL_SIZE = 0xFFFFFFFF
"""Length that stands for null; also the first length that does not fit."""
HEADER = 4
"""Bytes of a length."""

LOWEST = np.uint64(0xFFFFFFFFFFFFFFFF)
"""Rank of a missing number: behind all others."""

_LONG_BYTES = 8 << 20
"""Texts of a batch from which on they are hashed where they are, row by row."""

_SIGN = np.uint64(1 << 63)


class DocumentDigests:
    """Running digests of the rows of documents."""

    def __init__(self) -> None:
        self._ids, self._content = xxhash.xxh3_128(), xxhash.xxh3_128()

    def update(self, batch: pa.RecordBatch, taken: Bools | None = None) -> None:
        """Add the next rows, or those of them that are taken, to the digests whose columns they have."""
        names = batch.schema.names
        if "id" in names and "source" in names:
            identity = batch.column("source"), batch.column("id")
            self._ids.update(interleaved(*identity, taken=taken)[0].data)
            if "text" in names:
                self._add_texts(identity, batch.column("text"), taken)

    def _add_texts(self, identity: tuple[pa.Array, pa.Array], texts: pa.Array, taken: Bools | None) -> None:
        if texts.nbytes < _LONG_BYTES:
            self._content.update(interleaved(*identity, texts, taken=taken)[0].data)
            return
        offsets, data = string_parts(texts)
        sizes = _value_sizes(texts, offsets)
        for row in range(len(texts)) if taken is None else np.flatnonzero(taken).tolist():
            size = int(sizes[row])  # long texts are not copied
            self._content.update(interleaved(*(column.slice(row, 1) for column in identity))[0].data)
            self._content.update(size.to_bytes(HEADER, "little"))
            if size != NULL_SIZE:
                self._content.update(data[offsets[row] : offsets[row + 1]].data)

    @property
    def ids(self) -> str:
        """The ``ids_digest`` of all rows so far: that of the columns (source, id), 32 hexadecimal digits."""
        return str(self._ids.hexdigest())

    @property
    def content(self) -> str:
        """The ``content_digest`` likewise: that of the columns (source, id, text)."""
        return str(self._content.hexdigest())


def digests_of_parts(
    batch: pa.RecordBatch, cuts: Counts, taken: Bools | None = None
) -> list[tuple[str, str]]:
    """Return the ``ids_digest`` and ``content_digest`` of each part of the rows that `cuts` (parts + 1,) divide, or of those of them that are taken."""
    columns = [batch.column(name) for name in ("source", "id", "text")]
    at = cuts if taken is None else np.concatenate([[0], np.cumsum(taken)])[cuts]
    digests = []
    for some in columns[:2], columns:
        data, ends = interleaved(*some, taken=taken)
        bounds = ends[at].tolist()
        digests.append([xxhash.xxh3_128_hexdigest(data[a:b].data) for a, b in pairwise(bounds)])
    return list(zip(*digests, strict=True))


def interleaved(*columns: pa.LargeStringArray, taken: Bools | None = None) -> tuple[Bytes, Counts]:
    """Return the lengths and bytes of all values, row by row, and the offsets (n + 1,) that cut them into rows; of the rows that are taken.

    The lengths are uint32, little endian; null has `NULL_SIZE` and no bytes. Raises `SchemaError`: the columns differ in length, or there are none.
    Raises `DataError`: a value has 4 GiB or more.
    """
    rows = {len(column) for column in columns}
    if len(rows) != 1:
        raise SchemaError(f"columns of {sorted(rows)} rows cannot be hashed together; expected equal lengths")
    parts = [string_parts(column) for column in columns]
    starts = [offsets[:-1] for offsets, _ in parts]
    sizes = [_value_sizes(column, offsets) for column, (offsets, _) in zip(columns, parts, strict=True)]
    if taken is not None:
        starts, sizes = [start[taken] for start in starts], [size[taken] for size in sizes]
    written = sum(_stored(column, size) for column, size in zip(columns, sizes, strict=True))
    ends = np.zeros(len(sizes[0]) + 1, np.int64)
    np.cumsum(written + HEADER * len(columns), out=ends[1:])
    joined = np.empty(int(ends[-1]), np.uint8)
    positions = ends[:-1].copy()  # where the next column of each row goes
    for start, size, (_, data) in zip(starts, sizes, parts, strict=True):
        _put_values(for_kernel(start), size, data, joined, positions)
    return joined, ends


def _value_sizes(column: pa.Array, cut: Counts) -> Counts:
    """Return what is written as the length of each value (n,)."""
    sizes = np.diff(cut)
    if column.null_count:
        sizes[~validity(column)] = -1
    if sizes.max(initial=0) >= NULL_SIZE:
        row = int(sizes.argmax())
        raise DataError(
            f"row {row} of a batch holds {sizes[row]} bytes in one string; expected less than 4 GiB"
        )
    if column.null_count:
        sizes[sizes < 0] = NULL_SIZE
    return sizes


def _stored(column: pa.Array, sizes: Counts) -> Counts:
    """Return how many bytes of each value are written, by what `_value_sizes` returned for it."""
    return np.where(sizes == NULL_SIZE, 0, sizes) if column.null_count else sizes


@kernel
def _put_values(starts: Counts, sizes: Counts, data: Bytes, out: Bytes, positions: Counts) -> None:
    """Write length and bytes of each value of a column at the position of its row in `out`, and advance the positions."""
    source, target = address_of(data), address_of(out)
    for i in range(sizes.size):
        at, size = target + positions[i], sizes[i]
        put_half(at, size)
        at += HEADER
        # a null has a size of its own, so that it differs from an empty string
        if size != NULL_SIZE:
            memcpy(at, source + starts[i], size)
            at += size
        positions[i] = at - target


def text_keys(column: pa.LargeStringArray) -> tuple[Words, Words]:
    """Return the two halves (n,) of xxh3-128 of the bare UTF-8 of each value; what null gives means nothing, the caller has to leave it out."""
    offsets, data = string_parts(column)
    return hash_strings(data, offsets)


def keys128(*columns: pa.LargeStringArray) -> tuple[Words, Words]:
    """Hash columns (n,) together, as `interleaved` puts their values, and return both halves (n,); errors are its own.

    The identity of a document is ``keys128(source, id)``. The lengths keep rows of one column apart from rows of two.
    """
    return hash_strings(*interleaved(*columns))


def number_keys(numbers: npt.NDArray[np.float64]) -> tuple[Words, Words]:
    """Hash numbers (n,) by their eight bytes, and return both halves (n,); 0.0 and -0.0 are one."""
    return word_keys((np.asarray(numbers, np.float64) + 0.0).view(np.uint64))


def word_keys(*words: Words) -> tuple[Words, Words]:
    """Hash columns of words (n,) together by their bytes, and return both halves (n,)."""
    rows = np.stack(words, axis=1)
    offsets = np.arange(len(rows) + 1, dtype=np.int64) * (8 * len(words))
    return hash_strings(rows.reshape(-1).view(np.uint8), offsets)


def rank_bits(
    numbers: npt.NDArray[np.float64], valid: npt.NDArray[np.bool_], *, highest_first: bool
) -> Words:
    """Turn numbers (n,) into integers that sort as they do, or the other way round; `LOWEST` where `valid` is false or a number is NaN."""
    bits = (np.asarray(numbers, np.float64) + 0.0).view(np.uint64)
    ordered = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    ranked = ~ordered if highest_first else ordered
    return np.where(valid & ~np.isnan(numbers), ranked, LOWEST)
