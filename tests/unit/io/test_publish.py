"""Files appear whole or not at all, whoever looks and whoever dies."""

import errno
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import xxhash

from dolma_dask.errors import CorruptFileError, DiskFullError, StoreAccessError
from dolma_dask.io import files, stores, uploads
from dolma_dask.io import publish as module
from dolma_dask.io.publish import publish, sweep


def everything(root: str) -> list[str]:
    """All files, hidden ones too."""
    if files.is_local(root):
        return sorted(str(path.relative_to(root)) for path in Path(root).rglob("*") if path.is_file())
    fs, base = stores.filesystem(root)
    return sorted(path.removeprefix(base + "/") for path in fs.find(base))


def fail_to_write(url: str, error: type[BaseException]) -> None:
    with publish(url) as out:
        out.write(b"part")
        raise error


@pytest.mark.parametrize("synced", [True, False])
def test_a_file_appears_at_the_end(root: str, synced: bool) -> None:
    url = files.join(root, "a/b/ö [x].jsonl.gz")
    with publish(url, synced=synced) as out:
        out.write(b"one ")
        out.write(memoryview(b"two"))
        assert files.stat(url) is None
        assert files.list_files(root) == []
    assert files.read_bytes(url) == b"one two"
    assert (out.url, out.bytes) == (url, 7)
    assert out.checksum == xxhash.xxh3_128_hexdigest(b"one two")
    assert everything(root) == ["a/b/ö [x].jsonl.gz"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, GeneratorExit])
def test_after_an_exception_nothing_is_there(root: str, error: type[BaseException]) -> None:
    with pytest.raises(error):
        fail_to_write(files.join(root, "a"), error)
    assert everything(root) == []


def test_after_an_exception_the_old_file_is_there(root: str) -> None:
    url = files.join(root, "a")
    with publish(url) as out:
        out.write(b"old")
    with pytest.raises(ValueError):
        fail_to_write(url, ValueError)
    assert files.read_bytes(url) == b"old"
    with publish(url) as out:
        out.write(b"new")
    assert files.read_bytes(url) == b"new"
    assert everything(root) == ["a"]


