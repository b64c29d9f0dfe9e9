"""Bounds of partitions, and the numbers of rows of files: from the listing, the journal and the parameters, never from workers or memory.

The journal's word on a file counts while the file has the recorded size and time stamp, or else bytes, which are hashed when the number of
rows alone is asked. Where a file can be cut is taken on its word for a file of the recorded size: readers of parts see what is wrong. Cost:
the journals of the dataset; of shards that are to be cut and that no journal knows, a table's footer, or one pass over the bytes of a plain
file.
"""

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import overload

import xxhash

from dolma_dask.dataset import Dataset, Shard
from dolma_dask.display import counted
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.layout import FileFormat
from dolma_dask.io import files
from dolma_dask.io.files import READ_BYTES, FileInfo
from dolma_dask.io.parquet import row_groups
from dolma_dask.io.stored import START, Member, Section
from dolma_dask.journal import Record, journals
from dolma_dask.reading import AttributeSets, AttributeSource, RowRange

TEXT_PER_STORED_BYTE: Mapping[FileFormat, float] = {
    "jsonl": 1.0,
    "jsonl.gz": 3.0,
    "jsonl.zst": 3.3,
    "parquet": 3.0,
}
"""Bytes of lines for a stored byte where nothing tells them; measured on 22 MB of web text in many languages (gzip level 6, zstd level 3)."""


@dataclass(frozen=True)
class KnownFile:
    """Facts of a record about a file that was written or read."""

    finished: float  # when, in seconds since 1970
    bytes: int  # its stored size
    checksum: str  # of its stored bytes
    stamp: str  # when it was read; empty: not known
    rows: int | None  # None: not known
    members: tuple[tuple[int, int, int], ...] = ()
    """See `dolma_dask.io.records.FileRecord`; empty: not known, or none."""


@dataclass(frozen=True)
class Extent:
    """The size of a document file, and where it can be cut."""

    text_bytes: int  # of its lines, decompressed; an estimate where nothing tells it
    rows: int | None  # None: not known
    members: tuple[Member, ...] = ()  # points in order, the start first; empty where it cannot be cut
    checksum: str = ""  # of the file that has so many rows; empty: the listed one is known to be that


@dataclass(frozen=True)
class EntryPoints:
    """Points in the files of a dataset at which reading can begin."""

    root: str  # of the dataset
    _known: Mapping[str, Sequence[KnownFile]] = field(default_factory=dict, repr=False)
    _tables: dict[str, tuple[Member, ...]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, root: str) -> "EntryPoints":
        """Read what the journals say."""
        return cls(root, _known_files(root))

    def documents(self, shard: Shard, largest: int | None) -> Extent:
        """Return the extent of a document file; one with more than `largest` bytes of lines is searched for points to cut it at if no journal knows them."""
        path = layout.document_path(shard.path)
        kind = layout.format_of(path)
        rows, members, checksum = self._recorded(path, shard.bytes, shard.stamp)
        end = members[-1] if members else START
        size = end.text_offset + int(TEXT_PER_STORED_BYTE[kind] * (shard.bytes - end.offset))
        if largest is None or size <= largest:
            return Extent(size, rows, (), checksum)
        if len(members) > 1:
            return Extent(size, rows, members, checksum)
        if kind == "parquet":
            members, rows = row_groups(files.join(self.root, path))
            checksum = ""
        elif kind == "jsonl":
            members, rows = scan_lines(files.join(self.root, path), largest)
            checksum = ""
        return Extent(size, rows, members if len(members) > 1 else (), checksum)

    def attributes(self, info: FileInfo) -> tuple[Member, ...]:
        """Return the points of an attribute file, the start first."""
        if layout.format_of(info.path) != "parquet":
            return self._recorded(info.path, info.bytes, info.stamp)[1] or (START,)
        if info.path not in self._tables:
            self._tables[info.path] = row_groups(files.join(self.root, info.path))[0] or (START,)
        return self._tables[info.path]

    def _recorded(self, path: str, size: int, stamp: str) -> tuple[int | None, tuple[Member, ...], str]:
        """Return the rows and members of a file of that size, and its checksum if that has to tell whether it is the one.

        The records that speak of the same bytes as the newest one that knows the stamp, or as the newest of all.
        """
        records = [known for known in self._known.get(path, ()) if known.bytes == size]
        if not records:
            return None, (), ""
        proved = [known for known in records if stamp and known.stamp == stamp]
        newest = max(proved or records, key=lambda known: known.finished)
        same = [known for known in records if known.checksum == newest.checksum]
        members = max((known.members for known in same), key=len)
        rows = next((known.rows for known in same if known.rows is not None), None)
        checksum = "" if proved or rows is None else newest.checksum
        return rows, tuple(Member(*each) for each in members), checksum


def last_before(members: Sequence[Member], row: int) -> Member:
    """Return the last point at or before a row."""
    return max((member for member in members if member.row <= row), key=lambda member: member.row)


