"""One row of a file of documents or attributes, without the others: reading begins at the last known point before it.

Cost: half a gzip member on average, 8 MiB of text as this package writes them; of a file of which no points are known, all that stands before the row.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.json.exact import Field, id_kind
from dolma_dask.formats.json.lines import scan_documents
from dolma_dask.io.decompress import compression_of, read_pieces
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.files import FileInfo
from dolma_dask.io.parquet import open_parquet
from dolma_dask.io.records import Block
from dolma_dask.io.stored import START, Member, Section, StoredFile
from dolma_dask.reading.entry_points import EntryPoints, last_before
from dolma_dask.reading.reader import AlignedShard, RowRange

_PIECE_BYTES = 1 << 18
_END = ord("\n")


def read_row(
    url: str,
    row: int,
    start: Member = START,
    columns: Sequence[str] = ("id", "source", "text"),
    *,
    ids_as_text: bool = True,
) -> dict[str, str | None] | None:
    """Return some columns of one row by name; those that the document lacks, or that cannot be read, are None.

    Parameters
    ----------
    url : str
        A file of documents.
    row : int
        From 0.
    start : Member
        A point at or before the row; in a table the first row of a row group.
    columns : sequence of str
        See `dolma_dask.io.documents.DocumentFile`.
    ids_as_text : bool
        Whether an id that is a whole number is its decimal text.

    Returns
    -------
    dict or None
        None: the file has no such row.

    Raises
    ------
    CorruptFileError
        The file is gone, damaged, or cannot be entered at `start`.
    """
    if layout.format_of(url) == "parquet":
        return _row_of_table(url, row, start, columns, ids_as_text)
    line = read_line(url, row, start)
    if line is None:
        return None
    data = np.frombuffer(line, np.uint8)
    fields = [Field(name, id_kind(ids_as_text) if name == "id" else "string") for name in columns]
    batch, _ = scan_documents(data, np.array([0, len(data)], np.int64), fields)
    return _row(batch, 0)


def read_line(url: str, row: int, start: Member = START) -> bytes | None:
    """Return one line of a file of lines, with its newline; None if there is no such line."""
    stored = StoredFile(url, Section(start))
    left, parts = row - start.row, list[bytes]()
    try:
        for piece in read_pieces(stored, compression_of(url), _PIECE_BYTES):
            count = piece.count(b"\n") if left else 0
            if count < left:
                left -= count
                continue
            at = _after_newline(piece, left)
            left, end = 0, piece.find(b"\n", at) + 1
            parts.append(piece[at : end or len(piece)])
            if end:
                return b"".join(parts)
    finally:
        stored.close()
    line = b"".join(parts)
    return line + b"\n" if line else None


def _after_newline(piece: bytes, number: int) -> int:
    """Return where the line behind so many newlines begins."""
    if not number:
        return 0
    return int(np.flatnonzero(np.frombuffer(piece, np.uint8) == _END)[number - 1]) + 1


def _row_of_table(
    url: str, row: int, start: Member, columns: Sequence[str], ids_as_text: bool
) -> dict[str, str | None] | None:
    # a source that the documents lack may be that of the dataset
    file = DocumentFile(
        url, columns, source="", ids_as_text=ids_as_text, section=Section(start), checksum=False
    )
    for block in file:
        if row < block.first_row + block.num_rows:
            found = _row(block.batch, row - block.first_row)
            return {name: value or None if name == "source" else value for name, value in found.items()}
    return None


def _row(batch: pa.RecordBatch, at: int) -> dict[str, str | None]:
    return {name: batch.column(name)[at].as_py() for name in batch.schema.names}


def read_table_row(url: str, row: int, columns: Sequence[str] | None = None) -> dict[str, Any] | None:
    """Return one row of a Parquet file by column; None if there is no such row. Cost: its row group."""
    with open_parquet(url) as file:
        for number in range(file.num_row_groups):
            count = file.metadata.row_group(number).num_rows
            if row < count:
                group = file.read_row_group(number, columns=columns, use_threads=False)
                return dict(group.slice(row, 1).to_pylist()[0])
            row -= count
    return None


def read_attributes(url: str, row: int, start: Member = START) -> tuple[str | None, dict[str, Any]]:
    """Return the id in one row of an attribute file, and its attributes by key: null ones, and those of a row that is not there, are left out."""
    if layout.format_of(url) == "parquet":
        found = read_table_row(url, row) or {}
    else:
        line = read_line(url, row, start)
        found = {} if line is None else msgspec.json.decode(line, type=dict[str, Any])
    inside = found.pop("attributes", None)
    own = {key: value for key, value in found.items() if key not in ("id", "source", "error")}
    values = inside if isinstance(inside, dict) else own
    id = found.get("id")
    return None if id is None else str(id), {key: value for key, value in values.items() if value is not None}


def aligned_row(shard: AlignedShard, row: int, points: EntryPoints) -> Block:
    """Return one row of documents with their attributes, proved as in any other reading.

    Raises `UsageError`: there is no such row. Raises what `AlignedShard.open` does.
    """
    document = layout.document_path(shard.shard.path)
    info = FileInfo(document, shard.shard.bytes, shard.shard.stamp)
    start = last_before(points.attributes(info), row)
    sources = tuple(
        replace(source, start=last_before(points.attributes(source.info), start.row))
        for source in shard.sources
    )
    part = RowRange(Section(start), row - start.row + 1, is_last=False)
    for block in replace(shard, sources=sources, range=part, digests=False).open():
        at = row - block.first_row
        if at < block.num_rows:
            return Block(block.batch.slice(at, 1), row, tuple(bad for bad in block.bad if bad.row == row))
    raise UsageError(f"{shard.url} has no row {row:,}; expected a row that is there.")
