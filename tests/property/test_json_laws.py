"""Laws of the reading of documents, on wild lines: kernel, exact parser and a slow oracle have to agree."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from json_oracle import (
    RejectedLineError,
    broken,
    damaged,
    deep_objects,
    deep_values,
    identity_of,
    numbers,
    objects,
    read_line,
    scalars,
    strings,
    values,
)
from msgspec.structs import replace

from dolma_dask.formats.json import strings as json_strings
from dolma_dask.formats.json.exact import Field, LineError, Value, parse_line
from dolma_dask.formats.json.lines import scan_documents, scan_fields
from dolma_dask.formats.json.scan import MAX_LEVELS
from dolma_dask.formats.json.strings import line_starts

LONG_NAME = "a key that is longer than one vector of sixty-four bytes, by some bytes"
FIELDS = [
    Field("id"),
    Field("text"),
    Field("metadata", "raw"),
    Field("é"),
    Field(""),
    Field(LONG_NAME),
    Field('quo"te', "raw"),
]
NUMBERS_AS_IDS = [Field("id", "identity"), *FIELDS[1:]]
FIELD_LISTS = st.sampled_from([FIELDS, FIELDS[:1], FIELDS[1:3], [], NUMBERS_AS_IDS, NUMBERS_AS_IDS[:1]])
NAMES = [field.name for field in FIELDS]

keys = st.one_of(
    st.sampled_from(
        ['"id"', '"text"', '"metadata"', '"other"', '"é"', '""', f'"{LONG_NAME}"', '"ids"', '"tex"']
    ),
    strings(st.sampled_from([*NAMES, LONG_NAME + "x", "text\0"])),
    strings(),
)
field_values = st.one_of(strings(), scalars, values, deep_values, deep_objects)
good_lines = st.builds(
    lambda before, line, after: (before + line + after).encode("utf-8"),
    st.sampled_from(["", " ", "\t\r "]),
    objects(keys, field_values),
    st.sampled_from(["", "\r", " \t"]),
)
ordinary_lines = st.builds(
    lambda name, text, more: f'{{"id": {name}, "text": {text}, "metadata": {more}}}'.encode(),
    st.one_of(strings(), numbers),
    strings(),
    values,
)
broken_lines = st.builds(lambda value, key: f'{{"id":"a",{key}:{value},"text":"b"}}'.encode(), broken, keys)
lines = st.one_of(
    ordinary_lines,
    good_lines,
    damaged(good_lines),
    damaged(ordinary_lines),
    broken_lines,
    st.binary(max_size=8).map(lambda line: line.replace(b"\n", b"")),
    st.sampled_from([b"", b" ", b"{}", b"[]", b"null", b'"a"', b"{} {}", b"{},", b"\xef\xbb\xbf{}", b"\0"]),
)


CRAFTED = [
    b'{"id":"twice","id":"again"}',
    b'{"id":"a","other":1e999,"more":' + b"9" * 5000 + b"}",
    b'{"id":null,"id":"again","text":"t"}',
    b'{"id":"a","other":1,"other":2}',
    b'{"id":"a"}\r',
    b' \t{ "id" :\t"a" , "text" : null } \r',
    b'{"id":"a"} x',
    b'{"id":"a"}{"id":"b"}',
    b'{"id":"\\ud83d\\ude00"}',
    b'{"id":"\\ud83d\\ud83d"}',
    b'{"id":"\\ud83d\\u0041"}',
    b'{"id":"\\ud83d"}',
    b'{"id":"\\ude00"}',
    b'{"other":"\\ud83d\\ud83d"}',
    b'{"id":"\\u0000\\u001f\\uFFFF\\"\\\\\\/\\b\\f\\n\\r\\t"}',
    b'{"id":"\x7f"}',
    b'{"id":"\x1f"}',
    b'{"other":"\x1f"}',
    b'{"other":"\x00"}',
    b'{"ot\x01her":"a"}',
    b'{"\\u0069d":"a"}',
    b'{"other":{"\\u0069d":"a"}}',
    b'{"other":{"id":"a"},"text":{"id":"b"}}',
    b'{"text":"t","other":{"text":"u"},"id":"a"}',
    b'{"idx":"a","i":"b"}',
    b'{"id" "a"}',
    b'{"id":"a" "text":"b"}',
    *(
        b'{"text":"t","id":%s%s' % (number, end)
        for number in (
            b'17 0 -3 -0 017 -017 00 - +1 1. 1.0 1e3 1E3 -1e-3 .5 0x1 1_0 1a 1"x 17true NaN true 1'.split()
        )
        for end in (b"}", b" }\r", b'\t,"z":1}', b"", b'"}', b"]}", b" 1}")
    ),
    b'{"id":%s}' % (b"9" * 500),
    b'{"id":-%s,"text":"t"}' % (b"9" * 70),
    b'{"id":17,"id":"17"}',
    b'{"id":"17","id":17}',
    b'{"\\u0069d":17}',
    b'{"id":[17]}',
    b'{"id":"a",}',
    b'{,"id":"a"}',
    b'{"id":}',
    b'{"id":"a"',
    b'{"id":"a',
    b'{"id":"a\\',
    b'{"id":"a\\u12',
    b'{"other":truex}',
    b'{"other":falsy}',
    b'{"other":nulL}',
    b'{"id":nulL}',
    b'{"id":nullx}',
    b'{"metadata": {"a" : [1 , {} , [ ] , -0.5e+3 ] } ,"id":"a"}',
    b'{"metadata":[1,2}}',
    b'{"metadata":{"a":1]}',
    b'{"metadata":1.}',
    b'{"metadata":00}',
    b'{"metadata":-}',
    b'{"metadata":1e}',
    b'{"metadata":' + b"[" * 62 + b"]" * 62 + b"}",
    b'{"metadata":' + b"[" * 63 + b"]" * 63 + b"}",
    b'{"metadata":' + b"[" * 64 + b"]" * 64 + b"}",
    b'{"metadata":' + b"[" * 63 + b"1" + b"]" * 63 + b"}",
    b'{"metadata":' + b"[" * 64 + b"1" + b"]" * 64 + b"}",
    b'{"other":' + b'{"k":' * 63 + b"1" + b"}" * 63 + b"}",
    b'{"other":' + b'{"k":' * 64 + b"1" + b"}" * 64 + b"}",
    b'{"other":' + b'[{"k":' * 31 + b"1" + b"}]" * 31 + b"}",
    b'{"other":' + b'[{"k":' * 31 + b"1" + b"]}" * 31 + b"}",
    '{"id":"Ünï😀","é":"漢"}'.encode(),
    '{"\\u00e9":"漢"}'.encode(),
    *(b'{"id":"%s"}' % bad for bad in (b"\xc0\x80", b"\xe0\x80\x80", b"\xe0\x9f\xbf", b"\xed\xa0\x80")),
    *(
        b'{"id":"%s"}' % bad
        for bad in (b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\x80", b"\xe2\x82")
    ),
    *(b'{"id":"%s\\n%s\\ud83d\\ude00","text":"t"}' % (b"x" * n, b"y" * (70 - n)) for n in range(70)),
    *(b'{"id":"%s%s","text":"t"}' % (b"x" * n, b"\\" * k) for n in range(50, 66) for k in range(1, 7)),
    *(b'{"id":"%s%s\\n","text":"t"}' % (b"x" * n, b"\\" * k) for n in range(56, 66) for k in range(126, 132)),
    *(b'{"id":"%s\\u%s","text":"t"}' % (b"x" * n, b"0\\n0") for n in range(50, 66)),
]
"""Lines at the edges of the grammar and of the kernel: escapes at every place of a vector, levels, doubles, bad UTF-8."""


def requiring(fields: list[Field], required: tuple[str, ...]) -> list[Field]:
    return [replace(field, required=field.name in required) for field in fields]


def as_block(rows: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    block = np.frombuffer(b"".join(row + b"\n" for row in rows), np.uint8)
    return block, line_starts(block)


def expected(line: bytes, fields: list[Field]) -> dict[str, str | None] | None:
    """Return the fields by the oracle; None for a line that is no valid record."""
    try:
        found = read_line(line)
    except RejectedLineError:
        return None
    row: dict[str, str | None] = {}
    for field in fields:
        value = found.last(field.name)
        row[field.name] = None
        if value is not None and value.kind != "null":
            if field.kind == "string" and value.kind != "string":
                return None
            if field.kind == "identity" and identity_of(value) is None:
                return None
            if field.kind == "identity":
                row[field.name] = identity_of(value)
            else:
                row[field.name] = value.raw if field.kind == "raw" else str(value.meaning)
        elif field.required:
            return None
    return row


def is_declined(line: bytes, fields: list[Field]) -> bool:
    """Return whether the kernel may decline this valid line, by the list in the module's docstring."""
    found = read_line(line)
    names = [key.meaning for key, _ in found.pairs]
    twice = any(names.count(field.name) > 1 for field in fields)
    wrong_before = any(
        value.kind not in ("string", "null")
        for key, value in found.pairs
        for field in fields
        if field.kind == "string" and field.name == key.meaning
    )
    zero_below = any(field.kind == "identity" for field in fields) and any(
        value.raw == "-0" for _, value in found.pairs
    )
    unusual = any(key.escaped for key, _ in found.pairs) or twice or wrong_before or zero_below
    return unusual or found.levels > MAX_LEVELS


