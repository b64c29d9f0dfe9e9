"""Records that stay when a job has ended, sorted by key in bucket files of another folder, and are read by later jobs beside their own (`Staged.others`).

A part covers neighbouring buckets, so that a range of keys opens one part, or two where it crosses from one to the next, and reads one slice of each. No file is
removed because it turns out to be damaged: nobody could make it again but the job that kept it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from dolma_dask.engine import Input, Task
from dolma_dask.errors import CorruptFileError
from dolma_dask.exchange import buckets
from dolma_dask.exchange.buckets import BucketFile, BucketRange, Column, FileFacts, Slice
from dolma_dask.exchange.contract import Words, to_records, word_count
from dolma_dask.exchange.passes import write_records
from dolma_dask.exchange.staged import DEFAULT, Limits, Staged
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.records import FileRecord

PART_BYTES = 256 << 20
"""Bytes of records of a part: a task writes each."""


class KeptPart(Struct, frozen=True):
    """A file with the records of buckets `first` to ``last - 1``; travels as JSON."""

    first: int
    last: int
    file: FileRecord
    facts: tuple[int, int, str]  # `FileFacts`
    histogram: str


class KeptFile(BucketFile, frozen=True, kw_only=True):
    """A bucket file that stays."""

    hint: str  # what to do if it is damaged
    zeros: int = 0  # words of 0 that are put before the last word of each record

    def damaged(self, found: str) -> CorruptFileError:
        """Return the error that says what to do."""
        return CorruptFileError(
            f"{self.url} is damaged: found {found}; expected the file as it was written. {self.hint}",
            url=self.url,
        )

    def slice(self, stored: memoryview, column: Column, first: int) -> Slice:
        """See `BucketFile.slice`."""
        found = super().slice(stored, column, first)
        if not self.zeros:
            return found
        rows = np.zeros((len(found.rows), self.words + self.zeros), np.uint64)
        rows[:, : self.words - 1], rows[:, -1] = found.rows[:, :-1], found.rows[:, -1]
        return Slice(rows, column)


class Kept(Staged, frozen=True, kw_only=True):
    """Parts of one folder as a pass leaves its files, for jobs that read records of `dtype` with them."""

    parts_kept: tuple[KeptPart, ...]
    stored: np.dtype[Any]  # `dtype`, or the same without some words before the last one, which are 0 then
    hint: str

    @property
    def infos(self) -> Sequence[Mapping[str, Any]]:
        """See `Staged`."""
        return [{"content": one.file.checksum, "histogram": one.histogram} for one in self.parts_kept]

    def sources(self, span: BucketRange) -> Iterator[BucketFile]:
        """See `Staged`."""
        words = word_count(self.stored)
        for one in self.parts_kept:
            if one.first < span.last and span.first < one.last:
                yield KeptFile(
                    files.join(self.folder, one.file.path),
                    words,
                    self.bucketing.count,
                    FileFacts(*one.facts),
                    hint=self.hint,
                    zeros=word_count(self.dtype) - words,
                )


def kept(
    folder: str, parts: Sequence[KeptPart], dtype: np.dtype[Any], stored: np.dtype[Any], hint: str
) -> Kept:
    """Return what was kept as records of `dtype`; see `Kept`."""
    return Kept(
        folder=folder,
        name="",
        stage_verb="",
        dtype=dtype,
        bucketing=buckets.of_keys(DEFAULT.buckets),
        files=(),
        records=(),
        parts_kept=tuple(parts),
        stored=stored,
        hint=hint,
    )


class KeepStage(Struct, frozen=True):
    """Writes what a pass has left as parts in order, ``task.work`` is (path below the folder, `BucketRange`); see `dolma_dask.engine.Gather`."""

    staged: Staged
    folder: str
    verb: str
    limits: Limits = DEFAULT

    def run_shard(self, task: Task) -> KeptPart:
        """Write one part."""
        path, span = task.work
        dtype, cut = self.staged.dtype, self.staged.bucketing

        def give(out: Any) -> None:
            for rows in self._in_order(span):
                out(to_records(rows, dtype))

        _, (file,), info = write_records(self.folder, path, dtype, cut, self.limits, give, synced=True)
        return KeptPart(span.first, span.last, file, tuple(info["file"]), info["histogram"])

    def _in_order(self, span: BucketRange) -> Iterator[Words]:
        """Yield the records of buckets, as many at a time as fit in memory."""
        most = self.limits.records(self.limits.range, self.staged.dtype)
        for part in buckets.choose_ranges(np.array(span.counts), most):
            moved = BucketRange(part.first + span.first, part.last + span.first, part.counts)
            yield from self.staged.sorted(moved, self.limits)


def keep_tasks(staged: Staged, path: str) -> list[Task]:
    """Return the tasks of `KeepStage`: files below `path`, none where there are no records."""
    tasks = []
    for number, span in enumerate(staged.ranges(Limits(range=PART_BYTES))):
        size = span.records * staged.dtype.itemsize
        source = FileInfo(f"buckets {span.first} to {span.last - 1}", size, "")
        work = f"{path}/{number:06d}.keys", span
        tasks.append(Task(f"{path} {number}", (), (Input(source.path, source),), work))
    return tasks
