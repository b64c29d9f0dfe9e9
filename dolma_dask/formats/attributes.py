"""Attribute rows as bytes, in the nested form of the Dolma toolkit.

``{"id":"a17","attributes":{"x__x__words":[[0,512,87.0]],"x__x__lines":[[0,40,1.0]]},"source":"wiki"}``.
One row per document, always: a document without findings has ``"attributes":{}``, and one that could not be
read has ``{"id":null,"attributes":{},"error":"why"}``, so that row k of the file belongs to row k of its documents.

Kinds other than ``document`` are first made into texts (`dolma_dask.formats.attribute_columns`); then one kernel writes
the rows in one pass, into a buffer that is large enough for the longest numbers. Cost for 24 document columns: 1.8 kB and 0.8 us per row.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from dolma_dask.errors import DataError, SchemaError, UsageError
from dolma_dask.formats.attribute_columns import check_finite, column_texts, float_values, quote
from dolma_dask.formats.json.write import (
    CLOSE,
    COMMA,
    DECIMALS,
    HARD,
    LEFT_OUT,
    MAX_INTEGER,
    MAX_NUMBER,
    OPEN,
    WHOLE,
    ZERO,
    Numbers,
    prepare_numbers,
    put_digits,
    put_integer,
    put_piece,
    put_score,
    string_texts,
)
from dolma_dask.text import compute as pc
from dolma_dask.text.bits import copy_bytes
from dolma_dask.text.columns import for_kernel, join_texts, large_bytes, string_parts, validity
from dolma_dask.text.kernels import Bytes, Counts, kernel

SHORTEST_SPAN, LONGEST_SPAN = len("[0,0,0.0],"), 2 * MAX_INTEGER + MAX_NUMBER + len("[,,],")
"""Bytes of a span as JSON."""

TABLE_SPAN = 60
"""Bytes for a span while a page of it is read: start, end and score, as they are stored, packed and in a dictionary; measured."""

AttributeKind = Literal["document", "spans", "scalar", "dict"]
"""Form of a column in JSON; see `AttributeColumn`."""


class AttributeColumn(Struct, frozen=True):
    """One key of the attribute rows, and its value for every document."""

    key: str  # as written, such as ``gopher_v2__gopher_v2__word_count``; see `attribute_key`
    # ``document``: float64, written ``[[0,length,x]]`` (flat: ``x``), rounded to `decimals` like every score. ``spans``:
    # ``list<struct<start: int64, end: int64, score: float64>>``, written ``[[start,end,score],...]``. ``scalar``: float64, integer, bool or
    # string, written bare and unrounded. ``dict``: a struct of scalars, or a map from string to number, written as an object without its
    # null members. Null leaves the key out, for every kind; an empty list is written ``[]``.
    kind: AttributeKind
    values: pa.Array  # (n,)
    whole: bool = False  # of kinds ``document`` and ``spans``: whole numbers, written as integers, as the Dolma toolkit writes its flags
    decimals: int = DECIMALS  # of kinds ``document`` and ``spans``: 5, or 8 for signals that are published so


def make_variable_name(name: str) -> str:
    """Replace what may not stand in a key by ``_``: everything but ``A-Z a-z 0-9 _``, as the Dolma toolkit does.

    Raises `UsageError` if `name` is empty or starts with a digit.
    """
    cleaned = _cleaned(name)
    if not cleaned or cleaned[0].isdigit():
        problem = "is empty" if not cleaned else f"starts with the digit {cleaned[0]}"
        raise UsageError(
            f"name {name!r} {problem}; a part of an attribute key starts with a letter or _", name=name
        )
    return cleaned


def _cleaned(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


@lru_cache(maxsize=4096)
def attribute_key(experiment: str | None, tagger: str, type: str) -> str:
    """Return ``<experiment>__<tagger>__<type>``; without an experiment the tagger's name stands in its place. A type may begin with a digit, as labels do."""
    return "__".join((*(make_variable_name(part) for part in (experiment or tagger, tagger)), _cleaned(type)))


