"""The exchange in one process, against grouping in a dict; stopped, damaged and changed in every pass."""

import dataclasses
import os
import pickle
import tracemalloc
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from thorough import examples
from unsealed import unsealed

from dolma_dask.engine import Task, inputs_of, run_job, work_dir
from dolma_dask.errors import (
    CorruptFileError,
    DataError,
    DiskFullError,
    DolmaDaskError,
    StageError,
    UsageError,
)
from dolma_dask.exchange import Emitted, Exchanged, Limits, passes, staged
from dolma_dask.io import files
from dolma_dask.io.publish import publish
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.options.groups import RunOptions
from dolma_dask.testing.exchange import ExchangeJob

HERE = RunOptions(scheduler="synchronous", progress=False)
THREADS = RunOptions(scheduler="threads", workers=3, progress=False)
LONG = np.dtype([("hi", "<u8"), ("lo", "<u8"), ("location", "<u8")])
SHORT = np.dtype([("key", "<u8"), ("location", "<u8"), ("weight", "<u8")])
SIGNED = np.dtype([("location", "<u8"), *((f"word{number}", "<u8") for number in range(65))])
OUT = np.dtype([("location", "<u8"), ("size", "<u8"), ("rank", "<u8")])
SPREAD = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class FromFile:
    """Emits the records in a file, some at a time, and keeps a side file."""

    dtype: np.dtype = LONG
    sizes: tuple[int, ...] = (7, 1, 30)
    seen: list = field(default_factory=list)
    broken: set = field(default_factory=set)

    def emit(self, task, out, folder):
        self.seen.append(task.shard)
        if task.shard in self.broken:
            raise DataError(f"{task.shard} is broken")
        (item,) = task.inputs
        data = files.read_bytes(item.url)
        records = np.frombuffer(data, self.dtype)
        done = 0
        for number in range(len(records) + 1):
            size = self.sizes[number % len(self.sizes)]
            out(records[done : done + size])
            done += size
            if done >= len(records):
                break
        path = f"side/{task.shard}.bin"
        with publish(files.join(folder, path)) as side:
            side.write(data[:16])
        stored = InputRecord(item.info.path, item.info.bytes, item.info.stamp, files.checksum(item.url))
        return Emitted(
            (stored,),
            len(records),
            {"documents_in": len(records)},
            {"name": task.shard, "work": task.work},
            (FileRecord(path, side.bytes, side.checksum),),
        )


@dataclass(frozen=True)
class Rank:
    """Tells for each place how many records have its key, and which of them it is."""

    key_words: int = 2
    dtype: np.dtype | None = OUT
    chunks: list = field(default_factory=list)
    broken_after: list = field(default_factory=list)

    def reduce(self, runs, out):
        if self.broken_after and len(self.chunks) >= self.broken_after[0]:
            raise DataError("the reducer is broken")
        rows = (row for run in self._watched(runs) for row in run.tolist())
        keys = count = 0
        for _, group in groupby(rows, key=lambda row: row[: self.key_words]):
            members = list(group)
            keys, count = keys + 1, count + len(members)
            if self.dtype is not None:
                places = sorted(row[self.key_words] for row in members)
                out(np.array([(place, len(members), at) for at, place in enumerate(places)], OUT)[::-1])
        return {"keys": keys, "records": count}

    def _watched(self, runs):
        last = None
        self.chunks.append(0)
        for run in runs:
            rows = run.tolist()
            assert rows == sorted(rows)
            assert rows
            assert last is None or last <= rows[0]
            last = rows[-1]
            self.chunks[-1] += 1
            yield run


