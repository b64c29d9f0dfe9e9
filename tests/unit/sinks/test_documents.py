"""Documents: JSON lines in members of 8 MiB cut at a record, tables in groups cut by bytes; the same bytes however rows come, nothing after a failure."""

import gzip
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

from dolma_dask.errors import DataError
from dolma_dask.io import files
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.records import FileRecord
from dolma_dask.sinks.documents import ParquetWriter, open_writer
from dolma_dask.sinks.jsonl import MEMBER_BYTES, JsonlWriter

NAMES = ["a.jsonl.gz", "a.jsonl.zst", "a.jsonl"]
ROWS = [b'{"id":"%d","text":"%s","source":"s"}\n' % (i, b"text " * (i % 50)) for i in range(500)]


def lines(*rows: bytes) -> pa.LargeBinaryArray:
    return pa.array(rows, pa.large_binary())


def write(root: Path, name: str, *batches: pa.LargeBinaryArray) -> FileRecord:
    with JsonlWriter(str(root), name) as writer:
        for batch in batches:
            writer.write(batch)
    return writer.record


def decompressed(path: Path) -> bytes:
    data = path.read_bytes()
    if path.name.endswith(".gz"):
        return gzip.decompress(data)
    if path.name.endswith(".zst"):
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            return bytes(stream.read())
    return data


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_is_read(tmp_path: Path, name: str) -> None:
    record = write(tmp_path, f"documents/x/{name}", lines(*ROWS))
    path = tmp_path / "documents/x" / name
    assert decompressed(path) == b"".join(ROWS)
    assert record == FileRecord(
        path=f"documents/x/{name}",
        bytes=path.stat().st_size,
        checksum=xxhash.xxh3_128_hexdigest(path.read_bytes()),
        rows=500,
        stamp=files.stat(str(path)).stamp,
        members=((0, 0, 0),),
    )
    (block,) = DocumentFile(str(path), ("raw",))
    assert block.batch.column("raw").to_pylist() == ROWS


