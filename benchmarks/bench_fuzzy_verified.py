"""Fuzzy deduplication with verification, as one command: from signatures of millions of documents to clusters and flags that are known.

Run ``python -m benchmarks.bench_fuzzy_verified --documents 16e6``; ``--kill 2`` kills so many workers in each pass, and the command itself (`benchmarks.deaths`). Signatures
of 16 values, in files as `dedupe` writes them, come from a seeded function; documents are empty files of the same names, since nothing but signatures is read. The world is that of
`benchmarks.bench_fuzzy_scale`. Any two members of a cluster agree in 12 values or 14, and 12 make a duplicate. Those of a chain share two of four bands with either neighbour, 8
values, and have to be kept apart. The table of clusters is compared with the world, and so is the number of flags.
"""

import argparse
import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec.structs import replace

from benchmarks.bench_exchange import named_bytes
from benchmarks.bench_fuzzy_scale import World, check, is_chain, locate, make_world, pair_in_chain
from benchmarks.corpus import BUILD
from benchmarks.deaths import observe
from benchmarks.harness import environment
from dolma_dask.engine import Input, Plan, Unit, inputs_of, run
from dolma_dask.engine.map import Map
from dolma_dask.exchange.flag_rows import FlagRows
from dolma_dask.formats.layout import clusters_path
from dolma_dask.io import files
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.io.records import InputRecord
from dolma_dask.io.stream import MAX_RECORD_BYTES
from dolma_dask.minhash.schemes import SIGNED, MinHash, Signatures
from dolma_dask.options.groups import RunOptions
from dolma_dask.sinks.sink import ShardFacts
from dolma_dask.text.bits import mix
from dolma_dask.text.kernels import Counts, Int, kernel
from dolma_dask.verbs.dedupe.fuzzy.signatures import GROUP_ROWS, SignatureOutput, folder_of, signature_key

VALUES, BANDS = 16, 4
"""Values of a signature, and bands of four of them."""

CHANGED = 2
"""Values of one band in which a member differs from its cluster."""

SIMILARITY = 0.75

ROWS = 1 << 17
"""Documents of a shard."""

_VALUE, _OWN = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1B54A32D192ED03)