@dataclass(frozen=True)
class World:
    """Records of some shards, in files."""

    root: str
    shards: tuple
    dtype: np.dtype = LONG

    def write(self, number, rows=None):
        rows = self.shards[number] if rows is None else rows
        with publish(f"{self.root}/in/{number:03d}") as out:
            out.write(np.array(list(rows), self.dtype).tobytes())

    def write_all(self):
        for number in range(len(self.shards)):
            self.write(number)
        return self

    def tasks(self):
        infos = [replace(info, path=f"in/{info.path}") for info in files.list_files(f"{self.root}/in")]
        return [Task(Path(info.path).name, (), inputs_of(self.root, [info]), 10) for info in infos]

    def job(
        self, emitter=None, reducer=None, *, shards=None, name="rank", key="k1", shuffle="files", **limits
    ):
        emitter, reducer = emitter or FromFile(self.dtype), reducer or Rank(len(self.dtype.names) - 1)
        count = len(self.shards) if shards is None else shards
        how = shuffle, Limits(**limits), name, key
        return ExchangeJob(self.root, emitter, self.tasks(), reducer, count, hold, *how)

    def run(self, emitter=None, reducer=None, options=HERE, **more) -> Exchanged:
        """Run the exchange and keep its folder."""
        with pytest.raises(HeldError) as caught:
            run_job(self.job(emitter, reducer, **more), options)
        return caught.value.details["exchanged"]

    def work_dir(self, **more):
        return work_dir(self.job(**more))

    @property
    def folder(self) -> str:
        return self.work_dir().url

    def expected(self, key_words=2):
        """The oracle: what `Rank` must give for each shard."""
        groups = defaultdict(list)
        for row in (row for rows in self.shards for row in rows):
            groups[row[:key_words]].append(row[key_words])
        out = defaultdict(list)
        for places in groups.values():
            for rank, place in enumerate(sorted(places)):
                out[place >> 32].append((place, len(places), rank))
        return [sorted(out[number]) for number in range(len(self.shards))]

    def check(self, done, key_words=2):
        found = [done.by_shard.of_shard(number).tolist() for number in range(len(self.shards))]
        assert found == self.expected(key_words)
        chunks = [list(done.by_shard.chunks_of_shard(number, 70)) for number in range(len(self.shards))]
        assert [[row for chunk in of_one for row in chunk.tolist()] for of_one in chunks] == found
        assert all(1 <= len(chunk) <= 2 for of_one in chunks for chunk in of_one), "two records of 24 bytes"
        assert sum(info["records"] for info in done.infos) == sum(map(len, self.shards))
        assert sum(info["keys"] for info in done.infos) == len(
            {row[:key_words] for rows in self.shards for row in rows}
        )


class HeldError(DolmaDaskError):
    """Ends a job before its folder is removed."""


def hold(exchanged):
    raise HeldError("held", exchanged=exchanged)


def some_shards(count=5, rows=40, keys=30):
    """Keys all over the range, each several times and in several shards."""
    draw = np.random.default_rng(3)
    return tuple(
        tuple(
            (int(key) * SPREAD % 2**64, int(key) % 3, number << 32 | row)
            for row, key in enumerate(draw.integers(0, keys, rows))
        )
        for number in range(count)
    )


@pytest.fixture(autouse=True)
def _fast_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def world(tmp_path) -> World:
    return World(str(tmp_path), some_shards()).write_all()


SMALL = {"range": 24 * 20, "segment": 24 * 6}
"""Ten ranges or so, several segments per file."""


def names(folder) -> list[str]:
    return [info.path for info in files.list_files(folder) if not info.path.startswith("_")]


WORD = st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 2), st.integers(0, 7).map(lambda top: top << 61))
LIMITS = st.integers(1, 3000)


@pytest.mark.slow
@settings(max_examples=examples(30))
@given(
    shards=st.lists(st.lists(st.tuples(WORD, st.integers(0, 2**64 - 1)), max_size=25), max_size=4),
    is_long=st.booleans(),
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=3),
    limits=st.tuples(LIMITS, LIMITS, st.sampled_from([2, 16, 1024])),
)
def test_any_records(tmp_path_factory, shards, is_long, sizes, limits):
    dtype, words = (LONG, 2) if is_long else (SHORT, 1)
    rows = tuple(
        tuple(
            (hi, second % 3, number << 32 | row) if is_long else (hi, number << 32 | row, second)
            for row, (hi, second) in enumerate(shard)
        )
        for number, shard in enumerate(shards)
    )
    world = World(str(tmp_path_factory.mktemp("any")), rows, dtype).write_all()
    more = dict(zip(("range", "segment", "buckets"), limits, strict=True))
    done = world.run(FromFile(dtype, tuple(sizes)), Rank(words), **more)
    world.check(done, words)
    world.work_dir().remove()
    assert names(world.root) == [f"in/{number:03d}" for number in range(len(shards))]