def encode_rows(
    ids: pa.LargeStringArray,
    sources: pa.LargeStringArray,
    lengths: NDArray[np.int64],
    columns: Sequence[AttributeColumn],
    errors: Mapping[int, str] | None = None,
) -> pa.LargeBinaryArray:
    """Encode one row of JSON per document, with its final newline; the data buffer is the file's bytes.

    `ids` (n,) are null only where `errors` has the row and says why the document could not be read; nothing else is written for it. A null
    source (n,) is written ``""``, as the Dolma toolkit writes a document without source. `lengths` (n,) are the code points of each text: the
    end of document spans. Keys are written in the order of `columns`.

    Raises `DataError` if a number is NaN or infinite, a span is incomplete, or an id is null without an error; `SchemaError` if a column has
    another length or type than its kind needs, or two columns share a key.
    """
    readable = _readable_rows(errors or {}, len(ids))
    _check_call(ids, sources, lengths, columns)
    check_ids(ids, readable)
    return _encode(*_frames(ids, sources, errors or {}), lengths, columns, readable)


def encode_objects(lengths: NDArray[np.int64], columns: Sequence[AttributeColumn]) -> pa.LargeBinaryArray:
    """Encode the attributes of each document as a JSON object, as `encode_rows` has it in its rows."""
    ends = pa.array([""] * len(lengths), pa.large_string())
    _check_call(ends, ends, lengths, columns)
    heads, tails = (join_texts(sign, ends) for sign in "{}")
    return _encode(heads, tails, lengths, columns, np.ones(len(lengths), np.bool_))


def _encode(
    heads: pa.Array,
    tails: pa.Array,
    lengths: NDArray[np.int64],
    columns: Sequence[AttributeColumn],
    readable: NDArray[np.bool_],
) -> pa.LargeBinaryArray:
    """Encode the members of each row between what stands before and behind them."""
    numbers = _document_numbers([c for c in columns if c.kind == "document"], readable)
    texts = [
        column_texts(c.key, c.kind, _blank(c.values, readable), 0 if c.whole else c.decimals)
        for c in columns
        if c.kind != "document"
    ]
    rows = len(lengths)
    slots, state = _slots([column.kind != "document" for column in columns], numbers, texts, rows)
    keys = string_texts(pa.array([column.key for column in columns], pa.large_string()))
    key = string_parts(join_texts(",", keys, ":"))
    head, tail, text = string_parts(heads), string_parts(tails), _stack(texts, rows)
    number_size = MAX_NUMBER + MAX_INTEGER + len("[[0,,]]")
    # Address space, not memory: what the kernel does not reach is never touched.
    size = rows * (len(key[1]) + number_size * len(numbers.values)) + sum(
        len(data) for _, data in (head, tail, text)
    )
    out, offsets = np.empty(size, np.uint8), np.empty(rows + 1, np.int64)
    hard = (numbers.offsets, numbers.hard)
    opening = np.empty(MAX_INTEGER + 8, np.uint8)  # "[[0,length," of a row
    ends = for_kernel(np.asarray(lengths, np.int64))
    decimals = _decimals(columns)
    _write_rows(
        *head, *tail, *key, *text, *hard, decimals, numbers.values, slots, state, ends, opening, out, offsets
    )  # fmt: skip
    return large_bytes(offsets, out)


def large_rows(
    ids: pa.LargeStringArray,
    sources: pa.LargeStringArray,
    lengths: NDArray[np.int64],
    columns: Sequence[AttributeColumn],
    errors: Mapping[int, str],
    most: int,
    *,
    in_table: bool,
) -> dict[int, int]:
    """Return the rows that readers would refuse for their spans, and how many bytes they have: at least, where spans alone say so.

    `encode_rows` would make them longer than `most`, or in a table the pages of one key would be.
    """
    each = [
        np.asarray(pc.fill_null(pc.list_value_length(column.values), 0), np.int64)
        for column in columns
        if column.kind == "spans"
    ]
    if in_table:
        held = np.max([np.zeros(len(ids), np.int64), *each], axis=0) * TABLE_SPAN
        return {int(row): int(held[row]) for row in np.flatnonzero(held > most)}
    spans = np.sum([np.zeros(len(ids), np.int64), *each], axis=0)
    if spans.max(initial=0) * LONGEST_SPAN <= most:
        return {}
    large = {
        int(row): int(spans[row]) * SHORTEST_SPAN for row in np.flatnonzero(spans * SHORTEST_SPAN > most)
    }
    left = [without_values(column, large) for column in columns] if large else columns
    offsets, _ = string_parts(encode_rows(ids, sources, lengths, left, errors))
    sizes = np.diff(offsets)
    return dict(
        sorted({**large, **{int(row): int(sizes[row]) for row in np.flatnonzero(sizes > most)}}.items())
    )