def scan_lines(url: str, step: int) -> tuple[tuple[Member, ...], int]:
    """Find the starts of lines about every `step` bytes of a plain file, and the number of its lines.

    Cost: 3 GB/s where the disk gives as much.
    """
    members, row, offset, last = [START], 0, 0, b"\n"
    with files.open_read(url) as handle:
        while piece := handle.read(READ_BYTES):
            goal = members[-1].offset + step
            at = piece.find(b"\n", max(goal - offset - 1, 0)) if goal <= offset + len(piece) else -1
            while at >= 0:
                members.append(Member(offset + at + 1, row + piece.count(b"\n", 0, at + 1), offset + at + 1))
                at = piece.find(b"\n", at + step)
            row += piece.count(b"\n")
            offset += len(piece)
            last = piece[-1:]
    if len(members) > 1 and members[-1].offset == offset:
        members.pop()
    return tuple(members), row + (last != b"\n")


def _known_files(root: str) -> dict[str, list[KnownFile]]:
    """Return what records say of each file, by its path."""
    known_files: dict[str, list[KnownFile]] = {}
    for journal in journals(root):
        for record in journal.records.values():
            for path, known in (*_written(record), *_read(record)):
                known_files.setdefault(path, []).append(known)
    return known_files


def _written(record: Record) -> Iterator[tuple[str, KnownFile]]:
    """Yield the documents and attributes that a record says were written."""
    for file in record.files:
        if file.path.startswith((f"{layout.DOCUMENTS}/", f"{layout.ATTRIBUTES}/")):
            rows = file.rows if file.rows or file.members else None
            yield (
                file.path,
                KnownFile(record.finished, file.bytes, file.checksum, file.stamp, rows, file.members),
            )


def _read(record: Record) -> Iterator[tuple[str, KnownFile]]:
    """Yield the documents that attributes were made from: they have as many rows."""
    if any(file.path.startswith(f"{layout.ATTRIBUTES}/") for file in record.files):
        path = layout.document_path(record.shard)
        for item in record.inputs:
            if item.path == path:
                yield path, KnownFile(record.finished, item.bytes, item.checksum, item.stamp, record.rows)


PARTITION_BYTES = 64_000_000
"""Default for the bytes of lines in a partition: seconds of work, far above the cost of a task."""

SMALLEST_BYTES = 1 << 16
"""Least size that a shard counts as, so that no partition opens thousands of files."""

LARGE_BYTES = 1_000_000_000
"""Text of one partition that is worth a warning."""


class LargePartitionWarning(UserWarning):
    """A file that cannot be cut makes a partition that may not fit into the memory of a worker."""


@dataclass(frozen=True)
class ShardPart:
    """Part of a partition that lies in one shard."""

    shard: Shard  # the documents
    sources: tuple[AttributeSource, ...] = ()  # its attribute files, without keys: those the reader knows
    part: RowRange | None = None  # None: all of the shard
    rows: int | None = None  # how many rows that is; None: not known
    checksum: str = ""
    """Of the document file that the number of rows is about; empty: the listed one is known to be that."""


@dataclass(frozen=True)
class Partition:
    """Rows of one task: some shards, or a range of one."""

    pieces: tuple[ShardPart, ...]

    @property
    def rows(self) -> int | None:
        """Number of rows; None: not known, or not before a file is looked into."""
        return sum_known([None if piece.checksum else piece.rows for piece in self.pieces])

    def reading(self, sets: Collection[str]) -> "Partition":
        """Return the partition without the attribute files of other sets."""
        pieces = (
            replace(piece, sources=tuple(source for source in piece.sources if source.name in sets))
            for piece in self.pieces
        )
        return Partition(tuple(pieces))

    def __repr__(self) -> str:
        """Say what it is, in the words of the files: this stands in the warnings of workers."""
        if not self.pieces:
            return "<Partition>"
        first, *others = self.pieces
        part = first.part
        rows = f" rows {part.first_row}-{part.first_row + part.rows - 1}" if part else ""
        more = f" and {counted(len(others), 'other')}" if others else ""
        return f"<Partition {first.shard.path}{rows}{more}>"


@dataclass(frozen=True)
class Partitions(Sequence[Partition]):
    """The partitions of a dataset, in the order of their rows.

    Dask asks again and again for the token of what it is given; here it is computed once.
    """

    items: tuple[Partition, ...]

    @cached_property
    def _token(self) -> str:
        digest = xxhash.xxh3_128()
        for item in self.items:
            digest.update(repr(item.pieces).encode())
        return digest.hexdigest()

    def __dask_tokenize__(self) -> str:
        return self._token

    def reading(self, sets: Collection[str]) -> "Partitions":
        """Return the partitions without the attribute files of other sets, which then do not travel."""
        return Partitions(tuple(item.reading(sets) for item in self.items))

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> Partition: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Partition]: ...

    def __getitem__(self, index: int | slice) -> Partition | Sequence[Partition]:
        return self.items[index]

    def __repr__(self) -> str:
        return f"<{counted(len(self.items), 'partition')}>"


