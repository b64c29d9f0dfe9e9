"""The journal: nothing that was finished is forgotten, whoever writes at once and whoever dies."""

import itertools
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from dolma_dask.errors import DataError, UsageError
from dolma_dask.io import files
from dolma_dask.io.publish import publish
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.journal import (
    Journal,
    JournalWriter,
    Record,
    RunRecord,
    canonical,
    garbage_notes,
    is_same_file,
    journals,
    work_key,
)
from dolma_dask.journal import writer as writer_module
from dolma_dask.journal.lines import sealed
from dolma_dask.reading.written import Written


def record(unit: str, finished: float = 1.0, key: str = "k", **more: object) -> Record:
    return Record(unit=unit, shard=unit, key=key, finished=finished, **more)  # type: ignore[arg-type]


def segments(root: str, verb: str = "tag") -> list[str]:
    return [info.path for info in files.list_files(files.join(root, f"_journal/{verb}"))]


def put(root: str, name: str, data: bytes) -> None:
    with publish(files.join(root, f"_journal/tag/{name}")) as out:
        out.write(data)


START_TIMER = JournalWriter._start_timer


@pytest.fixture(autouse=True)
def _no_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that died here would flush late, from another thread."""
    monkeypatch.setattr(JournalWriter, "_start_timer", lambda self: None)


@pytest.fixture
def _timers(_no_timers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JournalWriter, "_start_timer", START_TIMER)


@pytest.fixture
def _now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flush after every second record."""
    monkeypatch.setattr("dolma_dask.journal.writer.FLUSH_RECORDS", 2)


@pytest.mark.parametrize(
    "path", ["../../precious.txt", "/etc/precious", "attributes/../../precious.txt", ".."]
)
def test_records_of_files_outside_of_the_root_are_not_believed(root: str, path: str) -> None:
    outside = record("attributes/x/a.jsonl", files=(FileRecord(path, 7, "c1"),))
    lines = [msgspec.json.encode(each) for each in (outside, record(path), record("attributes/x/..a.jsonl"))]
    put(root, "1.jsonl", b"\n".join([*lines, b""]))
    journal = Journal(root, "tag")
    assert list(journal.records) == ["attributes/x/..a.jsonl"]
    with pytest.raises(DataError):
        journal.append(outside)


FULL = Record(
    unit="attributes/x/a.jsonl.gz",
    shard="a.jsonl.gz",
    key="k",
    inputs=(InputRecord("documents/a.jsonl.gz", 10, "mtime:1", "c0"),),
    files=(FileRecord("attributes/x/a.jsonl.gz", 7, "c1", 3, ((0, 0, 0), (5, 2, 100))),),
    rows=3,
    ids_digest="d1",
    content_digest="d2",
    counts={"documents_in": 3, "seconds": 0.5},
    info={"reads": ["text"], "kinds": {"k": "document"}, "n": None},
    seconds=1.5,
    finished=1e9 + 0.125,
)


def test_what_is_written_is_read(root: str) -> None:
    writer = Journal(root, "tag").start({"taggers": ["x"], "limit": None}, ["attributes/x/"], "1.0")
    writer.add(FULL)
    writer.add(record("b"))
    writer.close()
    again = Journal(root, "tag")
    assert again.records == {FULL.unit: FULL, "b": record("b")}
    (run,) = again.runs
    assert (run.verb, run.params, run.writes, run.version) == (
        "tag",
        {"taggers": ["x"], "limit": None},
        ("attributes/x/",),
        "1.0",
    )
    assert again.by_file() == {"attributes/x/a.jsonl.gz": FULL}
    assert again.may_write("attributes/x/new.jsonl")
    assert not again.may_write("attributes/y/new.jsonl")
    assert Journal(root, "mix").records == {}
    assert [journal.verb for journal in journals(root)] == ["tag"]
    assert len(segments(root)) == 1


def test_an_announced_run_is_on_disk_before_it_writes(root: str) -> None:
    Journal(root, "tag").start({}, ["attributes/x/"], "1.0")
    assert Journal(root, "tag").may_write("attributes/x/a")


