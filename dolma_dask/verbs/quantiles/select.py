"""The second part of `quantiles`: one task per signal reads the kept values, as often as it takes, and writes the quantiles of all groups.

A signal of 10^9 values is 8 GB to read two to three times, at some 10 ns of CPU per value. Memory: see `dolma_dask.verbs.quantiles.order_statistics`.
"""

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash
from msgspec import Struct

from dolma_dask.engine import Input, Task, Unit
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.publish import publish
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.journal import Record
from dolma_dask.rules.groups import ALL, LabelKind, spelled, value_of
from dolma_dask.rules.ordered_bits import Extents, values_of
from dolma_dask.rules.quantile_table import Entry, entries_of, interpolated, ranks_of
from dolma_dask.text.kernels import Counts, Words
from dolma_dask.verbs.quantiles.files import ValueFile
from dolma_dask.verbs.quantiles.order_statistics import KeyBlock, order_statistics

RESULTS = "results"
"""Folder of the quantiles of each signal."""

INDEX = "index.json"

ROW_KEYS = 1 << 11
"""Keys of a row that are counted at a time, about: for fewer its counters would hardly be in the cache, and of more the keys would not."""

SAMPLED_SEGMENTS = 16

SAMPLED_KEYS = 1 << 14
"""Keys of each that are sampled."""

BLOCK_SEGMENTS = 64
"""Segments that they come from at most."""


class Index(msgspec.Struct, frozen=True):
    """All files of the first pass, and the labels of all groups, in the order of their values."""

    labels: tuple[str, ...]
    kept: tuple[FileRecord, ...]


def write_index(folder: str, records: Sequence[Record], kind: LabelKind) -> Input:
    """Write the index of the files of the first pass, and return it as the input of the tasks that follow; its checksum is its stamp."""
    labels = {label for record in records for label in record.info["labels"]}
    names = sorted(labels, key=lambda label: (value_of(label, kind), label))
    kept = tuple(file for record in records for file in record.files)
    url = files.join(folder, INDEX)
    with publish(url, synced=False) as out:
        out.write(msgspec.json.encode(Index(tuple(names), kept)))
    return Input(url, FileInfo(INDEX, out.bytes, out.checksum))


def select_tasks(signals: Sequence[str], index: Input, key: str, staged_bytes: int) -> list[Task]:
    """Return a task for each signal; all read files of so many bytes together."""
    share = staged_bytes // len(signals)
    return [
        Task(name, (Unit(f"{RESULTS}/{number:05d}.json", key),), (index,), number, share)
        for number, name in enumerate(signals)
    ]


def read_entries(folder: str, result: FileRecord) -> msgspec.Raw:
    """Return the quantiles of a signal, the JSON that `SelectStage` wrote."""
    return msgspec.Raw(_read(files.join(folder, result.path), result.checksum))


def _read(url: str, expected: str) -> bytes:
    """Return the content of a small staging file with this checksum."""
    data = files.read_bytes(url)
    checksum = xxhash.xxh3_128_hexdigest(data)
    if checksum != expected:
        raise files.damaged(url, f"checksum {checksum}, not {expected}")
    return data


class SelectStage(Struct, frozen=True):
    """Finds the quantiles of one signal in its kept values."""

    folder: str  # of the staging files
    probabilities: tuple[float, ...]  # ascending
    verb: str = "quantiles-select"

    def run_shard(self, task: Task) -> list[Record]:
        """Find the quantiles of a signal; see `dolma_dask.engine.Stage`."""
        unit, (source,) = task.units[0], task.inputs
        checksum = source.info.stamp
        index = msgspec.json.decode(_read(source.url, checksum), type=Index)
        entries = self._entries(index, task.work)
        with publish(files.join(self.folder, unit.name), synced=False) as out:
            out.write(msgspec.json.encode(entries))
        read = InputRecord(INDEX, source.info.bytes, checksum, checksum)
        return [task.record([FileRecord(unit.name, out.bytes, out.checksum)], [read])]

    def _entries(self, index: Index, signal: int) -> dict[str, Entry]:
        values = SignalValues.open(self.folder, index, signal)
        extents = values.extents
        ranks, shares = ranks_of(extents.counts[:, 0], self.probabilities)
        keys = order_statistics(values.blocks, values.sample, extents, ranks)
        quantiles = interpolated(values_of(keys), shares)
        entries = entries_of(extents.counts, values_of(extents.bounds), self.probabilities, quantiles)
        names = [ALL, *map(spelled, index.labels)]
        if values.is_one_group:  # all rows are in it, and nothing was counted twice
            return dict.fromkeys(names, entries[0])
        return dict(zip(names, entries, strict=True))


