"""Sinks: an output opens one for each of its files, which takes the rows of a shard and appears on a clean exit.

A new kind of file is an output: ``columns`` that it takes, ``open``, ``write`` and ``record``. Rows are views of a block.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from dolma_dask.io.records import BadRecord, FileRecord, InputRecord, RuleCount
from dolma_dask.journal import Record, Unit
from dolma_dask.text.kernels import Bools

Writer = TypeVar("Writer", bound=AbstractContextManager[Any])
Rows = TypeVar("Rows", contravariant=True)


DROPPED = "\x1fdropped"
"""Stands among the columns of an output for the rows that do not go on; no field of documents has that name."""

DROPPED_LINES = "\x1fdropped lines"
"""Likewise for their lines as they were read."""


class DroppedRows(Struct, frozen=True):
    """Rows of a block that do not go on, in order."""

    batch: (
        pa.RecordBatch
    )  # (m,) id, source and, if an output takes them, lines; null where a line could not be read
    numbers: npt.NDArray[np.int64]  # (m,) rows in the shard
    reasons: pa.LargeStringArray  # (m,) names of the conditions that dropped each, as a list in JSON


class DocumentRows(Struct, frozen=True, dict=True):
    """Some documents of a shard, as they are to be written: all of a block, or those that are taken of it, which are not copied before somebody asks."""

    block: pa.RecordBatch  # (m,) the columns that outputs take, but the lines
    # (n,) rows in the shard or raw file; empty where nobody needs them
    numbers: npt.NDArray[np.int64] = msgspec.field(default_factory=lambda: np.empty(0, np.int64))
    # (m,) with their final newlines; None: no output takes them
    block_lines: pa.LargeBinaryArray | None = None
    dropped: DroppedRows | None = None  # the other rows of the block; None: no output takes them
    taken: Bools | None = None  # (m,) which rows of the block these are; None: all

    @cached_property
    def batch(self) -> pa.RecordBatch:
        """The columns (n,)."""
        return self.block if self.taken is None else self.block.filter(pa.array(self.taken))

    @cached_property
    def lines(self) -> pa.LargeBinaryArray | None:
        """The lines (n,)."""
        if self.taken is None or self.block_lines is None:
            return self.block_lines
        return self.block_lines.filter(pa.array(self.taken))

    def part(self, rows: slice) -> "DocumentRows":
        """Return those of one shard, if the block has some rows of each of several; their numbers are as in the block, and become those in the shard."""
        own = slice(*np.searchsorted(self.numbers, [rows.start, rows.stop]))
        length = rows.stop - rows.start
        return DocumentRows(
            self.block.slice(rows.start, length),
            self.numbers[own] - rows.start,
            None if self.block_lines is None else self.block_lines.slice(rows.start, length),
            taken=None if self.taken is None else self.taken[rows],
        )


class ShardFacts(Struct):
    """Facts about a shard for the records of all that is made of it; complete when it has been read."""

    shard: str
    inputs: tuple[InputRecord, ...] = ()
    counts: Mapping[str, float] = {}
    rules: tuple[RuleCount, ...] = ()
    drops: dict[str, list[tuple[int, int]]] | None = None
    unproved: tuple[str, ...] = ()  # attribute sets that no journal speaks of
    reads: frozenset[str] = frozenset()  # columns of the documents behind fields and attributes
    skipped_members: tuple[str, ...] = ()  # the first members of archives that hold no records
    ids_digest: str = ""  # of the rows that sinks took; empty: not known
    content_digest: str = ""
    info: Mapping[str, Any] = {}  # for readers of what is made
    seconds: float = 0.0  # that earlier passes have taken

    def record(self, unit: Unit, files: Sequence[FileRecord], rows: int, **more: Any) -> Record:
        """Return the record of a unit; `more` are fields of it, of which ``counts`` and ``info`` are added to those of the reading."""
        counts = {**self.counts, **more.pop("counts", {})}
        info = {**self.info, **more.pop("info", {})}
        return Record(
            unit=unit.name,
            shard=self.shard,
            key=unit.key,
            inputs=self.inputs,
            files=tuple(files),
            rows=rows,
            ids_digest=self.ids_digest,
            content_digest=self.content_digest,
            counts=counts,
            rules=self.rules,
            drops=self.drops,
            info=info,
            seconds=self.seconds,
            **more,
        )


class Sink(AbstractContextManager[Any], Protocol[Rows]):
    """Takes the rows of one shard; its files appear on a clean exit, and not at all after an exception."""

    def write(self, rows: Rows, /) -> "Sequence[BadRecord] | None":
        """Append rows; return those that it refuses as bad records, with the shard in place of the URL."""
        ...

    def record(self, unit: Unit, facts: ShardFacts, quarantined: tuple[FileRecord, ...]) -> Record:
        """Return the record of what was written, after a clean exit; `quarantined` are files of bad records."""
        ...


class WriterSink(Generic[Writer]):
    """Base of sinks that hand everything to one writer: its files appear on a clean exit."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def __enter__(self) -> Self:
        self.writer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.writer.__exit__(kind, error, trace)


class FileWriter(AbstractContextManager[Any], Protocol):
    """Writes one file, which appears on a clean exit."""

    @property
    def record(self) -> FileRecord: ...


OneFile = TypeVar("OneFile", bound=FileWriter)


class FileSink(WriterSink[OneFile]):
    """Base of sinks of one file; the writer counts its rows, their ``write`` whatever else is told of them."""

    def __init__(self, writer: OneFile, **counts: int) -> None:
        super().__init__(writer)
        self.counts = Counter(counts)

    def info(self, facts: ShardFacts) -> Mapping[str, Any]:
        """Return what readers of the file need to know, after the last row."""
        return {}

    def record(self, unit: Unit, facts: ShardFacts, quarantined: tuple[FileRecord, ...]) -> Record:
        """See `Sink`."""
        file = self.writer.record
        counts = {**self.counts, "bytes_out": file.bytes}
        return facts.record(unit, (file, *quarantined), file.rows, counts=counts, info=self.info(facts))


class Output(Protocol[Rows]):
    """A kind of files that shards become; small, goes to workers."""

    @property
    def root(self) -> str: ...  # of the quarantine
    @property
    def verb(self) -> str: ...  # of the quarantine
    @property
    def columns(self) -> tuple[str, ...]: ...  # that sinks take; `RAW` stands for the lines of documents

    def open(self, unit: Unit, shard: str) -> Sink[Rows]:
        """Return the sink of a unit."""
        ...