def parsed(line: bytes, fields: list[Field]) -> list[Value] | LineError:
    try:
        return parse_line(line, fields)
    except LineError as error:
        return error


def first_bad_byte(line: bytes) -> int | None:
    """Return where Python's decoder stops, None for a line in UTF-8."""
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return None


@given(lines, FIELD_LISTS, st.sampled_from([(), ("id",), ("id", "text")]))
@example(b'{"id":"\\ud83d\\ude00"}', FIELDS, ())
@example(b'{"id":1e999}', [], ())
@example(b'{"a":' + b"9" * 5000 + b"}", [], ())
def test_the_exact_parser_accepts_what_the_oracle_accepts(
    line: bytes, fields: list[Field], required: tuple[str, ...]
) -> None:
    fields = requiring(fields, required)
    found = parsed(line, fields)
    right = expected(line, fields)
    assert (None if isinstance(found, LineError) else found) == (
        None if right is None else list(right.values())
    )
    if isinstance(found, LineError):
        assert 0 <= found.offset <= len(line)
        assert found.expected


@given(st.lists(lines, max_size=6), FIELD_LISTS)
@example(CRAFTED, FIELDS)
@example(CRAFTED, NUMBERS_AS_IDS)
@example(CRAFTED, FIELDS[1:3])
@example(CRAFTED, [])
def test_the_kernel_accepts_only_what_it_reads_right_and_declines_only_what_is_listed(
    rows: list[bytes], fields: list[Field]
) -> None:
    batch, status = scan_fields(*as_block(rows), fields)
    batch.validate(full=True)
    assert batch.num_rows == len(rows) == len(status)
    assert batch.schema.names == [field.name for field in fields]
    for line, refused, row in zip(rows, status.tolist(), batch.to_pylist(), strict=True):
        right = expected(line, fields)
        if refused:
            assert right is None or is_declined(line, fields)
            assert all(value is None for value in row.values())
        else:
            assert row == right


