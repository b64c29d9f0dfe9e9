"""Reading documents from JSON lines: errors, edges, and the promises of the arrays."""

import gzip
import json
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from dolma_dask.errors import UsageError
from dolma_dask.formats.json.exact import Field, LineError, parse_line
from dolma_dask.formats.json.lines import scan_documents, scan_fields
from dolma_dask.formats.json.strings import line_starts

FIELDS = [Field("id"), Field("text"), Field("metadata", "raw")]


WITH_ID = [Field("id", required=True), *FIELDS[1:]]


def blocks(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    block = np.frombuffer(data, np.uint8)
    return block, line_starts(block)


def scan(data: bytes, fields: list[Field] = FIELDS) -> tuple[pa.RecordBatch, list]:
    return scan_documents(*blocks(data), fields)


def refusal(line: bytes, fields: list[Field]) -> LineError:
    with pytest.raises(LineError) as caught:
        parse_line(line, fields)
    return caught.value


@pytest.mark.parametrize(
    "line, reason, offset, expected",
    [
        (b"", "blank_line", 0, "one JSON object per line"),
        (b" \t\r", "blank_line", 0, "one JSON object per line"),
        (b'{"id":"\xff"}', "invalid_utf8", 7, "UTF-8; 0xFF at byte 7 is no part of it"),
        (b'{"id":"\0"}', "nul_byte", 7, "no NUL byte, found one at byte 7; JSON writes it as \\u0000"),
        (b'{"id":"a"} {}', "invalid_json", 11, "one JSON object per line; trailing characters at byte 11"),
        (b'{"id":"a"', "invalid_json", 9, "one JSON object per line; the line ends too early at byte 9"),
        (b'{"id":"\xed\xa0\x80"}', "invalid_utf8", 7, "UTF-8; 0xED at byte 7 is no part of it"),
        (
            b'{"id":"a",}',
            "invalid_json",
            10,
            "one JSON object per line; trailing comma in object at byte 10",
        ),
        (
            b'{"id":NaN}',
            "invalid_json",
            6,
            "one JSON object per line; NaN, which JSON has not, at byte 6 (null stands for it)",
        ),
        *(
            (
                b'{"id":"\\ud83d\\ude00 %s"}' % half,
                "invalid_json",
                20,
                f"one JSON object per line; {half[:6].decode()}, one half of a surrogate pair without the other, at byte 20 (\\ufffd stands for it)",
            )
            for half in (b"\\ud800", b"\\uDC00", b"\\ud800 and more", b"\\ud800\\n")
        ),
        (
            b'{"id":"\\ud800',
            "invalid_json",
            13,
            "one JSON object per line; the line ends too early at byte 13",
        ),
        (b"\xef\xbb\xbf{}", "invalid_json", 0, "one JSON object per line; no byte order mark before it"),
        (b"[" * 3000, "invalid_json", 0, "arrays and objects that are nested less deeply"),
        (b" [1]", "not_an_object", 1, "a JSON object, found an array"),
        (b"null", "not_an_object", 0, "a JSON object, found null"),
        (b'[1, {"a": }]', "invalid_json", 10, "one JSON object per line; invalid character at byte 10"),
        (b"{}", "missing_field", 0, "a string in field 'id', which is missing"),
        (b'{"id":null}', "wrong_type", 0, "a string in field 'id', found null"),
        (b'{"id":7}', "wrong_type", 0, "a string in field 'id', found a number"),
        (b'{"id":"a","text":{}}', "wrong_type", 0, "a string in field 'text', found an object"),
    ],
)
def test_a_bad_line_says_what_was_expected(line: bytes, reason: str, offset: int, expected: str) -> None:
    error = refusal(line, WITH_ID)
    assert (error.reason, error.offset, error.expected) == (reason, offset, expected)
    _, errors = scan(b'{"id":"before"}\n' + line + b'\n{"id":"behind"}\n', WITH_ID)
    assert [(row, error.reason) for row, error in errors] == [(1, reason)]


def test_a_required_raw_field_may_hold_anything_but_null() -> None:
    fields = [Field("metadata", "raw", required=True)]
    assert parse_line(b'{"metadata":0}', fields) == ["0"]
    assert refusal(b'{"metadata":null}', fields).expected == "a value in field 'metadata', found null"
    assert refusal(b"{}", fields).reason == "missing_field"


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 200, 1000])
@pytest.mark.parametrize("line", [b"\n", b"a\n", b"{}\n" * 3 + b" " * 100 + b"\n"])
def test_lines_start_behind_newlines_however_short_they_are(line: bytes, size: int) -> None:
    block = line * size
    expected = [0, *(at + 1 for at, byte in enumerate(block) if byte == 0x0A)]
    assert line_starts(np.frombuffer(block, np.uint8)).tolist() == expected


def test_a_block_may_end_where_memory_ends() -> None:
    """The last lines are read from a copy; their values still come from the right place."""
    page = np.full(4096, 0x20, np.uint8)
    for size in (3, 40, 63, 64, 65, 130):
        line = b'{"id":"' + b"v" * size + b'"}\n'
        page[-len(line) :] = np.frombuffer(line, np.uint8)
        block = page[-len(line) :]
        batch, errors = scan_documents(block, line_starts(block), FIELDS)
        assert (batch.column("id").to_pylist(), errors) == (["v" * size], [])


def test_starts_may_be_a_part_of_the_lines() -> None:
    block, starts = blocks(b'{"id":"a"}\nno json\n{"id":"c"}\n')
    batch, errors = scan_documents(block, starts[2:], FIELDS)
    assert (batch.column("id").to_pylist(), errors) == (["c"], [])


@pytest.mark.parametrize("starts", [[0, 3], [0, 4], [2, 0], [-1, 12], [0, 0, 12], [0, 99]])
def test_starts_outside_of_the_lines_are_refused(starts: list[int]) -> None:
    with pytest.raises(UsageError, match="must lie in their block"):
        scan_fields(np.frombuffer(b'{"id":"abc"}\n'[:12] + b"x", np.uint8), np.array(starts), FIELDS)


def test_fields_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(UsageError, match="found twice: 'id'"):
        scan(b"{}\n", [Field("id"), Field("id", "raw")])


def test_many_keys_are_more_than_the_kernel_learns() -> None:
    rows = [{f"key{i * 40 + j}": j for j in range(40)} | {"id": str(i), "k" * 600: 1} for i in range(60)]
    batch, errors = scan(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    assert not errors
    assert batch.column("id").to_pylist() == [row["id"] for row in rows]


@pytest.mark.conformance
def test_the_corpus_reads_as_msgspec_reads_it(shared: Path) -> None:
    for path in sorted((shared / "corpus" / "documents").glob("*.gz")):
        data = gzip.decompress(path.read_bytes())
        batch, errors = scan(data)
        rows = [msgspec.json.decode(line) for line in data.splitlines()]
        assert not errors
        assert batch.column("id").to_pylist() == [row["id"] for row in rows]
        assert batch.column("text").to_pylist() == [row["text"] for row in rows]
        assert [json.loads(raw) for raw in batch.column("metadata").to_pylist()] == [
            row["metadata"] for row in rows
        ]
