"""Files appear whole or not at all, whoever looks and whoever dies."""

import errno
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import xxhash

from dolma_dask.io import files
from dolma_dask.io import publish as module
from dolma_dask.io.publish import publish, sweep


def everything(root: str) -> list[str]:
    """All files, hidden ones too."""
    if files.is_local(root):
        return sorted(str(path.relative_to(root)) for path in Path(root).rglob("*") if path.is_file())
    fs, base = files.filesystem(root)
    return sorted(path.removeprefix(base + "/") for path in fs.find(base))


def fail_to_write(url: str, error: type[BaseException]) -> None:
    with publish(url) as out:
        out.write(b"part")
        raise error


def test_a_file_appears_at_the_end(root: str) -> None:
    url = files.join(root, "a/b/ö [x].jsonl.gz")
    with publish(url) as out:
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
        while not done.is_set():
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


def test_data_is_on_disk_before_it_is_visible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    with publish(str(tmp_path / "a")) as out:
        out.write(b"x")
    assert events == ["sync data", "rename", "sync folder"]


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
    with pytest.raises(OSError, match="No space left"), publish(str(tmp_path / "a")) as out:
        out.write(b"x")
    assert everything(str(tmp_path)) == []


def test_long_names_fit(tmp_path: Path) -> None:
    path = tmp_path / ("я" * 120 + ".jsonl")  # 246 of 255 bytes
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
    dead, owner = dead_pid(), module._owner()
    monkeypatch.setattr("dolma_dask.io.publish.socket.gethostname", lambda: "n1.cluster.local")
    assert module._owner() != owner
    other_host = module._owner()
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


def test_our_own_open_file_survives_a_sweep(tmp_path: Path) -> None:
    with publish(str(tmp_path / "a")) as out:
        out.write(b"x")
        assert sweep(str(tmp_path)) == 0
    assert (tmp_path / "a").read_bytes() == b"x"


def test_nothing_to_sweep(root: str) -> None:
    assert sweep(files.join(root, "nowhere")) == 0


def test_host_names_with_dots_and_dashes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("dolma_dask.io.publish.socket.gethostname", lambda: "login-1.cluster.local")
    (tmp_path / f".a.{module._owner()}-{dead_pid()}-01234567.tmp").touch()
    assert sweep(str(tmp_path)) == 1


class _Upload:
    """An upload that is visible when it is committed, as s3fs and gcsfs have it."""

    def __init__(self, store: dict[str, bytes], path: str) -> None:
        self.store, self.path, self.data, self.closed = store, path, b"", False

    def write(self, data: Any) -> None:
        self.data += bytes(data)

    def close(self) -> None:
        self.closed = True

    def commit(self) -> None:
        assert self.closed
        self.store[self.path] = self.data

    def discard(self) -> None:
        self.data = b"discarded"


class _Bucket:
    protocol = ("s3", "s3a")

    def __init__(self) -> None:
        self.store: dict[str, bytes] = {}
        self.opened: list[_Upload] = []

    def open(self, path: str, mode: str, *, autocommit: bool, block_size: int) -> _Upload:
        assert (mode, autocommit) == ("wb", False)
        assert block_size >= 5 << 20  # the least that S3 takes for a part
        self.opened.append(_Upload(self.store, path))
        return self.opened[-1]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Bucket]:
    bucket = _Bucket()
    monkeypatch.setattr(module, "filesystem", lambda url: (bucket, url.removeprefix("s3://")))
    yield bucket
    assert all(upload.closed for upload in bucket.opened)  # else its end would begin the upload again


def test_an_upload_is_committed_once_it_is_whole(bucket: _Bucket) -> None:
    with publish("s3://b/a") as out:
        out.write(b"x")
        assert bucket.store == {}
    assert bucket.store == {"b/a": b"x"}
    with pytest.raises(ValueError):
        fail_to_write("s3://b/b", ValueError)
    assert bucket.store == {"b/a": b"x"}
    assert bucket.opened[1].data == b"discarded"
