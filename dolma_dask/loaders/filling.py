"""Batches of arrays, filled with the tokens of rows by one kernel."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from dolma_dask.loaders.index import Int64s
from dolma_dask.loaders.ragged import RaggedDataset
from dolma_dask.loaders.rows import RowSource
from dolma_dask.text.bits import address_of, byte_at, half_at, memcpy, short_at, word_at
from dolma_dask.text.kernels import kernel

Labels = Literal["same", "shifted", "none"]

LABELS = get_args(Labels)

UNSEEN = -100
"""Label of a position that predicts nothing, as torch's cross entropy and Hugging Face have it."""

Batch = dict[str, NDArray[Any]]


class BatchShape(Struct, frozen=True):
    """Arrays of a batch."""

    length: int  # tokens of a row
    dtype: np.dtype[Any]
    labels: Labels
    eos: int | None  # id of the end token that is added
    pad: int  # id behind the last token of a row
    has_segments: bool  # rows are packed documents: segment_ids and position_ids tell them apart

    def empty(self, rows: int) -> Batch:
        """Return the arrays of a batch, to be filled; all are views of one, their ``base``."""
        names = ["input_ids"] + ["labels"] * (self.labels != "none")
        names += ["segment_ids", "position_ids"] * self.has_segments
        # one piece of memory: the allocator gives several back to the system after each batch, and every page of them is made anew
        return dict(zip(names, np.empty((len(names), rows, self.length), self.dtype), strict=True))

    def fill(
        self, batch: Batch, at: Int64s, dataset: RaggedDataset, rows: RowSource, numbers: Int64s
    ) -> None:
        """Put rows of a dataset into the places `at` of a batch."""
        pieces = rows.pieces(numbers)
        addresses, owner = dataset.addresses(pieces.start, pieces.stored)
        width, is_signed = dataset.dtype.itemsize, dataset.dtype.kind == "i"
        nothing = np.empty((0, 0), self.dtype)
        arrays = [batch.get(name, nothing) for name in ("input_ids", "labels", "segment_ids", "position_ids")]
        ids = (self.eos or 0, self.pad, int(self.labels == "shifted"))
        where = at[pieces.row]
        _fill(addresses, width, is_signed, where, pieces.place, pieces.stored, pieces.size, *ids, *arrays)
        del owner


def rows_of(batch: Mapping[str, NDArray[Any]]) -> list[Batch]:
    """Return the rows of a batch, as views of it."""
    return [dict(zip(batch, row, strict=True)) for row in zip(*batch.values(), strict=True)]


@kernel
def _copy(address, width, is_signed, count, target, row, place):  # type: ignore[no-untyped-def]
    """Copy ids of any type; numbers without a sign keep loops free of a look at each index."""
    row, place = np.uint64(row), np.uint64(place)
    sign = np.int64(0)
    if is_signed and width < 8:
        sign = np.int64(1) << (8 * width - 1)
    if width == 2:
        for at in range(np.uint64(max(count, 0))):
            target[row, place + np.uint64(at)] = (short_at(address + 2 * np.int64(at)) ^ sign) - sign
    elif width == 4:
        for at in range(np.uint64(max(count, 0))):
            target[row, place + np.uint64(at)] = (half_at(address + 4 * np.int64(at)) ^ sign) - sign
    elif width == 8:
        for at in range(np.uint64(max(count, 0))):
            target[row, place + np.uint64(at)] = word_at(address + 8 * np.int64(at))
    else:
        for at in range(np.uint64(max(count, 0))):
            target[row, place + np.uint64(at)] = (byte_at(address + np.int64(at)) ^ sign) - sign


@kernel
def _put(target, row, place, stop, value):  # type: ignore[no-untyped-def]
    for at in range(np.uint64(place), np.uint64(max(stop, place))):
        target[np.uint64(row), np.uint64(at)] = value


@kernel
def _put_positions(target, row, place, count):  # type: ignore[no-untyped-def]
    for at in range(np.uint64(count)):
        target[np.uint64(row), np.uint64(place) + np.uint64(at)] = np.int64(at)


@kernel
def _put_same(target, source, row, place, count):  # type: ignore[no-untyped-def]
    item = source.itemsize
    skipped = (row * source.shape[1] + place) * item
    memcpy(address_of(target) + skipped, address_of(source) + skipped, count * item)


@kernel
def _fill(  # type: ignore[no-untyped-def]
    addresses,
    width,
    is_signed,
    rows,
    places,
    stored,
    sizes,
    eos,
    pad,
    shift,
    input_ids,
    labels,
    segment_ids,
    position_ids,
):
    """Write all arrays of rows, whose pieces follow each other; arrays without columns are not wanted.

    With `shift` labels are the tokens that follow. Of packed documents each piece has one more then, which is a label alone; of other rows the last piece has.
    """
    length, is_packed = input_ids.shape[1], segment_ids.shape[1] > 0
    has_labels, segment = labels.shape[1] > 0, 0
    for piece in range(len(rows)):
        row, place, size, known = rows[piece], places[piece], sizes[piece], stored[piece]
        segment = segment + 1 if place else 1
        # positions from `place` on that read tokens of this piece
        seen = size - shift if is_packed else min(size, length - place)
        _copy(addresses[piece], width, is_signed, min(known, seen), input_ids, row, place)
        if known < seen:
            input_ids[row, place + known] = eos
        if has_labels and shift:
            # the first token of a row, or of a packed document, follows none
            skipped = 1 if is_packed or place == 0 else 0
            address, first = addresses[piece] + width * skipped, place + skipped - 1
            _copy(address, width, is_signed, known - skipped, labels, row, first)
            if known < size and place + known >= 1:
                labels[row, place + known - 1] = eos
        elif has_labels:
            _put_same(labels, input_ids, row, place, seen)
            if is_packed:
                labels[row, place] = UNSEEN
        if is_packed:
            _put(segment_ids, row, place, place + seen, segment)
            _put_positions(position_ids, row, place, seen)
        if piece + 1 == len(rows) or rows[piece + 1] != row:
            _put(input_ids, row, place + seen, length, pad)
            if has_labels:
                _put(labels, row, max(place + size - shift, 0), length, UNSEEN)
            if is_packed:
                _put(segment_ids, row, place + seen, length, 0)
                _put(position_ids, row, place + seen, length, 0)
