"""Clusters without an array of all documents: parents in ranges of docnos, and rounds in which edges and questions go from range to range.

Each range is a file of the work folder and the work of one task, which has it in memory beside buffers. A round of edges gives each range the edges of which it has the
larger end (`minhash.ranges`): what it hands on goes, with the edges of the next group of bands, into the next round. After the last group rounds go on until
no edge is left, which is soon: most edges end where they come to first. Then trees that hang in other ranges ask there for their roots. A round is a pass of the job: one that
was killed goes on with the ranges that are left, and files of the round before are freed once it is done. So memory does not depend on the documents, and
disk holds the edges of a round, and parents twice while they are written.

An edge is the record (high, low): ranges are buckets of the exchange, of 2**bits neighbouring docnos each.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.engine import Free, Input, Pass, Ran, Step, Task, Unit, WorkDir
from dolma_dask.exchange import Reducer
from dolma_dask.exchange.buckets import Bucketing, BucketRange, Rooms
from dolma_dask.exchange.passes import Part, staged_files, write_records
from dolma_dask.exchange.staged import DEFAULT, Staged, file_of
from dolma_dask.io.files import FileInfo
from dolma_dask.io.records import FileRecord
from dolma_dask.journal import Record, work_key
from dolma_dask.verbs.dedupe.fuzzy.edges import (
    DocumentLabels,
    Labels,
    label_type,
    read_numbers,
    write_numbers,
)
from dolma_dask.verbs.dedupe.fuzzy.range_steps import Answer, ByRange, Follow, Join, Label, RangeStep

VERSION = 1
"""Raised when the staging files change for the same edges."""

MOST_RANGES = 4096
"""Ranges at most: each file of edges has a table of them."""


class Ranges(Struct, frozen=True):
    """Documents 0 to ``documents - 1`` in ranges of ``2**bits``."""

    documents: int
    bits: int

    @property
    def cut(self) -> Bucketing:
        """Ranges as buckets of records by their first word."""
        return Bucketing(self.bits, max(-(-self.documents >> self.bits), 1))

    def rows(self, number: int) -> int:
        """Return the documents of a range."""
        return min(1 << self.bits, self.documents - (number << self.bits))


def ranges_of(documents: int, most_bytes: int, bits: int) -> Ranges:
    """Return ranges whose parents take at most so many bytes, of ``2**bits`` documents at most where that is not too many ranges."""
    fitting = max(most_bytes // label_type(documents).itemsize, 1).bit_length() - 1
    few = max(documents - 1, 1).bit_length() - (MOST_RANGES.bit_length() - 1)
    return Ranges(documents, max(min(bits, fitting), few, 0))


class Range(Struct, frozen=True):
    """Work of `RangeStage`."""

    span: BucketRange  # one bucket
    made: str  # path of its numbers
    sent: str  # and of what it sends
    before: FileRecord | None  # its numbers so far; None: each document is its own parent


@dataclass(frozen=True)
class RangeStage:
    """Does a step on one range; see `dolma_dask.engine.Stage`."""

    verb: str
    folder: str  # of the staging files
    ranges: Ranges
    step: RangeStep
    read: Staged | None  # what was sent to the ranges
    rooms: Rooms = field(default_factory=Rooms, compare=False)

    def run_shard(self, task: Task) -> list[Record]:
        """Write the numbers of a range, and what it sends to others."""
        work: Range = task.work
        number = work.span.first
        numbers, rows = self._numbers(work), self.read.read(work.span) if self.read else ()
        more, sent, info = write_records(
            self.folder,
            work.sent,
            self.step.dtype,
            self.ranges.cut,
            DEFAULT,
            lambda out: self.step.run(numbers, number << self.ranges.bits, rows, out),
            self.rooms,
        )
        every = {"": numbers, **more}
        made = tuple(write_numbers(self.folder, f"{work.made}{end}", one) for end, one in every.items())
        units = {unit.name: replace(task, units=(unit,)) for unit in task.units}
        records = {work.made: (made, {}), work.sent: (sent, info)}
        return [
            units[name].record(found, task.listed, info=told)
            for name, (found, told) in records.items()
            if name in units
        ]

    def _numbers(self, work: Range) -> Labels:
        number, kind = work.span.first, label_type(self.ranges.documents)
        first, rows = number << self.ranges.bits, self.ranges.rows(number)
        if work.before is None:
            return np.arange(first, first + rows, dtype=kind)
        return read_numbers(self.folder, work.before, kind, 0, rows)


@dataclass
class RangeMerger:
    """Joins edges range by range; see `dolma_dask.verbs.dedupe.fuzzy.merging.Merger`."""

    work: WorkDir
    ranges: Ranges
    is_verified: bool
    made: dict[int, Record] = field(default_factory=dict)  # numbers of ranges that have some
    matches: dict[int, FileRecord] = field(default_factory=dict)
    sent: Staged | None = None  # edges that the last round has handed on
    rounds: int = 0
    key: str = ""  # of the last of them

    @property
    def cut(self) -> Bucketing:
        """See `Merger`."""
        return self.ranges.cut

    def named(self, name: str) -> str:
        """See `Merger`."""
        return f"{name}-{folder_of(self.ranges.bits)}"

    def taking(self, reducer: Reducer) -> Reducer:
        """See `Merger`."""
        return ByRange(reducer)

    def part_of(self, part: Part) -> Part:
        """See `Merger`."""
        return lambda first, last: ByRange(part(first, last))

    def add(self, edges: Staged, is_last: bool) -> Generator[Step, Any, None]:
        """See `Merger`."""
        read = edges if self.sent is None else replace(edges, others=self.sent.parts)
        self.sent = yield from self._round(Join(self.is_verified), read)

    def labels(self) -> Generator[Step, Any, DocumentLabels]:
        """See `Merger`."""
        patience, waited = self.cut.count.bit_length() + 1, 0
        while self.sent is not None and self._count(self.sent):
            # edges that follow a tree from range to range go on at its root once each of its documents hangs there
            if waited == patience:
                yield from self._label()
            waited = waited % patience + 1
            self.sent = yield from self._round(Join(False), self.sent)
        yield from self._label()
        return self._labels

    @property
    def _labels(self) -> DocumentLabels:
        numbers = range(self.cut.count)
        matches = tuple(self.matches.get(number) for number in numbers) if self.is_verified else ()
        made = tuple(self.made[number].files[0] for number in numbers)
        return DocumentLabels(self.ranges.documents, 1 << self.ranges.bits, made, matches)

    def _label(self) -> Generator[Step, Any, None]:
        """Make labels of the parents of all ranges."""
        asks = yield from self._round(Label(), None)
        while self._count(asks):
            answers = yield from self._round(Answer(), asks)
            asks = yield from self._round(Follow(), answers)

    def _count(self, sent: Staged) -> int:
        return sent.all.records

    def _round(self, step: RangeStep, read: Staged | None) -> Generator[Step, Any, Staged]:
        """Do a step on all ranges to which something was sent, or on all; return what they send, and free what they were made of."""
        counts = enumerate(read.all.counts if read else [0] * self.cut.count)
        spans = [BucketRange(number, number + 1, (count,)) for number, count in counts if count or not read]
        content = read.content if read else []
        params = {"documents": self.ranges.documents, "step": type(step).__name__, "before": self.key}
        self.key = work_key("ranges", VERSION, {**params, "read": content})
        verb, name = f"{self.work.verb}-ranges", self.named(f"sent-{self.rounds:03d}")
        tasks = [self._task(span, name, at, read) for at, span in enumerate(spans)]
        before = [self.made[span.first] for span in spans if span.first in self.made]
        parts = read.parts if read else ()
        stage = RangeStage(verb, self.work.url, self.ranges, step, read.without_records if read else None)
        reads = [*before, *(record for part in parts for record in part.records)]
        ran: Ran = yield Pass(stage, tasks, reads=reads)
        self._take(ran, tasks)
        for part in parts:
            yield part.free()
        yield Free(verb, before)
        self.rounds += 1
        records = tuple(ran.records[task.work.sent] for task in tasks)
        return replace(staged_files(self.work, name, step.dtype, self.cut, records), stage_verb=verb)

    def _task(self, span: BucketRange, name: str, at: int, read: Staged | None) -> Task:
        number = span.first
        before = _file_of(self.made.get(number))
        made = f"{folder_of(self.ranges.bits)}/{self.rounds:03d}-{number:06d}.bin"
        sent = file_of(name, at)
        source = FileInfo(f"range {number}", span.records * read.dtype.itemsize if read else 0, self.key)
        units = tuple(Unit(path, self.key) for path in (made, sent))
        work = Range(span, made, sent, before)
        return Task(source.path, units, (Input(source.path, source),), work, before.bytes if before else 0)

    def _take(self, ran: Ran, tasks: Sequence[Task]) -> None:
        """Keep what a round has made of ranges."""
        for task in tasks:
            number, record = task.work.span.first, ran.records[task.work.made]
            self.made[number] = record
            for file in record.files:
                if file.path != record.unit:
                    self.matches[number] = file


def _file_of(record: Record | None) -> FileRecord | None:
    """Return the file of a record, unless it was freed: then nothing is left that reads it."""
    return next((file for file in record.files if file.path == record.unit), None) if record else None


def folder_of(bits: int) -> str:
    """Return the folder of the numbers of ranges of ``2**bits`` documents."""
    return f"by-{bits:02d}"
