"""Bands, edges and components of millions of documents whose clusters are known: CPU, memory and disk of the passes of a fuzzy `dedupe`.

Run ``python -m benchmarks.bench_fuzzy_scale --documents 16e6 --bands 14``. In place of signature files a seeded function gives the band keys of
each document, so that nothing but the exchange is on disk; what the function alone costs is told. 30 % of the documents lie in clusters of a heavy
tail, of 2 to N / 16 members, spread over all shards; a member has the key of its cluster in a third of the bands and in one for certain, the
first member in all. Every fourth cluster is a chain: each member shares keys with its two neighbours alone. So the components are known: each
document's is compared with the cluster it was made in.

Each figure is that of a fresh process, warmed up by a small world. ``--baseline`` adds NumPy's argsort and scipy's connected components over the
same keys: ``bands`` joins band by band, ``edges`` collects the edges of all bands first. ``--workers 2 --memory 4GB`` runs on a LocalCluster; there ``--kill 3`` kills
so many workers in each pass, and then or in between the process that drives them (`benchmarks.deaths`).
"""

import argparse
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from benchmarks.bench_exchange import most_on_disk
from benchmarks.corpus import BUILD, ROOT
from benchmarks.deaths import observe
from benchmarks.harness import cpu_seconds, environment, peak_megabytes
from dolma_dask.engine import Passes, Ran, Task, WorkDir, run_job
from dolma_dask.exchange import Emitted
from dolma_dask.exchange.contract import Records, to_records
from dolma_dask.exchange.passes import reduce, scatter
from dolma_dask.journal import Record
from dolma_dask.minhash.edges import root_bit
from dolma_dask.options.groups import RunOptions
from dolma_dask.processes import WORKER_ENVIRONMENT
from dolma_dask.results.summary import Summary
from dolma_dask.text.bits import mix
from dolma_dask.text.kernels import Counts, Int, Words, kernel
from dolma_dask.verbs.dedupe.fuzzy.edges import KEYS, DocumentLabels, edge_reducer, label_type
from dolma_dask.verbs.dedupe.fuzzy.job import GROUP_BYTES, groups
from dolma_dask.verbs.dedupe.fuzzy.merging import merger_of

IN_CLUSTERS = 0.3
"""Share of the documents that have near copies."""

LARGEST = 16
"""The largest cluster has one of so many documents."""

CHAIN = 3
"""Clusters with this remainder by four are chains."""

BASELINES = "bands", "edges"

TASK = 1 << 20
"""Documents of a task that makes keys."""

BLOCK = 1 << 16
"""Keys that are given to the exchange at once."""