def test_the_newest_record_of_a_unit_wins(root: str) -> None:
    for name, line in enumerate([record("a", 3.0, "new"), record("a", 1.0, "old"), record("b", 1.0, "b")]):
        put(root, f"{name}.jsonl", msgspec.json.encode(line) + b"\n")
    journal = Journal(root, "tag")
    assert {unit: item.key for unit, item in journal.records.items()} == {"a": "new", "b": "b"}
    writer = journal.start({}, [], "")
    writer.add(record("a", 2.0, "newest"))  # by the clock of its worker it is older
    assert journal.records["a"].key == "newest"
    writer.close()
    again = Journal(root, "tag").records
    assert again["a"].key == "newest"
    assert again["a"].finished > 3.0


def test_a_torn_last_line_is_ignored(root: str) -> None:
    lines = msgspec.json.encode(record("a")) + b"\n" + msgspec.json.encode(record("b"))
    for cut in (1, 10):
        put(root, "0.jsonl", lines[:-cut])
        assert set(Journal(root, "tag").records) == {"a"}
    put(root, "0.jsonl", lines)
    assert set(Journal(root, "tag").records) == {"a", "b"}
    put(root, "1.jsonl", b"")
    put(root, "2.jsonl", b'{"format":2,"unit":"\xff\xfe torn')
    assert set(Journal(root, "tag").records) == {"a", "b"}
    writer = Journal(root, "tag").start({}, [], "")
    writer.close()
    assert set(Journal(root, "tag").records) == {"a", "b"}
    assert len(segments(root)) == 1


@pytest.mark.usefixtures("_now_and_then")
def test_compaction_keeps_everything(root: str) -> None:
    for run in range(3):
        writer = Journal(root, "tag").start({"run": run}, [f"attributes/{run}/"], "")
        for unit in range(7):
            writer.add(record(f"{unit + 5 * run}", finished=run + 1.0, key=f"{run}"))
        writer.flush()  # the first two die before they close
    before = Journal(root, "tag")
    assert len(segments(root)) > 10
    writer.close()
    assert len(segments(root)) == 1
    after = Journal(root, "tag")
    assert after.records == before.records
    assert after.runs == before.runs
    assert [run.params["run"] for run in after.runs] == [0, 1, 2]
    assert {unit: item.key for unit, item in after.records.items()} == {
        **{f"{unit}": "0" for unit in range(5)},
        **{f"{unit}": "1" for unit in range(5, 10)},
        **{f"{unit}": "2" for unit in range(10, 17)},
    }


def test_what_a_newer_release_wrote_survives_compaction(root: str) -> None:
    newer = b'{"format":2,"unit":"a","shard":"a","key":"k","finished":1.0,"novel":{"x":1}}\n'
    unknown = b'{"format":2,"unit":"b","rows":"many"}\n'
    run = b'{"kind":"run","run":"0","verb":"tag","params":{},"writes":["w/"],"started":0.0,"novel":2}\n'
    put(root, "0.jsonl", newer + run)
    put(root, "1.jsonl", unknown + msgspec.json.encode(record("c")) + b"\n")
    Journal(root, "tag").start({}, [], "").close()
    data = b"".join(files.read_bytes(files.join(root, f"_journal/tag/{name}")) for name in segments(root))
    for line in (newer, unknown, run):
        assert line in data
    assert set(Journal(root, "tag").records) == {"a", "c"}


def test_records_of_another_format_are_never_believed(root: str) -> None:
    old = b'{"unit":"a","shard":"a","key":"k","finished":9.0}\n'
    later = b'{"format":3,"unit":"b","shard":"b","key":"k","finished":9.0}\n'
    put(root, "0.jsonl", old + later + msgspec.json.encode(record("c")) + b"\n")
    journal = Journal(root, "tag")
    assert set(journal.records) == {"c"}
    assert journal.foreign == {"a", "b"}
    writer = journal.start({}, [], "")
    writer.add(record("a"))
    writer.close()
    data = b"".join(files.read_bytes(files.join(root, f"_journal/tag/{name}")) for name in segments(root))
    assert old in data
    assert later in data, "another release may need it"
    assert set(Journal(root, "tag").records) == {"a", "c"}


