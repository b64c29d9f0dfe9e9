"""Several exchanges in one job, one after another, each under names of its own: stopped anywhere, nothing is done twice and nothing is left on disk."""

from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from dolma_dask.engine import Ran, Task, run_job, work_dir
from dolma_dask.errors import DataError, StageError
from dolma_dask.exchange import Emitted, Limits, passes
from dolma_dask.options.groups import RunOptions
from dolma_dask.testing.exchange import Collected, ExchangeJob

HERE = RunOptions(scheduler="synchronous", progress=False)
LIMITS = Limits(range=400, segment=200, chunk=100, buckets=8)
KEYS = np.dtype([("key", "<u8"), ("docno", "<u8")])
EDGES = np.dtype([("low", "<u8"), ("high", "<u8")])
GROUPS, TASKS, DOCUMENTS = 3, 4, 40
SPREAD = 0x9E3779B97F4A7C15


def key_of(group, docno):
    return (docno % (7 + group)) * SPREAD % 2**64


@dataclass(frozen=True)
class Keys:
    """Emits a key for each document of a task, in one group; notes what it did and which files it found."""

    group: int
    seen: list
    broken: set
    dtype: np.dtype = KEYS

    def emit(self, task, out, folder):
        self.seen.append((f"keys-{self.group}", task.shard))
        if (f"keys-{self.group}", task.shard) in self.broken:
            raise DataError("broken")
        left = {path.parent.name for path in Path(folder).glob("*/*.bin")} - {f"keys-{self.group}"}
        assert left <= {f"edges-{number}" for number in range(self.group)}, "keys of earlier groups are gone"
        docnos = range(task.work, DOCUMENTS, TASKS)
        out(np.array([(key_of(self.group, docno), docno) for docno in docnos], KEYS))
        return Emitted((), len(docnos))


@dataclass(frozen=True)
class Edges:
    """Gives an edge from the first document of a key to each of the others."""

    name: str
    seen: list
    broken: set
    dtype: np.dtype = EDGES

    def reduce(self, runs, out):
        rows = [row for run in runs for row in run.tolist()]
        self.seen.append((self.name, rows[0][0]))
        if self.name in self.broken:
            raise DataError("broken")
        firsts = {}
        edges = [(firsts.setdefault(key, docno) << 58, docno) for key, docno in rows]
        out(np.array([edge for edge in edges if edge[0] >> 58 != edge[1]], EDGES))
        return {}


@dataclass(frozen=True)
class All:
    """Returns all records."""

    seen: list
    broken: set
    dtype: None = None

    def reduce(self, runs, out):
        if "all" in self.broken:
            raise DataError("broken")
        return {"rows": [[low >> 58, high] for run in runs for low, high in run.tolist()]}


class SeveralJob(ExchangeJob, frozen=True):
    """Edges of all groups, group by group, and then together."""

    seen: list = msgspec.field(default_factory=list)
    broken: set = msgspec.field(default_factory=set)

    def passes(self, work, known):
        parts = []
        for group in range(GROUPS):
            notes = self.seen, self.broken
            staged = yield from passes.scatter(
                work, Keys(group, *notes), self.tasks, name=f"keys-{group}", limits=LIMITS
            )
            reducer = Edges(f"edges-{group}", *notes)
            reduced = yield from passes.reduce(work, reducer, staged, name=f"edges-{group}", limits=LIMITS)
            parts.append(reduced.staged)
        together = replace(parts[0], others=tuple(parts[1:]))
        done = yield from passes.reduce(work, All(*notes), together, name="all", limits=LIMITS)
        value = [row for info in done.infos for row in info["rows"]]
        return Ran(Collected(self.verb, self.root, value=value), {})


def job(root, *broken):
    tasks = [Task(f"task {number}", (), (), number) for number in range(TASKS)]
    return SeveralJob(str(root), None, tasks, None, 1, None, broken=set(broken))


def expected():
    edges = []
    for group in range(GROUPS):
        firsts = {}
        for docno in range(DOCUMENTS):
            low = firsts.setdefault(key_of(group, docno), docno)
            edges += [[low, docno]] if low != docno else []
    return sorted(edges)


def test_groups_one_after_another(tmp_path):
    assert run_job(job(tmp_path), HERE).value == expected()
    assert list(tmp_path.rglob("*")) == []


STOPS = [
    *[(f"keys-{group}", f"task {task}") for group in range(GROUPS) for task in (0, 3)],
    *[f"edges-{group}" for group in range(GROUPS)],
    "all",
]


@pytest.mark.parametrize("stop", STOPS, ids=str)
def test_going_on_where_it_stopped(tmp_path, stop):
    first, second = job(tmp_path, stop), job(tmp_path)
    with pytest.raises(StageError):
        run_job(first, HERE)
    assert run_job(second, HERE).value == expected()
    done = {one for one in first.seen if one[0] not in first.broken and one not in first.broken}
    assert not done & set(second.seen), "nothing is done twice"
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize("name", ["edges-0/000000.bin", "edges-2/000001.bin"])
def test_damaged_edges_of_any_group_are_made_again(tmp_path, name):
    first, second = job(tmp_path, "all"), job(tmp_path)
    with pytest.raises(StageError):
        run_job(first, HERE)
    path = Path(work_dir(first).url) / name
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)
    assert run_job(second, HERE).value == expected()
    assert list(tmp_path.rglob("*")) == []
