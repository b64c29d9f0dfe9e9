"""Tar archives: members in order, rows through all of them, damage found, and every byte accounted for."""

import gzip
import io
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest

from dolma_dask.errors import CorruptFileError, UsageError
from dolma_dask.io.records import Block
from dolma_dask.sources.mapping import FieldMapping
from dolma_dask.sources.tar import TarArchive

PILE = FieldMapping(source="meta.pile_set_name")


def line(number: int) -> bytes:
    return b'{"text":"t%d","meta":{"pile_set_name":"Wiki"}}\n' % number


def archive(path: Path, members: dict[str, bytes], **options: object) -> Path:
    with tarfile.open(path, "w", **options) as tar:  # type: ignore[call-overload]
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, data in members.items():
            if name.endswith(".gz"):
                data = gzip.compress(data)
            elif name.endswith(".zst"):
                data = pa.Codec("zstd").compress(data, asbytes=True)
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def read(path: Path, mapping: FieldMapping = PILE, **limits: int) -> list[Block]:
    return list(TarArchive(str(path), f"pile/{path.name}", mapping, **limits).read())


def column(blocks: list[Block], name: str) -> list[object]:
    return [value for block in blocks for value in block.batch.column(name).to_pylist()]


MEMBERS = {
    "folder/a.jsonl.zst": line(0) + line(1),
    ".DS_Store": b"\0\1",
    "b.jsonl": line(2),
    "empty.jsonl": b"",
    "c.jsonl.gz": line(3) + b"oops\n" + line(5),
}


@pytest.mark.parametrize("tar_format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_rows_count_through_all_members(tmp_path: Path, tar_format: int) -> None:
    path = archive(tmp_path / "00.jsonl.zst.tar", MEMBERS, format=tar_format)
    blocks = read(path, block_bytes=1)
    assert column(blocks, "text") == ["t0", "t1", "t2", "t3", None, "t5"]
    assert column(blocks, "id") == [f"pile/00-{i:08d}" if i != 4 else None for i in range(6)]
    assert set(column(blocks, "source")) == {"Wiki", None}
    starts = [block.first_row for block in blocks]
    assert starts == [sum(block.num_rows for block in blocks[:i]) for i in range(len(blocks))]
    (bad,) = (record for block in blocks for record in block.bad)
    assert (bad.row, bad.byte_offset, bad.reason, bad.raw) == (4, len(line(3)), "invalid_json", b"oops")
    assert bad.url == f"{path}#c.jsonl.gz"


def test_text_members_are_named_by_archive_and_member(tmp_path: Path) -> None:
    path = archive(tmp_path / "books.tar", {"x/one.txt": b"1", "two.md": b"2"})
    blocks = read(path, FieldMapping(source_name="books"))
    assert column(blocks, "id") == ["pile/books/x/one.txt", "pile/books/two.md"]
    with pytest.raises(UsageError, match="--source NAME"):
        read(path)


def test_an_unknown_member_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"image\.png: unknown suffix"):
        read(archive(tmp_path / "a.tar", {"a.jsonl": line(0), "image.png": b"\0"}))


def test_an_archive_cut_anywhere_is_an_error(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tar", {"a.jsonl": line(0) * 30, "b.jsonl.zst": line(1) * 30})
    data = path.read_bytes()
    end = len(data.rstrip(b"\0"))
    end += -end % 512  # the end-of-archive blocks come next
    for size in [*range(0, end + 1, 256), end]:
        path.write_bytes(data[:size])
        with pytest.raises(CorruptFileError, match=r"complete tar archive|truncated"):
            read(path)
    path.write_bytes(data[: end + 1024])
    assert len(column(read(path), "id")) == 60


@pytest.mark.parametrize("tar_format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_damaged_header_is_an_error(tmp_path: Path, tar_format: int) -> None:
    members = {f"{'d' * 60}/{number}{'x' * 60}.jsonl": line(number) for number in range(3)}
    path = archive(tmp_path / "a.tar", members, format=tar_format)
    data = path.read_bytes()
    with tarfile.open(path) as tar:
        headers = [member.offset for member in tar]
    for header in headers:
        for damage in (b"\xff", bytes(512)):
            path.write_bytes(data[: header + 5] + damage + data[header + 5 + len(damage) :])
            with pytest.raises(CorruptFileError, match="not a complete tar archive"):
                read(path)


def test_an_archive_appended_to_another_is_read(tmp_path: Path) -> None:
    first = archive(tmp_path / "1.tar", {"a.jsonl": line(0)}).read_bytes()
    second = archive(tmp_path / "2.tar", {"b.jsonl": line(1)}, format=tarfile.PAX_FORMAT).read_bytes()
    short = second[: len(second.rstrip(b"\0")) // 512 * 512 + 512 + 1024]
    path = tmp_path / "all.tar"
    path.write_bytes(first + short + short + second + first)
    blocks = read(path)
    assert column(blocks, "text") == ["t0", "t1", "t1", "t1", "t0"]
    assert len(set(column(blocks, "id"))) == 5


@pytest.mark.parametrize("behind", [b"garbage", b"x" * 600, b"\0" * 300 + b"x", line(9) * 40])
def test_garbage_behind_the_end_is_an_error(tmp_path: Path, behind: bytes) -> None:
    path = archive(tmp_path / "a.tar", {"a.jsonl": line(0)})
    path.write_bytes(path.read_bytes() + behind)
    with pytest.raises(CorruptFileError, match="not a complete tar archive"):
        read(path)


def test_a_hole_of_zeros_is_an_error(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tar", {f"{number}.jsonl": line(number) for number in range(9)})
    data = path.read_bytes()
    for start, size in ((1536, 512), (1536, 4096), (1536, 1536), (2560, 4096)):
        path.write_bytes(data[:start] + bytes(size) + data[start + size :])
        with pytest.raises(CorruptFileError, match="not a complete tar archive"):
            read(path)


def test_members_that_are_no_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        for name, data in (("a.jsonl", line(0)), ("._a.jsonl", b"mac"), ("b.jsonl", line(1))):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
            for number, kind in enumerate((tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.FIFOTYPE, b"Z")):
                link = tarfile.TarInfo(f"{name}.{number}")
                link.type, link.linkname = kind, name
                tar.addfile(link)
    blocks = read(path)
    assert column(blocks, "text") == ["t0", "t1"]
    skipped = [name.removeprefix(f"{path}#") for block in blocks for name in block.skipped]
    assert skipped[:5] == [
        "a.jsonl.0 (hard link)",
        "a.jsonl.1 (symlink)",
        "a.jsonl.2 (pipe)",
        "a.jsonl.3 (type b'Z')",
        "._a.jsonl (hidden)",
    ]
    assert len(skipped) == 13


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    path = archive(tmp_path / "books.tar", {"caf\udce9.txt": b"1"}, format=tarfile.GNU_FORMAT)
    assert column(read(path, FieldMapping(source_name="b")), "id") == [r"pile/books/caf\xe9.txt"]


def test_a_file_of_another_kind_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(b"no tar at all " * 100)
    with pytest.raises(CorruptFileError, match="not a complete tar archive"):
        read(path)
