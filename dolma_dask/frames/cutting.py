"""Bounds of partitions: from the listing, the points at which files can be entered (`dolma_dask.reading.entry_points`) and the parameters, never from workers or memory.

Cost: the journals of the dataset; of shards that are to be cut and that no journal knows, a table's footer, or one pass over the bytes of a plain file.
"""

import warnings
from collections import UserList
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from itertools import pairwise

import xxhash
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.dataset import Dataset, Shard
from dolma_dask.display import counted
from dolma_dask.errors import UsageError
from dolma_dask.io.stored import START, Section
from dolma_dask.reading.entry_points import EntryPoints, Extent, last_before
from dolma_dask.reading.reader import RowRange
from dolma_dask.reading.sets import AttributeSets, AttributeSource

PARTITION_BYTES = 64_000_000
"""Default for the bytes of lines in a partition: seconds of work, far above the cost of a task."""

SMALLEST_BYTES = 1 << 16
"""Least size that a shard counts as, so that no partition opens thousands of files."""

LARGE_BYTES = 1_000_000_000
"""Text of one partition that is worth a warning."""


class LargePartitionWarning(UserWarning):
    """A file that cannot be cut makes a partition that may not fit into the memory of a worker."""


class ShardPart(Struct, frozen=True):
    """Part of a partition that lies in one shard."""

    shard: Shard  # the documents
    sources: tuple[AttributeSource, ...] = ()  # its attribute files, without keys: those the reader knows
    part: RowRange | None = None  # None: all of the shard
    rows: int | None = None  # how many rows that is; None: not known
    checksum: str = ""
    """Checksum of the document file that the number of rows is about; empty: the listed one is known to be that."""


class Partition(Struct, frozen=True):
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


class Partitions(UserList[Partition]):
    """The partitions of a dataset, in the order of their rows.

    Dask asks again and again for the token of what it is given; here it is computed once.
    """

    @cached_property
    def _token(self) -> str:
        digest = xxhash.xxh3_128()
        for item in self:
            digest.update(repr(item.pieces).encode())
        return digest.hexdigest()

    def __dask_tokenize__(self) -> str:
        return self._token

    def reading(self, sets: Collection[str]) -> "Partitions":
        """Return the partitions without the attribute files of other sets, which then do not travel."""
        return Partitions(item.reading(sets) for item in self)

    def __repr__(self) -> str:
        return f"<{counted(len(self), 'partition')}>"


def sum_known(numbers: Sequence[int | None]) -> int | None:
    """Return the sum of numbers; None if one of them is."""
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def cut(
    dataset: Dataset, sets: AttributeSets | None, partition_bytes: int | None, *, with_text: bool
) -> Partitions:
    """Cut a dataset into partitions of about `partition_bytes` of lines (None: one per shard); with text, a large one that cannot be cut is a warning."""
    if partition_bytes is not None and not (type(partition_bytes) is int and partition_bytes >= 1):
        raise UsageError(
            f"partition_bytes={partition_bytes!r}; expected a whole number of bytes from 1 on, such as 64_000_000, or None for one partition "
            "per shard."
        )
    points = EntryPoints(dataset.root)
    extents = [points.documents(shard, partition_bytes) for shard in dataset.shards]
    if with_text:
        _warn_of_large(dataset, extents)
    return Partitions(_cut(dataset, sets, points, extents, partition_bytes)) or Partitions([Partition(())])


def _cut(
    dataset: Dataset,
    sets: AttributeSets | None,
    points: EntryPoints,
    extents: Sequence[Extent],
    partition_bytes: int | None,
) -> Iterator[Partition]:
    waiting: list[ShardPart] = []
    size = 0
    for shard, extent in zip(dataset.shards, extents, strict=True):
        added = max(extent.text_bytes, SMALLEST_BYTES)
        parts = ranges(extent, partition_bytes) if partition_bytes is not None else []
        is_full = partition_bytes is None or size + added > partition_bytes
        if waiting and (parts or is_full):
            yield Partition(tuple(waiting))
            waiting, size = [], 0
        for part in parts:
            sources = tuple(_sources(sets, shard, part, points))
            yield Partition((ShardPart(shard, sources, part, part.rows, extent.checksum),))
        if not parts:
            sources = tuple(_sources(sets, shard, None, points))
            waiting.append(ShardPart(shard, sources, None, extent.rows, extent.checksum))
            size += added
    if waiting:
        yield Partition(tuple(waiting))


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
    parts = [
        RowRange(Section(start, stop.offset), stop.row - start.row, is_last=False)
        for start, stop in pairwise(starts)
    ]
    return [*parts, RowRange(Section(starts[-1]), rows - starts[-1].row, is_last=True)]


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
