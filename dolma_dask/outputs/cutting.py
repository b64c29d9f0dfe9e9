"""Output files of a given size: how they are named and cut, and members of gzip and zstd files that they are put together from, byte for byte."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Any, ClassVar

import pyarrow as pa
from isal import isal_zlib
from msgspec import Struct

from dolma_dask.engine import Task, grouped
from dolma_dask.errors import UsageError
from dolma_dask.formats.layout import DOCUMENT_SUFFIXES, FileFormat, format_of
from dolma_dask.io import files
from dolma_dask.io.publish import publish
from dolma_dask.io.records import FileRecord
from dolma_dask.io.staging import StagingReader, content_bytes
from dolma_dask.journal import Record
from dolma_dask.sinks.documents import open_writer
from dolma_dask.sinks.jsonl import MEMBER_BYTES

PACKING_VERSION = 1
"""Raised whenever files that are cut by size, or shuffled, get other bytes for the same rows."""

DEFAULT_SIZE = 2 << 30
"""Stored bytes of an output file at most, by default: that of the Dolma toolkit."""

MEMBERS_PER_FILE = 16
"""Members that a full file consists of at least, so that little room is left at its end."""

MEMBERS_OF_A_SHARE = 64
"""The same where the number of files is given, and their size depends on what is kept."""

MIN_MEMBER = 1 << 10

MAX_FILES = 100_000

_SUFFIX: Mapping[FileFormat, str] = {
    "jsonl.gz": ".json.gz",
    "jsonl.zst": ".json.zst",
    "jsonl": ".json",
    "parquet": "",
}
"""Suffixes that the Dolma toolkit gives the last file of a stream."""


class FilePacking(Struct, frozen=True):
    """Rule by which output files are cut and named."""

    prefix: str  # of their paths, with the folder and the name: ``documents/part``
    file_format: FileFormat
    max_bytes: int = DEFAULT_SIZE  # stored bytes of a file at most
    seed: int | None = None  # of a shuffle; None: in the order of shards and rows
    count: int | None = None  # of files of about the same size, in place of `max_bytes`
    reads: ClassVar[tuple[str, ...]] = DOCUMENT_SUFFIXES
    by_inputs: bool = False
    """Cut as the Dolma toolkit does: by the stored sizes of the inputs, which are not divided, with
    another suffix for the last file."""

    def __post_init__(self) -> None:
        if self.file_format == "parquet" and self.count is None:
            raise UsageError(
                "the size of a Parquet file is known when it is written; expected the number of files in `shards`, such as shards=64, or a format of JSON lines."
            )
        if isinstance(self.max_bytes, bool) or not isinstance(self.max_bytes, int) or self.max_bytes < 1:
            raise UsageError(f"max_size={self.max_bytes!r}; expected stored bytes of a file, 1 or more.")
        is_number = isinstance(self.count, int) and not isinstance(self.count, bool)
        if self.count is not None and not (is_number and 1 <= self.count <= MAX_FILES):
            raise UsageError(f"shards={self.count!r}; expected a number of files, 1 to {MAX_FILES:,}.")

    @property
    def piece_format(self) -> FileFormat:
        """Format of the pieces; members of JSON lines are copied, or read into the row groups of a table."""
        return "jsonl.gz" if self.file_format == "parquet" else self.file_format

    def member_bytes(self, text_bytes: int) -> int:
        """Return how much text a member has, given that of all documents that are read, about; most of them may be left out."""
        wanted = self.max_bytes // MEMBERS_PER_FILE
        if self.count is not None:
            wanted = text_bytes // (self.count * MEMBERS_OF_A_SHARE)
        return min(max(wanted, MIN_MEMBER), MEMBER_BYTES)

    def path(self, number: int, count: int) -> str:
        """Return the path of an output file."""
        is_last = self.by_inputs and number == count - 1
        suffix = _SUFFIX[self.file_format] if is_last else f".{self.file_format}"
        return f"{self.prefix}-{numbered(number, count, 4)}{suffix}"

    def with_others(self, path: str) -> tuple[str, ...]:
        """Return an output file, beside which nothing stands."""
        return (path,)

    def is_output(self, path: str) -> bool:
        """Tell whether a path is one that output files of this name have, whatever their number and format."""
        number, _, suffix = path.removeprefix(f"{self.prefix}-").partition(".")
        is_named_so = path.startswith(f"{self.prefix}-") and number.isdigit()
        return is_named_so and f".{suffix}" in (*DOCUMENT_SUFFIXES, *_SUFFIX.values())

    def params(self) -> dict[str, Any]:
        """Return what decides the output."""
        return {
            "prefix": self.prefix,
            "format": self.file_format,
            "max_bytes": self.max_bytes,
            "shuffle": self.seed,
            "by_inputs": self.by_inputs,
            **({} if self.count is None else {"count": self.count}),
        }


def numbered(number: int, count: int, digits: int) -> str:
    """Return the number of one of some files in so many digits, or as many more as let names sort as numbers do."""
    return str(number).zfill(max(digits, len(str(count - 1))))


class PieceMember(Struct, frozen=True):
    """A member of a piece."""

    path: str  # of the piece
    checksum: str  # of the piece
    start: int  # stored bytes
    stop: int
    rows: int
    text_bytes: int


def runs_of(members: Sequence[PieceMember]) -> list[list[PieceMember]]:
    """Return members that lie behind each other in one piece together."""
    return [list(run) for _, run in groupby(members, lambda member: member.path)]


class JoinStage(Struct, frozen=True):
    """The last pass: output files as members of pieces, byte for byte, or tables of their rows."""

    target: str
    folder: str
    verb: str = "mix"

    def run_shard(self, task: Task) -> list[Record]:
        """Put one file together; see `dolma_dask.engine.Stage`."""
        unit = task.unit
        if format_of(unit.name) == "parquet":
            return [self._table(task)]
        starts: list[tuple[int, int, int]] = []
        rows = text = 0
        with publish(files.join(self.target, unit.name)) as out:
            for run in runs_of(task.work):
                first = run[0].start
                for member in run:
                    starts.append((out.bytes + member.start - first, rows, text))
                    rows, text = rows + member.rows, text + member.text_bytes
                url = files.join(self.folder, run[0].path)
                with StagingReader(url, run[0].checksum, scattered=True) as piece:
                    for part in piece.parts(first, run[-1].stop):
                        out.write(part)
        file = FileRecord(unit.name, out.bytes, out.checksum, rows, tuple(starts))
        return [task.record([file], rows=rows, counts={"bytes_out": out.bytes})]

    def _table(self, task: Task) -> Record:
        """Put one table together; memory is about twice a row group."""
        with open_writer(self.target, task.unit.name) as writer:
            for run in runs_of(task.work):
                with StagingReader(
                    files.join(self.folder, run[0].path), run[0].checksum, scattered=True
                ) as piece:
                    for member in (one for one in run if one.rows):
                        stored = piece.read(member.start, member.stop - member.start)
                        data = isal_zlib.decompress(stored, wbits=31)
                        writer.write(pa.array(data.split(b"\n")[:-1], pa.large_binary()))
        file = writer.record
        return task.record([file], rows=file.rows, counts={"bytes_out": file.bytes})


def fill_files(pieces: Sequence[Record], max_bytes: int) -> list[list[PieceMember]]:
    """Return what output files are put together from: members in order, up to a stored size; an empty member if there are no rows."""
    members = (member for piece in pieces for member in members_of(piece))
    groups = grouped(members, lambda member: member.stop - member.start, max_bytes)
    return groups or [[empty_member(pieces[0])]]


def spread_files(pieces: Sequence[Record], count: int) -> list[list[PieceMember]]:
    """Return what so many output files are put together from: members in order, about the same stored bytes in each; fewer files if there are fewer members."""
    members = [member for piece in pieces for member in members_of(piece)]
    ends = list(accumulate(member.stop - member.start for member in members))
    groups, first = list[list[PieceMember]](), 0
    for left in range(min(count, len(members)), 0, -1):
        done = ends[first - 1] if first else 0
        goal = done + (ends[-1] - done) / left
        # the end that is nearest to the goal, with a member at least for this file and for each that follows
        last = min(bisect_left(ends, goal), len(ends) - 1)
        stop = last + (ends[last] - goal <= goal - (ends[last - 1] if last else 0))
        stop = min(max(stop, first + 1), len(members) - left + 1)
        groups.append(members[first:stop])
        first = stop
    return groups or [[empty_member(pieces[0])]]


def cut_by_inputs(pieces: Sequence[Record], sizes: Sequence[int], max_bytes: int) -> list[list[PieceMember]]:
    """Return the same as the Dolma toolkit cuts files: by the stored sizes of the inputs, which are not divided."""
    groups = grouped(zip(pieces, sizes, strict=True), lambda item: item[1], max_bytes)
    return [
        [member for piece, _ in group for member in members_of(piece)] or [empty_member(group[0][0])]
        for group in groups
    ]


def members_of(piece: Record) -> Iterator[PieceMember]:
    """Yield the members of a piece that hold rows."""
    file = piece.files[0]
    starts = [*file.members, (content_bytes(file.bytes), file.rows, int(piece.info["text_bytes"]))]
    for (first, row, text), (end, last, stop) in pairwise(starts):
        if last > row:
            yield PieceMember(file.path, file.checksum, first, end, last - row, stop - text)


def empty_member(piece: Record) -> PieceMember:
    """Return the one member, without rows, of a piece that has none."""
    file = piece.files[0]
    return PieceMember(file.path, file.checksum, 0, content_bytes(file.bytes), 0, 0)
