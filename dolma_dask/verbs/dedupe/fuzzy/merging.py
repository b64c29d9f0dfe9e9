"""Choice of how edges become clusters: in one array of all documents, or range by range.

One array takes no exchange besides that of the bands, and the least CPU; but one worker holds it. Ranges (`fuzzy.ranges`) need the same memory for any number of
documents. The rule: one array while it takes at most half of the memory of a worker, ranges otherwise. Clusters are the same.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from msgspec import Struct

from dolma_dask.display import byte_size
from dolma_dask.engine import Gather, Step, Task, WorkDir
from dolma_dask.exchange import Reducer
from dolma_dask.exchange.buckets import Bucketing
from dolma_dask.exchange.passes import Part
from dolma_dask.exchange.staged import Staged
from dolma_dask.io import files
from dolma_dask.journal import Record
from dolma_dask.verbs.dedupe.fuzzy.edges import (
    DocumentLabels,
    bytes_needed,
    label_type,
    memory_limit,
    merge,
)
from dolma_dask.verbs.dedupe.fuzzy.ranges import RangeMerger, Ranges, folder_of, ranges_of

SHARE = 2
"""Share of a worker's memory that one array may take, as a divisor: a worker needs some besides."""

SMALL = 64 << 20
"""Bytes that any worker has."""

RANGE_BITS = 24
"""A range has 2**24 documents, 64 MB of parents and as much beside them: of 2**22 to 2**26 none was faster."""


class Merger(Protocol):
    """Way of edges, group after group, to the labels of all documents."""

    @property
    def cut(self) -> Bucketing | None:
        """How edges are cut for `add`; None: by key."""
        ...

    def named(self, name: str) -> str:
        """Return the name of a pass that gives out edges: another one for another cut."""
        ...

    def taking(self, reducer: Reducer) -> Reducer:
        """Return a reducer of edges as one that gives them out for `add`."""
        ...

    def part_of(self, part: Part) -> Part:
        """Return the same of each range of keys."""
        ...

    def add(self, edges: Staged, is_last: bool) -> Generator[Step, Any, None]:
        """Join the edges of a group of bands, and free them."""
        ...

    def labels(self) -> Generator[Step, Any, DocumentLabels]:
        """Return the labels of all documents after the last group."""
        ...


@dataclass
class ArrayMerger:
    """Joins edges in one array, in the memory of one worker; see `Merger`."""

    work: WorkDir
    documents: int
    groups: int = 0
    merged: Record | None = None

    cut: ClassVar[None] = None

    def named(self, name: str) -> str:
        """See `Merger`."""
        return name

    def taking(self, reducer: Reducer) -> Reducer:
        """See `Merger`."""
        return reducer

    def part_of(self, part: Part) -> Part:
        """See `Merger`."""
        return part

    def add(self, edges: Staged, is_last: bool) -> Generator[Step, Any, None]:
        """See `Merger`."""
        self.merged = yield from merge(self.work, edges, self.groups, self.documents, self.merged, is_last)
        self.groups += 1

    def labels(self) -> Generator[Step, Any, DocumentLabels]:
        """See `Merger`."""
        yield from ()
        assert self.merged is not None, "there is a group"
        return DocumentLabels.of(self.merged)


def merger_of(
    work: WorkDir, documents: int, is_verified: bool, merge_bytes: int | None
) -> Generator[Step, Any, Merger]:
    """Return the way of edges for so many documents; one array may take `merge_bytes`, or half of a worker.

    What has begun in ranges goes on so, whatever workers there are now.
    """
    if (bits := _begun(work)) is not None:
        return RangeMerger(work, Ranges(documents, bits), is_verified)
    needed, most = bytes_needed(documents, is_verified), merge_bytes
    if most is None and needed <= SMALL:
        most = SMALL
    if most is None:
        (memory,) = yield Gather(MemoryStage(), [Task("memory", (), ())])
        most = memory // SHARE
    if needed <= most:
        return ArrayMerger(work, documents)
    return RangeMerger(work, ranges_of(documents, most, RANGE_BITS), is_verified)


def _begun(work: WorkDir) -> int | None:
    """Return the bits of the ranges in the work folder, if there are some."""
    names = files.list_folders(work.url)
    return next((bits for bits in range(64) if folder_of(bits) in names), None)


class MemoryStage(Struct, frozen=True):
    """Tells the bytes of memory that a worker may have; see `dolma_dask.engine.Gather`."""

    verb: str = "dedupe-memory"

    def run_shard(self, task: Task) -> int:
        """Return those of this process."""
        return memory_limit()


def memory_note(documents: int, is_verified: bool, merge_bytes: int | None) -> str:
    """Say what joining so many documents to clusters takes of memory, and what decides how."""
    needed = bytes_needed(documents, is_verified)
    in_array = f"{byte_size(needed)} of memory in one worker beside what every worker needs"
    if needed <= SMALL if merge_bytes is None else needed <= merge_bytes:
        return in_array
    ranges = ranges_of(documents, merge_bytes or SMALL, RANGE_BITS)
    held = byte_size((label_type(documents).itemsize + 4) << ranges.bits)
    in_ranges = f"{held} in each worker, since documents are joined in {ranges.cut.count:,} ranges"
    if merge_bytes is not None:
        return in_ranges
    return f"{in_array}, if that is at most half of the worker's memory; else {in_ranges}"


def described_ranges(labels: DocumentLabels) -> dict[str, Any]:
    """Return for readers of the dataset-wide record how documents were joined, if not in one array."""
    count = len(labels.labels)
    return {"ranges": [count, labels.each]} if count > 1 else {}


def ranges_notes(info: Mapping[str, Any]) -> tuple[str, ...]:
    """Say what `described_ranges` tells."""
    if "ranges" not in info:
        return ()
    count, each = info["ranges"]
    return (
        f"documents were joined to clusters in {count:,} ranges of {each:,}, since one array of all would have taken more memory of a worker than it may",
    )
