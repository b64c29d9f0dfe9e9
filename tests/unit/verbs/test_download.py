"""download: what a bad server does to it, what it resumes, what it refuses, and what it leaves."""

import gzip
import io
import json
import os
import random
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from thorough import THOROUGH

import dolma_dask as dk
from dolma_dask import progress
from dolma_dask.errors import (
    DiskFullError,
    StageError,
    StoreAccessError,
    StoreError,
    StoreUnreachableError,
    UsageError,
)
from dolma_dask.io import http, objects, partial, web
from dolma_dask.io.stores import reason
from dolma_dask.journal import Journal
from dolma_dask.testing.commands import Command, killed_at
from dolma_dask.verbs.download import space

from .bad_server import BadServer, Fault

pytestmark = pytest.mark.slow
"""A real server stalls and drops connections."""

BASE = "/redpajama/v1.0.0"
SHARDS = tuple(f"2023-06/{shard:04d}/de_{bucket}" for shard in range(2) for bucket in ("head", "middle"))
QUICK = {"progress": False, "timeout": 10.0, "patience": 20.0, "connections": 3}


def packed(seed, size=60_000):
    """Gzip that does not become smaller, in two members."""
    draw = random.Random(seed)
    data = draw.randbytes(size) + b"\n"
    return gzip.compress(data[:1000], mtime=0) + gzip.compress(data[1000:], mtime=0)


def table(seed):
    out = io.BytesIO()
    pq.write_table(pa.table({"id": [f"{seed}-{row}" for row in range(2000)]}), out)
    return out.getvalue()


def published():
    """A tree as RedPajama-V2 is published; one shard has no duplicates."""
    tree = {f"{BASE}/listings/de-2023-06-head_middle.txt": "".join(f"{one}\n" for one in SHARDS).encode()}
    for number, shard in enumerate(SHARDS):
        tree |= {
            f"{BASE}/documents/{shard}.json.gz": packed(number),
            f"{BASE}/quality_signals/{shard}.signals.json.gz": packed(number + 10),
            f"{BASE}/minhash/{shard}.minhash.parquet": table(number),
            f"{BASE}/duplicates/{shard}.duplicates.parquet": table(number + 10),
        }
    del tree[f"{BASE}/duplicates/{SHARDS[-1]}.duplicates.parquet"]
    return tree


