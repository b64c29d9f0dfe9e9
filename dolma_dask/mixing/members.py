"""Join JSON objects member by member: the attributes of several sets as one object, of which later ones win.

Cost: 1 to 2 GB/s; keys are compared pairwise between the objects of a row.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa

from dolma_dask.formats.json.block import Lines
from dolma_dask.formats.json.exact import parse_object
from dolma_dask.formats.json.scan import same_bytes, skip_space, skip_string, skip_value
from dolma_dask.formats.json.write import join_texts, large_strings
from dolma_dask.mixing.splicing import string_parts_of
from dolma_dask.text.bits import byte_at, copy_bytes
from dolma_dask.text.kernels import kernel

MAX_MEMBERS = 4096
"""Members of all objects of a row that the kernel holds; a row with more is joined by Python."""

_LEVELS = 63
_QUOTE, _COMMA, _OPEN, _CLOSE = 0x22, 0x2C, 0x7B, 0x7D


def join_objects(objects: Sequence[pa.LargeStringArray]) -> pa.LargeStringArray:
    """Return one JSON object per row with the members of all.

    Parameters
    ----------
    objects : sequence of pyarrow.LargeStringArray
        (n,) each: valid JSON objects, null for none. Of members with one key the last one's value stands.
    """
    if len(objects) == 1 and not objects[0].null_count:
        return objects[0]
    rows = len(objects[0])
    flat = [column if not column.null_count else column.fill_null("{}") for column in objects]
    lines = join_texts(*(piece for column in flat for piece in (column, "\n")))
    cut, data = string_parts_of(lines)
    block = _object_lines(data[cut[0] : cut[-1]], cut - cut[0], flat)
    out, offsets, status = (
        np.empty(block.block.size + rows * 2, np.uint8),
        np.empty(rows + 1, np.int64),
        np.zeros(rows, np.uint8),
    )
    _join(
        block.base,
        block.tail_base,
        block.tail_row,
        block.starts,
        block.block,
        len(flat),
        np.empty(
            (MAX_MEMBERS, 5), np.int64
        ),  # where a member begins and ends, its key and its size, its object
        out,
        offsets,
        status,
    )
    joined = large_strings(offsets, out, np.ones(rows, np.bool_))
    slow = np.flatnonzero(status)
    return joined if not len(slow) else _with_slow(joined, flat, set(slow.tolist()))


def _object_lines(data: np.ndarray, cut: np.ndarray, columns: Sequence[pa.LargeStringArray]) -> Lines:
    """Return the objects as lines, those of a row one behind the other."""
    count, rows = len(columns), len(columns[0])
    sizes = np.empty((rows, count), np.int64)
    for place, column in enumerate(columns):
        own, _ = string_parts_of(column)
        sizes[:, place] = np.diff(own) + 1
    starts = np.zeros(rows * count + 1, np.int64)
    np.cumsum(sizes.reshape(-1), out=starts[1:])
    return Lines(data, starts)


def _with_slow(
    joined: pa.LargeStringArray, columns: Sequence[pa.LargeStringArray], slow: set[int]
) -> pa.LargeStringArray:
    texts = [
        _join_slowly([column[row].as_py() for column in columns]) if row in slow else text.as_py()
        for row, text in enumerate(joined)
    ]
    return pa.array(texts, pa.large_string())


def _join_slowly(texts: Sequence[str]) -> str:
    members = {key: value for text in texts for key, value in parse_object(text.encode()).items()}
    inside = b",".join(msgspec.json.encode(key) + b":" + value for key, value in members.items())
    return (b"{" + inside + b"}").decode()


@kernel
def _join(base, tail_base, tail_row, starts, data, count, found, out, offsets, status):  # type: ignore[no-untyped-def]
    p = 0
    for row in range(offsets.size - 1):
        offsets[row] = p
        n = 0
        declined = False
        for which in range(count):
            line = row * count + which
            origin = base if line < tail_row else tail_base
            at = skip_space(skip_space(origin + starts[line]) + 1)
            before = n
            while byte_at(at) == _QUOTE:
                after, escaped = skip_string(at + 1)
                end = skip_value(skip_space(skip_space(after) + 1), _LEVELS)
                if escaped or end == 0 or n == MAX_MEMBERS:
                    declined = True
                    break
                for other in range(before):
                    if (
                        found[other, 3] == after - at
                        and found[other, 4] >= 0
                        and same_bytes(at, found[other, 2], after - at)
                    ):
                        found[other, 4] = -1
                found[n, 0] = at - origin
                found[n, 1] = end - origin
                found[n, 2] = at
                found[n, 3] = after - at
                found[n, 4] = which
                n += 1
                at = skip_space(end)
                if byte_at(at) == _COMMA:
                    at = skip_space(at + 1)
            if declined:
                break
        if declined:
            status[row] = 1
            continue
        out[p] = _OPEN
        p += 1
        first = True
        for member in range(n):
            if found[member, 4] < 0:
                continue
            if not first:
                out[p] = _COMMA
                p += 1
            first = False
            size = found[member, 1] - found[member, 0]
            copy_bytes(out, p, data, found[member, 0], size)
            p += size
        out[p] = _CLOSE
        p += 1
    offsets[offsets.size - 1] = p