def test_local_and_remote(root):
    world = World(root, some_shards()).write_all()
    for options in (HERE, THREADS):
        done = world.run(options=options, **SMALL)
        assert len(done.infos) > 5
        world.check(done)
        world.check(pickle.loads(pickle.dumps(done)))
        world.work_dir().remove()
        assert {info.path.split("/")[0] for info in files.list_files(root)} == {"in"}
    if files.is_local(root):
        assert sorted(path.name for path in Path(root).iterdir()) == ["in"], "no folder stays"


def test_what_the_emitter_says(world):
    done = world.run()
    assert list(done.emitted) == ["000", "001", "002", "003", "004"]
    record = done.emitted["003"]
    assert (record.rows, record.counts, record.info) == (
        40,
        {"documents_in": 40},
        {"name": "003", "work": 10},
    )
    assert [item.path for item in record.inputs] == ["in/003"]
    assert [file.path for file in record.files] == ["side/003.bin"]
    assert Path(world.folder, "side/003.bin").exists()


def test_infos_are_in_the_order_of_keys(world):
    @dataclass(frozen=True)
    class Bounds:
        dtype: None = None

        def reduce(self, runs, out):
            rows = [row for run in runs for row in run.tolist()]
            return {"first": rows[0], "last": rows[-1]}

    infos = world.run(reducer=Bounds(), **SMALL).infos
    assert len(infos) > 5
    assert all(one["last"][:2] < other["first"][:2] for one, other in pairwise(infos))


def test_reducers_without_records(world):
    done = world.run(reducer=Rank(dtype=None))
    assert sum(info["records"] for info in done.infos) == 200
    assert done.by_shard is None
    assert world.run(FromFile(broken={"000"}), Rank(dtype=None)).infos == done.infos, "nothing is done again"


@pytest.mark.parametrize("shards", [(), ((),), ((), (), ())])
def test_no_records_at_all(tmp_path, shards):
    world = World(str(tmp_path), shards).write_all()
    done = world.run()
    assert done.infos == ()
    assert [len(done.by_shard.of_shard(number)) for number in range(3)] == [0, 0, 0]
    assert done.by_shard.of_shard(0).dtype == OUT
    world.work_dir().remove()


@pytest.mark.slow
def test_shards_without_output_and_many_shards(tmp_path):
    """More shards than buckets: neighbours share one; most of them are empty."""
    rows = [() for _ in range(5000)]
    for number in (0, 1, 2, 999, 1000, 3001, 4999):
        rows[number] = (
            (7 * SPREAD % 2**64, 1, number << 32 | 5),
            (number * SPREAD % 2**64, 2, number << 32 | 6),
        )
    world = World(str(tmp_path), tuple(rows))
    with publish(f"{world.root}/in/all") as out:
        out.write(np.array([row for shard in rows for row in shard], LONG))
    for limits in (SMALL, {"range": 24 * 3}):
        done = world.run(**limits)
        world.check(done)
        world.work_dir().remove()


def test_places_outside_of_the_shards(world):
    with pytest.raises(StageError, match=r"a record for bucket 4 was given.*which has 4"):
        world.run(shards=4)


def test_one_key_in_all_records(tmp_path):
    shards = tuple(tuple((5, 5, number << 32 | row) for row in range(300)) for number in range(3))
    world = World(str(tmp_path), shards).write_all()
    reducer = Rank()
    world.check(world.run(FromFile(sizes=(100,)), reducer, **SMALL))
    assert len(reducer.chunks) == 1
    assert reducer.chunks[0] >= 900 // 20, "a key goes on in many chunks of bounded size"


