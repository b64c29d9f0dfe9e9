"""Reading in a worker: the requested columns of a partition as Arrow batches, and no others.

Memory: the requested columns of one partition, and a few blocks. A file must still be the one that was listed: partitions are ranges of it.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.dataset import shard_info
from dolma_dask.errors import BadRecordError, SchemaError, SourceChangedError
from dolma_dask.formats import layout
from dolma_dask.formats.documents import METADATA, STRINGS
from dolma_dask.formats.exact_numbers import inexact, integers, nearest
from dolma_dask.formats.json.attributes import AttributeKind
from dolma_dask.formats.metadata import is_field
from dolma_dask.frames.cutting import Partition, ShardPart
from dolma_dask.frames.naming import FrameColumn
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.records import Block
from dolma_dask.io.stream import MAX_RECORD_BYTES
from dolma_dask.processes import keep_freed_memory
from dolma_dask.reading.follower import checksum_of, count_rows
from dolma_dask.reading.reader import AlignedReader, AlignedShard

OnBadRow = Literal["fail", "null"]

READ_AT_ONCE = 3 << 20
"""Decompressed bytes per block: less than the 4 MiB from which on NumPy asks for huge pages, which a virtual machine may get slowly (0.9 times the CPU of 8 MiB there, measured)."""


class PartitionSource(Struct, frozen=True):
    """Reads partitions of one dataset; goes to workers with every task."""

    root: str  # of the dataset
    columns: tuple[FrameColumn, ...]  # all that can be requested
    default_source: str | None = None  # source of documents that lack the field
    on_bad_record: OnBadRow = "fail"  # what happens to a document that could not be read
    max_record_bytes: int = MAX_RECORD_BYTES  # A longer line is bad

    def select(self, names: Sequence[str]) -> tuple[FrameColumn, ...]:
        """Return columns by name, in the requested order."""
        known = {column.name: column for column in self.columns}
        return tuple(known[name] for name in names)

    def count(self, partition: Partition) -> int:
        """Return the number of rows; lines are only counted where it is not known."""
        return sum(map(self._count, partition.pieces))

    def _count(self, piece: ShardPart) -> int:
        if piece.rows is not None and not piece.checksum:
            return piece.rows
        info = shard_info(piece.shard)
        self._check_listed(info)
        url = files.join(self.root, info.path)
        if piece.rows is not None and checksum_of(url, info) == piece.checksum:
            return piece.rows
        return count_rows(url) if piece.part is None else self._count_part(piece)

    def _count_part(self, piece: ShardPart) -> int:
        """Read some rows of a file that the journal does not know any more; raises if they are others than it knew."""
        work = replace(self._work(piece, ()), documents=("id",))
        return sum(block.num_rows for block in work.open(max_record_bytes=self.max_record_bytes))

    def read(self, partition: Partition, columns: Sequence[FrameColumn]) -> Iterator[pa.RecordBatch]:
        """Yield batches with the given columns, one or more, in their order."""
        keep_freed_memory()
        for piece in partition.pieces:
            stored = tuple(dict.fromkeys(part for column in columns for part in column.stored))
            metrics = {column.path: column.value for column in columns if column.value is not None}
            work = replace(self._work(piece, stored), computed=metrics)
            for info in work.files:
                self._check_listed(info)
            reader = work.open(max_record_bytes=self.max_record_bytes, block_bytes=READ_AT_ONCE)
            names = [column.path for column in columns]
            for block in reader:
                if self.on_bad_record == "fail":
                    _check_readable(reader, block)
                batch = block.batch.select(names)
                yield _in_doubles(work, block.first_row, batch)
            if piece.rows not in (None, reader.state.rows) and not piece.checksum:
                raise SourceChangedError(
                    f"{work.url} has {reader.state.rows} rows; expected {piece.rows} rows, as the journal says. Was it edited since? Read its "
                    "shards whole (partition_bytes=None), or write the documents again.",
                    url=work.url,
                )

    def _work(self, piece: ShardPart, columns: Sequence[FrameColumn]) -> AlignedShard:
        fields: dict[str, FrameColumn] = {column.key: column for column in columns if column.set is None}
        requested: dict[str, list[FrameColumn]] = {}
        for column in columns:
            if column.set is not None:
                requested.setdefault(column.set, []).append(column)
        return AlignedShard(
            root=self.root,
            shard=piece.shard,
            documents=tuple(name for name in fields if name in (*STRINGS, METADATA)),
            fields=_kinds([column for name, column in fields.items() if is_field(name)]),
            sources=tuple(
                replace(source, kinds=_kinds(requested[source.name]))
                for source in piece.sources
                if source.name in requested
            ),
            default_source=self.default_source,
            range=piece.part,
            checksum=False,
            exact=True,
        )

    def _check_listed(self, info: FileInfo) -> None:
        """Refuse a file that was written since it was listed."""
        url = files.join(self.root, info.path)
        now = files.stat(url)
        if now is None or (now.bytes, now.stamp) != (info.bytes, info.stamp):
            state = "is gone" if now is None else f"has {now.bytes} bytes ({now.stamp})"
            raise SourceChangedError(
                f"{url} {state}; expected {info.bytes} bytes ({info.stamp}), as when the dataset was opened. Open the dataset and call "
                "read_dataframe or read_bag again.",
                url=url,
            )

    def __repr__(self) -> str:
        return f"<{self.root}: {len(self.columns)} columns>"


def _kinds(columns: Sequence[FrameColumn]) -> dict[str, AttributeKind]:
    return {column.key: column.kind for column in columns if column.kind != "text"}


def _in_doubles(work: AlignedShard, first_row: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with float64 for numbers; raise `SchemaError` for an integer that no double holds."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        rows = np.flatnonzero(inexact(column))
        if len(rows):
            path, (number,) = layout.document_path(work.shard.path), integers(column, rows[:1])
            row = first_row + int(rows[0])
            raise SchemaError(
                f"{path}, row {row}: {name} is {number}; expected numbers that float64 holds, as dataframe columns are. Leave the column out, or "
                "convert the field to a string; rules (--where) and dedupe compare all digits.",
                shard=work.shard.path,
                row=row,
                column=name,
            )
    return pa.RecordBatch.from_arrays([nearest(column) for column in batch.columns], names=batch.schema.names)


def _check_readable(reader: AlignedReader, block: Block) -> None:
    """Raise for the first document of a block that could not be read now, or when its attributes were made."""
    advice = 'Mend the file, or read such rows as nulls: on_bad_record="null".'
    for record in block.bad:
        raise record.error(advice)
    work, row = reader.work, reader.first_unreadable
    if row is not None:
        path = files.join(work.root, work.sources[0].info.path)
        raise BadRecordError(
            f"{path}, row {row}: no id; expected that of {layout.document_path(work.shard.path)}, which could not be read when its attributes "
            f"were made. {advice}",
            url=path,
            row=row,
            reason="unreadable_document",
        )
