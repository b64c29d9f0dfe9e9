"""Files of JSON lines, stored in every way: rows, ids, bad records, and the fast path beside the slow one."""

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.errors import CorruptFileError, SourceChangedError
from dolma_dask.io.stream import LineBlock
from dolma_dask.sources.base import SCHEMA, Source
from dolma_dask.sources.documents import RecordConverter
from dolma_dask.sources.jsonl import JsonLines, convert_lines
from dolma_dask.sources.mapping import FieldMapping

GOOD = b'{"id":"%d","text":"text %d","source":"s"}\n'
BAD = [
    (b"\n", "blank_line"),
    (b'{"id":"x","text":"\xff","source":"s"}\n', "invalid_utf8"),
    (b'{"id":"x","text":"a","source":"s","n":"\xc3\x28"}\n', "invalid_utf8"),
    (b'{"id":"x","text":"a\0b","source":"s"}\n', "nul_byte"),
    (b'{"id":"x","text":"a","source":"s"\n', "invalid_json"),
    (b"[1]\n", "not_an_object"),
    (b'{"id":"x","source":"s"}\n', "missing_field"),
    (b'{"id":[],"text":"a","source":"s"}\n', "wrong_type"),
]


def write(path: Path, data: bytes) -> Path:
    if path.name.endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    elif path.name.endswith((".zst", ".zstd")):
        data = pa.Codec("zstd").compress(data, asbytes=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def block_of(lines: list[bytes]) -> LineBlock:
    starts = np.cumsum([0, *map(len, lines)], dtype=np.int64)
    return LineBlock(np.frombuffer(b"".join(lines), np.uint8), starts, first_row=3, byte_offset=100)


@pytest.fixture
def small_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a file of a few lines come in many blocks."""
    monkeypatch.setattr("dolma_dask.io.stream.READ_BYTES", 64)


def rows_of(source: Source) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for block in source.read():
        assert block.batch.schema == SCHEMA
        assert block.first_row == len(rows)
        rows += block.batch.to_pylist()
    return rows


@pytest.mark.parametrize(
    "suffix", ["jsonl", "json", "ndjson", "jsonl.gz", "json.gz", "jsonl.zst", "json.zstd"]
)
def test_every_way_of_storing_gives_the_same_documents(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"a.{suffix}", b"".join(GOOD % (i, i) for i in range(50)))
    rows = rows_of(JsonLines(str(path), f"a.{suffix}", block_bytes=300))
    assert [row["raw"] for row in rows] == [GOOD % (i, i) for i in range(50)]
    assert [row["id"] for row in rows] == [str(i) for i in range(50)]


@pytest.mark.usefixtures("small_reads")
@pytest.mark.parametrize("block_bytes", [1, 100, 1 << 20])
def test_generated_ids_do_not_depend_on_blocks(tmp_path: Path, block_bytes: int) -> None:
    lines = [json.dumps({"text": f"t{i}", "timestamp": "2019", "url": "u"}) for i in range(120)]
    path = write(tmp_path / "c4-train.00000-of-01024.json", "\n".join(lines).encode())
    mapping = FieldMapping(created="timestamp", source_name="c4")
    rows = rows_of(JsonLines(str(path), f"en/{path.name}", mapping, block_bytes))
    assert [row["id"] for row in rows] == [f"en/c4-train.00000-of-01024-{i:08d}" for i in range(120)]
    assert json.loads(rows[119]["raw"]) == {  # type: ignore[arg-type]
        "id": "en/c4-train.00000-of-01024-00000119",
        "text": "t119",
        "source": "c4",
        "created": "2019",
        "metadata": {"url": "u"},
    }


@pytest.mark.usefixtures("small_reads")
@pytest.mark.parametrize("mapping", [FieldMapping(), FieldMapping(id="id")])
@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
def test_a_bad_line_is_a_null_row_with_its_place(
    tmp_path: Path, mapping: FieldMapping, block_bytes: int
) -> None:
    lines = [GOOD % (0, 0), *(line for bad, _ in BAD for line in (bad, GOOD % (1, 1)))]
    path = write(tmp_path / "a.jsonl", b"".join(lines))
    blocks = list(JsonLines(str(path), "a.jsonl", mapping, block_bytes).read())
    assert len(blocks) == 1 or block_bytes == 1
    bad = [record for block in blocks for record in block.bad]
    assert [(record.row, record.reason) for record in bad] == [
        (2 * i + 1, reason) for i, (_, reason) in enumerate(BAD)
    ]
    assert [record.byte_offset for record in bad] == [len(b"".join(lines[: record.row])) for record in bad]
    assert [record.raw + b"\n" for record in bad] == [line for line, _ in BAD]
    assert {record.url for record in bad} == {str(path)}
    rows = [row for block in blocks for row in block.batch.to_pylist()]
    assert len(rows) == len(lines)
    empty = dict.fromkeys(SCHEMA.names)
    assert [i for i, row in enumerate(rows) if row == empty] == [record.row for record in bad]
    assert [row["id"] for row in rows if row != empty] == ["0", *["1"] * len(BAD)]


@pytest.mark.usefixtures("small_reads")
@pytest.mark.parametrize("mapping", [FieldMapping(), FieldMapping(source_name="s")])
@pytest.mark.parametrize("block_bytes", [50, 1 << 20])
def test_an_oversized_line_is_bad_and_the_rows_after_it_keep_their_numbers(
    tmp_path: Path, mapping: FieldMapping, block_bytes: int
) -> None:
    longer = GOOD % (10**80, 1)
    huge = b'{"text":"' + b"x" * 200_000 + b'"}\n'
    data = GOOD % (0, 0) + longer + huge + GOOD % (3, 3)
    path = write(tmp_path / "a.jsonl", data)
    blocks = list(JsonLines(str(path), "a.jsonl", mapping, block_bytes, max_record_bytes=60).read())
    bad = [record for block in blocks for record in block.bad]
    assert [(record.row, record.reason) for record in bad] == [(1, "too_large"), (2, "too_large")]
    assert "found 200,0" in bad[1].expected
    assert bad[1].byte_offset == len(GOOD % (0, 0) + longer)
    assert len(bad[1].raw) <= 64 * 1024
    rows = [row for block in blocks for row in block.batch.to_pylist()]
    assert [row["text"] for row in rows] == ["text 0", None, None, "text 3"]


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    assert rows_of(JsonLines(str(write(tmp_path / "a.jsonl.gz", b"")), "a.jsonl.gz")) == []


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_a_truncated_file_is_an_error(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, b"".join(GOOD % (i, i) for i in range(5000)))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CorruptFileError, match="truncated"):
        rows_of(JsonLines(str(path), name))


def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", b"".join(GOOD % (i, i) for i in range(50)))
    blocks = JsonLines(str(path), "a.jsonl", block_bytes=1).read()
    next(blocks)
    path.write_bytes(path.read_bytes() + GOOD % (50, 50))
    with pytest.raises(SourceChangedError):
        list(blocks)


json_texts = st.text(max_size=12).map(lambda text: json.dumps(text, ensure_ascii=len(text) % 2 == 0))
fields = st.sampled_from(['"id"', '"text"', '"source"', '"other"', '"te\\u0078t"'])
members = st.tuples(fields, json_texts | st.sampled_from(["1", "null", "1.0", "{}", "01"])).map(":".join)
wild_lines = st.lists(members, max_size=5).map(lambda parts: ("{" + ",".join(parts) + "}").encode())
documents = st.tuples(json_texts, json_texts, json_texts).map(
    lambda parts: '{{"id":{}, "text":{},"source":{},"x":1.0}}'.format(*parts).encode()
)
blocks_of_lines = st.lists(documents | documents | documents | wild_lines, min_size=1, max_size=6)


@given(st.lists(documents, min_size=1, max_size=6) | blocks_of_lines)
def test_the_fast_path_gives_what_the_slow_path_gives(lines: list[bytes]) -> None:
    block = block_of([line + b"\n" for line in lines])
    converter = RecordConverter(FieldMapping(), "a.jsonl")
    fast = converter.scan(block)
    slow = convert_lines(block, "url", converter, 1 << 20)
    if fast is not None:
        assert not slow.bad
        assert fast.equals(slow.batch)
        fast.validate(full=True)


def test_the_fast_path_takes_plain_documents() -> None:
    batch = RecordConverter(FieldMapping(), "a.jsonl").scan(block_of([GOOD % (i, i) for i in range(10)]))
    assert batch is not None
    assert batch.num_rows == 10


@pytest.mark.parametrize(
    ("data", "advice"),
    [
        (b'[\n {"text": "a"},\n {"text": "b"}\n]\n', 'jq -c ".[]" FILE'),
        (b' [{"text": "a"}, {"text": "b"}]\n', 'jq -c ".[]" FILE'),
        (b'{\n "text": "a"\n}\n', "jq -c . FILE"),
        (b'{"text": \n', None),
    ],
)
@pytest.mark.parametrize("before", [b"", GOOD % (1, 1)])
def test_a_file_that_is_one_json_value_is_told_how_to_become_lines(
    tmp_path: Path, data: bytes, advice: str | None, before: bytes
) -> None:
    path = write(tmp_path / "a.json", before + data)
    (block,) = JsonLines(str(path), "a.json", FieldMapping()).read()
    expected = block.bad[0].expected
    assert (advice in expected) if advice and not before else "jq" not in expected
    assert all("jq" not in bad.expected for bad in block.bad[1:])
