"""Leases of work folders: one holder at a time, the dead are followed, and nobody's files are removed under their hands."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from dolma_dask.engine import WorkDir, lease
from dolma_dask.engine.lease import LEASES, holders, leased, remove_dead
from dolma_dask.errors import UsageError
from dolma_dask.io import files
from dolma_dask.io.publish import process_state

WORK = """
import sys
from dolma_dask.engine.lease import leased
with leased(sys.argv[1], "dedupe"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def work(tmp_path) -> WorkDir:
    return WorkDir(str(tmp_path), "dedupe", "duplicates", "k1")


@pytest.fixture
def folder(work) -> str:
    return work.parent


@pytest.fixture
def other(folder):
    """Another process that works in the folder."""
    with subprocess.Popen(
        [sys.executable, "-c", WORK, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def change(folder: str, **fields) -> None:
    """Let the holder be another one."""
    (path,) = Path(folder, LEASES).glob("*.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def the_holder(folder: str) -> lease.Lease:
    (only,) = holders(folder)
    return only


def take(folder: str) -> None:
    with leased(folder, "dedupe"):
        pass


def check_free(folder: str) -> None:
    """Check that nobody holds a folder: this process can."""
    assert not holders(folder)
    with leased(folder, "dedupe"):
        assert the_holder(folder).pid == os.getpid()


@pytest.mark.slow
def test_a_folder_has_one_holder(folder):
    with leased(folder, "dedupe"):
        assert the_holder(folder).pid == os.getpid()
        with pytest.raises(UsageError, match="another dedupe works in"):
            take(folder)
        assert holders(folder)
    assert not Path(folder).parent.exists()


@pytest.mark.slow
def test_in_an_object_store(root):
    folder = files.join(root, "_work/block-list")
    with leased(folder, "block"):
        assert the_holder(folder).verb == "block"
        with pytest.raises(UsageError, match="another block works in"), leased(folder, "block"):
            pass
    assert not holders(folder)


def test_another_process_works_there(work, folder, other):
    with pytest.raises(UsageError, match=rf"another dedupe works in .*process {other.pid} on .*Wait for it"):
        take(folder)
    Path(work.url, "scatter").mkdir(parents=True)
    work.remove_abandoned()
    assert Path(work.url).exists(), "what another run needs stays"
    remove_dead(folder)
    assert holders(folder)


def test_a_dead_process_is_followed(work, folder, other):
    other.kill()
    other.wait()
    assert len(list(Path(folder, LEASES).iterdir())) == 1
    take(folder)
    Path(work.url).mkdir(parents=True)
    work.remove_abandoned()
    assert not Path(folder).parent.exists(), "nothing of it stays"


def test_a_dead_process_that_nobody_has_waited_for_is_followed(folder, other):
    other.kill()
    deadline = time.monotonic() + 60
    while process_state(other.pid)[:1] != ["Z"] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process_state(other.pid)[0] == "Z"
    check_free(folder)


def test_another_process_of_the_same_number_is_not_the_holder(folder, other):
    change(folder, born=the_holder(folder).born - 1)
    check_free(folder)


def test_a_holder_elsewhere_is_dead_when_it_is_silent(folder, other):
    now = time.time()
    change(folder, host="elsewhere", renewed=now - lease.EXPIRE_SECONDS + 20)
    with pytest.raises(UsageError, match=r"on elsewhere, since .*, which was alive 28. s ago"):
        take(folder)
    change(folder, renewed=now - lease.EXPIRE_SECONDS - 1)
    take(folder)


def test_a_lease_is_renewed(folder, monkeypatch):
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.01)
    with leased(folder, "dedupe"):
        first = the_holder(folder)
        deadline = time.monotonic() + 60
        while the_holder(folder).renewed == first.renewed and time.monotonic() < deadline:
            time.sleep(0.01)
        now = the_holder(folder)
        assert now.renewed > first.renewed
        assert now == msgspec.structs.replace(first, renewed=now.renewed)
        with lease._writing:  # else a renewal may have begun
            Path(folder, LEASES, first.id).unlink()
        time.sleep(0.1)
        assert holders(folder) == [], "who was taken for dead stays away"
    assert not Path(folder).exists()


def test_two_threads(folder):
    caught = []

    def hold():
        try:
            take(folder)
        except UsageError as error:
            caught.append(str(error))

    with leased(folder, "dedupe"):
        thread = threading.Thread(target=hold)
        thread.start()
        thread.join()
    assert "another dedupe" in caught[0]
    hold()
    assert len(caught) == 1


def test_a_lease_that_cannot_be_read_is_none(folder):
    Path(folder, LEASES).mkdir(parents=True)
    Path(folder, LEASES, "x.json").write_text('{"verb":')
    check_free(folder)
    assert not Path(folder).exists()


CROWD = """
import sys, time
from pathlib import Path
from dolma_dask.engine.lease import leased
from dolma_dask.errors import UsageError
held, end = 0, time.monotonic() + 3
while not held or time.monotonic() < end:
    try:
        with leased(sys.argv[1], "dedupe"):
            Path(sys.argv[2]).touch(exist_ok=False)
            Path(sys.argv[2]).unlink()
            held += 1
    except UsageError:
        pass
print(held)
"""


@pytest.mark.slow
def test_a_crowd_never_holds_a_folder_together(folder, tmp_path):
    words = [sys.executable, "-c", CROWD, folder, str(tmp_path / "inside")]
    crowd = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)]
    shown = [process.communicate() for process in crowd]
    assert [error for _, error in shown] == [b""] * 4
    assert sum(int(held) for held, _ in shown) >= 4
    assert not Path(folder).exists()


@pytest.mark.parametrize("content", [b"\xff", b'{"id": "\xff"}', b"[" * 5000, b"{}"])
def test_what_is_no_lease_is_cleared_away(folder, content):
    lies = Path(folder, LEASES, "0.json")
    lies.parent.mkdir(parents=True)
    lies.write_bytes(content)
    take(folder)
    assert not lies.exists()