def test_a_reader_never_sees_a_part(tmp_path: Path) -> None:
    path = tmp_path / "a"
    sizes = [3_000_000 + 1000 * i for i in range(20)]
    seen: set[int] = set()
    done = threading.Event()

    def poll() -> None:
        is_last = False
        while not is_last:
            is_last = done.is_set()
            if path.exists():
                data = path.read_bytes()
                seen.add(len(data))
                assert data == data[:1] * len(data)

    reader = threading.Thread(target=poll)
    reader.start()
    for i, size in enumerate(sizes):
        with publish(str(path)) as out:
            for _ in range(10):
                out.write(b"%d" % (i % 10) * (size // 10))
    done.set()
    reader.join()
    assert seen <= set(sizes)
    assert seen


@pytest.mark.parametrize(
    "synced, expected", [(True, ["sync data", "rename", "sync folder"]), (False, ["rename"])]
)
def test_data_is_on_disk_before_it_is_visible(
    synced: bool, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def note_fsync(descriptor: int) -> None:
        kind = "folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "data"  # noqa: PTH112
        events.append(f"sync {kind}")
        fsync(descriptor)

    def note_replace(self: Path, target: Path) -> Path:
        events.append("rename")
        return replace(self, target)

    monkeypatch.setattr("dolma_dask.io.publish.os.fsync", note_fsync)
    monkeypatch.setattr(Path, "replace", note_replace)
    with publish(str(tmp_path / "a"), synced=synced) as out:
        out.write(b"x")
    assert events == expected


def test_a_file_system_that_cannot_sync_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync

    def refuse(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):  # noqa: PTH112
            raise OSError(errno.EINVAL, "no")
        fsync(descriptor)

    monkeypatch.setattr("dolma_dask.io.publish.os.fsync", refuse)
    with publish(str(tmp_path / "a")) as out:
        out.write(b"x")
    assert (tmp_path / "a").read_bytes() == b"x"


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("dolma_dask.io.publish.os.fsync", full)
    with (
        pytest.raises(
            DiskFullError, match=rf"{tmp_path}: No space left on device; expected room for a\. Make room"
        ),
        publish(str(tmp_path / "a")) as out,
    ):
        out.write(b"x")
    assert everything(str(tmp_path)) == []


def test_a_file_that_is_larger_than_allowed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(errno.EFBIG, "File too large")

    monkeypatch.setattr("dolma_dask.io.publish.os.fsync", refuse)
    with (
        pytest.raises(StoreAccessError, match=rf"{tmp_path}/a: File too large; .* \(ulimit -f\)"),
        publish(str(tmp_path / "a")) as out,
    ):
        out.write(b"x")
    assert everything(str(tmp_path)) == []


def test_a_folder_in_the_place_of_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with (
        pytest.raises(StoreAccessError, match=rf"{tmp_path}/a is a folder"),
        publish(str(tmp_path / "a")) as out,
    ):
        out.write(b"x")
    with pytest.raises(CorruptFileError, match=rf"{tmp_path}/a is a folder"):
        files.read_bytes(str(tmp_path / "a"))
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_long_names_fit_and_those_that_are_not_utf8(tmp_path: Path) -> None:
    for name in ("я" * 120 + ".jsonl", os.fsdecode(b"a\xff.jsonl")):  # 246 of 255 bytes
        path = tmp_path / name
        with publish(str(path)) as out:
            out.write(b"x")
        assert path.read_bytes() == b"x"


WRITER = """
import sys, time
from dolma_dask.io.publish import publish
with publish(sys.argv[1]) as out:
    out.write(b"x" * 3_000_000)
    print("writing", flush=True)
    time.sleep(60)
"""


def test_a_killed_writer_leaves_only_what_sweep_removes(tmp_path: Path) -> None:
    target = tmp_path / "sub/a.jsonl"
    child = subprocess.Popen([sys.executable, "-c", WRITER, str(target)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == b"writing\n"
        (left,) = everything(str(tmp_path))
        assert re.fullmatch(rf"sub/\.a\.jsonl\.\w+-{child.pid}-[0-9a-f]{{8}}\.tmp", left)
        assert sweep(str(tmp_path)) == 0  # it lives
        assert everything(str(tmp_path)) == [left]
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
    assert files.list_files(str(tmp_path)) == []
    assert everything(str(tmp_path)) == [left]
    assert sweep(str(tmp_path)) == 1
    assert everything(str(tmp_path)) == []


def dead_pid() -> int:
    """The number of a process that has ended."""
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


def test_sweep_removes_only_what_is_certainly_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, owner = dead_pid(), module.writer_space()
    monkeypatch.setattr("dolma_dask.io.publish.socket.gethostname", lambda: "n1.cluster.local")
    assert module.writer_space() != owner
    other_host = module.writer_space()
    monkeypatch.undo()
    spared = [
        f".a.{owner}-{os.getpid()}-01234567.tmp",  # a living process
        f".a.{owner}-1-01234567.tmp",  # of another user, perhaps
        f".a.{other_host}-{dead}-01234567.tmp",  # another host: who knows
        f".a.x{owner}-{dead}-01234567.tmp",  # a host whose name ends like ours
        f".a.{owner[1:]}-{dead}-01234567.tmp",
        f".a.{owner}0-{dead}-01234567.tmp",  # another space of process numbers
        f".a.{owner}-{dead}-0123456.tmp",
        f"a.{owner}-{dead}-01234567.tmp",  # not hidden: not ours
        ".a.tmp",
        "a.jsonl",
    ]
    swept = [f".a.{owner}-{dead}-01234567.tmp", f"sub/.ö\n.{owner}-{dead}-89abcdef.tmp"]
    (tmp_path / "sub").mkdir()
    for name in [*spared, *swept]:
        (tmp_path / name).touch()
    assert sweep(str(tmp_path)) == 2
    assert everything(str(tmp_path)) == sorted(spared)
    assert sweep(str(tmp_path)) == 0


def test_writers_of_other_hosts_are_gone_after_a_day_without_a_byte(tmp_path: Path) -> None:
    mine = module.writer_space()
    names = [".a.node7_4026531836-12-01234567.tmp", f".a.{mine}-{os.getpid()}-01234567.tmp", ".a.tmp"]
    for name in names:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, time.time() - module.EXPIRE_SECONDS + 60))
    assert sweep(str(tmp_path)) == 0, "it may write to a block of its memory"
    for name in names:
        os.utime(tmp_path / name, (0, time.time() - module.EXPIRE_SECONDS - 60))
    assert sweep(str(tmp_path)) == 1
    assert everything(str(tmp_path)) == sorted(names[1:])


def test_writers_of_other_hosts_that_are_known_to_be_dead_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [".a.node7_4026531836-12-01234567.tmp", ".a.node7_4026531836-13-01234567.tmp"]
    for name in names:
        (tmp_path / name).touch()
    monkeypatch.setattr(module, "gone", {"node7_4026531836-12"})
    assert sweep(str(tmp_path)) == 1
    assert everything(str(tmp_path)) == names[1:]


def test_nothing_to_sweep(root: str) -> None:
    assert sweep(files.join(root, "nowhere")) == 0


def test_host_names_with_dots_and_dashes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("dolma_dask.io.publish.socket.gethostname", lambda: "login-1.cluster.local")
    (tmp_path / f".a.{module.writer_space()}-{dead_pid()}-01234567.tmp").touch()
    assert sweep(str(tmp_path)) == 1


class _Upload:
    """An upload that is visible when it is committed, as s3fs and gcsfs have it."""

    def __init__(self, bucket: "_Bucket", path: str, block_size: int) -> None:
        self.bucket, self.path, self.block_size = bucket, path, block_size
        self.data, self.buffer, self.parts = b"", b"", 0
        self.closed = self.forced = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.buffer += data
        self.flush()

    def flush(self, force: bool = False) -> None:
        if len(self.buffer) < self.block_size and not force:
            return
        self.forced = force
        self.bucket.fail_now_and_then()
        self.parts += bool(self.buffer)
        self.data, self.buffer = self.data + self.buffer, b""

    def commit(self) -> None:
        assert self.forced
        self.bucket.fail_now_and_then()
        self.bucket.store[self.path] = self.data

    def discard(self) -> None:
        self.data = b"discarded"


class _Bucket:
    protocol = ("s3", "s3a")

    def __init__(self) -> None:
        self.store: dict[str, bytes] = {}
        self.opened: list[_Upload] = []
        self.failures: list[Exception] = []

    def fail_now_and_then(self) -> None:
        if self.failures:
            raise self.failures.pop()

    def pipe_file(self, path: str, data: bytes) -> None:
        self.fail_now_and_then()
        self.store[path] = data

    def open(self, path: str, mode: str, *, autocommit: bool, block_size: int) -> _Upload:
        assert (mode, autocommit) == ("wb", False)
        assert block_size >= 5 << 20  # the least that S3 takes for a part
        self.opened.append(_Upload(self, path, block_size))
        return self.opened[-1]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Bucket]:
    bucket = _Bucket()
    monkeypatch.setattr(uploads, "filesystem", lambda url: (bucket, url.removeprefix("s3://")))
    yield bucket
    assert all(upload.closed for upload in bucket.opened)  # else its end would begin the upload again


PART = uploads.PART_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 1, PART, PART + 1, 2 * PART, 2 * PART + 17])
@pytest.mark.parametrize("failures", [0, 2])
def test_an_upload_is_committed_once_it_is_whole(size: int, failures: int, bucket: _Bucket) -> None:
    bucket.failures = [ConnectionResetError("cut")] * failures
    data = b"0123456789abcdef" * (size // 16) + b"x" * (size % 16)
    with publish("s3://b/a") as out:
        out.write(data[:7])
        out.write(data[7:])
        assert bucket.store == {}
    assert bucket.store == {"b/a": data}
    assert bucket.failures == []
    assert len(bucket.opened) == (size > PART) * (1 + failures)  # small ones are put at once


@pytest.mark.parametrize("size", [1, 3 * PART])
def test_an_upload_that_fails_is_discarded(size: int, bucket: _Bucket) -> None:
    with pytest.raises(ValueError), publish("s3://b/b") as out:  # noqa: PT012
        out.write(b"x" * size)
        raise ValueError
    assert bucket.store == {}
    assert all(upload.data == b"discarded" for upload in bucket.opened)


def test_what_a_store_refuses_is_said_with_the_place(bucket: _Bucket) -> None:
    bucket.failures = [PermissionError("Forbidden")]
    with (
        pytest.raises(StoreAccessError, match=r"s3://b/a: .*Forbidden.*AWS_ACCESS_KEY_ID"),
        publish("s3://b/a") as out,
    ):
        out.write(b"x")


@pytest.mark.parametrize("path", ["file", "file/deeper"])
def test_a_file_in_the_place_of_a_folder(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("precious")
    with (
        pytest.raises(StoreAccessError, match=r"is a file.*expected a folder"),
        publish(str(tmp_path / path / "a")),
    ):
        raise AssertionError("nothing can be written")
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="no read-only file system here")
@pytest.mark.parametrize("path", ["dolma_dask/a", "a"])
def test_a_folder_that_may_not_be_written(path: str) -> None:
    with pytest.raises(StoreAccessError, match="cannot be written"), publish(f"/sys/kernel/{path}"):
        raise AssertionError("nothing can be written")
