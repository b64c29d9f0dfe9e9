"""The quality signals of RedPajama-V2, ``<snapshot>/<shard>/<lang>_<bucket>.signals.json.gz``, read as members of attribute rows, and written.

A line is ``{"id", "id_int", "metadata", "quality_signals": {name: [[start, end, score], ...]}}`` with code points and a score that may be null.
Members stay byte for byte, so that integers stay integers and no digit is lost. Scores that are null are missing values: their spans are left
out, and with the last span the member. Other values than lists of spans are errors.

A kernel copies rows that have the names of the block's first row, in its order, without white space, as they are published; other rows go one by
one through the exact parser, at some 100 us. Cost: about 1 GB/s.

Written lines have keys, order and JSON types of the published ones; upstream writes some very small values in other digits of the same number.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct

from dolma_dask.formats.attribute_columns import column_texts, float_values, quote
from dolma_dask.formats.json.attributes import AttributeKind
from dolma_dask.formats.json.exact import LineError, kind_of, parse_object, read_spans
from dolma_dask.formats.json.write import span_texts, string_texts
from dolma_dask.formats.redpajama import id_numbers
from dolma_dask.text import compute as pc
from dolma_dask.text.bits import copy_bytes
from dolma_dask.text.columns import join_texts, large_bytes, large_strings, string_parts, validity
from dolma_dask.text.kernels import Bools, Bytes, Counts, kernel

LINE_SIGNALS = "rps_lines_"
"""Names of signals that have a span for each line begin with it; also where all documents are of one line."""

DECIMALS = 8

INTEGERS = frozenset({"rps_doc_ut1_blacklist", "rps_doc_word_count", "rps_lines_num_words"})
"""Signals whose scores are integers; those of all others are floats."""

METADATA = ("cc_segment", "cc_net_source", "url", "source_domain", "language", "snapshot_id")
"""Members of the metadata; ``cc_net_source`` and ``snapshot_id`` come from the id."""

_COMMA, _BLANK = ord(","), ord(" ")
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN, _CLOSE = ord("{"), ord("}"), ord("["), ord("]")
_ZERO, _NINE, _MINUS, _NULL = ord("0"), ord("9"), ord("-"), ord("n")

_LOWER, _E = 0x20, ord("e")

_MAX_DIGITS, _MAX_NUMBER = 18, 300
"""Limits of what the kernel takes: digits of ends of spans, so that they fit 64 bits, and characters of scores, so that they fit a double."""

_DECLINED = -1
_WHOLE, _LISTED, _WITHOUT_SCORE = range(3)
"""Forms of a list of spans."""

_PARTS = 3
"""Numbers of a span: start, end, score."""

_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


def signal_members(
    objects: pa.LargeStringArray,
) -> tuple[pa.LargeStringArray, dict[str, AttributeKind], list[tuple[int, LineError]]]:
    """Return the members of each object of signals (n,), without braces and missing values; the kinds of all names; rows that have other values.

    `objects` are JSON, as `dolma_dask.formats.json.lines.scan` gives raw values; a null, and what cannot be read, has no members.
    """
    names = _names_of(objects)
    listed = np.zeros(len(names), np.bool_)
    offsets, data = string_parts(objects)
    out, cuts = np.empty(int(offsets[-1] - offsets[0]), np.uint8), np.empty(len(objects) + 1, np.int64)
    declined = np.zeros(len(objects), np.bool_)
    keys = string_parts(pa.array([f"{quote(name)}:" for name in names], pa.large_string()))
    _copy_rows(data, offsets, *keys, out, cuts, listed, declined)
    members = large_strings(cuts, out)
    kinds = {name: _kind(name, bool(flag)) for name, flag in zip(names, listed, strict=True)}
    slow, errors = _read_exactly(objects, np.flatnonzero(declined).tolist(), kinds)
    return (_replaced(members, slow) if slow else members), kinds, errors


def _names_of(objects: pa.LargeStringArray) -> list[str]:
    """Return the names of the first row that has any."""
    for row in range(len(objects)):
        text = objects[row].as_py()
        try:
            names = list(parse_object(text.encode())) if text else []
        except LineError:
            continue
        if names:
            return names
    return []


def _kind(name: str, is_list: bool) -> AttributeKind:
    return "spans" if is_list or name.startswith(LINE_SIGNALS) else "document"


def _read_exactly(
    objects: pa.LargeStringArray, rows: Sequence[int], kinds: dict[str, AttributeKind]
) -> tuple[dict[int, str], list[tuple[int, LineError]]]:
    """Return the members of rows that the kernel declined, and what is wrong with others; names are added to `kinds`."""
    members: dict[int, str] = {}
    errors: list[tuple[int, LineError]] = []
    for row in rows:
        text = objects[row].as_py()
        try:
            members[row] = "" if text is None else _members_of(parse_object(text.encode()), kinds)
        except LineError as error:
            errors.append((row, error))
    return members, errors


def _members_of(values: Mapping[str, bytes], kinds: dict[str, AttributeKind]) -> str:
    kept = []
    for name, raw in values.items():
        items = _scored_spans(raw, f"signal '{name}'")
        spans = read_spans(b"[" + b",".join(items or ()) + b"]", f"signal '{name}'")
        is_list = len(spans) > 1 or any(span["start"] for span in spans)
        kinds[name] = "spans" if kinds.get(name) == "spans" else _kind(name, is_list)
        if items is not None:
            kept.append(f"{quote(name)}:[{b','.join(items).decode()}]")
    return ",".join(kept)


def _scored_spans(raw: bytes, where: str) -> list[bytes] | None:
    """Return the spans that have a score; None if there are spans, and none has one. Raises `LineError`: it is no list."""
    if raw == b"null":
        return None
    if not raw.startswith(b"["):
        raise LineError("wrong_type", f"a list of spans in {where}, found {kind_of(raw)}")
    items = [bytes(item) for item in _decode_list(raw)]
    kept = [item for item in items if not (item.startswith(b"[") and _is_without_score(_decode_list(item)))]
    return kept if kept or not items else None


def _is_without_score(parts: Sequence[msgspec.Raw]) -> bool:
    return len(parts) == _PARTS and bytes(parts[-1]) == b"null"


def _replaced(members: pa.LargeStringArray, by_row: Mapping[int, str]) -> pa.LargeStringArray:
    mask = np.zeros(len(members), np.bool_)
    mask[list(by_row)] = True
    return pc.replace_with_mask(members, mask, pa.array(list(by_row.values()), pa.large_string()))


@kernel
def _copy_rows(
    data: Bytes,
    offsets: Counts,
    key_cut: Counts,
    keys: Bytes,
    out: Bytes,
    cuts: Counts,
    listed: Bools,
    declined: Bools,
) -> None:
    """Copy the members of all rows that have `keys`, and set `listed` where one has other spans than one from 0; the others are `declined`."""
    to = 0
    for row in range(declined.size):
        cuts[row] = to
        end = _copy_row(data, offsets[row], offsets[row + 1], key_cut, keys, out, to, listed)
        declined[row] = end == _DECLINED
        # what a declined row has left is written over by the next
        to = to if declined[row] else end
    cuts[declined.size] = to


@kernel
def _copy_row(  # type: ignore[no-untyped-def]
    data, at, end, key_cut, keys, out, first, listed
):
    """Copy the members of the object ``data[at:end]`` to ``out[first:]``; return the position behind them, or `_DECLINED`."""
    to = first
    if end - at < 2 or data[at] != _OPEN_OBJECT:
        return _DECLINED
    for number in range(listed.size):
        at += 1  # what opens the object, or the comma
        size = key_cut[number + 1] - key_cut[number]
        # published rows have the same names in the same order; others are read exactly
        if (number and data[at - 1] != _COMMA) or not _is_key(data, at, end, keys, key_cut[number], size):
            return _DECLINED
        behind, spans = _skip_spans(data, at + size)
        if behind == _DECLINED:
            return _DECLINED
        if spans != _WITHOUT_SCORE:
            if to > first:
                out[to] = _COMMA
                to += 1
            copy_bytes(out, to, data, at, behind - at)
            to += behind - at
            listed[number] |= spans == _LISTED
        at = behind
    is_end = data[at] == _CLOSE_OBJECT and at + 1 == end
    return to if is_end and listed.size else _DECLINED


@kernel
def _is_key(data: Bytes, at: int, end: int, keys: Bytes, key_at: int, size: int) -> bool:
    if at + size > end:
        return False
    same = 0
    while same < size and data[at + same] == keys[key_at + same]:
        same += 1
    return same == size


@kernel
def _skip_spans(data: Bytes, at: int) -> tuple[int, int]:
    """Return the position behind a list of spans and its form: `_WHOLE` (none, or one from 0), `_LISTED` or `_WITHOUT_SCORE`, one.

    It is declined if it is no list of spans, or one of several has no score; JSON that is valid has an end.
    """
    if data[at] != _OPEN:
        return _DECLINED, _WHOLE
    if data[at + 1] == _CLOSE:
        return at + 2, _WHOLE
    form, count = _WHOLE, 0
    while True:
        at += 1  # what opens the list, or the comma
        if data[at] != _OPEN:
            return _DECLINED, form
        # valid JSON has no leading zeros: a start that begins with 0 is 0
        if data[at + 1] != _ZERO:
            form = _LISTED
        for _ in range(2):
            begin = at + 1
            at = _skip_digits(data, begin)
            if data[at] != _COMMA or at - begin > _MAX_DIGITS:
                return _DECLINED, form
        at += 1
        count += 1
        if data[at] == _NULL:
            at += len("null")
            # alone it is a missing value; among others a span without score is refused
            is_alone = count == 1 and data[at] == _CLOSE and data[at + 1] == _CLOSE
            return (at + 2 if is_alone else _DECLINED), _WITHOUT_SCORE
        if data[at] != _MINUS and not _ZERO <= data[at] <= _NINE:
            return _DECLINED, form
        begin = at
        at = _skip_number(data, begin)
        if data[at] != _CLOSE or at - begin > _MAX_NUMBER:
            return _DECLINED, form
        at += 1
        if data[at] == _CLOSE:
            return at + 1, (form if count == 1 else _LISTED)
        if data[at] != _COMMA:
            return _DECLINED, form


@kernel
def _skip_number(data: Bytes, at: int) -> int:
    """Return the position behind a number, or at an exponent with which it may not fit a double."""
    while data[at] != _CLOSE and data[at] != _COMMA and data[at] != _BLANK:
        # a negative exponent cannot overflow
        if data[at] | _LOWER == _E and data[at + 1] != _MINUS:
            break
        at += 1
    return at


@kernel
def _skip_digits(data: Bytes, at: int) -> int:
    while _ZERO <= data[at] <= _NINE:
        at += 1
    return at


# ----------------------------------------------------------------------------------------------------------- writing


class Signal(Struct, frozen=True):
    """A signal of some documents."""

    name: str
    values: pa.Array  # (n,) float64, of documents; or lists of spans, null for one without a score


def signal_rows(
    ids: pa.LargeStringArray,
    metadata: Mapping[str, pa.LargeStringArray],
    lengths: Counts,
    signals: Sequence[Signal],
) -> pa.LargeBinaryArray:
    """Return a line for each document: `ids` of one shard (n,), fields of `METADATA` by name, code points of the texts, signals in their order.

    The other two fields follow from the ids, ``<snapshot>/<shard>/<file>/<row>``.
    """
    source = pc.replace_substring_regex(ids, r"/[^/]*$", "")
    known = {
        **metadata,
        "cc_net_source": source,
        "snapshot_id": pc.replace_substring_regex(source, r"/.*$", ""),
    }
    members = [_member(name, _quoted(known[name])) for name in METADATA]
    scores = [_member(signal.name, _spans(signal, lengths)) for signal in signals]
    numbers = pa.array(id_numbers(ids)).cast(pa.large_string())
    rows = join_texts(
        '{"id":', _quoted(ids), ',"id_int":', numbers, ',"metadata":{', *_joined(members), '},"quality_signals":{', *_joined(scores), "}}\n"
    )  # fmt: skip
    return large_bytes(*string_parts(rows))


def _member(name: str, texts: pa.LargeStringArray) -> tuple[str, pa.LargeStringArray]:
    return f'"{name}":', texts


def _joined(members: Sequence[tuple[str, pa.LargeStringArray]]) -> list[pa.LargeStringArray | str]:
    """Return the pieces of the members of an object."""
    pieces = [piece for key, texts in members for piece in (f",{key}", texts)]
    return [str(pieces[0])[1:], *pieces[1:]]


def _quoted(strings: pa.Array) -> pa.LargeStringArray:
    return pc.fill_null(string_texts(strings.cast(pa.large_string())), "null")


def _spans(signal: Signal, lengths: Counts) -> pa.LargeStringArray:
    """Return lists of spans; of a document, one that holds all of it."""
    if pa.types.is_list(signal.values.type):
        texts, ends = column_texts(signal.name, "spans", signal.values, DECIMALS), np.zeros_like(lengths)
    else:
        texts, ends = _document_spans(signal, lengths), lengths
    if signal.name in INTEGERS:
        texts = pc.replace_substring(texts, ".0]", "]")
    missing = join_texts("[[0,", pa.array(ends).cast(pa.large_string()), ",null]]")
    return pc.coalesce(texts, missing)


def _document_spans(signal: Signal, lengths: Counts) -> pa.LargeStringArray:
    rows = np.arange(len(lengths) + 1)
    scores = float_values(signal.name, "document", signal.values)
    return span_texts(rows, validity(signal.values), np.zeros_like(lengths), lengths, scores, DECIMALS)