class SignalValues(Struct, frozen=True, eq=False):
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
        kept = tuple(ValueFile.look(folder, one, signal) for one in index.kept)
        rows = {label: row for row, label in enumerate(index.labels, 1)}
        row_of = tuple(np.array([0, *(rows[label] for label in one.tail.labels)], np.uint16) for one in kept)
        extents = Extents.empty(len(rows) + 1)
        for one, codes in zip(kept, row_of, strict=True):
            extents.add(one.extents, codes.astype(np.int64))
        is_one_group = len(rows) == 1 and not extents.counts[0].any()
        total = extents.total()
        extents.counts[0], extents.bounds[0] = total.counts[0], total.bounds[0]
        if is_one_group:
            extents = total
        return cls(kept, row_of, signal, extents, is_one_group)

    def sample(self) -> Words:
        """Return keys of the signal from all over the files."""
        segments = [(one, segment) for one in self.kept for segment in range(len(one.sizes))]
        step = max(len(segments) // SAMPLED_SEGMENTS, 1)
        return np.concatenate([self._some(*item) for item in segments[step // 2 :: step]])

    def _some(self, one: ValueFile, segment: int) -> Words:
        keys = np.empty(int(one.sizes[segment].sum()), np.uint64)
        with one.open() as file:
            one.read(file, self.signal, segment, keys)
        return keys[:: max(len(keys) // SAMPLED_KEYS, 1)]

    def blocks(self) -> Iterator[KeyBlock]:
        """Yield the keys of the signal, many segments at a time so that each row has many keys; a block holds until the next one."""
        largest, rows = max((one.tail.segment_rows for one in self.kept), default=0), len(self.extents.counts)
        room = _Room(min(sum(one.tail.rows for one in self.kept), max(ROW_KEYS * rows, largest)), rows)
        for one, row_of in zip(self.kept, self.row_of, strict=True):
            with one.open() as file:
                for segment, sizes in enumerate(one.sizes):
                    if not room.has_room(int(sizes.sum())):
                        yield room.block()
                    one.read(file, self.signal, segment, room.take(sizes, row_of))
        yield room.block()


class _Room:
    """The memory of a block, which takes one segment after the other."""

    def __init__(self, keys: int, rows: int) -> None:
        self._keys = np.empty(keys, np.uint64)
        self._places = np.zeros(
            (2, BLOCK_SEGMENTS, rows), np.int64
        )  # where the rows of segments start and stop
        self._used = self._segments = 0

    def has_room(self, keys: int) -> bool:
        return self._segments < BLOCK_SEGMENTS and self._used + keys <= len(self._keys)

    def take(self, sizes: Counts, row_of: npt.NDArray[np.uint16]) -> Words:
        """Return the place of the keys of a segment, given how many each code has."""
        starts, stops = self._places[:, self._segments]
        if len(starts) == 1:
            sizes, row_of = sizes.sum(keepdims=True), row_of[:1]
        ends = self._used + np.cumsum(sizes)
        starts[:] = stops[:] = 0
        starts[row_of], stops[row_of] = ends - sizes, ends
        place = self._keys[self._used : int(ends[-1])]
        self._used += len(place)
        self._segments += 1
        return place

    def block(self) -> KeyBlock:
        """Return what was taken, and begin anew."""
        starts, stops = self._places[:, : self._segments]
        keys = self._keys[: self._used]
        self._used = self._segments = 0
        return KeyBlock(keys, starts, stops)
