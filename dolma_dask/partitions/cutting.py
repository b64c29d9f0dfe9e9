"""Bounds of partitions: a pure function of the listing, the journal and the parameters, never of workers or memory."""

import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import overload

import xxhash

from dolma_dask.dataset import Dataset, Shard
from dolma_dask.display import counted
from dolma_dask.errors import UsageError
from dolma_dask.io.stored import START, Member, Section
from dolma_dask.partitions.places import Extent, Places, last_before
from dolma_dask.reading import AttributeSets, AttributeSource, RowRange

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
    part: RowRange | None = None  # None: the whole shard
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
    places = Places.of(dataset.root)
    extents = [places.documents(shard, partition_bytes) for shard in dataset.shards]
    if with_text:
        _warn_of_large(dataset, extents)
    groups = _groups(extents, partition_bytes)
    found = [_partition(dataset, sets, places, group, extents) for group in groups]
    return Partitions(tuple(found) or (Partition(()),))


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


@dataclass(frozen=True)
class _Group:
    """Whole shards by number, or a part of one."""

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
    dataset: Dataset, sets: AttributeSets | None, places: Places, group: _Group, extents: Sequence[Extent]
) -> Partition:
    pieces = []
    for number in group.numbers:
        shard, part = dataset.shards[number], group.part
        rows = extents[number].rows if part is None else part.rows
        sources = tuple(_sources(sets, shard, part, places))
        pieces.append(ShardPart(shard, sources, part, rows, extents[number].checksum))
    return Partition(tuple(pieces))


def _sources(
    sets: AttributeSets | None, shard: Shard, part: RowRange | None, places: Places
) -> Iterator[AttributeSource]:
    """Yield the attribute files of a shard, as small as they can be: they go to workers with every partition."""
    for source in sets.sources(shard, ()) if sets else ():
        start = START if part is None else last_before(places.attributes(source.info), part.first_row)
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