FIRST = f"{BASE}/documents/{SHARDS[0]}.json.gz"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Wait for moments only between attempts."""
    monkeypatch.setattr(objects, "FIRST_WAIT_SECONDS", 0.01)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server():
    with BadServer(published()) as running:
        yield running


def fetch(server, to, **more):
    options = {"snapshots": ["2023-06"], "languages": "de", **QUICK, **more}
    return dk.download(f"{server.url}{BASE}", to=str(to), **options)


def fetch_one(server, to, path=FIRST, **more):
    return dk.download(f"{server.url}{path}", to=str(to), **{**QUICK, **more})


def files_of(root):
    """Return what can be seen below a folder, by path."""
    found = {path.relative_to(root): path for path in Path(root).rglob("*") if path.is_file()}
    return {
        name.as_posix(): path.read_bytes()
        for name, path in found.items()
        if not any(part[0] in "._" for part in name.parts)
    }


def wanted(server):
    return {
        path.removeprefix(f"{BASE}/"): data for path, data in server.files.items() if "/listings/" not in path
    }


def hidden(root):
    return list(Path(root).rglob(".*"))


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match="nowhere: no such folder or file"):
        dk.download(str(tmp_path / "nowhere"), to=str(tmp_path / "to"), **QUICK)


def test_a_tree_is_fetched_by_its_listings(server, tmp_path):
    summary = fetch(server, tmp_path)
    assert files_of(tmp_path) == wanted(server)
    assert hidden(tmp_path) == []
    assert summary.counts["files"] == 15
    assert summary.counts["bytes_out"] == sum(map(len, wanted(server).values()))
    assert summary.counts["missing"] == 1
    (note,) = [note for note in summary.notes if "missing" in note]
    assert "1 of duplicates" in note
    missing = (tmp_path / "_quarantine/download/missing.txt").read_text()
    assert missing == f"{server.url}{BASE}/duplicates/{SHARDS[-1]}.duplicates.parquet\n"


def test_the_same_command_asks_for_nothing_again(server, tmp_path):
    fetch(server, tmp_path)
    server.seen.clear()
    again = fetch(server, tmp_path)
    assert (again.done, again.skipped, again.counts["missing"]) == (0, 16, 1)
    assert {one.path for one in server.seen} == {f"{BASE}/listings/de-2023-06-head_middle.txt"}
    server.seen.clear()
    table = dk.status(str(tmp_path))
    assert {(row.left, row.changed, row.is_origin_gone) for row in table.rows} == {(0, 0, False)}
    assert [row.left_out for row in table.rows if row.writes.startswith("duplicates/")] == [1]
    assert "1 file missing or broken at the source, listed in _quarantine/download/" in str(table)
    assert server.seen == []


FAULTS = {
    "truncated": [Fault("drop", 20_000)] * 2,
    "reset": [Fault("reset", 30_000), Fault("reset", 0), Fault("reset", 1000)],
    "stalls": [Fault("stall", 10_000)],
    "stalls at once": [Fault("stall", 0)],
    "stalls again and again": [Fault("stall", 10_000)] * 4,
    "500": [Fault("status", status=500)] * 3,
    "502": [Fault("status", status=502)] * 3,
    "429": [Fault("status", status=429, headers=(("Retry-After", "0"),))] * 7,
    "503": [Fault("status", status=503, headers=(("Retry-After", "1"),))],
    "a date": [Fault("status", status=503, headers=(("Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT"),))],
    "a date of no clock": [
        Fault("status", status=503, headers=(("Retry-After", "Wed, 21 Oct 2015 07:28:00 +9999999999999"),))
    ],
    "damaged on the way": [Fault("body", body=packed(99)[:-7])],
    "another page": [Fault("body", body=b"<html>log in</html>")],
    "no ranges": [Fault("drop", 20_000), Fault("whole")],
    "all of them": [
        Fault("drop", 9_000),
        Fault("status", status=500),
        Fault("reset", 9_000),
        Fault("status", status=429, headers=(("Retry-After", "0"),)),
        Fault("stall", 5_000),
    ],
}


@pytest.mark.parametrize("name", FAULTS)
def test_nothing_is_lost_by_a_server_that(name, server, tmp_path):
    server.faults[FIRST] = list(FAULTS[name])
    fetch_one(server, tmp_path, timeout=0.5 if any(one.kind == "stall" for one in FAULTS[name]) else 10.0)
    assert files_of(tmp_path) == {FIRST.removeprefix(f"{BASE}/"): server.files[FIRST]}
    assert hidden(tmp_path) == []
    assert server.faults[FIRST] == []


LINES = "/x/lines.jsonl"
"""Lines of text have no checksum, so that nothing else would tell."""


@pytest.mark.parametrize("size", ["-5", "9" * 30, "3, 4", "three"])
def test_a_size_that_is_none_proves_nothing(size, server, tmp_path):
    server.files[LINES] = b"a line\n" * 1000
    server.always[LINES] = Fault("no_length", headers=(("Content-Length", size),))
    with pytest.raises(StageError, match=r"(is no size|contradict each other .*) \(5 attempts"):
        fetch_one(server, tmp_path, LINES)
    assert files_of(tmp_path) == {}


def test_a_body_that_ends_with_its_connection_is_said_to_be_unproved(server, tmp_path):
    paths = (FIRST, f"{BASE}/minhash/{SHARDS[0]}.minhash.parquet", LINES)
    server.files[LINES] = b"a line\n" * 1000
    server.always = dict.fromkeys(paths, Fault("no_length"))
    urls = [f"{server.url}{path}" for path in paths]
    summary = dk.download(urls, to=str(tmp_path), **QUICK)
    assert summary.counts["unsized"] == 2
    assert summary.notes[-1].startswith("2 fetched without proof that they are whole")
    listed = (tmp_path / "_quarantine/download/unsized.txt").read_text().split()
    assert listed == sorted([urls[0], urls[2]])
    server.always = {}
    fetch_one(server, tmp_path, LINES, refresh=True, overwrite=True)
    assert (tmp_path / "_quarantine/download/unsized.txt").read_text().split() == urls[:1]


@pytest.mark.parametrize("status", [202, 203, 204, 206])
def test_only_an_object_is_taken_for_one(status, server, tmp_path):
    server.files[LINES] = b"a line\n" * 1000
    server.faults[LINES] = [Fault("status", status=status)] * 2
    fetch_one(server, tmp_path, LINES)
    assert files_of(tmp_path) == {LINES[1:]: server.files[LINES]}


def test_what_the_server_has_compressed_is_refused(server, tmp_path):
    server.files[LINES] = b"a line\n" * 1000
    packed_too = Fault("headers", headers=(("Content-Encoding", "gzip"),))
    server.always = {LINES: packed_too, FIRST: packed_too}
    fetch_one(server, tmp_path)
    with pytest.raises(StageError, match=r"lines.jsonl: its server sends it in the encoding gzip; expected"):
        fetch_one(server, tmp_path, LINES)
    assert files_of(tmp_path) == {FIRST.removeprefix(f"{BASE}/"): server.files[FIRST]}


@pytest.mark.parametrize(
    "place",
    ["http://[bad/x", f"http://{'a' * 80}.example/x", "file:///etc/hosts", "ftp://127.0.0.1:1/x", FIRST],
)
def test_redirections_to_other_places_than_the_web_and_without_end_are_refused(place, server, tmp_path):
    server.always[FIRST] = Fault("status", status=302, headers=(("Location", place),))
    with pytest.raises(StageError, match=r"StoreAccessError: http://.*; expected"):
        fetch_one(server, tmp_path)


def test_a_range_that_nobody_asked_for_is_refused(server, tmp_path):
    server.always[FIRST] = Fault("status", status=416)
    with pytest.raises(StageError, match=r"HTTP status 416 .*5 attempts in a row"):
        fetch_one(server, tmp_path)


def test_sizes_without_end_are_none(server, tmp_path):
    endless = "9" * 5000
    server.faults[FIRST] = [
        Fault("drop", 20_000),
        Fault("headers", headers=(("Content-Length", endless), ("Content-Range", f"bytes 0-1/{endless}"))),
    ]
    fetch_one(server, tmp_path)
    assert files_of(tmp_path).popitem()[1] == server.files[FIRST]


def test_a_server_that_sends_a_byte_now_and_then_has_stalled(server, tmp_path):
    server.faults[FIRST] = [Fault("trickle")]
    fetch_one(server, tmp_path, timeout=0.5)
    assert len(server.gets(FIRST)) >= 2
    assert files_of(tmp_path).popitem()[1] == server.files[FIRST]


def test_headers_a_byte_now_and_then_have_stalled_too(server, tmp_path):
    server.faults[FIRST] = [Fault("slow_head")]
    fetch_one(server, tmp_path, timeout=0.5)
    assert len(server.gets(FIRST)) >= 2
    assert files_of(tmp_path).popitem()[1] == server.files[FIRST]


@pytest.mark.parametrize("each", [100, 100_000])
def test_attempts_that_bring_next_to_nothing_are_in_vain(each):
    reached, source = [0], objects.ObjectSource()

    def attempt():
        reached.append(reached[-1] + each)
        if len(reached) < 20:
            raise objects.BrokenOffError("it broke off", "answer")

    if each > 1000:
        source.persistently("http://one.host/x", attempt, lambda: reached[-1])
    else:
        with pytest.raises(StoreError, match="5 attempts in a row"):
            source.persistently("http://one.host/x", attempt, lambda: reached[-1])


def test_what_a_server_says_is_no_matter_for_terminals():
    assert reason("red \x1b[31m\x07 and\r\n\x9b2J more") == "red [31m and 2J more"


@pytest.mark.parametrize("date", ["soon", "9" * 5000])
def test_a_pause_that_no_clock_knows_is_a_long_one(date, server, tmp_path, monkeypatch):
    monkeypatch.setattr(web, "MAX_WAIT_SECONDS", 0.5)
    server.faults[FIRST] = [Fault("status", status=503, headers=(("Retry-After", date),))]
    fetch_one(server, tmp_path)
    first, second = server.gets(FIRST)
    assert second.at - first.at > 0.4


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_is_left_alone_as_long_as_it_asks(status, server, tmp_path):
    server.faults[FIRST] = [Fault("status", status=status, headers=(("Retry-After", "1"),))]
    fetch_one(server, tmp_path)
    first, second = server.gets(FIRST)
    assert second.at - first.at > 0.9


def test_a_whole_tree_from_a_server_where_everything_fails_now_and_then(server, tmp_path):
    draw = random.Random(5)
    kinds = [fault for name, faults in FAULTS.items() if "stall" not in name for fault in faults]
    for path in server.files:
        server.faults[path] = [fault for fault in draw.choices(kinds, k=4) if fault.kind != "body"]
    fetch(server, tmp_path, patience=30.0)
    assert files_of(tmp_path) == wanted(server)


def test_what_was_received_is_not_sent_again(server, tmp_path):
    server.faults[FIRST] = [Fault("drop", 20_000), Fault("drop", 10_000)]
    fetch_one(server, tmp_path)
    asked = server.gets(FIRST)
    assert [one.range for one in asked] == ["", "bytes=20000-", "bytes=30000-"]
    assert {one.if_range for one in asked[1:]} == {server.tag(FIRST)}


@pytest.mark.parametrize("tag", ['W/"weak"', ""])
def test_without_a_strong_tag_it_begins_anew(tag, server, tmp_path):
    server.tags[FIRST] = tag
    server.faults[FIRST] = [Fault("drop", 20_000)]
    fetch_one(server, tmp_path)
    assert [one.range for one in server.gets(FIRST)] == ["", ""]
    assert files_of(tmp_path).popitem()[1] == server.files[FIRST]


def test_a_date_is_as_good_as_a_strong_tag(server, tmp_path):
    server.tags[FIRST], server.dates[FIRST] = "", "Wed, 21 Oct 2015 07:28:00 GMT"
    server.faults[FIRST] = [Fault("drop", 20_000)]
    fetch_one(server, tmp_path)
    assert [one.range for one in server.gets(FIRST)] == ["", "bytes=20000-"]
    assert files_of(tmp_path).popitem()[1] == server.files[FIRST]


@pytest.mark.parametrize("lies", [False, True])
def test_an_object_that_changes_on_the_way_is_fetched_anew(lies, server, tmp_path):
    old = server.files[FIRST]
    server.faults[FIRST], server.always[FIRST] = [Fault("drop", 20_000)], Fault("drop")
    with pytest.raises(StageError):
        fetch_one(server, tmp_path)
    assert [path.name for path in hidden(tmp_path)] == [".de_head.json.gz.part"]
    server.files[FIRST] = packed(77)
    server.always.clear()
    server.faults[FIRST] = [Fault("lie")] if lies else []
    fetch_one(server, tmp_path)
    assert files_of(tmp_path).popitem()[1] == server.files[FIRST] != old
    assert hidden(tmp_path) == []


def test_bytes_of_two_versions_are_never_mixed_where_nothing_else_would_tell(server, tmp_path):
    """The server takes the new object for the old one, and lines of text have no checksum."""
    path = "/x/lines.jsonl"
    server.has_heads = False
    server.files[path] = b"old\n" * 10_000
    server.faults[path], server.always[path] = [Fault("drop", 20_000)], Fault("drop")
    with pytest.raises(StageError):
        fetch_one(server, tmp_path, path)
    server.files[path] = b"new\n" * 10_000
    server.always.clear()
    server.faults[path] = [Fault("lie")]
    fetch_one(server, tmp_path, path)
    assert files_of(tmp_path) == {"x/lines.jsonl": server.files[path]}


def test_a_host_has_so_many_connections_however_many_threads():
    source, busy, busiest, lock = objects.ObjectSource(connections=2), 0, 0, threading.Lock()
    both = threading.Barrier(2)

    def attempt():
        nonlocal busy, busiest
        with lock:
            busy += 1
            busiest = max(busiest, busy)
        both.wait()
        time.sleep(0.01)
        with lock:
            busy -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: source.persistently("http://one.host/x", attempt), range(30)))
    assert busiest == 2


def test_a_failed_file_goes_on_where_it_stopped(server, tmp_path):
    server.always[FIRST] = Fault("drop", 0)
    server.faults[FIRST] = [Fault("drop", 40_000)]
    with pytest.raises(StageError, match=r"ended at byte 40,000 of .*attempts in a row"):
        fetch(server, tmp_path)
    assert len(files_of(tmp_path)) == 14, "the others are there"
    server.always.clear()
    server.seen.clear()
    assert fetch(server, tmp_path).done == 1
    assert [one.range for one in server.gets(FIRST)] == ["bytes=40000-"]
    assert files_of(tmp_path) == wanted(server)


@pytest.mark.parametrize("moment", ["running", "received"])
def test_a_killed_command_goes_on_where_it_stopped(moment, server, tmp_path):
    """Also if it was killed when all bytes had come, and only the place was wrong."""
    server.faults[FIRST] = [Fault("stall", 40_000)]
    words = ["-m", "dolma_dask", "download", f"{server.url}{FIRST}", "--to", str(tmp_path), "--no-progress"]
    with subprocess.Popen([sys.executable, *words]) as command:
        deadline = time.monotonic() + 60
        while sum(path.stat().st_size for path in tmp_path.rglob("data")) < 40_000:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        command.kill()
    (held,) = (path for path in hidden(tmp_path / "documents") if path.name.endswith(".part"))
    if moment == "received":
        (held / "data").write_bytes(server.files[FIRST])
    server.seen.clear()
    fetch_one(server, tmp_path)
    assert [one.range for one in server.gets(FIRST)] == (["bytes=40000-"] if moment == "running" else [])
    assert files_of(tmp_path).popitem()[1] == server.files[FIRST]
    assert hidden(tmp_path) == []


@pytest.mark.slow
def test_killed_again_and_again_at_whatever_state_of_the_disk(server, tmp_path):
    """A file opened, renamed or removed later each time; nothing is fetched twice that was published, nothing is left behind."""
    draw = random.Random(11)
    for path in server.files:
        server.faults[path] = [Fault("drop", draw.randrange(100, 30_000))]
    url = f"{server.url}{BASE}"
    words = ["download", url, "--to", f"{tmp_path}/out", "--snapshots", "2023-06", "--languages", "de"]
    deaths, step = 0, 12 if THOROUGH else 24
    for moment in range(5, 90, step):
        with Command(
            [*words, "--scheduler", "synchronous"],
            tmp_path / "log",
            prepared=True,
            **killed_at(moment, tmp_path / "out"),
        ) as command:
            deaths += command.wait() == -signal.SIGKILL
    assert deaths * step >= 60
    there = files_of(tmp_path / "out")
    fetch(server, tmp_path / "out")
    assert files_of(tmp_path / "out") == wanted(server)
    assert there.items() <= wanted(server).items(), "what was seen was whole"
    assert hidden(tmp_path / "out") == []


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["processes", "cluster"])
def test_other_processes_fetch_too(scheduler, server, tmp_path):
    server.faults[FIRST] = [Fault("drop", 20_000)]
    words = ["--languages", "de", "--snapshots", "2023-06", "--scheduler", scheduler, "--workers", "2"]
    words = ["download", f"{server.url}{BASE}", "--to", f"{tmp_path}/out", *words]
    with Command(words, tmp_path / "log", prepared=True) as command:
        assert command.wait() == 0, command.output
    assert files_of(tmp_path / "out") == wanted(server)
    assert [one.range for one in server.gets(FIRST)] == ["", "bytes=20000-"]


@pytest.mark.parametrize("paths", [[FIRST], [FIRST, f"{BASE}/documents/{SHARDS[1]}.json.gz"]])
def test_ctrl_c_keeps_what_was_received(paths, server, tmp_path):
    """In the main thread, and in threads."""
    for path in paths:  # not to be had by the attempts either that follow after two seconds
        server.faults[path] = [Fault("stall", 40_000), *[Fault("stall", 0)] * 20]
    (tmp_path / "urls.txt").write_text("".join(f"{server.url}{path}\n" for path in paths))
    words = [
        "-m",
        "dolma_dask",
        "download",
        f"{tmp_path}/urls.txt",
        "--to",
        f"{tmp_path}/out",
        "--timeout",
        "2",
    ]
    with subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, text=True) as command:
        deadline = time.monotonic() + 60
        while sum(path.stat().st_size for path in tmp_path.rglob("data")) < 40_000 * len(paths):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        command.send_signal(signal.SIGINT)
        assert command.wait(60) == 130
    assert sorted(path.name for path in hidden(tmp_path)) == sorted(
        f".{path.rpartition('/')[2]}.part" for path in paths
    )
    server.seen.clear()
    server.faults.clear()
    dk.download(f"{tmp_path}/urls.txt", to=f"{tmp_path}/out", **QUICK)
    assert {one.range for path in paths for one in server.gets(path)} == {"bytes=40000-"}
    assert hidden(tmp_path) == []


def test_ctrl_c_waits_for_no_answer_about_sizes(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/a.json.gz"
        with subprocess.Popen(
            [sys.executable, "-m", "dolma_dask", "download", url, "--to", f"{tmp_path}/out"]
        ) as command:
            silent.accept()
            command.send_signal(signal.SIGINT)
            assert command.wait(20) == 130


def test_a_folder_is_not_fetched_into_itself(tmp_path):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/a.json.gz").write_bytes(packed(1))
    with pytest.raises(UsageError, match="which is fetched; expected another folder"):
        dk.download(f"{tmp_path}/raw", to=f"{tmp_path}/raw/copy", **QUICK)
    assert dk.download(f"{tmp_path}/raw", to=f"{tmp_path}/raw2", **QUICK).done == 1


def test_what_others_hold_stays_theirs(server, tmp_path):
    """A partial file of a living process, and one of another host that has just been written."""
    folder = (tmp_path / FIRST.removeprefix(f"{BASE}/")).parent
    alive = folder / f".de_head.json.gz.{partial.writer_space()}-{os.getppid()}-00000000.part"
    elsewhere = folder / ".de_middle.json.gz.node7_1-17-00000000.part"
    for path in (alive, elsewhere):
        path.mkdir(parents=True)
        (path / "data").write_bytes(b"x")
    fetch(server, tmp_path)
    assert sorted(hidden(folder)) == [alive, elsewhere]
    for path in (elsewhere, elsewhere / "data"):
        os.utime(path, (0, 0))
    fetch(server, tmp_path)
    assert hidden(folder) == [alive], "the file is there: nobody needs it"


def test_missing_ones_fail_on_request(server, tmp_path):
    with pytest.raises(StageError, match=r"there is no such object.*--on-missing record"):
        fetch(server, tmp_path, on_missing="fail")
    assert fetch(server, tmp_path).counts["missing"] == 1
    for more in ({}, {"refresh": True}):
        with pytest.raises(StageError):
            fetch(server, tmp_path, on_missing="fail", **more)


def test_missing_ones_are_found_again_on_request(server, tmp_path):
    fetch(server, tmp_path)
    path = f"{BASE}/duplicates/{SHARDS[-1]}.duplicates.parquet"
    server.files[path] = table(3)
    assert fetch(server, tmp_path).done == 0
    summary = fetch(server, tmp_path, refresh=True)
    assert (summary.done, summary.counts.get("missing", 0)) == (1, 0)
    assert files_of(tmp_path) == wanted(server)
    assert not (tmp_path / "_quarantine/download/missing.txt").exists()
    del server.files[path]
    assert fetch(server, tmp_path, refresh=True).counts["missing"] == 1
    assert files_of(tmp_path) == wanted(server)


@pytest.mark.parametrize(
    "path, body",
    [
        (FIRST, packed(1)[:-9]),
        (FIRST, packed(1)[:-5] + b"12345"),
        (FIRST, packed(1) + b"garbage"),
        (FIRST, b""),
        (FIRST, b"<html>not here</html>"),
        (f"{BASE}/minhash/{SHARDS[0]}.minhash.parquet", table(0)[:-5]),
        (f"{BASE}/minhash/{SHARDS[0]}.minhash.parquet", table(0)[:4] + table(0)[4:][::-1]),
    ],
)
def test_what_is_broken_at_the_source_is_fetched_twice_and_named(path, body, server, tmp_path):
    server.files[path] = body
    with pytest.raises(StageError, match=r"is broken at its source: .*--on-broken record") as caught:
        fetch(server, tmp_path)
    assert str(tmp_path) not in caught.value.failures[0].message
    assert len(server.gets(path)) == 2
    summary = fetch(server, tmp_path, on_broken="record")
    assert summary.counts["broken"] == 1
    assert (tmp_path / "_quarantine/download/broken.txt").read_text() == f"{server.url}{path}\n"
    assert path.removeprefix(f"{BASE}/") not in files_of(tmp_path)
    assert hidden(tmp_path) == []


def test_a_changed_object_is_fetched_again_on_request_only(server, tmp_path):
    fetch(server, tmp_path)
    server.files[FIRST] = packed(55)
    assert fetch(server, tmp_path).done == 0
    assert fetch(server, tmp_path, refresh=True).done == 1
    assert files_of(tmp_path) == wanted(server)


def test_an_object_that_fails_for_good_fails_alone(server, tmp_path):
    server.always[FIRST] = Fault("status", status=500)
    with pytest.raises(StageError, match="HTTP status 500") as caught:
        fetch(server, tmp_path)
    (failure,) = caught.value.failures
    assert failure.message.startswith(f"{server.url}{FIRST}: HTTP status 500")
    assert len(files_of(tmp_path)) == 14


def test_a_refusal_is_final(server, tmp_path):
    server.always[FIRST] = Fault("status", status=403)
    with pytest.raises(StageError, match=r"HTTP status 403.*~/.netrc"):
        fetch_one(server, tmp_path)
    assert len(server.gets(FIRST)) == 1


def test_a_dead_host_stops_the_run_and_the_same_command_goes_on(server, tmp_path):
    fetch(server, tmp_path, only="0000")
    tree, port = server.files, server.server_address[1]
    server.__exit__()
    with pytest.raises(StoreUnreachableError, match="expected the host to answer"):
        fetch_one(server, tmp_path, f"{BASE}/documents/{SHARDS[-1]}.json.gz", patience=0.2)
    with BadServer(tree) as other:
        assert other.server_address[1] != port
        Path(tmp_path / FIRST.removeprefix(f"{BASE}/")).unlink()
        with pytest.raises(UsageError, match="was made from"):
            fetch(other, tmp_path)
        fetch(other, tmp_path, overwrite=True)
        assert files_of(tmp_path) == wanted(other)


def test_a_host_that_goes_away_stops_the_run(server, tmp_path):
    server.always = {path: Fault("status", status=502) for path in server.files if "/listings/" not in path}
    with pytest.raises(StoreUnreachableError, match="HTTP status 502"):
        fetch(server, tmp_path, patience=0.3)
    server.always = {}
    fetch(server, tmp_path)
    assert files_of(tmp_path) == wanted(server)


def test_a_server_without_heads_and_sizes(server, tmp_path):
    server.has_heads = False
    server.always[FIRST] = Fault("no_length")
    fetch(server, tmp_path)
    assert files_of(tmp_path) == wanted(server)


def test_lists_of_urls_and_listings_of_ones_own(server, tmp_path):
    shards = "".join(f"{shard}\n" for shard in SHARDS[:3])
    (tmp_path / "mine.txt").write_text(f"# mine\n\n{shards}")
    dk.download(
        str(tmp_path / "mine.txt"), to=str(tmp_path / "a"), base=f"{server.url}{BASE}", buckets="head",
        components=["documents", "minhash"], **QUICK,
    )  # fmt: skip
    assert files_of(tmp_path / "a").keys() == {
        path for path in wanted(server) if path.startswith(("documents", "minhash")) and "de_head" in path
    }
    server.files["/urls.txt"] = "".join(f"{server.url}{path}\n" for path in server.files).encode()
    dk.download(f"{server.url}/urls.txt", to=str(tmp_path / "b"), components="minhash", **QUICK)
    assert files_of(tmp_path / "b").keys() == {path for path in wanted(server) if path.startswith("minhash")}
    server.files["/other/c4.json.gz"] = packed(3)
    fetch_one(server, tmp_path / "c", "/other/c4.json.gz")
    fetch_one(server, tmp_path / "c", "/other/c4.json.gz", base=f"{server.url}/other")
    assert files_of(tmp_path / "c").keys() == {"other/c4.json.gz", "c4.json.gz"}


@pytest.mark.parametrize(
    "line, message",
    [
        ("https://me:secret@127.0.0.1/x.json.gz", "credentials in a URL"),
        ("http://127.0.0.1/../../etc/passwd", "would become the file"),
        ("http://127.0.0.1/%2e%2e/%2e%2e/x.json.gz", "would become the file"),
        ("http://127.0.0.1/_journal/download/x.jsonl", "would become the file"),
        ("http://127.0.0.1/.hidden/x.jsonl", "would become the file"),
        ("http://127.0.0.1/", "would become the file"),
        ("what is this", "line 1"),
        ("2023-06/0000/en_head", "--base"),
        (
            "http://127.0.0.1/a.json.gz\nhttp://127.0.0.2/a.json.gz",
            r"127.0.0.1/.*would both become a.json.gz",
        ),
        (
            "http://127.0.0.1/a.gz\nhttp://127.0.0.1/a.gz-b\nhttp://127.0.0.1/a.gz/b/c.gz",
            "also the folder of others",
        ),
        (f"http://127.0.0.1/{'n' * 300}.gz", "a path of 303 bytes"),
        (f"http://127.0.0.1/{'deep/' * 300}x.gz", "a path of 1,504 bytes"),
        (f"http://127.0.0.1/{'x' * 100_000}", "a line of more than 65,536 bytes"),
        ("http://127.0.0.1/a%0Ab.gz", "control characters"),
        ("http://[::1/x.gz", "names no host"),
        ("http:///x.gz", "names no host"),
        ("http://host:port/x.gz", "names no host"),
        ("# nothing", "nothing is selected; expected files. Look"),
    ],
)
def test_lines_that_are_refused(line, message, tmp_path):
    (tmp_path / "urls.txt").write_text(f"{line}\n")
    with pytest.raises(UsageError, match=message) as caught:
        dk.download(str(tmp_path / "urls.txt"), to=str(tmp_path / "out"), **QUICK)
    assert "secret" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_list_from_elsewhere_names_no_files_of_this_machine(server, tmp_path):
    (tmp_path / "mine.json.gz").write_bytes(packed(1))
    for place in (f"{tmp_path}/mine.json.gz", f"file://{tmp_path}/mine.json.gz"):
        server.files["/urls.txt"] = place.encode()
        with pytest.raises(UsageError, match=r"urls.txt, line 1: .* is a path of this machine"):
            fetch_one(server, tmp_path / "out", "/urls.txt")
    (tmp_path / "urls.txt").write_text(f"{tmp_path}/mine.json.gz\n")
    for base in (None, server.url):
        with pytest.raises(UsageError, match=r"name their folder in --base"):
            dk.download(str(tmp_path / "urls.txt"), to=str(tmp_path / "mine"), base=base, **QUICK)
    dk.download(str(tmp_path / "urls.txt"), to=str(tmp_path / "mine"), base=str(tmp_path), **QUICK)
    assert files_of(tmp_path / "mine") == {"mine.json.gz": packed(1)}


def test_a_byte_order_mark_is_no_part_of_a_list(server, tmp_path):
    listing = f"{BASE}/listings/de-2023-06-head_middle.txt"
    server.files[listing] = b"\xef\xbb\xbf" + server.files[listing].replace(b"\n", b"\r\n")
    assert fetch(server, tmp_path).counts["files"] == 15


def test_questions_for_sizes_have_a_bar(server, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(progress, "_kind", lambda: progress._Lines)
    monkeypatch.setattr(progress._Lines, "every", 0.001)
    fetch(server, tmp_path, progress=True)
    shown = capsys.readouterr().err
    assert re.search(r"^download, pass 1 \(sizes\): \d+/16 tasks, 0:00$", shown, re.MULTILINE)
    assert re.search(r"^download, pass 2: ", shown, re.MULTILINE)


@pytest.mark.parametrize(
    "more, message",
    [
        ({"snapshots": ()}, "--snapshots 2023-06"),
        ({"snapshots": "2050-01"}, "there is no such list"),
        ({"buckets": "heads"}, "did you mean 'head'"),
        ({"components": "docs"}, "did you mean 'documents'"),
        ({"connections": 0}, "connections=0; expected a whole number, 1 or more"),
        ({"on_missing": "ignore"}, "expected one of record, fail"),
        ({"only": "nowhere"}, "no file matches"),
    ],
)
def test_calls_that_are_refused(more, message, server, tmp_path):
    with pytest.raises(UsageError, match=message):
        fetch(server, tmp_path / "out", **more)
    assert not (tmp_path / "out").exists()


def test_secrets_in_queries_are_shown_nowhere(server, tmp_path):
    path = "/x/a.json.gz?token=geheim"
    server.files[path] = packed(1)
    summary = fetch_one(server, tmp_path, path)
    assert files_of(tmp_path).keys() == {"x/a.json.gz"}
    server.always["/x/b.json.gz?token=geheim"] = Fault("status", status=403)
    with pytest.raises(StageError) as caught:
        fetch_one(server, tmp_path, "/x/b.json.gz?token=geheim")
    written = b"".join(path.read_bytes() for path in (tmp_path / "_journal").rglob("*") if path.is_file())
    assert b"geheim" not in written
    assert "geheim" not in f"{summary}{caught.value}{caught.value.failures}"


def test_a_login_comes_from_netrc(server, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\n")
    netrc.chmod(0o600)
    fetch_one(server, tmp_path / "out")
    assert {one.authorization for one in server.gets(FIRST)} == {"Basic bWU6c2VjcmV0"}


def test_a_redirection_is_followed_without_the_login(server, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password secret\n")
    (tmp_path / ".netrc").chmod(0o600)
    with BadServer({FIRST: server.files[FIRST]}) as other:
        other.faults[FIRST] = [Fault("drop", 20_000)]
        server.always[FIRST] = Fault("status", status=302, headers=(("Location", f"{other.url}{FIRST}"),))
        host = other.url.removeprefix("http://")
        summary = fetch_one(server, tmp_path / "out", redirects_to=host)
        assert f"to which their servers redirect: {host} (1)" in summary.notes[-1]
        assert [(one.range, one.authorization) for one in other.gets(FIRST)] == [
            ("", ""),
            ("bytes=20000-", ""),
        ]
    assert files_of(tmp_path / "out") == {FIRST.removeprefix(f"{BASE}/"): server.files[FIRST]}


@pytest.mark.parametrize("allowed", [(), "*", "other.host"])
def test_a_redirection_to_another_host_is_followed_where_that_is_allowed(allowed, server, tmp_path):
    with BadServer({FIRST: server.files[FIRST]}) as other:
        server.always[FIRST] = Fault("status", status=302, headers=(("Location", f"{other.url}{FIRST}"),))
        host = re.escape(other.url.removeprefix("http://"))
        with pytest.raises(
            StageError, match=rf"another host with a private address; .* --redirects-to {host}"
        ):
            fetch_one(server, tmp_path / "out", redirects_to=allowed)
        assert other.seen == []


@pytest.mark.parametrize(
    "place, allowed, is_refused",
    [
        ("https://a.example/x", (), False),
        ("http://a.example:80/y", (), False),
        ("http://a.example:8080/x", (), True),
        ("http://b.example/x", (), True),
        ("http://b.example/x", ("a.example",), True),
        ("http://b.example/x", ("*.example",), False),
        ("http://127.0.0.1/x", ("*",), True),
        ("http://169.254.169.254/latest", ("*", "169.*"), True),
        ("http://[::1]/x", ("*",), True),
        ("http://127.0.0.1/x", ("127.0.0.1",), False),
    ],
)
def test_places_of_redirections(place, allowed, is_refused):
    source = web.Web(redirects_to=allowed)
    with pytest.raises(StoreAccessError) if is_refused else nullcontext():
        source._check_place("http://a.example/x", place)


def test_a_redirection_does_not_give_up_https():
    with pytest.raises(StoreAccessError):
        web.Web()._check_place("https://a.example/x", "http://a.example/x")


def test_proxies_are_those_of_the_environment(server, tmp_path, monkeypatch):
    far = f"http://far.invalid{FIRST}"
    server.files[far] = server.files[FIRST]
    monkeypatch.setenv("http_proxy", f"http://me:secret@{server.url.removeprefix('http://')}")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    dk.download(far, to=str(tmp_path / "far"), **QUICK)
    fetch_one(server, tmp_path / "near")
    assert files_of(tmp_path / "far") == files_of(tmp_path / "near")
    assert {one.path for one in server.seen} == {far, FIRST}


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs a certificate, which openssl makes")
def test_https_with_a_certificate_of_ones_own(server, tmp_path, monkeypatch):
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
    words = [
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        key,
        "-out",
        certificate,
        "-subj",
        "/CN=localhost",
    ]
    subprocess.run(
        ["openssl", *words, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with BadServer({FIRST: server.files[FIRST]}) as other:
        other.socket = context.wrap_socket(other.socket, server_side=True)
        other.faults[FIRST] = [Fault("drop", 20_000)]
        url = f"{other.url}{FIRST}".replace("http:", "https:")
        with pytest.raises(StageError, match=r"certificate is not trusted.*SSL_CERT_FILE"):
            dk.download(url, to=str(tmp_path / "out"), **QUICK)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        http.pools.cache_clear()
        dk.download(url, to=str(tmp_path / "out"), **QUICK)
        http.pools.cache_clear()
    assert files_of(tmp_path / "out") == {FIRST.removeprefix(f"{BASE}/"): server.files[FIRST]}


def test_room_is_looked_for_before_the_first_byte(server, tmp_path, monkeypatch):
    real = os.statvfs(tmp_path)

    def statvfs(free, inodes):
        return os.statvfs_result((*real[:4], free // real.f_frsize, real[5], real[6], inodes, *real[8:]))

    for number, (free, inodes, message) in enumerate([(100_000, 10**6, "too few"), (10**12, 5, "inodes")]):
        monkeypatch.setattr(space.os, "statvfs", lambda path, of=(free, inodes): statvfs(*of))
        with pytest.raises(DiskFullError, match=message):
            fetch(server, tmp_path / str(number))
        assert not (tmp_path / str(number)).exists()
    assert not [one for one in server.seen if one.method == "GET" and "/listings/" not in one.path]
    summary = fetch(server, tmp_path / "2", dry_run=True)
    assert any("to fetch in 16 files" in note for note in summary.notes)
    assert not (tmp_path / "2").exists()


def test_sizes_that_are_not_asked_for_are_estimated(server, tmp_path, monkeypatch):
    monkeypatch.setattr("dolma_dask.verbs.download.verb.MAX_ASKED", 4)
    fetch(server, tmp_path)
    assert len([one for one in server.seen if one.method == "HEAD"]) == 4
    assert files_of(tmp_path) == wanted(server)
    assert {
        record.inputs[0].bytes
        for record in Journal(str(tmp_path), "download").records.values()
        if record.inputs
    } == {len(data) for data in wanted(server).values()}


def test_a_folder_of_a_store_needs_no_listings(tmp_path):
    for path, data in published().items():
        if "/listings/" not in path:
            file = tmp_path / "tree" / path.removeprefix(f"{BASE}/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
    dk.download(str(tmp_path / "tree"), to=str(tmp_path / "out"), components="documents", **QUICK)
    assert files_of(tmp_path / "out") == {
        path: data for path, data in files_of(tmp_path / "tree").items() if path.startswith("documents")
    }


def test_from_one_store_to_another(server):
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    dk.download(f"{server.url}{FIRST}", to="memory://down/a", **QUICK)
    dk.download("memory://down/a/documents", to="memory://down/b", **QUICK)
    assert store.cat_file(f"/down/b/{SHARDS[0]}.json.gz") == server.files[FIRST]
    store.rm("/down", recursive=True)


def test_what_was_fetched_is_converted(server, tmp_path):
    lines = "".join(
        json.dumps(
            {
                "url": "u", "date_download": "2023-02-09T04:00:00Z", "digest": "sha1:A", "length": 3, "nlines": 1, "source_domain": "d",
                "title": "t", "raw_content": f"text {row}", "cc_segment": "c", "original_nlines": 1, "original_length": 3, "line_ids": [0],
                "language": "de", "language_score": 0.9, "perplexity": 9.0, "bucket": "head",
            }
        )
        + "\n"
        for row in range(3)
    )  # fmt: skip
    for shard in SHARDS:
        server.files[f"{BASE}/documents/{shard}.json.gz"] = gzip.compress(lines.encode())
    fetch(server, tmp_path / "raw")
    dk.convert(str(tmp_path / "raw"), to=str(tmp_path / "v0"), mapping="redpajama_v2", progress=False)
    (first, *_), ids = sorted((tmp_path / "v0/documents").rglob("*.gz")), []
    with gzip.open(first) as read:
        ids = [json.loads(line)["id"] for line in read]
    assert ids == [f"{SHARDS[0]}.json.gz/{row}" for row in range(3)]


def test_a_pipeline_fetches_and_converts(server, tmp_path):
    """The stage that reads what is fetched waits for it, also in a rehearsal."""
    for number, shard in enumerate(SHARDS):
        lines = (json.dumps({"id": str(row), "text": f"text {number}"}) + "\n" for row in range(3))
        server.files[f"{BASE}/documents/{shard}.json.gz"] = gzip.compress("".join(lines).encode())
    (tmp_path / "p.yaml").write_text(f"""
stages:
  - download:
      inputs: {server.url}{BASE}
      to: {tmp_path}/raw
      snapshots: [2023-06]
      languages: de
      components: documents
  - convert: {{inputs: "{tmp_path}/raw/documents", to: "{tmp_path}/v0", source: web}}
""")
    dk.run(str(tmp_path / "p.yaml"), dry_run=True)
    assert not (tmp_path / "raw").exists()
    dk.run(str(tmp_path / "p.yaml"), prune=1)
    assert not (tmp_path / "raw").exists()
    dk.run(str(tmp_path / "p.yaml"))
    assert len(list((tmp_path / "v0/documents").rglob("*.gz"))) == len(SHARDS)
    server.seen.clear()
    dk.run(str(tmp_path / "p.yaml"))
    assert {one.path for one in server.seen} == {f"{BASE}/listings/de-2023-06-head_middle.txt"}
