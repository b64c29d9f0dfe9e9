"""Clusters without an array of all documents: parents in ranges of docnos, and rounds in which edges and questions go from range to range.

Each range is a file of the work folder and the work of one task, which has it in memory beside buffers. A round of edges gives each range the edges of which it has the
larger end (`minhash.ranges`): what it hands on goes, with the edges of the next group of bands, into the next round. After the last group rounds go on until
no edge is left, which is soon: most edges end where they come to first. Then trees that hang in other ranges ask there for their roots. A round is a pass of the job: one that
was killed goes on with the ranges that are left, and files of the round before are freed once it is done. So memory does not depend on the documents, and
disk holds the edges of a round, and parents twice while they are written.

An edge is the record (high, low): ranges are buckets of the exchange, of 2**bits neighbouring docnos each.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.engine import Free, Input, Pass, Ran, Step, Task, Unit, WorkDir
from dolma_dask.exchange import Reducer
from dolma_dask.exchange.buckets import Bucketing, BucketRange, Rooms
from dolma_dask.exchange.contract import Records, to_records, to_words
from dolma_dask.exchange.passes import Part, staged_files, write_records
from dolma_dask.exchange.staged import DEFAULT, Staged, file_of
from dolma_dask.io.files import FileInfo
from dolma_dask.io.records import FileRecord
from dolma_dask.journal import Record, work_key
from dolma_dask.minhash import ranges as kernels
from dolma_dask.minhash.edges import root_bit
from dolma_dask.text.columns import for_kernel
from dolma_dask.text.kernels import Words
from dolma_dask.verbs.dedupe.fuzzy.edges import (
    MATCHES,
    VERIFIED,
    DocumentLabels,
    Labels,
    label_type,
    read_numbers,
    write_numbers,
)

VERSION = 1
"""Raised when the staging files change for the same edges."""

LINKS = np.dtype([("high", "<u8"), ("low", "<u8")])
"""Two documents of one cluster, for the range of the larger docno."""

VERIFIED_LINKS = np.dtype([*LINKS.descr, ("matches", "<u8")])
"""A link of which it is known in how many values the signatures agree; of a document with itself it tells this alone."""

ASKS = np.dtype([("document", "<u8"), ("other", "<u8"), ("size", "<u8")])
"""Question for the root of a document, by the top of a tree of so many that hangs there; or the answer to a top: its root, or with a size where it asks next."""

MOST_RANGES = 4096
"""Ranges at most: each file of edges has a table of them."""

ASKED = 1 << 16
"""Questions that are given to the exchange at once."""

Numbers = npt.NDArray[Any]


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


class ByRange(Struct, frozen=True):
    """Gives out the edges of another reducer for the ranges of their larger ends."""

    edges: Reducer

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the records that it gives out."""
        return VERIFIED_LINKS if self.edges.dtype == VERIFIED else LINKS

    def reduce(self, runs: Iterable[Records], out: Callable[[Records], None]) -> dict[str, Any]:
        """See `dolma_dask.exchange.Reducer`."""
        return self.edges.reduce(runs, lambda edges: out(to_links(to_words(edges, edges.dtype))))


def to_links(words: Words) -> Records:
    """Return edges (low, high), or with their matches, as links; the smaller end learns its matches by a link with itself."""
    if words.shape[1] == 2:
        return to_records(words[:, ::-1], LINKS)
    return to_records(np.concatenate([words[:, [1, 0, 2]], words[:, [0, 0, 2]]]), VERIFIED_LINKS)


# ------------------------------------------------------------------------------------------------ what a task does with its range


class RangeStep(Protocol):
    """Work of a round on the numbers of a range, which it changes."""

    dtype: ClassVar[np.dtype[Any]]  # of what it sends

    def run(
        self, numbers: Labels, first: int, read: Iterable[Words], out: Callable[[Records], None]
    ) -> Mapping[str, Numbers]:
        """Take what was sent to a range that begins with document `first`; return further numbers of its documents, by the ending of their file."""
        ...


class Join(Struct, frozen=True):
    """Joins edges in parents, or in labels, which become parents again."""

    is_verified: bool
    dtype: ClassVar[np.dtype[Any]] = LINKS

    def run(
        self, numbers: Labels, first: int, read: Iterable[Words], out: Callable[[Records], None]
    ) -> Mapping[str, Numbers]:
        """See `RangeStep`."""
        hanging = kernels.Hanging(numbers, first)
        matches = np.zeros(len(numbers) if self.is_verified else 0, MATCHES)
        for rows in read:
            links = for_kernel(rows)
            out(to_records(hanging.add(links), LINKS))
            if self.is_verified:
                kernels.raise_own_matches(matches, first, links)
        return {".matches": matches} if self.is_verified else {}


class Label(Struct, frozen=True):
    """Makes labels of parents, and asks for the roots of trees that hang outside."""

    dtype: ClassVar[np.dtype[Any]] = ASKS

    def run(
        self, numbers: Labels, first: int, read: Iterable[Words], out: Callable[[Records], None]
    ) -> Mapping[str, Numbers]:
        """See `RangeStep`."""
        sizes, asks = np.zeros(len(numbers), np.uint32), np.empty((ASKED, 3), np.uint64)
        bit, node = root_bit(numbers), 0
        kernels.unlabel(numbers, first, bit)
        kernels.settle(numbers, first)
        kernels.count_members(numbers, first, sizes)
        while node < len(numbers):
            end, count = kernels.ask(numbers, first, node, sizes, bit, asks)
            out(to_records(asks[:count], ASKS))
            node = int(end)
        return {}


class Answer(Struct, frozen=True):
    """Answers questions, and counts those who ask into the clusters of their roots."""

    dtype: ClassVar[np.dtype[Any]] = ASKS

    def run(
        self, numbers: Labels, first: int, read: Iterable[Words], out: Callable[[Records], None]
    ) -> Mapping[str, Numbers]:
        """See `RangeStep`."""
        for asks in read:
            answers = np.empty_like(asks)
            kernels.answer(numbers, first, root_bit(numbers), for_kernel(asks), answers)
            out(to_records(answers, ASKS))
        return {}


class Follow(Struct, frozen=True):
    """Takes answers, and asks again where they are not the last."""

    dtype: ClassVar[np.dtype[Any]] = ASKS

    def run(
        self, numbers: Labels, first: int, read: Iterable[Words], out: Callable[[Records], None]
    ) -> Mapping[str, Numbers]:
        """See `RangeStep`."""
        open_tops = 0
        for answers in read:
            asks = np.empty_like(answers)
            count = int(kernels.follow(numbers, first, for_kernel(answers), asks))
            out(to_records(asks[:count], ASKS))
            open_tops += count
        if not open_tops:
            kernels.hand_down(numbers, first, root_bit(numbers))
        return {}


# ------------------------------------------------------------------------------------------------ rounds


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
            if (
                waited == patience
            ):  # edges that follow a tree from range to range: after this each hangs right below its root
                yield from self._label()
                waited = 0
            self.sent = yield from self._round(Join(False), self.sent)
            waited += 1
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