@kernel
def fill_signatures(first: Int, factor: Int, documents: Int, starts: Counts, values: Any) -> None:
    """Write the signatures of neighbouring documents; `values` has a row for each."""
    for row in range(values.shape[0]):
        docno = first + row
        level, cluster, member = locate(starts, docno * factor % documents)
        changed = mix(np.uint64(docno) ^ _OWN) % np.uint64(BANDS)
        for at in range(VALUES):
            band = at // (VALUES // BANDS)
            common = mix(np.uint64(docno))  # with nobody
            if level >= 0 and is_chain(level, cluster):
                common = pair_in_chain(cluster, member, band)
            elif level >= 0 and (np.uint64(band) != changed or at % (VALUES // BANDS) >= CHANGED):
                common = np.uint64(cluster) * _OWN
            values[row, at] = np.uint32(mix(common + np.uint64(at + 1) * _VALUE) >> np.uint64(32))


@dataclass(frozen=True)
class WorldRows:
    """Documents of a shard with their signatures; nothing is read. See `dolma_dask.engine.map.Source`."""

    world: World
    name: str
    inputs: tuple[Input, ...]
    first: int  # document
    last: int  # behind its last document

    def read(self, columns: Any, policy: Any, quarantine: Any, facts: ShardFacts) -> Iterator[Any]:
        """Yield rows with their signatures."""
        for begin in range(self.first, self.last, GROUP_ROWS):
            yield self._rows(begin, min(begin + GROUP_ROWS, self.last))
        facts.inputs = tuple(
            InputRecord(one.info.path, one.info.bytes, one.info.stamp, "") for one in self.inputs
        )
        facts.counts = {"documents_in": float(self.last - self.first)}

    def _rows(self, first: int, last: int) -> tuple[FlagRows, Signatures]:
        count = last - first
        values = np.empty((count, VALUES), np.uint32)
        fill_signatures(first, self.world.factor, self.world.documents, self.world.levels, values)
        ids = pc.cast(pa.array(np.arange(first, last)), pa.large_string())
        sources, lengths = pa.array(["world"] * count, pa.large_string()), np.full(count, 1000)
        rows = FlagRows(first - self.first, ids, sources, lengths, lengths, {})
        return rows, Signatures(values, np.full(count, SIGNED, np.uint8))


def make(world: World, root: Path) -> None:
    """Write the signatures of all documents, and their record."""
    names = [f"{number:05d}.jsonl.gz" for number in range(-(-world.documents // ROWS))]
    (root / "documents").mkdir(parents=True)
    for name in names:
        (root / "documents" / name).touch()
    minhash = MinHash(num_perm=VALUES)
    key = signature_key(minhash, None, MAX_RECORD_BYTES)
    listed = {info.path: info for info in files.list_files(str(root / "documents"))}
    stage: Map[Any] = Map((SignatureOutput(str(root), minhash),), RecordPolicy(), "signatures")
    tasks = []
    for number, name in enumerate(names):
        inputs = inputs_of(str(root), [replace(listed[name], path=f"documents/{name}")])
        first = number * ROWS
        source = WorldRows(world, name, inputs, first, min(first + ROWS, world.documents))
        tasks.append(stage.task(source, Unit(f"{folder_of(minhash)}/{name}.parquet", key)))
    plan = Plan(stage, str(root), tasks, minhash.params(), (f"{folder_of(minhash)}/",))
    run(plan, RunOptions(scheduler="processes", progress=False))


def parents(world: World, root: Path, name: str) -> Any:
    """Return the first document of each one's cluster, as the table of clusters says."""
    parent = np.arange(world.documents)
    for members in _batches(root / clusters_path(name)):
        found = _docnos(members, "shard", "row")
        parent[found] = _docnos(members, "cluster_shard", "cluster_row")
        assert (np.asarray(members["survivor"]) == (parent[found] == found)).all()
    return parent


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(columns=["cluster_shard", "cluster_row", "shard", "row", "survivor"])


def _docnos(members: pa.RecordBatch, shard: str, row: str) -> Any:
    numbers = pc.cast(pc.utf8_slice_codeunits(members[shard], 0, 5), pa.int64())
    return np.asarray(numbers) * ROWS + np.asarray(members[row])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--documents", type=float, default=1e6)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kill", type=int, default=0, help="deaths of workers in each pass")
    parser.add_argument("--seed", type=int, default=1, help="of these deaths")
    given = parser.parse_args()
    world, root, started = make_world(int(given.documents)), BUILD / "scratch" / "verified", time.monotonic()
    shutil.rmtree(root, ignore_errors=True)
    make(world, root)
    print(
        f"{world.documents:,} documents, {world.components(False):,} components, the largest of {1 << (len(world.starts) - 1):,}; "
        f"signatures {named_bytes(root) / 1e6:,.0f} MB, written in {time.monotonic() - started:.0f} s"
    )
    shape = (
        f"--num-perm {VALUES} --num-bands {BANDS} --rows-per-band {VALUES // BANDS} --similarity {SIMILARITY}"
    )
    words = (
        f"dedupe {root} --how fuzzy --name near {shape} --scheduler cluster --workers {given.workers} --json"
    )
    observed = observe(words.split(), root, given.kill, given.seed, environment(), BUILD / "scratch" / "logs")
    check(world, parents(world, root, "near"), chains=False)
    counts = json.loads(observed.output[observed.output.index("{") :])["counts"]
    assert counts["duplicates"] == world.documents - world.components(False), counts
    print("\n".join(observed.rows()))
    shutil.rmtree(root)


if __name__ == "__main__":
    from benchmarks import bench_fuzzy_verified

    bench_fuzzy_verified.main()  # processes find the kernels by the name of this module
