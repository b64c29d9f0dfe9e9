"""Rows of a dataframe beside the documents that they must belong to: read again, compared row by row, written as attributes.

The documents of a shard are read once more, for the ids and sources that the rows must have, the lengths of their texts and the digests that prove the set;
nothing appears for rows that differ. A partition is some whole shards, or a range of a large one: rows of ranges are staged, and one task per shard
writes its file from all of them. Cost: reading the documents again, 440 MB of text per CPU-second.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from dolma_dask.dataset import Shard
from dolma_dask.errors import AlignmentError, DataError, SchemaError, SourceChangedError
from dolma_dask.formats import layout
from dolma_dask.formats.attributes import AttributeColumn
from dolma_dask.formats.digests import DocumentDigests
from dolma_dask.formats.documents import text_bytes
from dolma_dask.formats.json.attributes import AttributeKind
from dolma_dask.frames.cutting import Partition, ShardPart
from dolma_dask.frames.partitions import blocks_of, table_of
from dolma_dask.frames.publishing import StagedFiles
from dolma_dask.frames.values import attribute_columns, check_spans, is_of_documents, kinds_of
from dolma_dask.io import files
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.publish import publish
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.io.records import Block
from dolma_dask.journal import Record
from dolma_dask.sinks.attributes import AttributeWriter
from dolma_dask.sinks.base import ArrowSink
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import code_point_lengths

ADVICE = (
    "Expected all rows of the documents in their order, as read_dataframe or read_bag gives them: compute the column before filter, shuffle, sort or "
    "repartition (assign, map_partitions), and join other tables on id within map_partitions."
)

_PROVED = ("id", "source", "text")
"""Columns that must be those of the documents, as far as they are there."""


class StagedRows(Struct, frozen=True):
    """Rows of a range of a shard, as an Arrow stream."""

    url: str
    partition: int


class RowFeed:
    """Rows in order, taken as many at a time as are asked for; their columns have one type for the whole of a shard, and none is null throughout."""

    def __init__(self, batches: Iterable[pa.RecordBatch], schemas: Sequence[pa.Schema], where: str) -> None:
        self._schema = _one_schema(schemas, where)
        self._batches = (self._as_one(batch) for batch in batches)
        self._held: list[pa.RecordBatch] = []

    def take(self, count: int) -> pa.RecordBatch:
        """Return the next `count` rows, or those that are left."""
        taken: list[pa.RecordBatch] = []
        while count and (batch := self._next()) is not None:
            taken.append(batch.slice(0, count))
            if len(batch) > count:
                self._held.append(batch.slice(count))
            count -= len(taken[-1])
        return pa.concat_batches(taken) if taken else pa.RecordBatch.from_pylist([], self._schema)

    @property
    def left(self) -> int:
        """Rows that nobody has taken."""
        return sum(len(batch) for batch in (*self._held, *self._batches))

    def _next(self) -> pa.RecordBatch | None:
        return self._held.pop() if self._held else next(self._batches, None)

    def _as_one(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        names = batch.schema.names
        columns = [
            batch.column(field.name).cast(field.type)
            if field.name in names
            else pa.nulls(len(batch), field.type)
            for field in self._schema
        ]
        return pa.record_batch(columns, schema=self._schema)


def _one_schema(schemas: Sequence[pa.Schema], where: str) -> pa.Schema:
    try:
        schema = pa.unify_schemas(list(schemas), promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise SchemaError(
            f"{where}: {error}; expected columns of one type. Convert them first, such as with astype.",
            partition=where,
        ) from error
    return pa.schema([field for field in schema if not pa.types.is_null(field.type)])


class AttributesWriter(Struct, frozen=True):
    """Writes the attribute files of one set; goes to workers with each partition."""

    root: str  # of the dataset
    name: str  # of the set
    file_format: layout.FileFormat | None  # None: that of the documents
    policy: RecordPolicy
    source: str | None  # of documents that lack the field
    work: str  # URL of the work folder
    verb: str = "write_attributes"

    def write(self, part: Any, number: int, partition: Partition) -> StagedFiles | StagedRows:
        """Write the shards of a partition, or stage its rows of a part of one."""
        where = f"partition {number}"
        table = _needed(table_of(part, where), where)
        if partition.pieces and partition.pieces[0].part is not None:
            return self._stage(table, number, partition.pieces[0])
        folder = self._attempt()
        feed = RowFeed((batch for _, batch in blocks_of(table)), [table.schema], where)
        records = tuple(self._shard(piece.shard, feed, folder, where) for piece in partition.pieces)
        if extra := feed.left:
            last = partition.pieces[-1].shard.path if partition.pieces else "no documents"
            raise _misaligned(f"{where} has {extra:,} rows behind the last of {last}; expected none", where)
        return StagedFiles(folder, records)

    def assemble(self, shard: Shard, parts: Sequence[StagedRows]) -> StagedFiles:
        """Write the file of a shard whose rows were staged, in order."""
        folder, first, last = self._attempt(), parts[0].partition, parts[-1].partition
        where = f"partitions {first} to {last}"
        batches = (batch for part in parts for batch in _staged(part.url))
        feed = RowFeed(batches, [_schema_of(part.url) for part in parts], where)
        return StagedFiles(folder, (self._shard(shard, feed, folder, where),))

    def _attempt(self) -> str:
        return files.join(self.work, uuid.uuid4().hex)

    def _stage(self, table: pa.Table, number: int, piece: ShardPart) -> StagedRows:
        assert piece.part is not None
        if len(table) != piece.part.rows:
            place = f"rows {piece.part.first_row:,} to {piece.part.first_row + piece.part.rows - 1:,} of {piece.shard.path}"
            raise _misaligned(
                f"partition {number} has {len(table):,} rows; expected the {piece.part.rows:,} of {place}",
                f"partition {number}",
            )
        url = files.join(self._attempt(), f"{number}.arrow")
        with (
            publish(url, synced=False) as out,
            pa.ipc.new_stream(pa.PythonFile(ArrowSink(out), mode="w"), table.schema) as stream,
        ):
            for _, batch in blocks_of(table):
                stream.write_batch(batch)
        return StagedRows(url, number)

    def _shard(self, shard: Shard, feed: RowFeed, folder: str, where: str) -> Record:
        """Write the attribute file of a shard below `folder`, from the rows that come next."""
        document, path = (
            layout.document_path(shard.path),
            layout.attribute_path(self.name, shard.path, self.file_format),
        )
        reader = DocumentFile(
            files.join(self.root, document),
            _PROVED,
            source=self.source,
            ids_as_text=shard.ids_as_text,
            max_record_bytes=self.policy.max_record_bytes,
        )
        quarantine, digests = Quarantine(self.policy), DocumentDigests()
        kinds: dict[str, AttributeKind] = {}
        rows = text = 0
        with ExitStack() as stack:
            writer = stack.enter_context(AttributeWriter(folder, path))
            for block in reader:
                quarantine.admit(block)
                digests.update(block.batch)
                columns = self._columns(block, feed.take(block.num_rows), f"{where} ({document})")
                kinds.update(kinds_of(columns))
                _write(writer, block, columns, f"{where} ({document})")
                rows += block.num_rows
                text += text_bytes(block.batch.column("text"))
            kept = quarantine.publish(folder, self.verb, shard.path)
        _check_listed(reader, shard)
        return Record(
            unit=path,
            shard=shard.path,
            key="",
            inputs=(reader.stored.record(document),),
            files=(writer.record, *kept),
            rows=rows,
            ids_digest=digests.ids,
            content_digest=digests.content,
            counts={"documents_in": rows, "text_bytes": text, "bad_records": quarantine.count},
            info={"reads": ["id", "source", "text"], "kinds": kinds},
        )

    def _columns(self, block: Block, rows: pa.RecordBatch, where: str) -> list[AttributeColumn]:
        """Return the attributes of a block of documents, once it is proved that they are of them."""
        if len(rows) < block.num_rows:
            row = block.first_row + len(rows)
            raise _misaligned(
                f"{where} has no row for row {row:,} of the documents and those behind it", where
            )
        _check_same(block, rows, where)
        try:
            return attribute_columns(self.name, rows)
        except SchemaError as error:
            raise SchemaError(f"{where}: {error}", **error.details) from error


def _needed(table: pa.Table, where: str) -> pa.Table:
    """Return the columns that are compared or written."""
    names = table.column_names
    if len(table) and not {"id", "source"} <= {*names}:
        raise SchemaError(
            f"{where} has the columns {', '.join(names)}; expected id and source among them, which prove the rows."
        )
    return table.select([name for name in names if name in _PROVED or not is_of_documents(name)])


def _staged(url: str) -> Iterator[pa.RecordBatch]:
    with closing(files.open_read(url)) as handle, pa.ipc.open_stream(handle) as stream:
        yield from stream


def _schema_of(url: str) -> pa.Schema:
    with closing(files.open_read(url)) as handle, pa.ipc.open_stream(handle) as stream:
        return stream.schema


def _check_same(block: Block, batch: pa.RecordBatch, where: str) -> None:
    """Refuse rows that are not those of the documents."""
    for name in _PROVED:
        if name not in batch.schema.names or batch.column(name).equals(block.batch.column(name)):
            continue
        found, expected = batch.column(name), block.batch.column(name)
        differs = np.asarray(
            pc.fill_null(pc.not_equal(found, expected), False).to_numpy(zero_copy_only=False), np.bool_
        )
        differs |= found.is_null().to_numpy(zero_copy_only=False) != expected.is_null().to_numpy(
            zero_copy_only=False
        )
        row = int(differs.argmax())
        if name == "text":
            raise AlignmentError(
                f"{where}: row {block.first_row + row:,} has another text than the documents now, id {block.batch.column('id')[row].as_py()!r}. Expected the "
                "same: read the dataframe again, or leave the column text out if it was changed on purpose.",
                partition=where,
            )
        raise _misaligned(
            f"{where}: row {block.first_row + row:,} of the documents has {name} {expected[row].as_py()!r}, found {found[row].as_py()!r}",
            where,
        )


def _write(writer: AttributeWriter, block: Block, columns: Sequence[AttributeColumn], where: str) -> None:
    errors = {
        record.row - block.first_row: f"{record.reason}: expected {record.expected}" for record in block.bad
    }
    lengths = code_point_lengths(pc.fill_null(block.batch.column("text"), ""))
    try:
        check_spans(columns, lengths)
        writer.write(block.batch.column("id"), block.batch.column("source"), lengths, columns, errors)
    except DataError as error:
        raise type(error)(
            f"{where}, in the rows from {block.first_row:,} on: {error}", **error.details
        ) from error


def _check_listed(reader: DocumentFile, shard: Shard) -> None:
    info = reader.stored.info
    if (info.bytes, info.stamp) != (shard.bytes, shard.stamp):
        raise SourceChangedError(
            f"{reader.url} has {info.bytes} bytes ({info.stamp}); expected {shard.bytes} bytes ({shard.stamp}), as when write_attributes was called. "
            "Read the dataframe again.",
            url=reader.url,
        )


def _misaligned(found: str, where: str) -> AlignmentError:
    return AlignmentError(f"{found}. {ADVICE}", partition=where)
