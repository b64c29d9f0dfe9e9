"""Files behind URLs: here and in an object store."""

import os
import socket
import time
from pathlib import Path

import fsspec
import pytest
import xxhash

from dolma_dask.errors import CorruptFileError, StoreUnreachableError, UsageError
from dolma_dask.io import files, stores
from dolma_dask.io.files import FileInfo
from dolma_dask.io.listing import by_path
from dolma_dask.io.publish import publish


def put(url: str, data: bytes) -> str:
    with publish(url) as out:
        out.write(data)
    return url


def test_paths_and_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    assert files.is_local("a/b")
    assert files.is_local("file:///a")
    assert not files.is_local("s3://a")
    assert files.normalize("a/") == str(tmp_path / "a")
    assert files.normalize("~/a") == "/home/me/a"
    assert files.normalize(tmp_path) == str(tmp_path)  # type: ignore[arg-type]
    assert files.normalize("file:///a/b/") == "/a/b"
    assert files.normalize("s3://a/b/") == "s3://a/b"
    assert files.join("s3://a/", "b/c") == "s3://a/b/c"
    assert files.join("/a/", "") == "/a"


@pytest.mark.parametrize(
    "stamps",
    [
        ["mtime:5", "mtime:-7", "mtime:1795995984807580634"],
        ["mtime:5", "mtime:6", "mtime:9999999999999999999"],
        ["tag:a", "mtime:5", ""],
    ],
)
@pytest.mark.parametrize("held", [[], ["a/x", "a/y", "b"], ["a/x"]])
def test_a_listing_of_many_files_says_the_same_as_that_of_few(
    stamps: list[str], held: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    infos = [
        FileInfo(path, at, stamp)
        for at, (path, stamp) in enumerate(zip(("a/x", "a/y", "b"), stamps, strict=True))
    ]
    few = by_path(infos, held)
    monkeypatch.setattr("dolma_dask.io.listing.FEW", 2)
    many = by_path(infos, held)
    assert dict(many) == dict(few) == {info.path: info for info in infos}
    assert all(many.get(path) is None and path not in many for path in ("", "a/xx", "c"))


def test_listing_is_sorted_by_bytes_and_leaves_out_hidden_files(root: str) -> None:
    names = [
        "b.jsonl",
        "a/z.jsonl",
        "a.jsonl",
        "B.jsonl",
        "é.jsonl",
        "a/b/c.jsonl",
        "𝒳.jsonl",
        "～.jsonl",
        "[x].jsonl",
    ]
    for name in [*names, ".hidden.jsonl", ".folder/a.jsonl", "a/.x.tmp"]:
        put(files.join(root, name), name.encode())
    listed = files.list_files(root)
    assert files.list_paths(root) == [info.path for info in listed]
    assert [info.path for info in listed] == sorted(names, key=str.encode)
    assert [info.bytes for info in listed] == [len(info.path.encode()) for info in listed]
    assert all(info.stamp for info in listed)
    assert files.list_files(files.join(root, "a/b")) == [
        FileInfo("c.jsonl", 11, next(info.stamp for info in listed if info.path == "a/b/c.jsonl"))
    ]
    assert files.list_folders(root) == ["a"]
    assert files.list_folders(files.join(root, "a")) == ["b"]


def test_listing_what_is_not_there(root: str) -> None:
    assert files.list_files(root) == []
    assert files.list_folders(root) == []
    put(files.join(root, "document/a"), b"")  # a name of which "documents" is no part
    assert files.list_files(files.join(root, "doc")) == []
    assert files.list_folders(files.join(root, "document/a")) == []
    assert files.list_files(files.join(root, "document/a")) == []


def test_stat_tells_size_and_stamp(root: str) -> None:
    url = put(files.join(root, "a/b"), b"one")
    first = files.stat(url)
    assert first is not None
    assert (first.path, first.bytes) == (url, 3)
    (listed,) = files.list_files(root)
    assert listed.stamp == first.stamp
    time.sleep(0.02)  # the clock of file systems ticks every 4 ms
    put(url, b"two")
    second = files.stat(url)
    assert second is not None
    assert second.bytes == 3
    assert second.stamp != first.stamp
    assert files.stat(files.join(root, "a")) is None  # a folder is no file
    assert files.stat(files.join(root, "a/c")) is None
    assert files.stat(files.join(root, "a/b/c")) is None


def test_reading_hashing_and_removing(root: str) -> None:
    data = bytes(range(256)) * 10_000
    url = put(files.join(root, "a"), data)
    assert files.read_bytes(url) == data
    assert files.checksum(url) == xxhash.xxh3_128_hexdigest(data)
    with files.open_read(url) as handle:
        handle.seek(1_000_000)
        assert handle.read(10) == data[1_000_000:1_000_010]
    files.remove(url)
    files.remove(url)
    assert files.stat(url) is None
    with pytest.raises(FileNotFoundError):
        files.read_bytes(url)


@pytest.mark.parametrize(
    "info, stamp",
    [
        ({"size": 1, "ETag": '"abc-2"', "LastModified": "x"}, "tag:abc-2"),
        ({"size": 1, "etag": "abc", "mtime": 7}, "tag:abc"),
        ({"size": 1, "mtime": 7}, "tag:7"),
        ({"size": 1, "ETag": None, "created": "c"}, "tag:c"),
        ({"size": 1}, ""),
    ],
)
def test_stamps_of_stores(info: dict[str, object], stamp: str) -> None:
    assert files._remote_info("a", info) == FileInfo("a", 1, stamp)


def test_a_store_that_nobody_knows() -> None:
    with pytest.raises(
        UsageError, match=r"nowhere://a cannot be opened: .* expected a local path or the URL"
    ):
        files.list_files("nowhere://a")


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/a").write_bytes(b"12")
    root = tmp_path / "root"
    root.mkdir()
    (root / "folder").symlink_to("../elsewhere")
    (root / "again").symlink_to("../elsewhere")
    (root / "file").symlink_to("../elsewhere/a")
    assert [(info.path, info.bytes) for info in files.list_files(str(root))] == [
        ("again/a", 2),
        ("file", 2),
        ("folder/a", 2),
    ]
    (tmp_path / "link").symlink_to("root")
    assert len(files.list_files(str(tmp_path / "link"))) == 3


@pytest.mark.parametrize("target", [".", "..", "../../a", "../.."])
def test_a_link_in_a_circle_is_an_error(tmp_path: Path, target: str) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/loop").symlink_to(target)
    with pytest.raises(
        CorruptFileError, match=r"loop.*: a link to a folder that holds it; .* Mend or remove it"
    ):
        files.list_files(str(tmp_path / "a"))


def test_a_link_to_nothing_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").symlink_to("gone")
    with pytest.raises(
        CorruptFileError, match=r"a\.jsonl: a link to a file that is not there; expected a link"
    ):
        files.list_files(str(tmp_path))


def test_a_name_that_is_not_utf8_is_an_error(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.jsonl")).touch()
    with pytest.raises(CorruptFileError, match=r"a file name that is not UTF-8; .* Rename the file"):
        files.list_files(str(tmp_path))


def test_a_folder_that_cannot_be_listed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    scandir = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("/a"):
            raise PermissionError(13, "no", path)
        return scandir(path)

    monkeypatch.setattr("dolma_dask.io.files.os.scandir", refuse)
    with pytest.raises(PermissionError):
        files.list_files(str(tmp_path))


def test_another_process_changes_an_object(root: str) -> None:
    """Listings are never answered from a cache."""
    put(files.join(root, "a"), b"1")
    assert len(files.list_files(root)) == 1
    put(files.join(root, "b/c"), b"1")
    assert len(files.list_files(root)) == 2
    assert files.list_folders(root) == ["b"]


def test_a_remote_root_may_be_a_bucket() -> None:
    fs = fsspec.filesystem("memory")
    fs.pipe_file("/bucket-of-test/a/b", b"1")
    try:
        assert [info.path for info in files.list_files("memory://bucket-of-test")] == ["a/b"]
        assert "bucket-of-test/a/b" in [info.path for info in files.list_files("memory://")]
    finally:
        fs.rm("/bucket-of-test", recursive=True)


def test_two_names_of_one_folder_are_equal(tmp_path):
    names = [f"{prefix}{tmp_path}/a/../b" for prefix in ("", "file://", "local://")]
    assert {files.resolved(files.normalize(name)) for name in names} == {str(tmp_path / "b")}
    assert files.resolved("s3a://bucket/x") == files.resolved("s3://bucket/x")
    assert files.resolved("gcs://bucket/x") == "gs://bucket/x"


@pytest.mark.parametrize("path", ["x" * 300, "a\0b", "~nobody-is-called-so/x"])
def test_what_is_no_path(path):
    with pytest.raises(UsageError, match="is no path of this machine"):
        files.normalize(path)


@pytest.mark.parametrize("linked", [False, True])
def test_a_pipe_is_no_file(tmp_path, linked):
    os.mkfifo(tmp_path / "pipe")
    folder = tmp_path / "documents"
    folder.mkdir()
    if linked:
        (folder / "a.jsonl").symlink_to(tmp_path / "pipe")
    else:
        os.mkfifo(folder / "a.jsonl")
    with pytest.raises(CorruptFileError, match=r"a\.jsonl: a pipe, socket or device"):
        files.list_files(str(folder))


@pytest.mark.slow
def test_a_store_that_takes_connections_and_never_answers_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setattr(stores, "PATIENCE_SECONDS", 0.0)
    quick = {"config_kwargs": {"read_timeout": 0.1, "retries": {"max_attempts": 0}}}
    monkeypatch.setitem(fsspec.config.conf, "s3", quick)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://{}:{}".format(*silent.getsockname()))
        with pytest.raises(StoreUnreachableError, match="ReadTimeoutError"):
            files.list_files("s3://silent/folder")
        silent.setblocking(False)
        silent.accept()
        with pytest.raises(BlockingIOError):
            silent.accept()