@dataclass(frozen=True)
class Signed:
    """Emits places with what a signature of 128 values takes; ``task.work`` is how many, the last first."""

    dtype: np.dtype = SIGNED

    def emit(self, task, out, folder):
        for start in range(task.work, 0, -100):
            records = np.zeros(100, self.dtype)
            records["location"] = np.arange(start - 100, start)
            records["word64"] = records["location"] * np.uint64(SPREAD)
            out(records)
        return Emitted((), task.work)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_records_of_a_shard(tmp_path):
    """10 MB of one shard in chunks, while a segment has 256 KB."""
    limits = Limits(range=512 << 10, segment=256 << 10, chunk=64 << 10)
    held = []

    def look(done):
        tracemalloc.start()
        try:
            place = 0
            for records in done.by_shard.chunks_of_shard(0, 64 << 10):
                assert (records["location"] == np.arange(place, place + len(records))).all()
                assert (records["word64"] == records["location"] * np.uint64(SPREAD)).all()
                assert records.nbytes <= 64 << 10
                place += len(records)
            held.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        return place

    emitter = Signed()
    tasks = [Task("all", (), (), 20_000)]
    job = ExchangeJob(str(tmp_path), emitter, tasks, passes.PassOn(emitter.dtype), 1, look, limits=limits)
    assert run_job(job, HERE).value == 20_000
    assert held[0] < 600 << 10


def described(record):
    return (record.shard, record.inputs, record.files, record.rows, record.counts, record.info)


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, SMALL])
def test_nothing_is_done_twice(world, more):
    first = world.run(**more)
    emitter, reducer = FromFile(), Rank()
    again = world.run(emitter, reducer, **more)
    assert (emitter.seen, reducer.chunks) == ([], [])
    assert (again.infos, again.by_shard) == (first.infos, first.by_shard)
    assert list(map(described, again.emitted.values())) == list(map(described, first.emitted.values()))
    world.check(again)
    assert len(world.run(emitter, reducer, dataclasses.replace(HERE, overwrite=True), **more).emitted) == 5
    assert len(emitter.seen) == 5


def test_files_of_a_pass_are_removed_after_the_next(world):
    world.run(**SMALL)
    assert {path.split("/")[0] for path in names(world.folder)} == {"shards", "side"}


def test_going_on_after_a_task_of_the_first_pass_failed(world):
    emitter = FromFile(broken={"002"})
    with pytest.raises(
        StageError, match=r"exchange-scatter: 1 of 5 shards failed.*002: DataError: 002 is broken"
    ):
        world.run(emitter)
    emitter.broken.clear()
    emitter.seen.clear()
    world.check(world.run(emitter))
    assert emitter.seen == ["002"]


def stop_reducing(world, after=3):
    """Let the second pass fail after some ranges; return how many there are."""
    reducer = Rank(broken_after=[after])
    with pytest.raises(StageError, match="the reducer is broken") as caught:
        world.run(reducer=reducer, **SMALL)
    return after + len(caught.value.failures)


def test_going_on_in_the_second_pass(world):
    ranges = stop_reducing(world)
    emitter, reducer = FromFile(), Rank()
    world.check(world.run(emitter, reducer, **SMALL))
    assert emitter.seen == []
    assert len(reducer.chunks) == ranges - 3 > 3


def test_going_on_in_the_third_pass(world, monkeypatch):
    write, calls = passes.PassOn.reduce, []

    def stop(*arguments):
        calls.append(1)
        if len(calls) > 2:
            raise DataError("stopped")
        return write(*arguments)

    monkeypatch.setattr(passes.PassOn, "reduce", stop)
    with pytest.raises(StageError, match="exchange-shards: 3 of 5 shards failed"):
        world.run(**SMALL)
    monkeypatch.undo()
    emitter, reducer, counted = FromFile(), Rank(), []
    monkeypatch.setattr(passes.PassOn, "reduce", lambda *all: counted.append(1) or write(*all))
    world.check(world.run(emitter, reducer, **SMALL))
    assert (emitter.seen, reducer.chunks, len(counted)) == ([], [], 3)


