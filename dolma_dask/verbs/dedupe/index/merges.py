"""The table of what meets in an index: which documents of a new dataset have a survivor in an earlier one, and which earlier ones they connect."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash
from msgspec import Struct

from dolma_dask.engine import Task
from dolma_dask.errors import CorruptFileError
from dolma_dask.exchange import ShardRecords
from dolma_dask.exchange.contract import ROW_BITS
from dolma_dask.io import files
from dolma_dask.io.records import FileRecord
from dolma_dask.sinks.base import GroupedTable
from dolma_dask.text.kernels import Words
from dolma_dask.verbs.dedupe.fuzzy.clusters import GROUP_ROWS, NOWHERE

_PATHS = ["dataset", "shard", "old_dataset", "old_shard"]

_SCHEMA = pa.schema(
    [
        ("dataset", pa.large_string()),
        ("shard", pa.large_string()),
        ("row", pa.int64()),
        ("old_dataset", pa.large_string()),
        ("old_shard", pa.large_string()),
        ("old_row", pa.int64()),
    ]
)
"""A document, and the one that stands for it in an earlier dataset; datasets as seen from the index."""


class IndexedShards(Struct, frozen=True):
    """The shards of a dataset in an index."""

    first: int  # number of the first
    count: int
    dataset: str
    root: str  # of the index
    file: FileRecord  # with the path, the stored bytes and the checksum of each
    hint: str  # what to do if it is damaged

    def listing(self) -> list[tuple[str, int, str]]:
        """Return path, stored bytes and checksum of all shards."""
        url = files.join(self.root, self.file.path)
        stored = files.read_bytes(url)
        if xxhash.xxh3_128_hexdigest(stored) != self.file.checksum:
            raise CorruptFileError(
                f"{url} is damaged: found another checksum; expected the file as it was written. {self.hint}",
                url=url,
            )
        return msgspec.json.decode(stored, type=list[tuple[str, int, str]])


class MergeTable(Struct, frozen=True):
    """Writes the table of a segment; see `dolma_dask.engine.Gather`."""

    root: str  # of the index
    path: str
    records: ShardRecords  # of the new dataset, with the location of the ``old`` survivor
    datasets: tuple[IndexedShards, ...]  # in the order of their shards, the new one last
    verb: str = "dedupe-merges"

    def run_shard(self, task: Task) -> tuple[FileRecord, int, str]:
        """Write the table; returns the file, how many documents of the new dataset it names, and the earlier dataset that has the survivors of all of these."""
        new, known, holders = np.uint64(self.datasets[-1].first << ROW_BITS), 0, set[int]()
        with GroupedTable(self.root, self.path, _SCHEMA, GROUP_ROWS, use_dictionary=_PATHS) as writer:
            places = _Places(self.datasets)
            for locations, olds in self.pairs():
                writer.write([*places.columns(locations), *places.columns(olds)])
                is_new = locations >= new
                known += int(np.count_nonzero(is_new))
                holders |= places.datasets(olds[is_new])
        return writer.record, known, self.datasets[holders.pop()].dataset if len(holders) == 1 else ""

    def pairs(self) -> Iterator[tuple[Words, Words]]:
        """Yield the locations of documents (n,), and those of the documents that stand for them (n,)."""
        new = self.datasets[-1]
        first = np.uint64(new.first << ROW_BITS)
        for number in range(new.count):
            for records in self.records.chunks_of_shard(number):
                known = records[records["old"] != NOWHERE]
                if len(known):
                    yield known["location"] + first, known["old"].copy()


class _Places:
    """Datasets, shards and rows of locations."""

    def __init__(self, datasets: Sequence[IndexedShards]) -> None:
        self._datasets = datasets
        self._starts = np.array([one.first for one in datasets], np.int64)
        self._paths: dict[int, list[str]] = {}

    def datasets(self, locations: Words) -> set[int]:
        """Return the numbers of the datasets of locations."""
        return set(np.unique(self._of(_shards(locations))).tolist())

    def columns(self, locations: Words) -> list[pa.Array]:
        """Return the dataset, shard and row of each location."""
        shards = _shards(locations)
        rows = (locations & np.uint64((1 << ROW_BITS) - 1)).astype(np.int64)
        of = self._of(shards)
        distinct, at = np.unique(shards, return_inverse=True)
        paths = [self._path(shard) for shard in distinct.tolist()]
        names = [one.dataset for one in self._datasets]
        return [_taken(names, of), _taken(paths, at), pa.array(rows)]

    def _of(self, shards: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.searchsorted(self._starts, shards, "right") - 1

    def _path(self, shard: int) -> str:
        of = int(np.searchsorted(self._starts, shard, "right")) - 1
        if of not in self._paths:
            self._paths[of] = [path for path, _, _ in self._datasets[of].listing()]
        return self._paths[of][shard - int(self._starts[of])]


def _shards(locations: Words) -> npt.NDArray[np.int64]:
    return (locations >> np.uint64(ROW_BITS)).astype(np.int64)


def _taken(values: list[str], at: npt.NDArray[Any]) -> pa.Array:
    return pa.array(values, pa.large_string()).take(pa.array(at))
