"""JSON lines, plain or compressed: one record per line.

``.json`` means the same: that is how C4 (``c4-train.00000-of-01024.json.gz``) and RedPajama-V2 name their lines.
Lines that are documents already go through the kernel of the reader; a block with any other line goes line by line, and so do
the blocks after it. Both ways give the same documents.
"""

from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise

import numpy as np
from msgspec.structs import replace

from dolma_dask.formats.json.exact import LineError
from dolma_dask.io.files import READ_BYTES
from dolma_dask.io.records import Block, InputRecord
from dolma_dask.io.stream import (
    Compression,
    LineBlock,
    StoredFile,
    compression_of,
    cut_lines,
    no_lines,
    read_pieces,
)
from dolma_dask.sources.base import BlockBuilder, LineConverter, RawFile, finish
from dolma_dask.sources.documents import RecordConverter
from dolma_dask.sources.encoding import UTF_8, Decoder, advice, mark_of
from dolma_dask.sources.functions import RecordDocuments, converter_of


class JsonLines(RawFile, frozen=True):
    """The records of one file of JSON lines."""

    def read(self, inputs: list[InputRecord] | None = None) -> Iterator[Block]:
        """Yield the documents; see `dolma_dask.sources.base.Source`."""
        with closing(StoredFile(self.url)) as stored:
            yield from read_json_lines(self, stored, compression_of(self.url.lower()))
            finish(stored, self.path, inputs)


def read_json_lines(raw: RawFile, stored: StoredFile, compression: Compression | None) -> Iterator[Block]:
    """Yield the rows of an open file, or member of an archive, that is stored as `compression` says."""
    converter, most = (
        raw.lines or converter_of(raw.function, raw.mapping, raw.path, raw.url),
        raw.max_record_bytes,
    )
    is_fast = True
    decoder, told = Decoder(raw.encoding), ""
    pieces = read_pieces(stored, compression, min(raw.block_bytes, READ_BYTES))
    if raw.encoding is not None:
        pieces = decoder.recoded(pieces, stored.url)
    for lines in cut_lines(pieces, stored.section.start, raw.block_bytes, most):
        lines = _without_mark(lines)
        if lines.oversize_bytes:
            builder = BlockBuilder(lines.first_row, converter.schema)
            head = lines.data.tobytes()
            builder.refuse_size(stored.url, lines.byte_offset, lines.oversize_bytes, most, head)
            yield builder.take()
            continue
        longest = int(np.diff(lines.starts).max(initial=0))
        batch = converter.scan(lines) if is_fast and longest <= most else None
        is_fast = batch is not None
        if batch is None:
            block = convert_lines(lines, stored.url, converter, most, decoder)
            yield replace(block, encodings=(decoder.found,)) if decoder.found != told else block
            told = decoder.found
        else:
            yield Block(batch, lines.first_row)


def _without_mark(lines: LineBlock) -> LineBlock:
    """Leave a byte order mark out, with which a file begins."""
    if lines.byte_offset or mark_of(lines.data[:4].tobytes()) != UTF_8:
        return lines
    starts = lines.starts.copy()
    starts[0] = len(BOM_UTF8)
    return replace(lines, starts=starts)


def convert_lines(
    lines: LineBlock,
    url: str,
    converter: LineConverter,
    max_record_bytes: int,
    decoder: Decoder | None = None,
) -> Block:
    """Return the rows of a block of lines, converted one by one."""
    decoder = decoder or Decoder(None)
    decoder.look(lines)
    builder = BlockBuilder(lines.first_row, converter.schema)
    data = lines.data.tobytes()
    for start, stop in pairwise(lines.starts.tolist()):
        line, offset = data[start:stop], lines.byte_offset + start
        if len(line) > max_record_bytes:
            builder.refuse_size(url, offset, len(line), max_record_bytes, line[:-1])
            continue
        try:
            decoded, encoding = decoder.line(line)
            if isinstance(converter, RecordConverter):
                converter.encoding = encoding
            made = converter.convert_line(decoded, builder.row)
            longest = (
                len(made.raw) if isinstance(made, RecordDocuments) else 0
            )  # of a function, which may make more of less
            if longest > max_record_bytes:
                builder.refuse_size(url, offset, longest, max_record_bytes, line[:-1])
            else:
                builder.add(made)
        except LineError as error:
            is_first = lines.byte_offset == 0 and start == int(lines.starts[0])
            builder.refuse(
                url, offset, error.reason, error.expected + _advice(line, is_first, error), line[:-1]
            )
    return builder.take()


def _advice(line: bytes, is_first: bool, error: LineError) -> str:
    """Say what to do about another encoding, or where the first line of a file looks as if the file were one JSON value."""
    if error.reason == "invalid_utf8":
        return advice(line if is_first else b"")
    return no_lines(line) if is_first else ""