@pytest.mark.parametrize("name", [*NAMES, "a.parquet"])
@pytest.mark.parametrize("every", [1, 2, 7, 1000])
def test_rows_that_are_taken_have_the_bytes_of_these_alone(
    tmp_path: Path, name: str, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members end in the middle of a batch, and a long row makes one alone."""
    monkeypatch.setattr("dolma_dask.sinks.jsonl.MEMBER_BYTES", 1000)
    rows = [*ROWS, b'{"id":"long","text":"%s","source":"s"}\n' % (b"x" * 5000), *ROWS]
    taken = np.arange(len(rows)) % every == 0
    batches = [(lines(b"no\n", *rows).slice(1), taken), (lines(*rows[:3]), np.zeros(3, np.bool_))]
    with open_writer(str(tmp_path / "parts"), name) as writer:
        for batch, mask in batches:
            writer.write(batch, mask)
    with open_writer(str(tmp_path / "alone"), name) as alone:
        alone.write(lines(*[row for row, is_taken in zip(rows, taken, strict=True) if is_taken]))
    assert writer.record == alone.record


def test_members_have_8_mib(tmp_path: Path) -> None:
    row = b"x" * 999_999 + b"\n"
    record = write(tmp_path, "a.jsonl.gz", lines(*[row] * 20))
    assert MEMBER_BYTES == 8 * 1024 * 1024
    assert [(row, text) for _, row, text in record.members] == [(0, 0), (9, 9_000_000), (18, 18_000_000)]


def test_gzip_files_have_the_same_bytes_on_every_machine(tmp_path: Path) -> None:
    assert write(tmp_path, "a.jsonl.gz", lines(*ROWS)).checksum == "5c4956aabee1a424494d73f7456d817d"


def test_zstd_frames_carry_a_checksum(tmp_path: Path) -> None:
    write(tmp_path, "a.jsonl.zst", lines(*ROWS))
    data = bytearray((tmp_path / "a.jsonl.zst").read_bytes())
    assert data[:4] == b"\x28\xb5\x2f\xfd"
    assert data[4] & 4
    data[-1] ^= 1
    (tmp_path / "a.jsonl.zst").write_bytes(data)
    with pytest.raises(OSError, match="checksum"):
        decompressed(tmp_path / "a.jsonl.zst")


@pytest.mark.parametrize("tool, name", [("gzip", "a.jsonl.gz"), ("zstd", "a.jsonl.zst")])
def test_the_common_tools_accept_our_files(
    tmp_path: Path, tool: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dolma_dask.sinks.jsonl.MEMBER_BYTES", 1000)
    if shutil.which(tool) is None:
        pytest.skip(f"no {tool} here")
    write(tmp_path, name, lines(*ROWS))
    write(tmp_path, f"empty-{name}")
    for path, text in ((tmp_path / name, b"".join(ROWS)), (tmp_path / f"empty-{name}", b"")):
        subprocess.run([tool, "-t", str(path)], check=True, capture_output=True)
        assert subprocess.run([tool, "-dc", str(path)], check=True, capture_output=True).stdout == text


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_file_is_a_valid_file(tmp_path: Path, name: str) -> None:
    for batches in ((), (lines(),)):
        record = write(tmp_path, name, *batches)
        assert decompressed(tmp_path / name) == b""
        assert (record.rows, record.members) == (0, ((0, 0, 0),))
        assert list(DocumentFile(str(tmp_path / name))) == []


def test_an_exception_at_the_end_leaves_nothing_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> bytes:
        raise zlib.error("no memory")

    monkeypatch.setattr("dolma_dask.sinks.jsonl.igzip_lib.compress", fail)
    with pytest.raises(zlib.error):
        write(tmp_path, "a.jsonl.gz", lines(b"a\n"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "batch, row",
    [
        (pa.array([b"a\n", None], pa.large_binary()), 3),
        (lines(b"a\n", b"b\n", b"c"), 4),
        (lines(b"", b"b\n"), 2),
        (lines(b"a\n", b"", b"b\n").slice(1), 2),
    ],
)
def test_a_row_that_would_be_lost_is_an_error(tmp_path: Path, batch: pa.Array, row: int) -> None:
    with pytest.raises(
        DataError, match=rf"a\.jsonl: row {row} to be written is null or has no newline at its end"
    ):
        write(tmp_path, "a.jsonl", lines(b"1\n", b"2\n"), batch)
    assert list(tmp_path.iterdir()) == []


def test_waiting_rows_do_not_hold_on_to_large_buffers(tmp_path: Path) -> None:
    """One small row of each of many large blocks must not keep the blocks in memory."""
    before = pa.total_allocated_bytes()
    with JsonlWriter(str(tmp_path), "a.jsonl.gz") as writer:
        for _ in range(20):
            block = lines(b"a\n", b"x" * 1_000_000 + b"\n")
            writer.write(block.slice(0, 1))
            del block
        assert pa.total_allocated_bytes() - before < 2_000_000


@pytest.mark.parametrize("name", [*NAMES, "a.parquet"])
def test_the_suffix_chooses_the_writer(root: str, name: str) -> None:
    with open_writer(root, f"documents/{name}") as writer:
        writer.write(lines(*ROWS))
    url = files.join(root, f"documents/{name}")
    assert [
        row for block in DocumentFile(url, ("raw",)) for row in block.batch.column("raw").to_pylist()
    ] == ROWS
    assert writer.record.rows == len(ROWS)
    assert writer.record.checksum == files.checksum(url)


@pytest.mark.slow
def test_many_processes_give_the_same_bytes():
    """Levels 1 and 2 of the compressor do not: small members differ in one process out of five."""
    code = (
        "import hashlib, random\n"
        "from dolma_dask.sinks.jsonl import _gzip\n"
        "draw, digest = random.Random(0), hashlib.sha256()\n"
        "words = [''.join(draw.choices('etaoinshrdlu', k=draw.randrange(2, 9))) for _ in range(3000)]\n"
        "for _ in range(2000):\n"
        "    digest.update(_gzip(bytearray(' '.join(draw.choices(words, k=60)).encode())))\n"
        "print(digest.hexdigest())"
    )
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(12)]
    assert len({process.communicate(timeout=120)[0] for process in running}) == 1


@pytest.mark.parametrize("size", [1, 7, 500])
def test_tables_do_not_depend_on_batches(tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dolma_dask.sinks.documents.ROW_GROUP_BYTES", 10_000)
    monkeypatch.setattr("dolma_dask.sinks.documents.CHUNK_BYTES", 1_000)
    with ParquetWriter(str(tmp_path), "one.parquet") as one:
        one.write(lines(*ROWS))
    with ParquetWriter(str(tmp_path), "many.parquet") as many:
        for start in range(0, len(ROWS), size):
            many.write(lines(*ROWS).slice(start, size))
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "many.parquet").read_bytes()
    assert (one.record.bytes, one.record.checksum, one.record.rows) == (
        many.record.bytes,
        many.record.checksum,
        many.record.rows,
    )
    file = pq.ParquetFile(tmp_path / "one.parquet")
    groups = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
    assert sum(groups) == 500
    assert len(groups) > 5
    start = 0
    for count in groups[:-1]:
        assert 10_000 <= sum(map(len, ROWS[start : start + count])) < 11_500
        start += count


def test_the_columns_of_tables(root: str) -> None:
    with ParquetWriter(root, "a.parquet") as writer:
        writer.write(
            lines(
                b'{"id":"a","text":"t","source":"s","metadata": {"a":1.0} ,"x":1}\n',
                b'{"id":"b","text":""}\n',
            )
        )
    table = pq.read_table(pa.BufferReader(files.read_bytes(files.join(root, "a.parquet"))))
    assert table.schema.names == ["id", "text", "source", "added", "created", "metadata", "extra"]
    assert set(table.schema.types) == {pa.large_string()}
    assert table.to_pylist() == [
        {
            "id": "a",
            "text": "t",
            "source": "s",
            "added": None,
            "created": None,
            "metadata": '{"a":1.0}',
            "extra": '{"x":1}',
        },
        dict.fromkeys(table.schema.names) | {"id": "b", "text": ""},
    ]
    assert writer.record.path == "a.parquet"
    assert writer.record.checksum == files.checksum(files.join(root, "a.parquet"))
    column = pq.ParquetFile(pa.BufferReader(files.read_bytes(files.join(root, "a.parquet")))).metadata
    assert column.row_group(0).column(1).compression == "ZSTD"


def test_an_empty_table_has_its_columns(root: str) -> None:
    with ParquetWriter(root, "a.parquet") as writer:
        writer.write(lines())
    table = pq.read_table(pa.BufferReader(files.read_bytes(files.join(root, "a.parquet"))))
    assert (table.num_rows, len(table.schema)) == (0, 7)
    assert writer.record.rows == 0


@pytest.mark.parametrize("group_bytes", [10, 1_000_000])
def test_after_an_exception_no_table_is_there(
    tmp_path: Path, group_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dolma_dask.sinks.documents.ROW_GROUP_BYTES", group_bytes)
    monkeypatch.setattr("dolma_dask.sinks.documents.CHUNK_BYTES", 10)

    def fail() -> None:
        with ParquetWriter(str(tmp_path), "a.parquet") as writer:
            writer.write(lines(*ROWS))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert list(tmp_path.iterdir()) == []
