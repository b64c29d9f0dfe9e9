"""Owners of folders of the exchange: one at a time, the dead are followed, and nobody's files are removed under their hands."""

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pytest

from dolma_dask.engine import RunOptions, Task
from dolma_dask.errors import DataError, StageError, UsageError
from dolma_dask.exchange import Emitted, exchange, owners
from dolma_dask.exchange.folders import remove_exchange, remove_others
from dolma_dask.io import files

WORK = """
import sys
from dolma_dask.exchange import owners
owners.claim(sys.argv[1], "dedupe")
print("claimed", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path) -> str:
    return str(tmp_path / "_exchange/dedupe-duplicates")


@pytest.fixture
def other(folder):
    """Another process that works in the folder."""
    with subprocess.Popen(
        [sys.executable, "-c", WORK, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"claimed\n"
        yield process
        process.kill()


def change(folder: str, **fields) -> None:
    """Let the owner be another one."""
    path = Path(folder, owners.OWNER)
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_a_folder_has_one_owner(folder):
    assert owners.claim(folder, "dedupe")
    assert not owners.claim(folder, "dedupe"), "it is ours already"
    assert not owners.is_taken(folder)
    owners.release(folder)
    assert owners.owner_of(folder) is None
    with owners.owned(folder, "dedupe"), owners.owned(folder, "dedupe"):
        assert owners.owner_of(folder).pid == os.getpid()
    assert owners.owner_of(folder) is None


def test_in_an_object_store(root):
    folder = files.join(root, "_exchange/block-list")
    with owners.owned(folder, "block"):
        assert owners.owner_of(folder).verb == "block"
    assert owners.owner_of(folder) is None


def test_another_process_works_there(folder, other):
    with pytest.raises(
        UsageError,
        match=rf"another dedupe works in .*process {other.pid} on .*Wait for it",
    ):
        owners.claim(folder, "dedupe")
    key = Path(folder, "k1/scatter")
    key.mkdir(parents=True)
    remove_others(f"{folder}/k2")
    remove_exchange(f"{folder}/k1")
    assert key.exists(), "what another run needs stays"
    owners.release(folder)
    assert owners.is_taken(folder)


def test_a_dead_process_is_followed(folder, other):
    other.kill()
    other.wait()
    assert owners.owner_of(folder).pid == other.pid
    assert owners.claim(folder, "dedupe")
    owners.release(folder)


def test_nothing_of_a_dead_process_stays(folder, other):
    Path(folder, "k1").mkdir()
    other.kill()
    other.wait()
    remove_exchange(f"{folder}/k1")
    assert not Path(folder).parent.exists()


def test_another_process_of_the_same_number_is_not_the_owner(folder, other):
    change(folder, born=owners.owner_of(folder).born - 1)
    assert owners.claim(folder, "dedupe")
    owners.release(folder)


def test_an_owner_elsewhere_is_dead_when_it_is_silent(folder, other):
    now = time.time()
    change(folder, host="elsewhere", touched=now - owners.SILENT_SECONDS + 20)
    with pytest.raises(UsageError, match=r"on elsewhere, since .*, which was alive 280 s ago"):
        owners.claim(folder, "dedupe")
    change(folder, touched=now - owners.SILENT_SECONDS - 1)
    assert owners.claim(folder, "dedupe")
    owners.release(folder)


def test_an_owner_says_that_it_is_alive(folder, monkeypatch):
    monkeypatch.setattr(owners, "TOUCH_SECONDS", 0.01)
    with owners.owned(folder, "dedupe"):
        first = owners.owner_of(folder)
        deadline = time.monotonic() + 5
        while owners.owner_of(folder).touched == first.touched and time.monotonic() < deadline:
            time.sleep(0.01)
        found = owners.owner_of(folder)
        assert found.touched > first.touched
        assert found == msgspec.structs.replace(first, touched=found.touched)
        change(folder, host="elsewhere", started=1.0)
        time.sleep(0.1)
        assert owners.owner_of(folder).host == "elsewhere", "who took over stays"
    Path(folder, owners.OWNER).unlink()
    time.sleep(0.05)
    assert list(Path(folder).iterdir()) == []


def test_two_threads(folder):
    owners.claim(folder, "dedupe")
    caught = []

    def claim():
        try:
            owners.claim(folder, "dedupe")
        except UsageError as error:
            caught.append(str(error))

    thread = threading.Thread(target=claim)
    thread.start()
    thread.join()
    assert "another dedupe" in caught[0]
    owners.release(folder)
    thread = threading.Thread(target=claim)
    thread.start()
    thread.join()
    assert len(caught) == 1
    assert owners.claim(folder, "dedupe"), "the thread has ended"
    owners.release(folder)


def test_an_owner_that_cannot_be_read_is_none(folder):
    Path(folder).mkdir(parents=True)
    Path(folder, owners.OWNER).write_text('{"verb":')
    assert owners.claim(folder, "dedupe")
    owners.release(folder)


KEYED = np.dtype([("key", "<u8"), ("place", "<u8")])


@dataclass(frozen=True)
class Nothing:
    """Emits nothing, or fails."""

    is_broken: bool = False
    dtype: np.dtype = KEYED

    def emit(self, task, out, folder):
        if self.is_broken:
            raise DataError("broken")
        return Emitted((), 0)


@dataclass(frozen=True)
class Count:
    dtype: None = None

    def reduce(self, runs, out):
        return {}


def run(folder, is_broken=False, **options):
    return exchange(
        Nothing(is_broken),
        [Task("a", (), ())],
        Count(),
        folder=f"{folder}/k1",
        key="k1",
        shards=1,
        options=RunOptions(scheduler="synchronous", progress=False, **options),
        verb="dedupe",
    )


def test_an_exchange_beside_another_one(folder, other):
    live = Path(folder, "k0/scatter")
    live.mkdir(parents=True)
    for overwrite in (False, True):
        with pytest.raises(UsageError, match="another dedupe works in"):
            run(folder, overwrite=overwrite)
    assert live.exists()


def test_a_caller_owns_the_folder_of_an_exchange_until_it_is_removed(folder):
    with owners.owned(folder, "dedupe"):
        done = run(folder)
        assert owners.owner_of(folder).is_me()
        done.remove()
    assert not Path(folder).parent.exists()


def test_an_exchange_alone_owns_nothing_when_it_has_ended(folder):
    done = run(folder)
    assert owners.owner_of(folder) is None
    done.remove()
    assert not Path(folder).parent.exists()


def test_an_exchange_that_failed_owns_nothing(folder):
    with pytest.raises(StageError, match="broken"):
        run(folder, is_broken=True)
    assert owners.owner_of(folder) is None