@pytest.mark.usefixtures("_now_and_then")
def test_two_journals_at_once_lose_nothing(root: str) -> None:
    Journal(root, "tag").start({}, [], "").add(record("before"))
    one, two = (Journal(root, "tag").start({"n": n}, [], "") for n in (1, 2))
    for number in range(9):
        one.add(record(f"one-{number}"))
        two.add(record(f"two-{number}"))
    three = Journal(root, "tag")
    assert len(three.records) == 16  # the ninth of both waits
    one.close()
    one.add(record("one-late"))
    two.close()
    late = three.start({"n": 3}, [], "")
    one.close()
    late.close()
    expected = {f"{name}-{number}" for name in ("one", "two") for number in range(9)} | {"one-late"}
    found = Journal(root, "tag")
    assert set(found.records) == expected
    assert [run.params.get("n") for run in found.runs] == [None, 1, 2, 3]


def test_a_reader_lives_through_compaction(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments vanish between the listing and the reading, and their records are in a new one."""
    writer = Journal(root, "tag").start({}, ["w/"], "")
    for unit in "abc":
        writer.add(record(unit))
        writer.flush()
    read, done = files.read_bytes, []

    def compact_first(url: str) -> bytes:
        if not done:
            done.append(url)
            writer.close()
        return read(url)

    monkeypatch.setattr("dolma_dask.journal.files.read_bytes", compact_first)
    journal = Journal(root, "tag")
    assert set(journal.records) == {"a", "b", "c"}
    assert journal.may_write("w/x")
    assert len(segments(root)) == 1


CHILD = """
import sys
from dolma_dask.journal import writer
from dolma_dask.journal import Journal, Record
writer.FLUSH_RECORDS = 7
root, name = sys.argv[1:]
for run in range(3):
    writer = Journal(root, "tag").start({"child": name}, [name + "/"], "")
    for number in range(100):
        unit = f"{name}-{100 * run + number}"
        writer.add(Record(unit=unit, shard=unit, key=name, finished=1.0 + number))
    writer.close()
"""


@pytest.mark.slow
def test_two_processes_at_once_lose_nothing(tmp_path: Path) -> None:
    root = str(tmp_path)
    children = [subprocess.Popen([sys.executable, "-c", CHILD, root, name]) for name in ("one", "two")]
    seen: set[str] = set()
    while any(child.poll() is None for child in children):
        now = set(Journal(root, "tag").records)
        assert seen <= now  # a reader never sees less than before
        seen = now
    assert [child.returncode for child in children] == [0, 0]
    journal = Journal(root, "tag")
    assert set(journal.records) == {f"{name}-{i}" for name in ("one", "two") for i in range(300)}
    assert len(journal.runs) == 6


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.usefixtures("_timers")
def test_a_record_is_on_disk_soon_even_if_no_other_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dolma_dask.journal.writer.FLUSH_SECONDS", 0.05)
    root = str(tmp_path)
    writer = Journal(root, "tag").start({}, [], "")
    writer.add(record("a"))
    assert len(segments(root)) == 1  # the announcement alone
    wait_for(lambda: set(Journal(root, "tag").records) == {"a"})
    writer.add(record("b"))
    wait_for(lambda: set(Journal(root, "tag").records) == {"a", "b"})
    assert len(segments(root)) == 3
    writer.close()


def test_every_so_many_records_a_segment(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Journal(root, "tag").start({}, [], "")
    for number in range(1_100):
        writer.add(record(f"{number}"))
    assert len(segments(root)) == 3
    assert len(Journal(root, "tag").records) == 1_000
    writer.close()
    assert len(Journal(root, "tag").records) == 1_100


@pytest.mark.usefixtures("_timers")
def test_many_threads_may_add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dolma_dask.journal.writer.FLUSH_RECORDS", 10)
    monkeypatch.setattr("dolma_dask.journal.writer.FLUSH_SECONDS", 0.001)
    writer = Journal(str(tmp_path), "tag").start({}, [], "")

    def add(name: str) -> None:
        for number in range(50):
            writer.add(record(f"{name}-{number}"))

    threads = [threading.Thread(target=add, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    assert len(Journal(str(tmp_path), "tag").records) == 200


@pytest.mark.usefixtures("_timers")
def test_a_full_disk_loses_nothing_that_can_still_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(tmp_path)
    writer = Journal(root, "tag").start({}, [], "")
    with monkeypatch.context() as full:
        full.setattr("dolma_dask.journal.writer.FLUSH_SECONDS", 0.01)
        tried = threading.Event()

        def fail(*_: object) -> None:
            tried.set()
            raise OSError("No space left on device")

        full.setattr("dolma_dask.journal.writer._write_lines", fail)
        writer.add(record("a"))
        assert tried.wait(60)  # in the background, where nobody would see it
        with pytest.raises(OSError, match="No space"):
            writer.close()
    writer.close()
    assert set(Journal(root, "tag").records) == {"a"}


def test_what_could_not_be_read_back_is_an_error(tmp_path: Path) -> None:
    writer = Journal(str(tmp_path), "tag").start({}, [], "")
    with pytest.raises(DataError, match="could not read back what it would write; expected finite numbers"):
        writer.add(record("a", counts={"mean": float("nan")}))
    writer.close()
    assert Journal(str(tmp_path), "tag").records == {}


def test_the_key_depends_on_everything_that_decides_the_output() -> None:
    key = work_key("tag", 1, {"b": [1, 2], "a": {"y": 1, "x": None}})
    assert key == work_key("tag", 1, {"a": {"x": None, "y": 1}, "b": (1, 2)})
    others = [
        work_key("mix", 1, {"b": [1, 2], "a": {"y": 1, "x": None}}),
        work_key("tag", 2, {"b": [1, 2], "a": {"y": 1, "x": None}}),
        work_key("tag", 1, {"b": [2, 1], "a": {"y": 1, "x": None}}),
        work_key("tag", 1, {"b": [1, 2], "a": {"y": 1}}),
        work_key("tag", 1, {"b": [1, 2], "a": {"y": "1", "x": None}}),
    ]
    assert len({key, *others}) == 6
    assert key == "18273bf393c2c7ef4c86f61b27b7a1cb"  # or everything would be done again after an update
    assert canonical({"b": 1, "a": {"é": [True, 0.1]}}) == '{"a":{"é":[true,0.1]},"b":1}'


def test_text_that_is_not_utf8_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'b\\udcff': text that is not UTF-8; expected"):
        canonical({"where": ["a", "b\udcff"]})
    with pytest.raises(UsageError, match=r"'b\\udcff'"):
        Journal(str(tmp_path), "tag").start({"from": "b\udcff"}, (), "1")


@pytest.fixture
def read_file(tmp_path: Path) -> tuple[Path, InputRecord]:
    """A file and the record of it, with a time stamp that no other file has."""
    path = tmp_path / "a"
    path.write_bytes(b"123")
    os.utime(path, ns=(1, 1))
    return path, InputRecord("a", 3, "mtime:1", files.checksum(str(path)))


def is_same(known: InputRecord, path: Path) -> bool:
    return is_same_file(known, str(path), files.stat(str(path)))


def test_a_file_that_was_moved_or_copied_is_the_same(read_file: tuple[Path, InputRecord]) -> None:
    path, known = read_file
    copy = Path(shutil.copyfile(path, path.with_name("copy")))
    assert is_same(known, copy)
    moved = path.rename(path.with_name("moved"))
    assert is_same(msgspec.structs.replace(known, checksum="not looked at"), moved)
    assert not is_same(known, path)


def test_a_file_with_other_bytes_is_another(read_file: tuple[Path, InputRecord]) -> None:
    path, known = read_file
    for data, same in ((b"321", False), (b"1234", False), (b"123", True)):
        path.write_bytes(data)
        assert is_same(known, path) is same
    info = files.stat(str(path))
    path.unlink()
    assert not is_same_file(known, str(path), info)  # it was there when it was listed


def test_a_store_without_stamps_is_asked_for_the_bytes(read_file: tuple[Path, InputRecord]) -> None:
    path, known = read_file
    for checksum, same in (("other", False), (known.checksum, True)):
        info = files.FileInfo("a", 3, "")
        assert is_same_file(InputRecord("a", 3, "", checksum), str(path), info) is same


def test_a_file_that_nobody_has_read_as_a_whole_is_not_read_in_vain(
    read_file: tuple[Path, InputRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, known = read_file
    monkeypatch.delattr(files, "checksum")
    info = files.FileInfo("a", 3, known.stamp)
    assert is_same_file(InputRecord("a", 3, known.stamp, ""), str(path), info)
    assert not is_same_file(InputRecord("a", 3, "mtime:2", ""), str(path), info)


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (b"garbage", 1),
        (b"\xff\n{}\n", 2),
        (b'{"unit": 3}\n', 1),
        (b"[" * 5000 + b"\n", 1),
        (b"a file of its own", 1),
    ],
)
def test_garbage_is_named_and_stays(root: str, data: bytes, count: int) -> None:
    put(root, "1.jsonl", data)
    journal = Journal(root, "tag")
    assert journal.garbage == {"1.jsonl": count}
    (note,) = garbage_notes([journal])
    assert note.startswith("_journal/tag/1.jsonl: ")
    journal.append(record("a"))
    journal.append(record("b"))
    assert "1.jsonl" in segments(root)
    assert Journal(root, "tag").records.keys() == {"a", "b"}


def test_a_torn_line_and_records_of_another_format_are_no_garbage(root: str) -> None:
    whole, foreign = msgspec.json.encode(record("a")), b'{"unit":"b","format":1}'
    put(root, "1.jsonl", b"\n".join([whole, foreign, whole[:20]]))
    assert Journal(root, "tag").garbage == {}


@pytest.fixture
def _each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flush after every record."""
    monkeypatch.setattr("dolma_dask.journal.writer.FLUSH_RECORDS", 1)


@pytest.mark.usefixtures("_each")
def test_segments_are_merged_while_a_run_works(root: str) -> None:
    """Their number grows with the logarithm of the flushes, and a reader sees all that was flushed."""
    writer = Journal(root, "tag").start({}, ["w/"], "")
    for number in range(1, 200):
        writer.add(record(f"{number}"))
        tiers = len(oct(number + 1)) - 2
        assert len(segments(root)) <= 7 * tiers
        if number % 20 == 0:
            assert set(Journal(root, "tag").records) == {f"{n}" for n in range(1, number + 1)}
    assert Journal(root, "tag").may_write("w/x")


class Killed(BaseException):
    """Stands for a death of the process."""


@pytest.mark.usefixtures("_each")
@pytest.mark.parametrize("close", [False, True])
def test_a_death_around_every_step_of_a_merge_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, close: bool
) -> None:
    write, remove, left = writer_module._write_lines, files.remove, [0]

    def step(do: Callable[..., None]) -> Callable[..., None]:
        def stepped(*given: Any) -> None:
            left[0] -= 1
            if not left[0]:
                raise Killed
            do(*given)

        return stepped

    for dies_at in itertools.count(1):
        root = str(tmp_path / f"{dies_at}")
        writer = Journal(root, "tag").start({}, ["w/"], "")
        for number in range(5 if close else 6):
            writer.add(record(f"{number}"))
        left[0] = dies_at
        with monkeypatch.context() as patch:
            patch.setattr(writer_module, "_write_lines", step(write))
            patch.setattr("dolma_dask.journal.writer.files.remove", step(remove))
            try:
                _ = writer.close() if close else writer.add(record("6"))
            except Killed:
                assert set(Journal(root, "tag").records) >= {f"{n}" for n in range(5 if close else 6)}
                later = Journal(root, "tag")
                later.append(record("later"))
                assert set(Journal(root, "tag").records) >= {"later", "0", "4"}
                assert len(segments(root)) == 1
                continue
        assert dies_at > (2 if close else 9), "each write and removal was stopped"
        return


