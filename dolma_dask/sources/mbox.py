"""Mailboxes of the form mbox: one message per record, each behind a line ``From ... 12:34 ... 2024`` after an empty line; ``>From`` in a body loses its mark.

Memory: a message. Cost: 0.2 ms for each, in the parser of Python's standard library.
"""

import re
from collections.abc import Iterator
from contextlib import closing

from dolma_dask.errors import CorruptFileError
from dolma_dask.formats.json.exact import LineError
from dolma_dask.io.records import Block, InputRecord
from dolma_dask.io.stream import Compression, StoredFile, compression_of, read_lines
from dolma_dask.sources.base import BlockBuilder, RawFile, finish
from dolma_dask.sources.encoding import Decoder
from dolma_dask.sources.functions import converter_of
from dolma_dask.sources.mail import read_mail
from dolma_dask.sources.rows import add_row
from dolma_dask.sources.text import own_fields

_SEPARATOR = re.compile(rb"From [^\r\n]*\d:\d\d[^\r\n]*\r?\n")
_QUOTED = re.compile(rb"^>(>*From )", re.MULTILINE)


class Mailbox(RawFile, frozen=True):
    """The messages of one file."""

    def read(self, inputs: list[InputRecord] | None = None) -> Iterator[Block]:
        """Yield the documents; see `dolma_dask.sources.base.Source`."""
        with closing(StoredFile(self.url)) as stored:
            yield from read_mbox(self, stored, compression_of(self.url.lower()))
            finish(stored, self.path, inputs)


def read_mbox(raw: RawFile, stored: StoredFile, compression: Compression | None) -> Iterator[Block]:
    """Yield the messages of an open file, or member of an archive."""
    converter = converter_of(raw.function, own_fields(raw.mapping), raw.path, raw.url)
    builder = BlockBuilder(stored.section.start.row, converter.schema)
    for offset, data, size in _messages(raw, stored, compression):
        decoder = Decoder(raw.encoding)
        try:
            if size > raw.max_record_bytes:
                builder.refuse_size(stored.url, offset, size, raw.max_record_bytes, data)
            else:
                record = read_mail(_QUOTED.sub(rb"\1", data), None, decoder)
                add_row(builder, raw, converter, record, stored.url, offset)
        except LineError as error:
            builder.refuse(stored.url, offset, error.reason, error.expected, data)
        if builder.size >= raw.block_bytes:
            yield builder.take()
    if builder:
        yield builder.take()


def _joined(lines: list[bytes]) -> bytes:
    """Return a message without the empty line behind it."""
    return b"".join(lines[:-1] if lines and not lines[-1].strip() else lines)


def _messages(
    raw: RawFile, stored: StoredFile, compression: Compression | None
) -> Iterator[tuple[int, bytes, int]]:
    """Yield where each message begins, its bytes, and how many they are: of one that is too long only the head is held."""
    offset, size, lines = -1, 0, list[bytes]()
    is_after_blank = True
    most = raw.max_record_bytes
    for block in read_lines(stored, compression, block_bytes=raw.block_bytes, max_record_bytes=most):
        at = block.byte_offset
        for line in block:
            length = block.oversize_bytes or len(line)
            if is_after_blank and _SEPARATOR.match(line):
                if offset >= 0:
                    yield offset, _joined(lines), size
                offset, size, lines = at, 0, []
            elif offset < 0:
                raise CorruptFileError(
                    f"{stored.url}: begins with {line[:40]!r}; expected a mailbox, whose messages each follow a line such as "
                    "'From ada@example.org Mon Jan  1 12:00:00 2024'. Rename the file to what it is.",
                    url=stored.url,
                )
            else:
                size += length
                lines += [line] if size <= most else []
            is_after_blank = line in (b"\n", b"\r\n")
            at += length
    if offset >= 0:
        yield offset, _joined(lines), size
