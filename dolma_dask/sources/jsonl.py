"""JSON lines, plain or compressed: one record per line.

``.json`` means the same: that is how C4 (``c4-train.00000-of-01024.json.gz``) and RedPajama-V2 name their lines.
Lines that are documents already go through the kernel of the reader; a block with any other line goes line by line, and so do
the blocks after it. Both ways give the same documents.
"""

from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise

import numpy as np
import pyarrow as pa

from dolma_dask.formats.documents import REQUIRED
from dolma_dask.formats.json.exact import parse_object
from dolma_dask.formats.json.lines import Field, LineError, scan_fields
from dolma_dask.io.records import Block, InputRecord
from dolma_dask.io.stream import (
    Compression,
    LineBlock,
    StoredFile,
    compression_of,
    read_lines,
)
from dolma_dask.sources.base import SCHEMA, BlockBuilder, RawFile, finish
from dolma_dask.sources.documents import RecordConverter

_FIELDS = tuple(Field(name) for name in REQUIRED)


class JsonLines(RawFile):
    """The records of one file of JSON lines."""

    def read(self, inputs: list[InputRecord] | None = None) -> Iterator[Block]:
        """Yield the documents; see `dolma_dask.sources.base.Source`."""
        converter = RecordConverter(self.mapping, self.path)
        with closing(StoredFile(self.url)) as stored:
            yield from read_json_lines(
                stored,
                compression_of(self.url.lower()),
                converter,
                block_bytes=self.block_bytes,
                max_record_bytes=self.max_record_bytes,
            )
            finish(stored, self.path, inputs)


def read_json_lines(
    stored: StoredFile,
    compression: Compression | None,
    converter: RecordConverter,
    *,
    block_bytes: int,
    max_record_bytes: int,
) -> Iterator[Block]:
    """Yield the documents of an open file, or member of an archive, that is stored as `compression` says."""
    is_fast = converter.keeps_documents
    for lines in read_lines(stored, compression, block_bytes=block_bytes, max_record_bytes=max_record_bytes):
        if lines.oversize_bytes:
            yield _oversize_row(lines, stored.url, max_record_bytes)
            continue
        block = scan_lines(lines, max_record_bytes) if is_fast else None
        is_fast = block is not None
        yield convert_lines(lines, stored.url, converter, max_record_bytes) if block is None else block


def _oversize_row(lines: LineBlock, url: str, max_record_bytes: int) -> Block:
    builder = BlockBuilder(lines.first_row)
    builder.refuse_size(url, lines.byte_offset, lines.oversize_bytes, max_record_bytes, lines.data.tobytes())
    return builder.take()


def scan_lines(lines: LineBlock, max_record_bytes: int) -> Block | None:
    """Return a block of lines that are documents already, at the speed of the kernel; None if any line is not, or is unusual."""
    if int(np.diff(lines.starts).max(initial=0)) > max_record_bytes:
        return None
    batch, status = scan_fields(lines.data, lines.starts, _FIELDS, REQUIRED)
    if status.any():
        return None
    buffers = [None, pa.py_buffer(lines.starts), pa.py_buffer(lines.data)]
    raw = pa.Array.from_buffers(pa.large_binary(), batch.num_rows, buffers)
    return Block(pa.RecordBatch.from_arrays([*batch.columns, raw], schema=SCHEMA), lines.first_row)


def convert_lines(lines: LineBlock, url: str, converter: RecordConverter, max_record_bytes: int) -> Block:
    """Return the documents of a block of lines, converted one by one."""
    builder = BlockBuilder(lines.first_row)
    data = lines.data.tobytes()
    for start, stop in pairwise(lines.starts.tolist()):
        line = data[start:stop]
        try:
            if len(line) > max_record_bytes:
                builder.refuse_size(url, lines.byte_offset + start, len(line), max_record_bytes, line[:-1])
            else:
                builder.add(converter.convert(parse_object(line), builder.row, line))
        except LineError as error:
            builder.refuse(url, lines.byte_offset + start, error.reason, error.expected, line[:-1])
    return builder.take()