def without_values(column: AttributeColumn, rows: Collection[int]) -> AttributeColumn:
    """Return a column with null in some rows."""
    kept = np.isin(np.arange(len(column.values)), list(rows), invert=True)
    return replace(column, values=_blank(column.values, kept))


def frame_rows(
    ids: pa.Array, sources: pa.Array, members: pa.LargeStringArray, errors: Mapping[int, str]
) -> pa.LargeBinaryArray:
    """Return rows with these members (n,), JSON without the braces around it, as they are; the others as for `encode_rows`."""
    check_ids(ids, _readable_rows(errors, len(ids)))
    heads, tails = _frames(ids, sources, errors)
    return large_bytes(*string_parts(join_texts(heads, members, tails)))


def _readable_rows(errors: Mapping[int, str], rows: int) -> NDArray[np.bool_]:
    for row in errors:
        if not 0 <= row < rows:
            raise DataError(f"errors names row {row}, but there are {rows} rows", row=row)
    readable = np.ones(rows, np.bool_)
    readable[list(errors)] = False
    return readable


def _check_call(
    ids: pa.Array,
    sources: pa.Array,
    lengths: NDArray[np.int64],
    columns: Sequence[AttributeColumn],
) -> None:
    sizes = [("sources", len(sources)), ("lengths", len(lengths)), *((c.key, len(c.values)) for c in columns)]
    for name, size in sizes:
        if size != len(ids):
            raise SchemaError(
                f"{name} has {size} rows, ids has {len(ids)}; expected one per document", name=name
            )
    taken: set[str] = set()
    for column in columns:
        if column.key in taken:
            raise SchemaError(f"key {column.key!r} would stand twice in a row; rename one", key=column.key)
        taken.add(column.key)


def check_ids(ids: pa.Array, readable: NDArray[np.bool_]) -> None:
    """Refuse a readable row without id."""
    nameless = readable & ~validity(ids)
    if nameless.any():
        row = int(nameless.argmax())
        raise DataError(
            f"row {row} has a null id, and errors does not say why; a row names its document", row=row
        )


def _frames(ids: pa.Array, sources: pa.Array, errors: Mapping[int, str]) -> tuple[pa.Array, pa.Array]:
    """Return the texts before and behind the members of each row."""
    quoted = _or_else(string_texts(ids), "null")
    source = _or_else(string_texts(sources), '""')
    heads = join_texts('{"id":', quoted, ',"attributes":{')
    tails = join_texts('},"source":', source, "}\n")
    return (
        _replace(heads, dict.fromkeys(errors, '{"id":null,"attributes":{')),
        _replace(tails, {row: f'}},"error":{quote(text)}}}\n' for row, text in errors.items()}),
    )


def _or_else(texts: pa.Array, instead: str) -> pa.Array:
    return pc.fill_null(texts, instead) if texts.null_count else texts


def _replace(texts: pa.Array, by_row: Mapping[int, str]) -> pa.Array:
    if not by_row:
        return texts
    mask = np.zeros(len(texts), np.bool_)
    mask[list(by_row)] = True
    return pc.replace_with_mask(
        texts, mask, pa.array([by_row[row] for row in sorted(by_row)], pa.large_string())
    )


def _blank(values: pa.Array, readable: NDArray[np.bool_]) -> pa.Array:
    """Return the column with null in unreadable rows; whatever a tagger made of them is ignored."""
    return values if readable.all() else values.take(pa.array(np.arange(len(values)), mask=~readable))