@given(st.lists(lines, max_size=6), FIELD_LISTS)
@example(CRAFTED, FIELDS)
@example(CRAFTED, NUMBERS_AS_IDS)
@example(CRAFTED, FIELDS[1:3])
@example(CRAFTED, [])
def test_a_scan_reads_every_valid_line_and_names_every_other(rows: list[bytes], fields: list[Field]) -> None:
    fields = [replace(field, required=True) for field in fields[:1]] + fields[1:]
    batch, errors = scan_documents(*as_block(rows), fields)
    batch.validate(full=True)
    rights = [expected(line, fields) for line in rows]
    assert [row for row, _ in errors] == [row for row, right in enumerate(rights) if right is None]
    nothing = dict.fromkeys([field.name for field in fields])
    assert batch.to_pylist() == [nothing if right is None else right for right in rights]


@given(st.lists(st.binary(max_size=70), max_size=8))
def test_line_starts_are_where_newlines_say(pieces: list[bytes]) -> None:
    data = b"".join(piece + b"\n" for piece in pieces)
    ends = [at + 1 for at, byte in enumerate(data) if byte == 0x0A]
    assert line_starts(np.frombuffer(data, np.uint8)).tolist() == [0, *ends]


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=6), st.text(max_size=40).map(lambda s: s.encode("utf-8", "surrogatepass"))
        ),
        max_size=8,
    )
)
def test_lines_that_are_not_utf8_are_found_one_by_one(pieces: list[bytes]) -> None:
    rows = [
        b'{"id":"' + piece.hex().encode() + b'","text":"' + piece.replace(b"\n", b"") + b'"}'
        for piece in pieces
    ]
    _, errors = scan_documents(*as_block(rows), [Field("id")])
    found = {row: error.offset for row, error in errors if error.reason == "invalid_utf8"}
    assert found == {
        row: place for row, line in enumerate(rows) if (place := first_bad_byte(line)) is not None
    }


SECONDS = (0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0)
"""Bytes at the bounds of what may stand behind a lead."""


@pytest.mark.parametrize("before", [0, 3, 61, 62, 63, 64])
def test_blocks_are_utf8_where_python_decodes_them(before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every lead with the bounds of its second byte and any number of further ones, within a window, over its end and behind it."""
    monkeypatch.setattr(json_strings, "MANY_BYTES", 0)
    for lead, second, more in itertools.product(range(0x7F, 0x100), SECONDS, range(4)):
        code = bytes([lead, second]) + b"\xbf" * more
        for block in (b"a" * before + code + b"a" * 64 + b"\n", b"a" * before + code + b"\n"):
            found = json_strings.is_utf8(np.frombuffer(block, np.uint8))
            assert found == (first_bad_byte(block) is None), block


@given(st.lists(ordinary_lines, min_size=1, max_size=4), st.integers(0, 3))
def test_a_line_reads_the_same_wherever_it_stands(rows: list[bytes], n_before: int) -> None:
    filler = b'{"id":"' + b"f" * 61 + b'"}'
    fields = FIELDS[:3]
    alone, _ = scan_documents(*as_block(rows), fields)
    among, _ = scan_documents(*as_block([filler] * n_before + rows + [filler] * 3), fields)
    assert among.slice(n_before, len(rows)).to_pylist() == alone.to_pylist()