def test_a_side_file_that_is_gone(world):
    stop_reducing(world)
    Path(world.folder, "side/001.bin").unlink()
    emitter = FromFile()
    world.check(world.run(emitter, **SMALL))
    assert emitter.seen == ["001"]


@pytest.mark.parametrize("damage", ["gone", "short", "changed"])
def test_damaged_records_are_made_again(world, damage):
    stop_reducing(world)
    spoil(Path(world.folder, "scatter/000002.bin"), damage)
    emitter, reducer = FromFile(), Rank()
    world.check(world.run(emitter, reducer, **SMALL))
    assert emitter.seen == ["002"]


@pytest.mark.parametrize("changed", ['"histogram":"AAAA', '"histogrbm":"'])
def test_a_damaged_journal_of_a_pass_is_told(world, changed):
    stop_reducing(world)
    journals = Path(world.folder, "_journal").glob("*/*.jsonl")
    for path in journals:
        path.write_text(unsealed(path.read_text()).replace('"histogram":"', changed))
    with pytest.raises(CorruptFileError, match=r"the journal of .* is damaged.*Remove the folder"):
        world.run(FromFile(), Rank(), **SMALL)


def spoil(path: Path, damage: str) -> None:
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "short":
        path.write_bytes(data[:-1])
    else:
        path.write_bytes(bytes([data[0] ^ 1]) + data[1:-1] + data[-1:])


@pytest.mark.parametrize("damage", ["gone", "short", "changed"])
def test_damaged_output_of_the_reducer(world, damage, monkeypatch):
    """The records are gone by then: all is made again."""
    stop_collating(world, monkeypatch)
    spoil(Path(world.folder, "reduce/000001.bin"), damage)
    emitter = FromFile()
    world.check(world.run(emitter, **SMALL))
    assert len(emitter.seen) == 5


