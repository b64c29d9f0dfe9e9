"""Files that are late: waited for where other machines write, and nowhere else."""

import errno
from pathlib import Path

import pytest

from dolma_dask.errors import CorruptFileError
from dolma_dask.exchange.pieces import Piece, read_pieces
from dolma_dask.io import files, late
from dolma_dask.io.parquet import open_parquet
from dolma_dask.io.publish import publish
from dolma_dask.io.staging import StagingReader, stage
from dolma_dask.io.stored import StoredFile

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:30 / /scratch rw shared:2 - nfs4 server:/scratch rw
24 23 0:31 / /scratch/own rw - tmpfs none rw
25 22 0:32 / /my\\040disk rw - lustre a@tcp:/b rw
26 22 0:33 / /twice rw - ext4 /dev/vdb rw
27 22 0:34 / /twice rw - fuse.sshfs host: rw
"""

KINDS = {
    "/": False,
    "/home/you/corpus": False,
    "/scratch": True,
    "file:///scratch/corpus": True,
    "/scratch/own/corpus": False,
    "/scratches": False,
    "/my disk/corpus": True,
    "/twice/corpus": True,
    "s3://bucket/corpus": False,
}


@pytest.mark.parametrize("url", KINDS)
def test_what_other_machines_write_may_be_late(url, tmp_path, monkeypatch):
    (tmp_path / "mountinfo").write_text(MOUNTS)
    monkeypatch.setattr(late, "_MOUNTS", tmp_path / "mountinfo")
    assert late.may_be_late(url) == KINDS[url]


def test_nothing_is_late_where_the_system_does_not_tell(tmp_path, monkeypatch):
    monkeypatch.setattr(late, "_MOUNTS", tmp_path / "nothing")
    assert not late.may_be_late("/scratch")


class Shared:
    """A folder in which a file is seen after some looks at it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.looks = 0
        self.appears = 3

    def hide(self, path: Path) -> None:
        path.rename(path.with_suffix(".hidden"))

    def sleep(self, seconds: float) -> None:
        self.looks += 1
        if self.looks == self.appears:
            for path in self.folder.glob("*.hidden"):
                path.rename(path.with_suffix(""))


@pytest.fixture
def shared(tmp_path, monkeypatch) -> Shared:
    folder = Shared(tmp_path)
    monkeypatch.setattr(late, "may_be_late", lambda url: True)
    monkeypatch.setattr(late, "_in_vain", set())
    monkeypatch.setattr(late.time, "sleep", folder.sleep)
    return folder


def read_stored(url: str) -> bytes:
    return StoredFile(url).read()


def read_piece(url: str) -> bytes:
    return b"".join(map(bytes, read_pieces([Piece(url, 0, 4)])))


@pytest.mark.parametrize("read", [read_stored, read_piece])
def test_a_file_that_was_listed_is_read_as_soon_as_it_is_seen(read, shared, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"late")
    shared.hide(path)
    assert read(str(path)) == b"late"
    assert shared.looks == shared.appears


def test_a_staging_file_is_read_as_soon_as_it_is_seen(shared, tmp_path):
    path = tmp_path / "file"
    with stage(str(path)) as out:
        out.write(b"late")
    shared.hide(path)
    with StagingReader(str(path), out.checksum) as reader:
        assert bytes(reader.read(0, 4)) == b"late"


def test_a_table_is_read_as_soon_as_it_is_seen(shared, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "file"
    pq.write_table(pa.table({"a": [1]}), path)
    shared.hide(path)
    assert open_parquet(str(path)).metadata.num_rows == 1


READERS = {
    "stored": read_stored,
    "piece": read_piece,
    "table": open_parquet,
}


@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_never_comes_is_named_with_the_wait(reader, shared, tmp_path, monkeypatch):
    monkeypatch.setattr(late, "SECONDS", 0.0)
    with pytest.raises(CorruptFileError, match=r"/file.* has waited 0 s for it"):
        READERS[reader](str(tmp_path / "file"))


def remove_late(folder: Path, monkeypatch: pytest.MonkeyPatch, number: int, times: int) -> None:
    """Remove a folder whose content is listed late: the system refuses it some times."""
    (folder / "below").mkdir(parents=True)
    refused, remove = [number] * times, files.shutil.rmtree

    def rmtree(path: Path) -> None:
        if refused:
            raise OSError(refused.pop(), "", str(path))
        remove(path)

    monkeypatch.setattr(files.shutil, "rmtree", rmtree)
    files.remove_tree(str(folder))


@pytest.mark.parametrize("number", [errno.ENOTEMPTY, errno.ENOENT])
def test_a_folder_whose_content_is_seen_late_is_removed(number, shared, tmp_path, monkeypatch):
    remove_late(tmp_path / "work", monkeypatch, number, times=2)
    assert not (tmp_path / "work").exists()
    assert shared.looks == 2


def test_on_a_disk_of_this_machine_a_folder_that_is_filled_meanwhile_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(late, "_MOUNTS", tmp_path / "nothing")
    with pytest.raises(OSError, match="work"):
        remove_late(tmp_path / "work", monkeypatch, errno.ENOTEMPTY, times=1)


def test_after_a_wait_in_vain_nothing_more_of_that_folder_is_waited_for(shared, tmp_path, monkeypatch):
    """A dataset of which a thousand files are gone fails at once, not after a thousand waits."""
    monkeypatch.setattr(late, "SECONDS", 0.0)
    for name in ("a", "b", "c"):
        assert not late.is_seen(str(tmp_path / name))
        assert shared.looks <= 1
    shared.looks = 0
    with publish(str(tmp_path / "c")) as out:
        out.write(b"here")
    assert late.is_seen(str(tmp_path / "c")), "what is there is seen"
    assert shared.looks == 0


def test_on_a_disk_of_this_machine_nothing_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(late, "_MOUNTS", tmp_path / "nothing")
    monkeypatch.setattr(late.time, "sleep", lambda seconds: pytest.fail("it has waited"))
    assert not late.is_seen(str(tmp_path / "file"))
    assert late.waited(str(tmp_path / "file")) == ""