def _document_numbers(columns: Sequence[AttributeColumn], readable: NDArray[np.bool_]) -> Numbers:
    """Stack all columns of kind ``document``, (columns, n)."""
    values = np.empty((len(columns), len(readable)), np.float64)
    valid = np.empty(values.shape, np.bool_)
    for k, column in enumerate(columns):
        values[k] = float_values(column.key, column.kind, column.values)
        valid[k] = validity(column.values) & readable
    if not np.isfinite(values, where=valid, out=np.ones(values.shape, np.bool_)).all():
        for k, column in enumerate(columns):
            check_finite(column.key, values[k], valid[k])
    numbers = prepare_numbers(values, valid, _decimals(columns))
    for k, column in enumerate(columns):
        if column.whole:
            numbers.state[k, valid[k]] = WHOLE
    return numbers


def _decimals(columns: Sequence[AttributeColumn]) -> NDArray[np.int64]:
    """Return the decimals of those of kind ``document`` (columns,)."""
    return np.array([column.decimals for column in columns if column.kind == "document"], np.int64)


def _slots(
    from_text: Sequence[bool], numbers: Numbers, texts: Sequence[pa.Array], rows: int
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return for each member its row of `numbers`, or -1 - its index in `texts` (k,); and its state (k, n)."""
    is_text = np.asarray(from_text, np.bool_)
    slots = np.where(is_text, -np.cumsum(is_text, dtype=np.int64), np.cumsum(~is_text) - 1)
    state = np.empty((len(slots), rows), np.uint8)
    for k, slot in enumerate(slots):
        state[k] = validity(texts[-1 - slot]) if slot < 0 else numbers.state[slot]
    return slots, state


def _stack(texts: list[pa.Array], rows: int) -> tuple[Counts, Bytes]:
    """Return text columns as one blob, and offsets into it (texts, n + 1); each is taken out of the list, so that long ones are not held twice."""
    offsets = np.empty((len(texts), rows + 1), np.int64)
    blob = np.empty(sum(int(cut[-1] - cut[0]) for cut, _ in map(string_parts, texts)), np.uint8)
    end = 0
    for k in range(len(texts)):
        cut, data = string_parts(texts.pop(0))
        size = int(cut[-1] - cut[0])
        blob[end : end + size] = data[cut[0] : cut[-1]]
        offsets[k] = cut + (end - cut[0])
        end += size
        del cut, data
    return offsets, blob


@kernel
def _write_rows(  # type: ignore[no-untyped-def]
    head_cut, head, tail_cut, tail, key_cut, keys, text_cut, text, hard_cut, hard,
    decimals, values, slots, state, lengths, opening, out, offsets,
):  # fmt: skip
    # ``[[0,length,`` opens all numbers of a row: it is written once for each row, and copied
    opening[0], opening[1], opening[2], opening[3] = OPEN, OPEN, ZERO, COMMA
    p, next_hard = 0, 0
    for i in range(lengths.size):
        offsets[i] = p
        p = put_piece(out, p, head, head_cut, i)
        opened = put_digits(opening, 4, lengths[i]) + 1
        opening[opened - 1] = COMMA
        first = True
        for j in range(slots.size):
            if state[j, i] == LEFT_OUT:
                continue
            begin = key_cut[j] + first  # keys begin with the comma that parts them from the member before
            copy_bytes(out, p, keys, begin, key_cut[j + 1] - begin)
            p += key_cut[j + 1] - begin
            first = False
            # lists of spans are texts already
            if slots[j] < 0:
                p = put_piece(out, p, text, text_cut[-1 - slots[j]], i)
                continue
            copy_bytes(out, p, opening, 0, opened)
            p += opened
            if state[j, i] == HARD:
                p = put_piece(out, p, hard, hard_cut, next_hard)
                next_hard += 1
            elif state[j, i] == WHOLE:
                p = put_integer(out, p, int(values[slots[j], i]))
            else:
                p = put_score(out, p, values[slots[j], i], decimals[slots[j]])
            out[p], out[p + 1] = CLOSE, CLOSE
            p += 2
        p = put_piece(out, p, tail, tail_cut, i)
    offsets[lengths.size] = p
