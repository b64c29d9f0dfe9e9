"""CSV and TSV: one row per record, the names of its fields in the heading. Cells stay texts: ``007`` is no number.

An empty cell of id, source or a time stamp is a missing field. Memory: a few blocks. A row with a longer document than `max_record_bytes` is bad; one
of more than 8 MiB cannot be parsed, and is an error of the file.
"""

from collections.abc import Iterator
from contextlib import closing

import msgspec
import pyarrow as pa

from dolma_dask.errors import BadRecordError, CorruptFileError
from dolma_dask.io.csv_tables import CsvTable
from dolma_dask.io.decompress import read_pieces
from dolma_dask.io.records import Block, InputRecord
from dolma_dask.io.stream import Compression, StoredFile, compression_of
from dolma_dask.sources.base import BlockBuilder, RawFile, finish
from dolma_dask.sources.documents import Record
from dolma_dask.sources.encoding import Decoder, advice
from dolma_dask.sources.functions import converter_of
from dolma_dask.sources.naming import split_suffix
from dolma_dask.sources.rows import add_row, check_columns

ROW_BYTES = 8 << 20
"""The longest row, and what is parsed at a time."""

_encode = msgspec.json.Encoder().encode


class CsvFile(RawFile, frozen=True):
    """The rows of one file of CSV or TSV."""

    def read(self, inputs: list[InputRecord] | None = None) -> Iterator[Block]:
        """Yield the documents; see `dolma_dask.sources.base.Source`."""
        with closing(StoredFile(self.url)) as stored:
            yield from read_csv(self, stored, compression_of(self.url.lower()), self.path)
            finish(stored, self.path, inputs)


def read_csv(raw: RawFile, stored: StoredFile, compression: Compression | None, name: str) -> Iterator[Block]:
    """Yield the rows of an open file, or member of an archive, of that name; nobody knows where bad ones stand in bytes."""
    decoder, bad = Decoder(raw.encoding), dict[int, tuple[str, bytes]]()
    pieces = decoder.recoded(read_pieces(stored, compression), stored.url, is_all=True)
    table = CsvTable(stored.url, pieces, "\t" if split_suffix(name).kind == "tsv" else ",")
    if not table.names:
        raise CorruptFileError(f"{stored.url}: an empty file; expected a heading.", url=stored.url)
    check_columns(stored.url, table.names, raw)
    converter = converter_of(raw.function, raw.mapping, raw.path, raw.url)
    first = stored.section.start.row
    builder = BlockBuilder(first, converter.schema)
    builder.encodings += [decoder.found] if decoder.found else []

    def refuse() -> None:
        while (found := bad.pop(builder.row - first, None)) is not None:
            builder.refuse(stored.url, -1, "wrong_type", *found)

    for batch in _batches(table, bad):
        columns = [column.to_pylist() for column in batch.columns]
        for cells in zip(*columns, strict=True):
            refuse()
            record = _record(dict(zip(table.names, cells, strict=True)), raw, decoder.found)
            add_row(builder, raw, converter, record, stored.url)
            if builder.size >= raw.block_bytes:
                yield builder.take()
    refuse()
    if builder:
        yield builder.take()


def _batches(table: CsvTable, bad: dict[int, tuple[str, bytes]]) -> Iterator[pa.RecordBatch]:
    def keep(row: int, expected: str, data: bytes) -> None:
        bad[row] = expected, data

    try:
        yield from table.batches(table.names, ROW_BYTES, keep)
    except BadRecordError as error:
        what = advice(b"") if "UTF8" in str(error) else ""
        raise BadRecordError(f"{error} Mend the file{what}.", **error.details) from error


def _record(cells: dict[str, str], raw: RawFile, encoding: str) -> Record:
    mapping = raw.mapping
    fields = (
        mapping.id or "id",
        mapping.source_field,
        mapping.added or "added",
        mapping.created or "created",
    )
    record = {name: _encode(cell) for name, cell in cells.items() if cell or name not in fields}
    return record | ({"encoding": _encode(encoding)} if encoding else {})
