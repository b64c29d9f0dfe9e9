"""Documents: which lines are documents, what is said of the others, and that nothing of a line is lost."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dolma_dask.errors import CorruptFileError, SchemaError, SourceChangedError, UsageError
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.parquet import row_groups
from dolma_dask.io.records import BadRecord, Block
from dolma_dask.io.stream import Member, Section
from dolma_dask.sinks.documents import ParquetWriter
from dolma_dask.sinks.jsonl import JsonlWriter

Write = Callable[..., str]

GOOD = b'{"id":"%d","text":"text %d","source":"s"}\n'
ALL = ("id", "text", "source", "added", "created", "metadata", "raw")


def rows_of(blocks: list[Block]) -> list[dict[str, object]]:
    """Return all rows, after checking what every block promises."""
    rows: list[dict[str, object]] = []
    for block in blocks:
        assert block.first_row == len(rows)
        assert block.num_rows == block.batch.num_rows > 0
        block.batch.validate(full=True)
        rows += block.batch.to_pylist()
    return rows


def read(url: str, columns: tuple[str, ...] = ("id", "text", "source"), **options: object) -> list[Block]:
    return list(DocumentFile(url, columns, **options))  # type: ignore[arg-type]


BAD = {
    "blank_line": (b"", "one JSON object per line"),
    "invalid_utf8": (b'{"id":"x","text":"\xff","source":"s"}', "UTF-8; 0xFF at byte 18 is no part of it"),
    "nul_byte": (b'{"id":"x","text":"a\0b","source":"s"}', "no NUL byte, found one at byte 19; JSON writes"),
    "invalid_json": (b'{"id":"x","text":"a","source":"s"', "the line ends too early at byte 33"),
    "not_an_object": (b"[1]", "a JSON object, found an array"),
    "missing_field id": (b'{"text":"a","source":"s"}', "a string in field 'id', which is missing"),
    "missing_field text": (b'{"id":"x","source":"s"}', "a string in field 'text', which is missing"),
    "missing_field source": (
        b'{"id":"x","text":"a"}',
        "a string in field 'source', which is missing (or give the source once for the whole dataset: source=..., --source)",
    ),
    "wrong_type text": (b'{"id":"x","text":["a"],"source":"s"}', "a string in field 'text', found an array"),
    "wrong_type null": (b'{"id":null,"text":"a","source":"s"}', "a string in field 'id', found null"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_line_keeps_its_row_and_says_what_is_wrong(write: Write, case: str) -> None:
    line, expected = BAD[case]
    url = write("a.json.zst", GOOD % (0, 0) + line + b"\n" + GOOD % (2, 2))
    (block,) = read(url, ALL)
    (bad,) = block.bad
    offset = len(GOOD % (0, 0))
    assert (bad.url, bad.row, bad.byte_offset) == (url, 1, offset)
    assert bad.reason == case.split()[0]
    assert expected in bad.expected
    assert bad.raw == line
    assert str(bad).startswith(f"{url}, row 1, byte {offset}: {bad.reason.replace('_', ' ')}; expected ")
    rows = rows_of([block])
    assert rows[1] == dict.fromkeys(ALL)
    assert [row["id"] for row in rows] == ["0", None, "2"]
    assert rows[2]["raw"] == GOOD % (2, 2)


def test_all_bad_lines_of_a_file_at_any_block_size(write: Write) -> None:
    lines = [line for bad, _ in BAD.values() for line in (bad + b"\n", GOOD % (1, 1))]
    url = write("a.jsonl", b"".join(lines))
    (whole,) = read(url, ALL)
    assert [record.row for record in whole.bad] == list(range(0, len(lines), 2))
    assert [record.byte_offset for record in whole.bad] == [
        len(b"".join(lines[: record.row])) for record in whole.bad
    ]
    for block_bytes in (1, 50, 333):
        blocks = read(url, ALL, block_bytes=block_bytes)
        assert len(blocks) > 1
        assert rows_of(blocks) == whole.batch.to_pylist()
        assert [record for block in blocks for record in block.bad] == list(whole.bad)


def test_an_object_over_two_lines_is_two_bad_rows(write: Write) -> None:
    url = write("a.jsonl", b'{"id":"x",\n"text":"a","source":"s"}\n' + GOOD % (2, 2))
    (block,) = read(url)
    assert [(bad.row, bad.reason) for bad in block.bad] == [(0, "invalid_json"), (1, "invalid_json")]
    assert "the line ends too early" in block.bad[0].expected
    assert block.batch.column("id").to_pylist() == [None, None, "2"]


@pytest.mark.parametrize(
    "line, text",
    [
        (b'{"id":"x","text":"","source":"s"}', ""),
        (b'{"id":"x","text":"a\\u0000b","source":"s"}', "a\0b"),
        (b'{"id":"x","text":"\\ud83d\\ude00 \\u00e9\\n\\/","source":"s"}', "\U0001f600 \u00e9\n/"),
        (b'  {"id":"x", "text" : "a" ,"source":"s"}  ', "a"),
        (b'{"id":"x","text":"a","source":"s"}\r', "a"),
        (b'{"i\\u0064":"x","text":"a","source":"s"}', "a"),
        (b'{"id":"y","text":"a","source":"s","id":"x"}', "a"),
        (b'{"id":"x","text":"a","source":"s","added":null,"created":null}', "a"),
        ("{'id':'x','text':'\ufeff\u2028\u0085\U0010ffff','source':'s'}".replace("'", '"').encode(), None),
    ],
)
def test_unusual_lines_that_are_valid(write: Write, line: bytes, text: str | None) -> None:
    (block,) = read(write("a.jsonl", line + b"\n"), ALL)
    assert block.bad == ()
    (row,) = block.batch.to_pylist()
    assert (row["id"], row["source"]) == ("x", "s")
    assert row["text"] == (json.loads(line)["text"] if text is None else text)
    assert row["raw"] == line + b"\n"


def test_crlf_and_a_last_line_without_newline(write: Write) -> None:
    url = write("a.jsonl", b"".join(GOOD % (i, i) for i in range(3)).replace(b"\n", b"\r\n").rstrip())
    (block,) = read(url, ("id", "raw"))
    assert block.bad == ()
    assert block.batch.column("id").to_pylist() == ["0", "1", "2"]
    assert [raw.endswith(b"\r\n") for raw in block.batch.column("raw").to_pylist()] == [True, True, False]
    assert block.batch.column("raw").to_pylist()[2].endswith(b"}\n")


EVERYTHING = (
    b'{"zz":[1, 2 ,{"a":null}],"id":"x","big":123456789012345678901234567890,"one":1.0,"huge":1e400,"e":-0.10E+2,'
    b'"esc":"\\u00e9\\/\\ud83d\\ude00","dup":1,"dup":2,"text":"t","metadata": {"b" : 1.0,\t"a":[1e400,"\\u00e9"]} ,"source":"s",'
    b'"created":"2020","attributes":{}}'
)


def test_raw_and_metadata_are_byte_for_byte(write: Write) -> None:
    (block,) = read(write("a.jsonl.gz", EVERYTHING + b"\n"), ("raw", "metadata", "created", "added"))
    assert block.batch.schema == pa.schema(
        [
            ("raw", pa.large_binary()),
            ("metadata", pa.large_string()),
            ("created", pa.large_string()),
            ("added", pa.large_string()),
        ]
    )
    assert block.batch.to_pylist() == [
        {
            "raw": EVERYTHING + b"\n",
            "metadata": '{"b" : 1.0,\t"a":[1e400,"\\u00e9"]}',
            "created": "2020",
            "added": None,
        }
    ]


@pytest.mark.parametrize("value", ['"a string"', "12", "[ ]", "true", "1e999"])
def test_metadata_of_any_type_is_its_text(write: Write, value: str) -> None:
    (block,) = read(write("a.jsonl", b'{"metadata":%s}\n' % value.encode()), ("metadata",))
    assert block.batch.column("metadata").to_pylist() == [value]
    assert block.bad == ()


def test_only_asked_columns_are_made_and_checked(write: Write) -> None:
    url = write("a.jsonl", b'{"id":"a","created":7}\n{"id":5,"metadata":{}}\n')
    (block,) = read(url, ("metadata",))
    assert block.batch.schema.names == ["metadata"]
    assert block.batch.column(0).to_pylist() == [None, "{}"]
    assert block.bad == ()
    (block,) = read(url, ("raw",))
    assert block.batch.column("raw").to_pylist() == [b'{"id":"a","created":7}\n', b'{"id":5,"metadata":{}}\n']
    (block,) = read(url, ("id", "id"))
    assert block.batch.schema.names == ["id"]
    assert [bad.row for bad in block.bad] == [1]
    (block,) = read(url, ("created",))
    assert [(bad.row, bad.reason) for bad in block.bad] == [(0, "wrong_type")]
    with pytest.raises(UsageError, match="unknown document column 'txt'; expected one of id, text, source"):
        DocumentFile(url, ("txt",))


def test_the_source_may_be_given_once(write: Write) -> None:
    lines = [
        b'{"id":"a","text":"t"}',
        b'{"id":"b","text":"t","source":null}',
        b'{"id":"c","text":"t","source":"own"}',
        b'{"id":"d","text":"t","source":""}',
        b'{"id":"e","source":"own"}',
        b'{"id":"f","text":"t","source":1}',
    ]
    (block,) = read(write("a.jsonl", b"\n".join(lines)), source="given")
    assert block.batch.column("source").to_pylist() == ["given", "given", "own", "", None, None]
    assert [(bad.row, bad.reason) for bad in block.bad] == [(4, "missing_field"), (5, "wrong_type")]


@pytest.mark.parametrize("block_bytes", [1, 50, 1 << 20])
def test_a_record_may_have_exactly_the_limit(write: Write, block_bytes: int) -> None:
    limit = 100
    sizes = [limit - 1, limit, limit + 1, 90_000, limit]
    lines = [b'{"id":"%d","text":"","source":"s"' % i for i in range(len(sizes))]
    lines = [line + b" " * (size - len(line) - 2) + b"}\n" for line, size in zip(lines, sizes, strict=True)]
    assert [len(line) for line in lines] == sizes
    for data in (b"".join(lines), b"".join(lines).removesuffix(b"\n")):
        blocks = read(write("a.jsonl.gz", data), ALL, max_record_bytes=limit, block_bytes=block_bytes)
        assert [row["id"] for row in rows_of(blocks)] == ["0", "1", None, None, "4"]
        bad = [record for block in blocks for record in block.bad]
        assert [(record.row, record.reason, record.byte_offset) for record in bad] == [
            (2, "too_large", 199),
            (3, "too_large", 300),
        ]
        assert bad[0].expected == (
            "at most 100 bytes (max_record_bytes), found 101, for which a worker may need 2.02 kB; raise the limit or drop the record"
        )
        assert "found 90,000" in bad[1].expected
        assert [record.raw for record in bad] == [lines[2][:-1], lines[3][: 64 * 1024]]


def test_a_record_that_is_too_large_at_the_end_of_the_file(write: Write) -> None:
    url = write("a.jsonl", GOOD % (0, 0) + b'{"text":"' + b"x" * 500)
    for block_bytes in (1, 64, 1 << 20):
        blocks = read(url, max_record_bytes=200, block_bytes=block_bytes)
        assert [row["id"] for row in rows_of(blocks)] == ["0", None]
        (bad,) = blocks[-1].bad
        assert (bad.row, bad.reason) == (1, "too_large")
        assert "found 510," in bad.expected  # 509 and the newline that it lacks


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_an_empty_file_has_no_rows(write: Write, name: str) -> None:
    assert read(write(name, b"")) == []


def test_a_file_can_be_read_again(write: Write) -> None:
    url = write("a.jsonl.gz", GOOD % (0, 0) + GOOD % (1, 1))
    file = DocumentFile(url, block_bytes=1)
    first = list(file)
    checksum = file.stored.checksum
    assert rows_of(first) == rows_of(list(file))
    assert next(iter(file)).batch.num_rows == 1  # left in the middle
    assert len(rows_of(list(file))) == 2
    assert file.stored.checksum == checksum


def test_members_of_a_written_file_are_sections_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dolma_dask.sinks.jsonl.MEMBER_BYTES", 100)
    for name in ("a.jsonl.gz", "a.jsonl.zst", "a.jsonl"):
        with JsonlWriter(str(tmp_path), name) as writer:
            writer.write(pa.array([GOOD % (i, i) for i in range(20)], pa.large_binary()))
        members = [Member(*member) for member in writer.record.members]
        assert len(members) > 4
        (whole,) = read(str(tmp_path / name), ALL)
        for first in range(len(members)):
            for last in (first + 1, first + 3, len(members)):
                stop = members[last] if last < len(members) else None
                section = Section(members[first], stop and stop.offset)
                blocks = read(str(tmp_path / name), ALL, section=section)
                assert blocks[0].first_row == members[first].row
                rows = [row for block in blocks for row in block.batch.to_pylist()]
                end = stop.row if stop else 20
                assert rows == whole.batch.to_pylist()[members[first].row : end]


def test_a_bad_record_in_a_section_has_its_row_and_offset_in_the_file(tmp_path: Path) -> None:
    with JsonlWriter(str(tmp_path), "a.jsonl.gz") as writer:
        writer.write(pa.array([GOOD % (1, 1)] * 3, pa.large_binary()))
        writer._end_member()
        writer.write(pa.array([GOOD % (1, 1), b"oops\n"], pa.large_binary()))
    section = Section(Member(*writer.record.members[1]))
    (block,) = read(str(tmp_path / "a.jsonl.gz"), section=section)
    assert [(bad.row, bad.byte_offset) for bad in block.bad] == [(4, 4 * len(GOOD % (1, 1)))]


def test_row_groups_of_a_table_are_sections_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dolma_dask.sinks.documents.ROW_GROUP_BYTES", 200)
    monkeypatch.setattr("dolma_dask.sinks.documents.CHUNK_BYTES", 50)
    with ParquetWriter(str(tmp_path), "a.parquet") as writer:
        writer.write(pa.array([GOOD % (i, i) for i in range(20)], pa.large_binary()))
    url = str(tmp_path / "a.parquet")
    members, rows = row_groups(url)
    assert rows == 20
    assert len(members) > 3
    whole = [row for block in read(url) for row in block.batch.to_pylist()]
    for first, member in enumerate(members):
        for last in range(first + 1, len(members) + 1):
            stop = members[last] if last < len(members) else None
            file = DocumentFile(url, section=Section(member, stop and stop.offset))
            blocks = list(file)
            assert blocks[0].first_row == member.row
            found = [row for block in blocks for row in block.batch.to_pylist()]
            assert found == whole[member.row : stop.row if stop else 20]
            assert file.stored.position == 0 or stop is None, "the rest of the file was not read"


def test_times_of_other_tables_that_no_calendar_has_are_named(tmp_path: Path) -> None:
    url = str(tmp_path / "a.parquet")
    kind = pa.struct([("when", pa.timestamp("ms"))])
    when = pa.array([{"when": 0}, {"when": 2**60}], kind)
    pq.write_table(
        pa.table({"id": ["1", "2"], "text": ["a", "b"], "source": ["s", "s"], "metadata": when}), url
    )
    assert len(rows_of(read(url))) == 2
    for columns in (("id", "text", "metadata"), ("id", "raw")):
        with pytest.raises(SchemaError, match="rows 0 to 1 hold a value that cannot be written as JSON"):
            read(url, columns)


def test_a_file_that_changes_while_it_is_read(write: Write) -> None:
    url = write("a.jsonl", b"".join(GOOD % (i, i) for i in range(100)))
    size = Path(url).stat().st_size
    blocks = iter(DocumentFile(url, block_bytes=100))
    next(blocks)
    with Path(url).open("ab") as handle:
        handle.write(GOOD % (100, 100))
    with pytest.raises(
        SourceChangedError, match=rf"when reading began it had {size} bytes .* run again when"
    ):
        list(blocks)


def test_a_file_that_vanished_before_it_was_read(write: Write, tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError, match=r"b\.jsonl: no such file; expected the file that was listed"):
        DocumentFile(str(tmp_path / "b.jsonl"))
    file = DocumentFile(write("a.jsonl", GOOD % (0, 0)))
    Path(file.url).unlink()
    with pytest.raises(CorruptFileError, match="no such file"):
        list(file)


def test_damage_is_an_error_after_the_rows_before_it(write: Write) -> None:
    data = b"".join(GOOD % (i, i) for i in range(20_000))
    url = write("a.jsonl.gz", data)
    whole = Path(url).read_bytes()
    Path(url).write_bytes(whole[: len(whole) - 20])
    seen: list[Block] = []
    with pytest.raises(CorruptFileError, match="truncated"):
        seen.extend(DocumentFile(url, block_bytes=10_000))
    assert 0 < len(rows_of(seen)) < 20_000


def test_a_bad_record_as_a_line_of_the_quarantine_file() -> None:
    record = BadRecord("s3://b/a.jsonl", 3, 99, "invalid_utf8", "UTF-8", b"\xff\x00")
    assert record.to_json() == {
        "url": "s3://b/a.jsonl",
        "row": 3,
        "byte_offset": 99,
        "reason": "invalid_utf8",
        "expected": "UTF-8",
        "raw_base64": "/wA=",
    }
    assert str(record) == "s3://b/a.jsonl, row 3, byte 99: invalid utf8; expected UTF-8"
