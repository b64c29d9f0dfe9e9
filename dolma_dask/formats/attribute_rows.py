"""The kernel that lays out attribute rows: copies heads, keys and texts, and writes document scores in place.

One pass into a buffer that is large enough for the longest numbers; 2.2 GB of JSON per CPU-second.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dolma_dask.formats.json.write import (
    CLOSE,
    COMMA,
    HARD,
    LEFT_OUT,
    MAX_INTEGER,
    MAX_NUMBER,
    OPEN,
    ZERO,
    Bytes,
    Numbers,
    Offsets,
    for_kernel,
    join_texts,
    put_digits,
    put_piece,
    put_score,
    string_parts,
    string_texts,
    validity,
)
from dolma_dask.text.bits import copy_bytes
from dolma_dask.text.kernels import kernel


def assemble_rows(
    heads: pa.LargeStringArray,
    tails: pa.LargeStringArray,
    keys: Sequence[str],
    from_text: Sequence[bool],
    numbers: Numbers,
    texts: Sequence[pa.LargeStringArray],
    lengths: NDArray[np.int64] | None,
) -> pa.LargeBinaryArray:
    """Write ``head "key":value,... tail`` for each of n rows.

    Parameters
    ----------
    heads, tails : pa.LargeStringArray
        (n,) what stands before and behind the members.
    keys : Sequence[str]
        (k,) names of the members, in writing order.
    from_text : Sequence[bool]
        (k,) whether the member is the next of `texts`, or the next row of `numbers`.
    numbers : Numbers
        (documents, n)
    texts : Sequence[pa.LargeStringArray]
        (n,) each, JSON; null where the member is left out.
    lengths : numpy.ndarray or None
        (n,) Numbers are written ``[[0,length,x]]``, and members follow an opening brace; without: ``x``, and members
        follow another member.
    """
    rows = len(heads)
    slots, state = _slots(from_text, numbers, texts, rows)
    key = string_parts(join_texts(",", string_texts(pa.array(keys, pa.large_string())), ":"))
    head, tail, text = string_parts(heads), string_parts(tails), _stack(texts, rows)
    number_size = MAX_NUMBER + MAX_INTEGER + len("[[0,,]]")
    # Address space, not memory: what the kernel does not reach is never touched.
    size = rows * (len(key[1]) + number_size * len(numbers.values)) + sum(
        len(data) for _, data in (head, tail, text)
    )
    out, offsets = np.empty(size, np.uint8), np.empty(rows + 1, np.int64)
    hard = (numbers.offsets, numbers.hard)
    flat = lengths is None
    opening = np.empty(MAX_INTEGER + 8, np.uint8)  # "[[0,length," of a row
    ends = for_kernel(np.zeros(rows, np.int64) if lengths is None else lengths)
    _write_rows(
        *head, *tail, *key, *text, *hard, numbers.values, slots, state, ends, flat, opening, out, offsets
    )
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(out[: offsets[-1]])]
    return pa.Array.from_buffers(pa.large_binary(), rows, buffers)


def _slots(
    from_text: Sequence[bool], numbers: Numbers, texts: Sequence[pa.Array], rows: int
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """For each member its row of `numbers`, or -1 - its place in `texts` (k,); and its state (k, n)."""
    is_text = np.asarray(from_text, np.bool_)
    slots = np.where(is_text, -np.cumsum(is_text, dtype=np.int64), np.cumsum(~is_text) - 1)
    state = np.empty((len(slots), rows), np.uint8)
    for k, slot in enumerate(slots):
        state[k] = validity(texts[-1 - slot]) if slot < 0 else numbers.state[slot]
    return slots, state


def _stack(texts: Sequence[pa.Array], rows: int) -> tuple[Offsets, Bytes]:
    """Text columns as one blob, and offsets into it (texts, n + 1)."""
    offsets = np.empty((len(texts), rows + 1), np.int64)
    blobs = [np.empty(0, np.uint8)]
    end = 0
    for k, text in enumerate(texts):
        cut, data = string_parts(text)
        blobs.append(data[cut[0] : cut[-1]])
        offsets[k] = cut + (end - cut[0])
        end += len(blobs[-1])
    return offsets, np.concatenate(blobs)


@kernel
def _write_rows(  # type: ignore[no-untyped-def]
    head_cut, head, tail_cut, tail, key_cut, keys, text_cut, text, hard_cut, hard,
    values, slots, state, lengths, flat, opening, out, offsets,
):  # fmt: skip
    opening[0], opening[1], opening[2], opening[3] = OPEN, OPEN, ZERO, COMMA
    p, next_hard, opened = 0, 0, 0
    for i in range(lengths.size):
        offsets[i] = p
        p = put_piece(out, p, head, head_cut, i)
        if not flat:
            opened = put_digits(opening, 4, lengths[i]) + 1
            opening[opened - 1] = COMMA
        first = not flat
        for j in range(slots.size):
            if state[j, i] == LEFT_OUT:
                continue
            begin = key_cut[j] + first  # keys begin with the comma that parts them from the member before
            copy_bytes(out, p, keys, begin, key_cut[j + 1] - begin)
            p += key_cut[j + 1] - begin
            first = False
            if slots[j] < 0:
                p = put_piece(out, p, text, text_cut[-1 - slots[j]], i)
                continue
            copy_bytes(out, p, opening, 0, opened)
            p += opened
            if state[j, i] == HARD:
                p = put_piece(out, p, hard, hard_cut, next_hard)
                next_hard += 1
            else:
                p = put_score(out, p, values[slots[j], i])
            if not flat:
                out[p], out[p + 1] = CLOSE, CLOSE
                p += 2
        p = put_piece(out, p, tail, tail_cut, i)
    offsets[lengths.size] = p
