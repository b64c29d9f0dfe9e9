"""Stored bytes to lines: every way of storing, every kind of damage, and lines that are too long."""

import bz2
import gzip
import lzma
import os
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import xxhash
import zstandard

from dolma_dask.errors import CorruptFileError, SourceChangedError
from dolma_dask.io.stream import LineBlock, Member, Section, StoredFile, compression_of, read_lines

Write = Callable[..., str]

TEXT = b"".join(b'{"id":"%d"}\n' % i for i in range(40))
SKIPPABLE = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"


def gz(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def zst(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


def blocks_of(url: str, section: Section | None = None, **options: int) -> list[LineBlock]:
    stored = StoredFile(url, section)
    try:
        return list(read_lines(stored, compression_of(url), **options))
    finally:
        stored.close()


def text_of(url: str, **options: int) -> bytes:
    return b"".join(block.data.tobytes() for block in blocks_of(url, **options))


@pytest.mark.parametrize(
    "path, compression",
    [("a.jsonl.gz", "gzip"), ("a.json.zst", "zstd"), ("a.zstd", "zstd"), ("a.jsonl", None), ("gz", None)],
)
def test_the_suffix_says_how_a_file_is_stored(path: str, compression: str | None) -> None:
    assert compression_of(path) == compression


@pytest.mark.parametrize("block_bytes", [1, 37, 1 << 21])
@pytest.mark.parametrize(
    "name, data",
    {
        "plain.jsonl": TEXT,
        "gzip.jsonl.gz": gz(TEXT),
        "members.jsonl.gz": b"".join(gz(line + b"\n") for line in TEXT.splitlines()),
        "empty members.jsonl.gz": gz(b"") + gz(TEXT[:55]) + gz(b"") + gz(b"") + gz(TEXT[55:]) + gz(b""),
        "padded.jsonl.gz": gz(TEXT) + bytes(70_000),
        "named.jsonl.gz": b"\x1f\x8b\x08\x0c\0\0\0\0\0\x03\x02\0xyname\0" + gz(TEXT)[10:],
        "bzip2.jsonl.bz2": bz2.compress(TEXT[:55]) + bz2.compress(TEXT[55:]),
        "xz.jsonl.xz": lzma.compress(TEXT[:55]) + lzma.compress(TEXT[55:]) + bytes(8),
        "zstd.jsonl.zst": zst(TEXT),
        "frames.jsonl.zst": zst(TEXT[:55]) + zst(b"") + zst(TEXT[55:]),
        "skippable.jsonl.zst": SKIPPABLE + zst(TEXT[:55]) + SKIPPABLE + zst(TEXT[55:]) + SKIPPABLE,
    }.items(),
)
def test_every_way_of_storing_gives_the_same_lines(
    write: Write, name: str, data: bytes, block_bytes: int
) -> None:
    blocks = blocks_of(write(name, data, raw=True), block_bytes=block_bytes)
    assert b"".join(block.data.tobytes() for block in blocks) == TEXT
    assert [block.first_row for block in blocks] == [0, *accumulate(len(b.starts) - 1 for b in blocks)][:-1]
    assert [block.byte_offset for block in blocks] == [0, *accumulate(len(b.data) for b in blocks)][:-1]
    for block in blocks:
        lines = block.data.tobytes().splitlines(keepends=True)
        np.testing.assert_array_equal(block.starts, [0, *accumulate(map(len, lines))])
    assert len(blocks) == 1 or block_bytes < len(TEXT)


def test_thousands_of_tiny_members(write: Write) -> None:
    lines = [b'{"id":"%d"}\n' % i for i in range(5_000)]
    url = write("a.jsonl.gz", b"".join(map(gz, lines)), raw=True)
    assert text_of(url) == b"".join(lines)


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl"])
def test_a_section_that_is_not_all_there_is_an_error(write: Write, name: str) -> None:
    """A file that ends where a member does looks whole; what was to follow is not lost in silence."""
    pack = gz if name.endswith("gz") else bytes
    url = write(name, pack(b"one\n") + pack(b"two\n"), raw=True)
    size = Path(url).stat().st_size
    assert blocks_of(url, Section(Member(), size))
    Path(url).write_bytes(pack(b"one\n"))
    with pytest.raises(CorruptFileError, match=f"expected to read up to byte {size}"):
        blocks_of(url, Section(Member(), size))


def test_the_checksum_is_that_of_the_stored_bytes(write: Write) -> None:
    url = write("a.jsonl.gz", TEXT)
    stored = StoredFile(url)
    for _ in range(2):
        list(read_lines(stored, "gzip"))
        assert stored.checksum == xxhash.xxh3_128_hexdigest(Path(url).read_bytes())
        stored.rewind()
    stored.close()


@pytest.mark.parametrize(
    "name, pack, unit",
    [
        ("a.gz", gz, "gzip member"),
        ("a.zst", zst, "zstd frame"),
        ("a.bz2", bz2.compress, "bzip2 member"),
        ("a.xz", lzma.compress, "xz member"),
    ],
)
def test_a_file_cut_anywhere_is_truncated(
    write: Write, name: str, pack: Callable[[bytes], bytes], unit: str
) -> None:
    first, second = pack(TEXT[:55]), pack(TEXT[55:])
    whole = first + second
    for cut in range(len(whole)):
        url = write(name, whole[:cut], raw=True)
        if cut == len(first):  # nothing in the file tells of the second
            assert text_of(url) == TEXT[:55]
            continue
        with pytest.raises(CorruptFileError) as caught:
            text_of(url)
        assert caught.value.details == {"url": url, "offset": cut}
        assert str(caught.value).startswith(f"{url}: truncated: the file ")
        if cut:
            assert f"ends at stored byte {cut} inside a {unit}; expected its end. Fetch" in str(caught.value)
        else:
            assert "has 0 bytes; expected" in str(caught.value)


def zst_with_checksum(data: bytes) -> bytes:
    frame = bytearray(zst(data))
    frame[4] |= 4
    return bytes(frame) + (xxhash.xxh64_intdigest(data) & 0xFFFFFFFF).to_bytes(4, "little")


@pytest.mark.parametrize(
    "name, pack",
    [
        ("a.jsonl.gz", gz),
        ("a.jsonl.zst", zst_with_checksum),
        ("a.jsonl.bz2", bz2.compress),
        ("a.jsonl.xz", lzma.compress),
    ],
)
def test_a_changed_bit_never_changes_the_text(
    write: Write, name: str, pack: Callable[[bytes], bytes]
) -> None:
    whole = pack(TEXT)
    harmless = set()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        with suppress(CorruptFileError):
            assert text_of(write(name, bytes(damaged), raw=True)) == TEXT
            harmless.add(place)
    assert len(harmless) < 10  # such as the time in a gzip header


def test_a_wrong_crc_and_a_wrong_length_are_damage(write: Write) -> None:
    whole = gz(TEXT)
    for place in (-8, -1):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        url = write("a.jsonl.gz", bytes(damaged), raw=True)
        with pytest.raises(CorruptFileError, match=r"a\.jsonl\.gz: damaged gzip data before stored byte \d+"):
            text_of(url)


@pytest.mark.parametrize("padding", [0, 3, 1_100_000])
def test_garbage_after_the_last_member(write: Write, padding: int) -> None:
    url = write("a.jsonl.gz", gz(TEXT) + bytes(padding) + b"plain text\n", raw=True)
    with pytest.raises(
        CorruptFileError, match="garbage after the last gzip member, at stored byte"
    ) as caught:
        text_of(url)
    offset = caught.value.details["offset"]
    assert isinstance(offset, int)
    assert len(gz(TEXT)) <= offset <= len(gz(TEXT)) + padding
    assert "expected the end of the file or another gzip member" in str(caught.value)


def test_garbage_after_the_last_zstd_frame(write: Write) -> None:
    url = write("a.jsonl.zst", zst(TEXT) + b"plain text\n", raw=True)
    with pytest.raises(CorruptFileError, match=r"damaged zstd data .*expected valid zstd data"):
        text_of(url)


def long_zst(data: bytes, window_log: int) -> bytes:
    parameters = zstandard.ZstdCompressionParameters(window_log=window_log, compression_level=1)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize("window_log", [28, 31])
@pytest.mark.parametrize("before", [b"", TEXT[:55], TEXT[:55] * 5_000])
def test_zstd_with_a_long_window(write: Write, window_log: int, before: bytes) -> None:
    """Its first frame may have a short one, and what was read of that comes once."""
    whole = (
        (zst(before) if before else b"") + long_zst(TEXT, window_log) + SKIPPABLE + long_zst(TEXT[55:], 28)
    )
    url = write("a.jsonl.zst", whole, raw=True)
    stored = StoredFile(url)
    lines = list(read_lines(stored, "zstd", block_bytes=1 << 16))
    assert b"".join(block.data.tobytes() for block in lines) == before + TEXT + TEXT[55:]
    record = stored.record("a")
    assert (record.window_bytes, record.checksum) == (1 << window_log, xxhash.xxh3_128_hexdigest(whole))
    for data, what in (whole[:-1], "truncated: the file ends at"), (whole + b"text", "damaged zstd data"):
        with pytest.raises(CorruptFileError, match=what):
            text_of(write("a.jsonl.zst", data, raw=True))


@pytest.mark.parametrize(
    "name, data, found, expected",
    [
        ("a.jsonl.gz", TEXT, "plain JSON", "gzip data"),
        ("a.jsonl.gz", zst(TEXT), "zstd data", "gzip data"),
        ("a.jsonl.gz", b"PAR1\x15\0", "a Parquet table", "gzip data"),
        ("a.jsonl.gz", b"hello", "other data", "gzip data"),
        ("a.jsonl.gz", bytes(100), "other data", "gzip data"),
        ("a.jsonl.zst", TEXT, "plain JSON", "zstd data"),
        ("a.jsonl.zst", gz(TEXT), "gzip data", "zstd data"),
        ("a.jsonl", gz(TEXT), "gzip data", "plain text"),
        ("a.jsonl", zst(TEXT), "zstd data", "plain text"),
        ("a.jsonl", b"PAR1\x15\0", "a Parquet table", "plain text"),
        ("a.jsonl", b"BZh91AY&SY\0", "bzip2 data", "plain text"),
        ("a.jsonl", b"\xfd7zXZ\0", "xz data", "plain text"),
        ("a.jsonl", b"PK\x03\x04", "a zip archive", "plain text"),
    ],
)
def test_a_suffix_that_lies(write: Write, name: str, data: bytes, found: str, expected: str) -> None:
    url = write(name, data, raw=True)
    with pytest.raises(CorruptFileError) as caught:
        text_of(url)
    assert str(caught.value) == (
        f"{url}: found {found} ({data[:4]!r}) at its start; expected {expected}, as the suffix says. "
        "Rename the file to what it is."
    )


@pytest.mark.parametrize("text", [b"PAR1 is a text", b"BZh too", b"\xef\xbb\xbf{}"])
def test_a_text_is_not_taken_for_an_archive(write: Write, text: bytes) -> None:
    assert text_of(write("a.txt", text)) == text + b"\n"


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_a_file_of_nothing_has_no_lines(write: Write, name: str) -> None:
    assert blocks_of(write(name, b"")) == []


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_a_compressed_file_of_0_bytes_is_truncated(write: Write, name: str) -> None:
    with pytest.raises(
        CorruptFileError, match=r"the file has 0 bytes; expected .* data, which has some even"
    ):
        blocks_of(write(name, b"", raw=True))


@pytest.mark.parametrize("text, rows", [(b"a", 1), (b"a\n", 1), (b"\n", 1), (b"a\n\n", 2), (b"a\r\nb", 2)])
def test_the_last_line_may_lack_its_newline(write: Write, text: bytes, rows: int) -> None:
    (block,) = blocks_of(write("a.jsonl", text))
    assert block.data.tobytes() == text.removesuffix(b"\n") + b"\n"
    assert len(block.starts) == rows + 1


@pytest.mark.parametrize("name, pack", [("a.gz", gz), ("a.zst", zst), ("a.jsonl", bytes)])
def test_a_section_has_its_rows_and_offsets(write: Write, name: str, pack: Callable[[bytes], bytes]) -> None:
    texts = [b"a\nbb\n", b"ccc\n", b"d\ne\n"]
    parts = [pack(text) for text in texts]
    offsets = [0, *accumulate(map(len, parts))]
    url = write(name, b"".join(parts), raw=True)
    (block,) = blocks_of(url, Section(Member(offsets[1], 2, 5), offsets[2]))
    assert (block.data.tobytes(), block.first_row, block.byte_offset) == (b"ccc\n", 2, 5)
    (block,) = blocks_of(url, Section(Member(offsets[2], 3, 9)))
    assert (block.data.tobytes(), block.first_row, block.byte_offset) == (b"d\ne\n", 3, 9)
    assert blocks_of(url, Section(Member(offsets[3], 5, 13))) == []
    if name != "a.jsonl":
        with pytest.raises(CorruptFileError, match="truncated"):
            blocks_of(url, Section(stop_offset=offsets[1] - 1))


def oracle(lines: list[bytes], limit: int) -> list[tuple[int, int, bytes, int]]:
    """Row, byte offset, head and size of the lines that are too long."""
    offsets = [0, *accumulate(map(len, lines))]
    return [
        (row, offsets[row], line[:-1][: 64 * 1024], len(line))
        for row, line in enumerate(lines)
        if len(line) > limit
    ]


@pytest.mark.parametrize("block_bytes", [1, 7, 64, 1000, 1 << 20])
@pytest.mark.parametrize("limit", [1, 10, 11, 12, 100])
@pytest.mark.parametrize("ends", [True, False])
def test_lines_that_are_too_long_are_counted_not_held(
    write: Write, block_bytes: int, limit: int, ends: bool
) -> None:
    sizes = [200, 0, 9, 10, 11, 12, 150, 150, 3, 99, 100, 300]
    lines = [b"%d" % (i % 10) * size + b"\n" for i, size in enumerate(sizes)]
    url = write("a.jsonl", b"".join(lines).removesuffix(b"" if ends else b"\n"))
    blocks = blocks_of(url, block_bytes=block_bytes, max_record_bytes=limit)
    long = [
        (b.first_row, b.byte_offset, b.data.tobytes(), b.oversize_bytes) for b in blocks if b.oversize_bytes
    ]
    kept = [
        (block, row) for block in blocks if not block.oversize_bytes for row in range(len(block.starts) - 1)
    ]
    for block, row in kept:
        start, stop = block.starts[row : row + 2]
        line = block.data[start:stop].tobytes()
        assert line == lines[block.first_row + row]
        if len(line) > limit:  # it was there in full before anybody could know
            assert stop - start <= limit + block_bytes
            long.append((block.first_row + row, block.byte_offset + int(start), line[:-1], len(line)))
    assert sorted(long) == oracle(lines, limit)
    assert sum(len(block.starts) - 1 for block in blocks) == len(lines)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_a_huge_line_is_never_held(write: Write, name: str) -> None:
    size = 40_000_000
    url = write(name, b"a\n" + bytes(size) + b"\nb\n")
    tracemalloc.start()
    try:
        blocks = blocks_of(url, max_record_bytes=1_000_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [(block.first_row, block.byte_offset, block.oversize_bytes) for block in blocks] == [
        (0, 0, 0),
        (1, 2, size + 1),
        (2, size + 3, 0),
    ]
    assert len(blocks[1].data) == 64 * 1024
    assert peak < 12_000_000


@pytest.mark.parametrize(
    "text, message",
    [
        (TEXT + b"more\n", rf"has {len(TEXT) + 5} bytes .* it had {len(TEXT)} bytes"),
        (TEXT.swapcase(), "Expected input files to stay as they are while they are read"),
    ],
    ids=["longer", "of the same size"],
)
def test_a_file_that_is_written_while_it_is_read(write: Write, text: bytes, message: str) -> None:
    url = write("a.jsonl", TEXT)
    stored = StoredFile(url)
    list(read_lines(stored, None))
    stored.check_unchanged()
    before = Path(url).stat().st_mtime_ns
    write("a.jsonl", text)
    os.utime(url, ns=(before + 1, before + 1))
    with pytest.raises(SourceChangedError, match=message):
        stored.check_unchanged()
    stored.close()


def test_a_file_that_vanishes(write: Write) -> None:
    url = write("a.jsonl", TEXT)
    stored, late = StoredFile(url), StoredFile(url)
    list(read_lines(stored, None))
    Path(url).unlink()
    with pytest.raises(SourceChangedError, match=r"a\.jsonl is gone; when reading began it had"):
        stored.check_unchanged()
    missing = r"a\.jsonl: no such file; expected the file that was listed. Was it moved or deleted\?"
    with pytest.raises(CorruptFileError, match=missing):
        late.read()
    with pytest.raises(CorruptFileError, match=missing):
        StoredFile(url)
    with pytest.raises(CorruptFileError, match="no such file"):
        StoredFile(str(Path(url).parent))  # a folder is no file
    stored.close()
