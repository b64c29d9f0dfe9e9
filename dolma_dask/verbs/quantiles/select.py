"""The second part of `quantiles`: one task per signal reads the kept values, as often as it takes, and writes the quantiles of all groups.

A signal of 10^9 values is 8 GB to read two to three times, at some 10 ns of CPU per value. Memory: see `dolma_dask.verbs.quantiles.order_statistics`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from dolma_dask.engine import Input, Task, Unit
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.publish import publish
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.journal import Record
from dolma_dask.rules.groups import ALL, LabelKind, spelled, value_of
from dolma_dask.rules.ordered_bits import Extents, values_of
from dolma_dask.rules.quantile_table import Entry, entry, interpolated, ranks_of
from dolma_dask.verbs.quantiles.files import ValueFile
from dolma_dask.verbs.quantiles.order_statistics import Block, order_statistics

RESULTS = "results"
"""Folder of the quantiles of each signal."""

INDEX = "index.json"


class Index(msgspec.Struct, frozen=True):
    """All files of the first pass, and the labels of all groups, in the order of their values."""

    labels: tuple[str, ...]
    kept: tuple[FileRecord, ...]


def write_index(folder: str, records: Sequence[Record], kind: LabelKind) -> Input:
    """Write the index of the files of the first pass, and return it as the input of the tasks that follow."""
    labels = {label for record in records for label in record.info["labels"]}
    names = sorted(labels, key=lambda label: (value_of(label, kind), label))
    kept = tuple(
        FileRecord(file.path, file.bytes, record.info["checksum"])
        for record in records
        for file in record.files
    )
    url = files.join(folder, INDEX)
    data = msgspec.json.encode(Index(tuple(names), kept))
    known = files.stat(url)
    if known is None or files.read_bytes(url) != data:
        with publish(url) as out:
            out.write(data)
    info = files.stat(url)
    return Input(url, FileInfo(INDEX, len(data), info.stamp if info else ""))


def select_tasks(signals: Sequence[str], index: Input, key: str) -> list[Task]:
    """Return a task for each signal."""
    return [
        Task(name, (Unit(f"{RESULTS}/{number:05d}.json", key),), (index,), number)
        for number, name in enumerate(signals)
    ]


def read_entries(folder: str, result: FileRecord) -> dict[str, Entry]:
    """Return the quantiles of a signal as `SelectStage` wrote them."""
    url = files.join(folder, result.path)
    data = files.read_bytes(url)
    checksum = xxhash.xxh3_128_hexdigest(data)
    if checksum != result.checksum:
        raise files.damaged(url, f"checksum {checksum}, not {result.checksum}")
    return msgspec.json.decode(data, type=dict[str, Any])


@dataclass(frozen=True)
class SelectStage:
    """Finds the quantiles of one signal in its kept values."""

    folder: str  # of the staging files
    probabilities: tuple[float, ...]  # ascending
    verb: str = "quantiles"

    def run_shard(self, task: Task) -> list[Record]:
        """Find the quantiles of a signal; see `dolma_dask.engine.Stage`."""
        unit, (source,) = task.units[0], task.inputs
        data = files.read_bytes(source.url)
        index = msgspec.json.decode(data, type=Index)
        entries = self._entries(index, task.work)
        with publish(files.join(self.folder, unit.name)) as out:
            out.write(msgspec.json.encode(entries))
        read = InputRecord(INDEX, len(data), source.info.stamp, xxhash.xxh3_128_hexdigest(data))
        return [
            Record(
                unit.name, task.shard, unit.key, (read,), (FileRecord(unit.name, out.bytes, out.checksum),)
            )
        ]

    def _entries(self, index: Index, signal: int) -> dict[str, Entry]:
        values = SignalValues.open(self.folder, index, signal)
        extents = values.extents
        ranks = [ranks_of(int(count), self.probabilities) for count in extents.counts[:, 0]]
        keys = order_statistics(values.blocks, extents, ranks)
        entries = [self._entry(extents, row, ranks[row], values_of(one)) for row, one in enumerate(keys)]
        names = [ALL, *map(spelled, index.labels)]
        if values.is_one_group:  # all rows are in it, and nothing was counted twice
            return dict.fromkeys(names, entries[0])
        return dict(zip(names, entries, strict=True))

    def _entry(
        self, extents: Extents, row: int, ranks: npt.NDArray[np.int64], values: npt.NDArray[np.float64]
    ) -> Entry:
        count, nulls, _ = extents.counts[row].tolist()
        low, high = values_of(extents.bounds[row]).tolist()
        quantiles = interpolated(count, self.probabilities, ranks, values)
        return entry(count, nulls, (low, high) if count else None, self.probabilities, quantiles)


@dataclass(frozen=True, eq=False)
class SignalValues:
    """The kept values of one signal."""

    kept: tuple[ValueFile, ...]  # the files
    # for each file, code to row: 0 stands for all documents, and for those without a label
    row_of: tuple[npt.NDArray[np.uint16], ...]
    signal: int  # its number
    extents: Extents  # of each row; one row alone if all documents have the same label
    is_one_group: bool

    @classmethod
    def open(cls, folder: str, index: Index, signal: int) -> "SignalValues":
        """Read the ends of all files."""
        kept = tuple(ValueFile.open(folder, one) for one in index.kept)
        rows = {label: row for row, label in enumerate(index.labels, 1)}
        row_of = tuple(np.array([0, *(rows[label] for label in one.tail.labels)], np.uint16) for one in kept)
        extents = Extents.empty(len(rows) + 1)
        for one, codes in zip(kept, row_of, strict=True):
            extents.add(one.extents(signal), codes.astype(np.int64))
        is_one_group = len(rows) == 1 and not extents.counts[0].any()
        total = extents.total()
        extents.counts[0], extents.bounds[0] = total.counts[0], total.bounds[0]
        if is_one_group:
            extents = total
        return cls(kept, row_of, signal, extents, is_one_group)

    def blocks(self) -> Iterator[Block]:
        """Yield the keys of the signal, and the row of each if there are groups."""
        grouped = len(self.extents.counts) > 1
        for one, row_of in zip(self.kept, self.row_of, strict=True):
            for keys, codes in one.blocks(self.signal, grouped):
                yield keys, row_of[codes]