def sum_known(numbers: Sequence[int | None]) -> int | None:
    """Return the sum of numbers; None if one of them is."""
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def cut(
    dataset: Dataset, sets: AttributeSets | None, partition_bytes: int | None, *, with_text: bool
) -> Partitions:
    """Cut a dataset into partitions of about `partition_bytes` of lines (None: one per shard); with text, a large one that cannot be cut is a warning."""
    if partition_bytes is not None and not _is_size(partition_bytes):
        raise UsageError(
            f"partition_bytes={partition_bytes!r}; expected a whole number of bytes from 1 on, such as 64_000_000, or None for one partition "
            "per shard."
        )
    points = EntryPoints.of(dataset.root)
    extents = [points.documents(shard, partition_bytes) for shard in dataset.shards]
    if with_text:
        _warn_of_large(dataset, extents)
    groups = _groups(extents, partition_bytes)
    items = [_partition(dataset, sets, points, group, extents) for group in groups]
    return Partitions(tuple(items) or (Partition(()),))


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


@dataclass(frozen=True)
class _Group:
    """Shards by number, or a part of one."""

    numbers: tuple[int, ...]
    part: RowRange | None = None


def _groups(extents: Sequence[Extent], partition_bytes: int | None) -> Iterator[_Group]:
    waiting: list[int] = []
    size = 0
    for number, extent in enumerate(extents):
        added = max(extent.text_bytes, SMALLEST_BYTES)
        parts = ranges(extent, partition_bytes) if partition_bytes is not None else []
        is_full = partition_bytes is None or size + added > partition_bytes
        if waiting and (parts or is_full):
            yield _Group(tuple(waiting))
            waiting, size = [], 0
        if parts:
            yield from (_Group((number,), part) for part in parts)
        else:
            waiting.append(number)
            size += added
    if waiting:
        yield _Group(tuple(waiting))


def ranges(extent: Extent, partition_bytes: int) -> list[RowRange]:
    """Cut a file at its members into parts of at most `partition_bytes`, or of one larger member; no part: it stays whole."""
    members, rows = extent.members, extent.rows
    if len(members) < 2 or rows is None:
        return []
    ends = [*(member.text_offset for member in members[1:]), extent.text_bytes]
    starts = [members[0]]
    for member, end in zip(members[1:], ends[1:], strict=True):
        if end - starts[-1].text_offset > partition_bytes:
            starts.append(member)
    if len(starts) < 2:
        return []
    return [_range(start, stop, rows) for start, stop in zip(starts, [*starts[1:], None], strict=True)]


def _range(start: Member, stop: Member | None, rows: int) -> RowRange:
    if stop is None:
        return RowRange(Section(start), rows - start.row, is_last=True)
    return RowRange(Section(start, stop.offset), stop.row - start.row, is_last=False)


def _partition(
    dataset: Dataset,
    sets: AttributeSets | None,
    points: EntryPoints,
    group: _Group,
    extents: Sequence[Extent],
) -> Partition:
    pieces = []
    for number in group.numbers:
        shard, part = dataset.shards[number], group.part
        rows = extents[number].rows if part is None else part.rows
        sources = tuple(_sources(sets, shard, part, points))
        pieces.append(ShardPart(shard, sources, part, rows, extents[number].checksum))
    return Partition(tuple(pieces))


def _sources(
    sets: AttributeSets | None, shard: Shard, part: RowRange | None, points: EntryPoints
) -> Iterator[AttributeSource]:
    """Yield the attribute files of a shard, as small as they can be: they go to workers with every partition."""
    for source in sets.sources(shard, ()) if sets else ():
        start = START if part is None else last_before(points.attributes(source.info), part.first_row)
        proof = source.proof and replace(source.proof, members=())
        yield replace(source, proof=proof, prefix=f"{source.name}/", start=start)


def _warn_of_large(dataset: Dataset, extents: Sequence[Extent]) -> None:
    large = [
        (shard, extent)
        for shard, extent in zip(dataset.shards, extents, strict=True)
        if extent.text_bytes > LARGE_BYTES and not extent.members
    ]
    if large:
        shard, extent = large[0]
        more = f", nor {counted(len(large) - 1, 'other shard')}" if len(large) > 1 else ""
        warnings.warn(
            f"{dataset.root}/documents/{shard.path} has about {extent.text_bytes / 1e9:,.1f} GB of lines and cannot be cut, because nothing "
            f"tells where its rows start{more}; its text is one "
            "partition and must fit into the memory of a worker. Write it again in members (dolma-dask convert or mix), or ask for columns "
            "without text.",
            LargePartitionWarning,
            stacklevel=5,
        )