def stop_collating(world, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(passes.PassOn, "reduce", lambda *_: 1 / 0)
        with pytest.raises(StageError, match="ZeroDivisionError"):
            world.run(**SMALL)


@pytest.mark.parametrize("phase", ["scatter", "reduce"])
def test_a_straggler_of_an_earlier_call_is_not_believed(world, phase, tmp_path, monkeypatch):
    """It writes files of the same names and sizes, made of what the inputs were before."""
    rows = tuple((row[0], row[1] ^ 1, row[2]) for row in world.shards[1])
    before = World(str(tmp_path / "before"), (world.shards[0], rows, *world.shards[2:])).write_all()
    for one in (before, world):
        stop_reducing(one) if phase == "scatter" else stop_collating(one, monkeypatch)
    theirs, ours = (Path(one.folder, phase) for one in (before, world))
    written = [
        path for path in sorted(theirs.glob("*.bin")) if path.read_bytes() != (ours / path.name).read_bytes()
    ]
    assert written
    for path in written:
        assert path.stat().st_size == (ours / path.name).stat().st_size
        path.replace(ours / path.name)
    world.check(world.run(**SMALL))


def test_a_straggler_after_the_end_is_not_believed(world, tmp_path):
    rows = tuple((row[0], row[1] ^ 1, row[2]) for row in world.shards[1])
    before = World(str(tmp_path / "before"), (world.shards[0], rows, *world.shards[2:])).write_all()
    before.run(**SMALL)
    done = world.run(**SMALL)
    path = Path(before.folder, "shards/000001.bin")
    assert path.read_bytes() != Path(world.folder, "shards/000001.bin").read_bytes()
    path.replace(Path(world.folder, "shards/000001.bin"))
    with pytest.raises(CorruptFileError, match="what another call has written"):
        done.by_shard.of_shard(1)


def test_damaged_result(world):
    done = world.run(**SMALL)
    spoil(Path(world.folder, "shards/000002.bin"), "changed")
    with pytest.raises(CorruptFileError, match=r"shards/000002\.bin is damaged.*run the same command again"):
        done.by_shard.of_shard(2)
    with pytest.raises(CorruptFileError, match="is gone"):
        done.by_shard.of_shard(2)
    world.check(world.run(**SMALL))


def test_damage_that_never_ends_is_an_error(world, monkeypatch):
    def spoiled(*arguments):
        raise CorruptFileError(f"{world.folder}/scatter/000000.bin is damaged")

    monkeypatch.setattr(staged, "read_buckets", spoiled)
    emitter = FromFile()
    with pytest.raises(StageError, match="is damaged"):
        world.run(emitter)
    assert len(emitter.seen) == 2 * 5, "all is made again before the last attempt, once"


@pytest.mark.parametrize("when", ["scattered", "finished"])
def test_a_changed_input(world, when):
    if when == "scattered":
        stop_reducing(world)
    else:
        world.run(**SMALL)
    rows = tuple((row[0], 9, row[2]) for row in world.shards[1])
    changed = dataclasses.replace(world, shards=(world.shards[0], rows, *world.shards[2:]))
    changed.write(1)
    emitter = FromFile()
    changed.check(changed.run(emitter, **SMALL))
    assert emitter.seen == (["001"] if when == "scattered" else ["001", "000", "001", "002", "003", "004"])


def test_a_new_time_stamp_redoes_nothing(world):
    first = world.run(**SMALL)
    os.utime(f"{world.root}/in/001", ns=(1, 10**18))
    emitter = FromFile()
    again = world.run(emitter, **SMALL)
    assert emitter.seen == []
    assert again.infos == first.infos


def test_leftovers_of_other_keys_are_removed(world):
    first, second, other = world.work_dir(), world.work_dir(key="k2"), world.work_dir(name="other")
    world.run()
    world.run(name="other")
    world.run(key="k2")
    assert not Path(first.url).exists()
    assert Path(second.url).exists()
    assert Path(other.url).exists(), "not another name's"
    second.remove()
    other.remove()
    assert [path.name for path in Path(world.root).iterdir()] == ["in"]


def test_a_full_disk(world, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        DolmaDaskError,
        match=r"_work/exchange-rank/.*: No space left on device; expected room for .*Make room and run the same command again",
    ):
        world.run()
    monkeypatch.undo()
    monkeypatch.setattr(passes.BucketWriter, "finish", full)
    with pytest.raises(DiskFullError, match="No space left on device; expected room for"):
        world.run()
    monkeypatch.undo()
    world.check(world.run())


@pytest.mark.parametrize(
    "more, expected",
    [
        ({"emitter": FromFile(np.dtype([("key", "<u4"), ("location", "<u8")]))}, "packed fields of '<u8'"),
        ({"emitter": FromFile(np.dtype("<u8"))}, "cannot be exchanged"),
        ({"reducer": Rank(dtype=LONG)}, "expected 'location' as the first field"),
        ({"shuffle": "tasks"}, "expected 'files' or 'dask'"),
        ({"shuffle": "p2p"}, "expected 'files' or 'dask'; 'p2p' is called 'dask' now"),
        ({"buckets": 1000}, "power of two"),
    ],
)
def test_wrong_arguments(world, more, expected):
    with pytest.raises(UsageError, match=expected):
        world.run(**more)
    assert names(world.root) == [f"in/{number:03d}" for number in range(5)]


def test_two_tasks_of_one_name(world):
    with pytest.raises(UsageError, match="same name"):
        TwiceWorld(world.root, world.shards).run()


class TwiceWorld(World):
    def tasks(self):
        tasks = super().tasks()
        return [*tasks, tasks[0]]


def test_records_of_another_type(world):
    @dataclass(frozen=True)
    class Wrong(FromFile):
        def emit(self, task, out, folder):
            out(np.zeros(3, SHORT))

    with pytest.raises(StageError, match=r"DataError: records of type .*expected a one-dimensional array"):
        world.run(Wrong())


def test_records_given_by_a_reducer_that_announces_none(world):
    @dataclass(frozen=True)
    class Talkative:
        dtype: None = None

        def reduce(self, runs, out):
            out(np.zeros(3, OUT))

    with pytest.raises(StageError, match="gave out 3 records but announces none"):
        world.run(reducer=Talkative())
