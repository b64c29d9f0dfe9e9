"""Change some members of JSON objects and keep every other byte: the text of a document, its metadata, its attributes.

One kernel walks the members of each line, which is known to be one valid object, copies those that stay, and writes, appends or leaves out
the others. Lines that it does not follow (a key with an escape, an edited key that is written twice, more than 64 levels) are put together
from their members by Python. Cost: 2 to 7 GB/s of lines.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct

from dolma_dask.formats.json.exact import parse_object
from dolma_dask.formats.json.lines import Lines
from dolma_dask.formats.json.scan import same_bytes, skip_space, skip_string, skip_value
from dolma_dask.formats.json.write import string_texts
from dolma_dask.text.bits import address_of, byte_at, copy_bytes
from dolma_dask.text.columns import (
    for_kernel,
    join_texts,
    large_bytes,
    large_strings,
    string_parts,
    validity,
)
from dolma_dask.text.kernels import Bytes, Counts, kernel

MAX_EDITS = 60
"""Members that one call of the kernel can change: a bit of a word for each."""

_LEVELS = 63
_QUOTE, _COMMA, _COLON, _CLOSE = 0x22, 0x2C, 0x3A, 0x7D
_NEWLINE = b"\n"


class Edit(Struct, frozen=True):
    """Change of one member of each object."""

    name: str  # its key
    values: pa.Array | None
    """(n,) JSON texts to write, null where the member stays as it is; None: the member is left out of all
    objects."""


def splice(lines: pa.Array, edits: Sequence[Edit]) -> pa.LargeBinaryArray:
    """Return lines with some members changed; a value whose key is not there is appended.

    `lines` (n,), bytes or texts without nulls, hold one valid JSON object each, with a newline at the end; `edits` name each member once.
    """
    if len(edits) > MAX_EDITS:
        return splice(splice(lines, edits[:MAX_EDITS]), edits[MAX_EDITS:])
    rows = len(lines)
    if rows == 0 or not edits:
        return lines.cast(pa.large_binary())
    block = Lines.of(lines)
    names = [_quoted(edit.name) for edit in edits]
    name_cut = np.concatenate([[0], np.cumsum([len(name) for name in names])]).astype(np.int64)
    # 64 readable bytes behind the names, for the widest load
    name_data = np.frombuffer(b"".join(names) + bytes(64), np.uint8)
    text_cut, text, state = _values(edits, rows)
    size = block.block.size + text.size + rows * (int(name_cut[-1]) + 2 * len(edits))
    out, offsets, status = kernel_output(size, rows)
    _splice(
        *block.parts, for_kernel(name_cut), for_kernel(name_data), for_kernel(text_cut), for_kernel(text), for_kernel(state),
        out, offsets, status,
    )  # fmt: skip
    return remade(large_bytes(offsets, out), status, lambda row: _splice_slowly(block.line(row), edits, row))


def kernel_output(size: int, rows: int) -> tuple[Bytes, Counts, Bytes]:
    """Return room for the bytes of some rows, their offsets, and whether the kernel declines a row."""
    return np.empty(size, np.uint8), np.empty(rows + 1, np.int64), np.zeros(rows, np.uint8)


def remade(column: pa.Array, status: Bytes, make: Callable[[int], Any]) -> pa.Array:
    """Return a column in which the rows that a kernel declined are made by Python."""
    if not status.any():
        return column
    rows = [make(row) if status[row] else value.as_py() for row, value in enumerate(column)]
    return pa.array(rows, column.type)


def _values(edits: Sequence[Edit], rows: int) -> tuple[Counts, Bytes, Bytes]:
    """Stack the new values: offsets (edits, n + 1) into one blob, and what to do (edits, n): 0 copy, 1 write, 2 leave out."""
    cuts = np.zeros((len(edits), rows + 1), np.int64)
    state = np.full((len(edits), rows), 2, np.uint8)
    blobs = [np.empty(0, np.uint8)]
    end = 0
    for number, edit in enumerate(edits):
        if edit.values is None:
            continue
        cut, data = string_parts(edit.values)
        blobs.append(data[cut[0] : cut[-1]])
        cuts[number] = cut + (end - cut[0])
        end += len(blobs[-1])
        state[number] = validity(edit.values)
    return cuts, np.concatenate(blobs), state


def _splice_slowly(line: bytes, edits: Sequence[Edit], row: int) -> bytes:
    members = parse_object(line)
    before = dict(members)
    for edit in edits:
        if edit.values is None:
            members.pop(edit.name, None)
        elif edit.values[row].is_valid:
            value = edit.values[row].as_py()
            members[edit.name] = value if isinstance(value, bytes) else value.encode()
    if members == before:
        return line + _NEWLINE
    return b"{" + b",".join(_quoted(name) + b":" + value for name, value in members.items()) + b"}" + _NEWLINE


def _quoted(name: str) -> bytes:
    text: str = string_texts(pa.array([name], pa.large_string()))[0].as_py()
    return text.encode()


@kernel
def find_name(at: int, size: int, names: int, name_cut: np.ndarray) -> int:
    """Return the index of a key among quoted names, -1 if it is none; `at` and `size` are those of the key with its quotes."""
    for index in range(name_cut.size - 1):
        if name_cut[index + 1] - name_cut[index] == size and same_bytes(
            at, int(names + name_cut[index]), size
        ):
            return index
    return -1


@kernel
def _splice(  # type: ignore[no-untyped-def]
    base, tail_base, tail_row, starts, data, name_cut, names, text_cut, text, state, out, offsets, status,
):  # fmt: skip
    name_base = address_of(names)
    p = 0
    for row in range(starts.size - 1):
        offsets[row] = p
        origin = base if row < tail_row else tail_base
        at = skip_space(origin + starts[row]) + 1
        head = at - origin - starts[row]
        copy_bytes(out, p, data, starts[row], head)
        p += head
        seen = np.int64(0)
        first, dropped, declined = True, False, False
        begin = at  # of the member with the white space around it
        at = skip_space(at)
        while byte_at(at) == _QUOTE:
            key = at
            at, escaped = skip_string(at + 1)
            size = at - key
            value = skip_space(skip_space(at) + 1)
            end = skip_value(value, _LEVELS)
            if escaped or end == 0:
                declined = True
                break
            following = skip_space(end)
            index = find_name(key, size, name_base, name_cut)
            what = 0
            if index >= 0:
                declined = (seen >> index) & 1 != 0
                if declined:
                    break
                seen |= np.int64(1) << index
                what = state[index, row]
            if what == 2:
                dropped = True
            else:
                if not first:
                    out[p] = _COMMA
                    p += 1
                elif dropped:  # the space behind a comma that is gone
                    begin = key
                first = False
                stop = value if what == 1 else following
                copy_bytes(out, p, data, begin - origin, stop - begin)
                p += stop - begin
                if what == 1:
                    size = text_cut[index, row + 1] - text_cut[index, row]
                    copy_bytes(out, p, text, text_cut[index, row], size)
                    p += size
                    copy_bytes(out, p, data, end - origin, following - end)
                    p += following - end
            begin = following + 1
            at = following
            if byte_at(at) == _COMMA:
                at = skip_space(begin)
        if declined:
            status[row] = 1
            p = offsets[row]
            continue
        for index in range(name_cut.size - 1):
            if state[index, row] == 1 and (seen >> index) & 1 == 0:
                if not first:
                    out[p] = _COMMA
                    p += 1
                first = False
                size = name_cut[index + 1] - name_cut[index]
                copy_bytes(out, p, names, name_cut[index], size)
                out[p + size] = _COLON
                p += size + 1
                size = text_cut[index, row + 1] - text_cut[index, row]
                copy_bytes(out, p, text, text_cut[index, row], size)
                p += size
        size = starts[row + 1] - (at - origin)
        copy_bytes(out, p, data, at - origin, size)
        p += size
    offsets[starts.size - 1] = p


MAX_MEMBERS = 4096
"""Members of all objects of a row that the kernel holds; a row with more is joined by Python."""

_QUOTE, _COMMA, _OPEN, _CLOSE = 0x22, 0x2C, 0x7B, 0x7D


def join_objects(objects: Sequence[pa.LargeStringArray]) -> pa.LargeStringArray:
    """Return one JSON object per row with the members of all."""
    if len(objects) == 1 and not objects[0].null_count:
        return objects[0]
    flat = [column if not column.null_count else column.fill_null("{}") for column in objects]
    _, data = string_parts(join_texts(*(piece for column in flat for piece in (column, "\n"))))
    sizes = np.stack([np.diff(string_parts(column)[0]) + 1 for column in flat], axis=1)  # (n, objects)
    block = Lines(data[: sizes.sum()], np.concatenate([[0], np.cumsum(sizes)]))
    rows = len(sizes)
    out, offsets, status = kernel_output(block.block.size + rows * 2, rows)
    members = np.empty((MAX_MEMBERS, 5), np.int64)  # first and last byte, key and its size, object
    _join(*block.parts, len(flat), members, out, offsets, status)
    return remade(
        large_strings(offsets, out),
        status,
        lambda row: _join_slowly([column[row].as_py() for column in flat]),
    )


def _join_slowly(texts: Sequence[str]) -> str:
    members = {key: value for text in texts for key, value in parse_object(text.encode()).items()}
    inside = b",".join(msgspec.json.encode(key) + b":" + value for key, value in members.items())
    return (b"{" + inside + b"}").decode()


@kernel
def _join(base, tail_base, tail_row, starts, data, count, members, out, offsets, status):  # type: ignore[no-untyped-def]
    p = 0
    for row in range(offsets.size - 1):
        offsets[row] = p
        n = 0
        declined = False
        for index in range(count):
            line = row * count + index
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
                        members[other, 3] == after - at
                        and members[other, 4] >= 0
                        and same_bytes(at, members[other, 2], after - at)
                    ):
                        members[other, 4] = -1
                members[n, 0] = at - origin
                members[n, 1] = end - origin
                members[n, 2] = at
                members[n, 3] = after - at
                members[n, 4] = index
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
            if members[member, 4] < 0:
                continue
            if not first:
                out[p] = _COMMA
                p += 1
            first = False
            size = members[member, 1] - members[member, 0]
            copy_bytes(out, p, data, members[member, 0], size)
            p += size
        out[p] = _CLOSE
        p += 1
    offsets[offsets.size - 1] = p