@pytest.mark.usefixtures("_each")
def test_a_run_whose_segments_another_one_merges_loses_nothing(root: str) -> None:
    one = Journal(root, "tag").start({}, ["w/"], "")
    for number in range(4):
        one.add(record(f"{number}"))
    Journal(root, "tag").append(record("other"))
    for number in range(4, 30):
        one.add(record(f"{number}"))
    one.finish(0)
    one.close()
    found = Journal(root, "tag")
    assert set(found.records) == {*(f"{n}" for n in range(30)), "other"}
    assert [bool(run.finished) for run in found.runs] == [True], (
        "what says that it has ended stands for what says that it began"
    )


@pytest.mark.usefixtures("_each")
def test_full_segments_stay_until_newer_records_replace_half_of_them(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dolma_dask.journal.writer.FULL_BYTES", 1_000)
    writer = Journal(root, "tag").start({}, ["w/"], "")
    for number in range(100):
        writer.add(record(f"{number}", finished=1.0))
    writer.close()
    full = set(segments(root))
    assert 5 < len(full) < 40
    Journal(root, "tag").append(record("more", finished=2.0))
    assert len(full - set(segments(root))) <= 1, "all but the last are full"
    for _ in range(3):
        again = Journal(root, "tag").start({}, ["w/"], "")
        for number in range(100):
            again.add(record(f"{number}", finished=3.0, key="new"))
        again.close()
    assert len(segments(root)) < 2 * len(full) + 5, "what is outdated does not stay"
    found = Journal(root, "tag").records
    assert {item.key for unit, item in found.items() if unit != "more"} == {"new"}
    assert len(found) == 101


def test_a_segment_is_read_once_in_a_process(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Journal(root, "tag").append(record("a"), record("b"))
    read, asked = files.read_bytes, []
    monkeypatch.setattr("dolma_dask.journal.files.read_bytes", lambda url: asked.append(url) or read(url))
    monkeypatch.setattr("dolma_dask.io.files._SETTLED_SECONDS", -1.0)
    for _ in range(3):
        assert set(Journal(root, "tag").records) == {"a", "b"}
        assert not Journal(root, "tag", runs_only=True).runs
    assert len(asked) == 1
    Journal(root, "tag").append(record("a", finished=9.0))
    assert Journal(root, "tag").records["a"].finished == 9.0


@pytest.mark.parametrize("seed", range(12))
def test_runs_alone_are_those_of_the_whole_journal(
    root: str, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """However runs end and segments are merged, all that speaks of runs stands at the ends of a segment."""
    draw = random.Random(seed)
    end_bytes = draw.choice([300, 1_000])
    monkeypatch.setattr("dolma_dask.journal.segments._END_BYTES", end_bytes)
    monkeypatch.setattr("dolma_dask.journal.writer.FLUSH_RECORDS", draw.choice([1, 3]))
    monkeypatch.setattr("dolma_dask.journal.writer.MERGED", draw.choice([2, 8]))
    monkeypatch.setattr("dolma_dask.journal.writer.FULL_BYTES", draw.choice([3_000, 64 << 20]))
    for number in range(12):
        writer = Journal(root, "tag").start({}, [f"w{number % 3}/"], "")
        for _ in range(draw.randrange(30)):
            writer.add(record(f"{draw.randrange(60)}", finished=number + 1.0))
        how = draw.choice(["killed", "stopped", "ended", "ended"])
        if how == "ended":
            writer.finish(missing=draw.randrange(2))
        if how != "killed":
            writer.close()
        if draw.random() < 0.3:
            Journal(root, "tag").append(record("more", finished=number + 1.5))
        assert Journal(root, "tag", runs_only=True).runs == Journal(root, "tag").runs


@pytest.mark.parametrize(
    "order", ["arrrrre", "arrrrrE", "rrE", "Arrrrre", "AArrrrr", "aaaaaa", "rrrrrr", "aerrrrr"]
)
@pytest.mark.parametrize("torn", [0, 1, 80])
def test_runs_are_found_wherever_their_lines_end(
    root: str, monkeypatch: pytest.MonkeyPatch, order: str, torn: int
) -> None:
    """Lines of a large segment: a run begins, a record, the run has ended; great letters: longer than what is read at an end."""
    monkeypatch.setattr("dolma_dask.journal.segments._END_BYTES", 300)
    run = RunRecord("1-a", "tag", {}, ("w/",), 1.0)
    lines = {
        "a": run,
        "A": replace(run, params={"rule": "x" * 400}),
        "r": record("b"),
        "e": replace(run, finished=2.0),
        "E": replace(run, finished=2.0, over_budget="x" * 400),
    }
    data = b"".join(sealed(lines[one]) + b"\n" for one in order)
    put(root, "1.jsonl", data[: len(data) - torn])
    assert Journal(root, "tag", runs_only=True).runs == Journal(root, "tag").runs


@pytest.mark.parametrize("garbage", [b"\xff\n", sealed(record("b")).replace(b'"b"', b'"c"') + b"\n"])
def test_a_damaged_line_hides_no_runs_behind_it(
    root: str, monkeypatch: pytest.MonkeyPatch, garbage: bytes
) -> None:
    monkeypatch.setattr("dolma_dask.journal.segments._END_BYTES", 600)
    runs = [RunRecord(f"{number}-a", "tag", {}, ("w/",), float(number)) for number in range(1, 10)]
    lines = [sealed(one) + b"\n" for one in [*runs, *[record(f"{number}") for number in range(9)]]]
    put(root, "1.jsonl", garbage + b"".join(lines))
    assert Journal(root, "tag", runs_only=True).runs == Journal(root, "tag").runs == runs


def test_runs_alone_are_read_from_the_ends_of_a_large_segment(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dolma_dask.journal.segments._END_BYTES", 300)
    writer = Journal(root, "tag").start({}, ["w/"], "")
    for number in range(50):
        writer.add(record(f"{number}"))
    writer.finish(missing=7)
    writer.close()
    monkeypatch.delattr("dolma_dask.journal.files.read_bytes")
    (run,) = Journal(root, "tag", runs_only=True).runs
    assert (run.writes, run.missing, run.finished > 0) == (("w/",), 7, True)


def test_an_end_that_is_read_in_part_hides_no_runs(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems give less than was asked for at once."""
    monkeypatch.setattr("dolma_dask.journal.segments._END_BYTES", 600)
    run = RunRecord("1-a", "tag", {}, ("w/",), 1.0)
    lines = [run, *[record(f"{number}") for number in range(20)], replace(run, finished=2.0)]
    put(root, "1.jsonl", b"".join(sealed(one) + b"\n" for one in lines))
    open_read = files.open_read

    class Slow:
        def __init__(self, url: str, **how: Any) -> None:
            self.file = open_read(url, **how)

        def __enter__(self) -> "Slow":
            return self

        def __exit__(self, *error: object) -> None:
            self.file.close()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

        def read(self, size: int = -1) -> bytes:
            return self.file.read(size - 250 if size > 0 else size)

    monkeypatch.setattr("dolma_dask.journal.segments.files.open_read", Slow)
    assert [one.finished for one in Journal(root, "tag", runs_only=True).runs] == [2.0]


def test_packed_records_are_the_same(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [
        record(f"{number}", finished=number + 1.0, info={"kinds": {"x": "document"}}) for number in range(9)
    ]
    Journal(root, "tag").append(*made)
    plain = dict(Journal(root, "tag").records)
    monkeypatch.setattr("dolma_dask.journal.REMEMBERED_BYTES", 1)
    packed = Journal(root, "tag").records
    assert dict(packed) == plain == {item.unit: item for item in made}
    assert {path: item.unit for path, item in Journal(root, "tag").by_file().items()} == {
        file.path: item.unit for item in made for file in item.files
    }


def test_of_several_journals_the_newest_record_of_a_file_counts(root: str) -> None:
    made = {
        "tag": {"a": 1.0, "b": 3.0, "c": 1.0},
        "dedupe": {"b": 2.0, "c": 2.0, "d": 1.0},
        "attach": {"c": 2.0},  # as new as another: the last one that is looked at
    }
    for verb, units in made.items():
        Journal(root, verb).append(*(record(u, at, files=(FileRecord(u, 1, ""),)) for u, at in units.items()))
    written = Written.of([Journal(root, verb) for verb in made])
    newest = {"a": ("tag", 1.0), "b": ("tag", 3.0), "c": ("attach", 2.0), "d": ("dedupe", 1.0)}
    assert {path: (verb, one.finished) for path, (verb, one) in written.items()} == newest
    assert len(written) == len(newest)
    assert sorted(written.makers()) == sorted((path, *of) for path, of in newest.items())
    assert written.get("e") is None
    assert [*written.below("b")] == ["b"]


def test_records_are_packed_when_they_are_very_many(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dolma_dask.journal.kept.UNPACKED", 3)
    records = Journal(root, "tag").records
    made = [record(unit, finished=1.0 + at, rows=at) for at, unit in enumerate("0123434")]
    for item in made:
        records.add(item)
    newest = {item.unit: item for item in made}
    assert dict(records) == newest
    assert {unit: records.finished(unit) for unit in records} == {
        unit: newest[unit].finished for unit in newest
    }
    records.add(record("0", finished=0.5))
    assert records["0"] == made[0]
    assert all(records[unit] is not records[unit] for unit in records), "each is decoded when it is looked at"