_BAND, _OWN = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1B54A32D192ED03)
_THIRD = np.uint64((1 << 64) // 3)


@dataclass(frozen=True)
class World:
    """Documents and their clusters.

    A document has a place ``(docno * factor) % documents``; clusters are neighbouring places. Level k begins at place ``starts[k]`` and holds clusters of
    ``2 << k`` members; places from ``starts[-1]`` on are alone.
    """

    documents: int
    factor: int
    starts: tuple[int, ...]

    @property
    def levels(self) -> Counts:
        """The first place of each level and of the documents that are alone."""
        return np.array(self.starts, np.int64)

    def components(self, chains: bool = True) -> int:
        """Number of clusters and of documents that are alone; all of a chain are if `chains` do not count."""
        found = self.documents
        for level, (first, last) in enumerate(pairwise(self.starts)):
            clusters = np.arange(first, last, 2 << level) >> (level + 1)
            counted = len(clusters) if chains else int((clusters & 3 != CHAIN).sum())
            found -= counted * ((2 << level) - 1)
        return found


def make_world(documents: int) -> World:
    """Return a world in which level k has a share of the documents that falls by a quarter with each level, one cluster at least."""
    levels = max(int(math.log2(documents / LARGEST)), 1)
    shares = 0.75 ** np.arange(levels)
    counts = documents * IN_CLUSTERS * shares / shares.sum()
    sizes = [
        max(round(count / (2 << level)), 1) * (2 << level) for level, count in enumerate(counts.tolist())
    ]
    factor = int(documents * 0.6180339887) | 1
    while math.gcd(factor, documents) > 1:
        factor += 2
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return World(documents, factor, tuple(starts.tolist()))


@kernel
def fill_records(
    first: Int,
    factor: Int,
    documents: Int,
    starts: Counts,
    bands: Int,
    first_band: Int,
    keys: Words,
    records: Words,
) -> None:
    """Write (key, docno) of as many bands as `keys` (n_bands,) has room for of neighbouring documents; `records` has a row for each."""
    for row in range(records.shape[0] // keys.size):
        docno = first + row
        fill_keys(docno, docno * factor % documents, starts, bands, first_band, keys)
        for band in range(keys.size):
            records[row * keys.size + band, 0] = keys[band]
            records[row * keys.size + band, 1] = np.uint64(docno)


@kernel
def locate(starts: Counts, place: Int) -> tuple[Int, Int, Int]:
    """Level, first place of the cluster and number of the member; level -1 for a document that is alone."""
    if place >= starts[-1]:
        return -1, place, 0
    level = 0
    while place >= starts[level + 1]:
        level += 1
    member = (place - starts[level]) & ((2 << level) - 1)
    return level, place - member, member


@kernel
def is_chain(level: Int, cluster: Int) -> bool:
    """Tell whether members of a cluster share bands with their two neighbours alone."""
    return (cluster >> (level + 1)) & 3 == CHAIN


@kernel
def pair_in_chain(cluster: Int, member: Int, band: Int) -> np.uint64:
    """Return what a member of a chain has in common with a neighbour: the next one of even members in even bands, and of odd ones in odd bands."""
    return mix(np.uint64(cluster + ((member + (band & 1)) >> 1)) + _OWN)


@kernel
def fill_keys(docno: Int, place: Int, starts: Counts, bands: Int, first_band: Int, keys: Words) -> None:
    """Write the keys of a document in neighbouring bands: those of its cluster, of pairs of neighbours in it, or its own.

    Bands differ by numbers alone, without a branch, so that a processor makes several keys at once.
    """
    level, cluster, member = locate(starts, place)
    own, drawn = mix(np.uint64(docno)), mix(np.uint64(docno) ^ _OWN)
    if level < 0:
        for at in range(keys.size):
            keys[at] = mix(np.uint64(first_band + at + 1) * _BAND + own)
    elif is_chain(level, cluster):
        even, odd = pair_in_chain(cluster, member, 0), pair_in_chain(cluster, member, 1)
        for at in range(keys.size):
            band = first_band + at
            keys[at] = mix(np.uint64(band + 1) * _BAND ^ (odd if band & 1 else even))
    else:
        certain, shared = np.int64(drawn % np.uint64(bands)), np.uint64(cluster) * _OWN
        for at in range(keys.size):
            band = first_band + at
            seed = np.uint64(band + 1) * _BAND
            is_shared = (member == 0) | (certain == band) | (mix(drawn + seed) < _THIRD)
            keys[at] = mix(seed ^ shared if is_shared else seed + own)


def keys_of_bands(world: World, bands: int) -> Words:
    """Return the keys of all documents in all bands, (bands, documents)."""
    keys = np.empty((bands, world.documents), np.uint64)
    _fill_bands(world.factor, world.levels, np.empty(bands, np.uint64), keys)
    return keys


@kernel
def _fill_bands(factor: Int, starts: Counts, here: Words, keys: Words) -> None:
    bands, documents = keys.shape
    for docno in range(documents):
        fill_keys(docno, docno * factor % documents, starts, bands, 0, here)
        for band in range(bands):
            keys[band, docno] = here[band]


def check(world: World, parent: Any, chains: bool = True) -> None:
    """Compare components, as the smallest member of each document's, with the clusters of the world; without `chains` all of a chain are alone."""
    assert len(parent) == world.documents
    unit = pow(world.factor, -1, world.documents)
    roots, wrong = _count_roots(parent, world.factor, unit, world.levels, chains)
    assert wrong == 0, f"{wrong:,} documents are not in the component of their cluster"
    expected = world.components(chains)
    assert roots == expected, f"{roots:,} components; expected {expected:,}"


@kernel
def _count_roots(parent: Any, factor: Int, inverse: Int, starts: Counts, chains: bool) -> tuple[Int, Int]:
    """Return the number of components, and of documents that are not with the first member of their cluster or below their smallest member.

    All members with the first of their cluster, and as many components as clusters: the two partitions are one.
    """
    roots, wrong, documents = 0, 0, parent.size
    for docno in range(documents):
        level, cluster, member = locate(starts, docno * factor % documents)
        root = np.int64(parent[docno])
        if level >= 0 and not chains and is_chain(level, cluster):
            cluster += member
        wrong += root != np.int64(parent[cluster * inverse % documents]) or root > docno
        roots += root == docno
    return roots, wrong


def baseline(world: World, bands: int, how: str) -> Any:
    """Return the smallest member of each document's component by NumPy and scipy."""
    everyone = np.arange(world.documents, dtype=np.int32)
    stars = []
    first = everyone
    for keys in keys_of_bands(world, bands):
        stars.append(_stars(keys))
        if how == "bands":
            first = _components(world.documents, [*stars, (first, everyone)])
            stars.clear()
    return _components(world.documents, stars) if how == "edges" else first


def _stars(keys: Words) -> tuple[Any, Any]:
    """Return both ends of an edge from one document of each key to each of the others."""
    order = np.argsort(keys).astype(np.int32)
    keys = keys[order]
    is_same = np.concatenate([[False], keys[1:] == keys[:-1]])
    heads = np.maximum.accumulate(np.where(is_same, 0, np.arange(len(keys))))
    return order[heads[is_same]], order[is_same]


def _components(documents: int, edges: list[tuple[Any, Any]]) -> Any:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    left, right = (np.concatenate(ends) for ends in zip(*edges, strict=True))
    graph = coo_array((np.ones(len(left), np.int8), (left, right)), shape=(documents, documents))
    count, labels = connected_components(graph, directed=False)
    smallest = np.full(count, documents, np.int32)
    smallest[labels[::-1]] = np.arange(documents - 1, -1, -1, dtype=np.int32)
    return smallest[labels]


# ------------------------------------------------------------------------------------------------ the passes of `dedupe`


@dataclass(frozen=True)
class WorldEmitter:
    """Sends the keys of some bands; a task is a range of documents."""

    world: World
    bands: int
    first: int
    last: int
    dtype: np.dtype[Any] = KEYS

    def emit(self, task: Task, out: Callable[[Records], None], folder: str) -> Emitted:
        begin, end = task.work
        keys = np.empty(self.last - self.first, np.uint64)
        step, world = max(BLOCK // keys.size, 1), self.world
        for first in range(begin, end, step):
            records = np.empty((min(step, end - first) * keys.size, 2), np.uint64)
            fill_records(
                first, world.factor, world.documents, world.levels, self.bands, self.first, keys, records
            )
            out(to_records(records, KEYS))
        return Emitted((), end - begin)


@dataclass(frozen=True)
class ScaleJob:
    """The groups of bands of a fuzzy `dedupe`, from keys to labels, which are checked."""

    root: str
    world: World
    bands: int
    group_bytes: int
    merge_bytes: int | None = None
    name: str = "scale"
    key: str = "scale"

    verb: ClassVar[str] = "scale"
    record: ClassVar[None] = None
    writes: ClassVar[Sequence[str]] = ()
    inputs: ClassVar[Sequence[Any]] = ()

    def outputs(self, known: Record | None, overwrite: bool) -> None:
        """Leave it to the passes."""

    def passes(self, work: WorkDir, known: Record | None) -> Passes:
        """Exchange the keys of each group and merge their edges."""
        world = self.world
        merger = yield from merger_of(work, world.documents, False, self.merge_bytes)
        bounds = np.linspace(0, world.documents, -(-world.documents // TASK) + 1).astype(int).tolist()
        tasks = [Task(f"documents {begin}", (), (), (begin, end)) for begin, end in pairwise(bounds)]
        for number, (first, last) in enumerate(groups(self.bands, world.documents, self.group_bytes)):
            before = cpu_seconds(), time.perf_counter()
            emitter = WorldEmitter(world, self.bands, first, last)
            keys = yield from scatter(work, emitter, tasks, name=f"bands-{number}")
            scattered = cpu_seconds(), time.perf_counter()
            reducer = merger.taking(edge_reducer(last - first, keys))
            named = merger.named(f"edges-{number}")
            found = yield from reduce(work, reducer, keys.shared, name=named, cut=merger.cut)
            assert found.staged is not None
            reduced = cpu_seconds(), time.perf_counter()
            edges = found.staged.all.records
            yield from merger.add(found.staged, last == self.bands)
            told = [f"{edges:,} edges"]
            for name, (cpu, wall), (cpu_then, wall_then) in (
                ("scatter", before, scattered),
                ("reduce", scattered, reduced),
                ("merge", reduced, (cpu_seconds(), time.perf_counter())),
            ):
                told.append(f"{name} {cpu_then - cpu:.1f} CPU-s {wall_then - wall:.1f} s")
            print(f"bands {first} to {last - 1}: {', '.join(told)}", file=sys.stderr, flush=True)
        before = cpu_seconds(), time.perf_counter()
        labels = yield from merger.labels()
        cpu, wall = cpu_seconds() - before[0], time.perf_counter() - before[1]
        rounds = getattr(merger, "rounds", 1)
        print(f"labels: {cpu:.1f} CPU-s {wall:.1f} s, {rounds} rounds", file=sys.stderr, flush=True)
        made = Path(self.root, "made.npy")
        _write(made, labels, work.url)
        made.rename(made.with_name("labels.npy"))
        return Ran(Summary(self.verb, self.root), {})

    def summarize(self, ran: Ran, known: Record | None) -> Summary:
        """Return the summary as it is."""
        return ran.summary


def _write(path: Path, labels: DocumentLabels, folder: str) -> None:
    """Write the labels of all documents into one file."""
    kind = label_type(labels.documents)
    shape = {"descr": kind.str, "fortran_order": False, "shape": (labels.documents,)}
    with path.open("wb") as out:
        np.lib.format.write_array_header_1_0(out, shape)
        for first in range(0, labels.documents, 1 << 24):
            labels.read(folder, first, min(1 << 24, labels.documents - first)).tofile(out)


def by_passes(
    world: World, bands: int, group_bytes: int, merge_bytes: int | None, options: RunOptions, root: Path
) -> dict[str, float]:
    """Run the passes, check what they find, and return what they cost."""
    root.mkdir(parents=True, exist_ok=True)
    cpu, wall = cpu_seconds(), time.perf_counter()
    with most_on_disk(root) as disk:
        if not (root / "labels.npy").exists():  # a job without a record would begin anew
            run_job(ScaleJob(str(root), world, bands, group_bytes, merge_bytes), options)
    spent = {"cpu": cpu_seconds() - cpu, "wall": time.perf_counter() - wall, "disk": disk[0] / 1e6}
    spent["peak"] = peak_megabytes()
    labels = np.load(root / "labels.npy", mmap_mode="r+")
    for first in range(0, len(labels), 1 << 24):
        part = labels[first : first + (1 << 24)]
        is_root = (part & root_bit(labels)) != 0
        part[is_root] = np.flatnonzero(is_root) + first
    check(world, labels)
    shutil.rmtree(root)
    return spent


def measure(given: argparse.Namespace) -> dict[str, float]:
    """Run one way in this process; the small world before it is not counted."""
    scratch = Path(given.root or BUILD / "scratch" / f"scale-{os.getpid()}")
    for documents in (int(given.documents),) if given.root else (100_000, int(given.documents)):
        world = make_world(documents)
        extra: dict[str, float] = {}
        cpu, wall = cpu_seconds(), time.perf_counter()
        if given.way == "keys":
            keys_of_bands(world, given.bands)
        elif given.way == "passes":
            extra = _passes(world, given, scratch)
        else:
            found = baseline(world, given.bands, given.way)
        spent = cpu_seconds() - cpu, time.perf_counter() - wall
        if given.way in BASELINES:
            check(world, found)
    return {"cpu": spent[0], "wall": spent[1], "peak": peak_megabytes(), **extra}


def peak_of_children() -> float:
    """Largest resident memory of one of the processes that have ended, in MB."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6


def _passes(world: World, given: argparse.Namespace, root: Path) -> dict[str, float]:
    if not given.root:
        shutil.rmtree(root, ignore_errors=True)
    if not given.workers:
        options = RunOptions(scheduler="synchronous", progress=False)
        return by_passes(world, given.bands, given.group_bytes, given.merge_bytes, options, root)
    import dask
    from distributed import Client, LocalCluster

    kept = {**dask.config.get("distributed.nanny.pre-spawn-environ", {}), **WORKER_ENVIRONMENT}
    with (
        dask.config.set({"distributed.nanny.pre-spawn-environ": kept}),
        LocalCluster(
            n_workers=given.workers, threads_per_worker=1, memory_limit=given.memory, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        options = RunOptions(scheduler=client.scheduler.address, progress=False)
        spent = by_passes(world, given.bands, given.group_bytes, given.merge_bytes, options, root)
    # workers have ended now: the largest of them
    counted = {name: value for name, value in spent.items() if name not in ("cpu", "peak")}
    return {**counted, "worker": peak_of_children()}


def with_deaths(given: argparse.Namespace) -> None:
    """Run the passes while workers and their driver are killed, and tell what it cost; the last driver checks the components."""
    root = BUILD / "scratch" / "scale-killed"
    shutil.rmtree(root, ignore_errors=True)
    script = str(ROOT / "benchmarks" / "bench_fuzzy_scale.py")
    words = [script, *sys.argv[1:], "--way", "passes", "--root", str(root)]
    observed = observe(words, root, given.kill, given.seed, environment(), BUILD / "scratch" / "logs")
    print("\n".join(observed.rows()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--documents", type=float, default=1e6)
    parser.add_argument("--bands", type=int, default=14)
    parser.add_argument("--group-bytes", type=int, default=GROUP_BYTES)
    parser.add_argument("--merge-bytes", type=int, help="that one array may take; default: half of a worker")
    parser.add_argument("--workers", type=int, default=0, help="of a LocalCluster; 0: in this process")
    parser.add_argument("--memory", default="4GB", help="limit of a worker")
    parser.add_argument("--baseline", nargs="*", default=[], choices=BASELINES)
    parser.add_argument("--kill", type=int, default=0, help="deaths of workers in each pass")
    parser.add_argument("--seed", type=int, default=1, help="of these deaths")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    parser.add_argument("--root", help=argparse.SUPPRESS)  # where a run that was killed goes on
    given = parser.parse_args()
    if given.way:
        print(json.dumps(measure(given)))
        return
    if given.kill:
        with_deaths(given)
        return
    world = make_world(int(given.documents))
    largest = 1 << (len(world.starts) - 1)
    print(
        f"{world.documents:,} documents, {given.bands} bands, {world.components():,} components, the largest of {largest:,}"
    )
    print("| | CPU-s | wall s | peak MB | disk MB | M keys per CPU-s |\n|---|---|---|---|---|---|")
    for way in ("keys", *given.baseline, "passes"):
        command = [sys.executable, "-m", "benchmarks.bench_fuzzy_scale", *sys.argv[1:], "--way", way]
        done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, text=True, check=True)
        spent = json.loads(done.stdout.splitlines()[-1])
        keys = world.documents * given.bands / 1e6 / spent["cpu"]
        print(
            f"| {way} | {spent['cpu']:.1f} | {spent['wall']:.1f} | {spent['peak']:.0f} | {spent.get('disk', 0):.0f} | {keys:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
