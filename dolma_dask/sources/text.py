"""Files that are one document each: plain text, web pages (`dolma_dask.sources.html`) and messages (`dolma_dask.sources.mail`).

Of text, the id is the path relative to the raw folder, and so is ``metadata.path``. Bytes are taken as they are, line ends
included; only a byte order mark at the start is dropped, which is no text. Many small files make one shard, so a source takes a list.
Cost: two `stat` calls and one open per file.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import lru_cache

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.errors import UsageError
from dolma_dask.formats.json.exact import LineError
from dolma_dask.functions.calls import UserFunction
from dolma_dask.io.records import QUARANTINE_HEAD, Block, InputRecord
from dolma_dask.io.stream import (
    BLOCK_BYTES,
    MAX_RECORD_BYTES,
    Compression,
    StoredFile,
    compression_of,
    read_pieces,
)
from dolma_dask.sources.base import SCHEMA, BlockBuilder, RawFile, finish
from dolma_dask.sources.documents import Document, Record, RecordConverter
from dolma_dask.sources.encoding import Decoder
from dolma_dask.sources.functions import DOCUMENTS, FunctionConverter, RecordDocuments
from dolma_dask.sources.html import read_html
from dolma_dask.sources.mail import read_mail
from dolma_dask.sources.mapping import FieldMapping
from dolma_dask.sources.naming import split_suffix
from dolma_dask.sources.pages import Pages

_decode_string = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode


class TextFiles(Struct, frozen=True):
    """Files that are one document each; the row is the position in `urls`."""

    urls: tuple[str, ...]  # the files
    paths: tuple[str, ...]  # the same relative to the raw folder: the ids
    # only `source_name` and `metadata_fields` apply; `source_name` is needed
    mapping: FieldMapping = msgspec.field(default_factory=FieldMapping)
    block_bytes: int = BLOCK_BYTES  # bytes per block, about
    max_record_bytes: int = MAX_RECORD_BYTES  # a longer file is bad (``too_large``) and not held in memory
    function: UserFunction | None = (
        None  # that makes documents of the text, see `dolma_dask.sources.functions`
    )
    encoding: str | None = None  # of the text; ``auto``: to be found; None: UTF-8
    pages: Pages = Pages()  # how text is made of web pages

    def read(self, inputs: list[InputRecord] | None = None) -> Iterator[Block]:
        """Yield the documents; see `dolma_dask.sources.base.Source`."""
        builder = BlockBuilder(schema=DOCUMENTS if self.function else SCHEMA)
        for url, path in zip(self.urls, self.paths, strict=True):
            with closing(StoredFile(url)) as stored:
                add_text(builder, self, stored, compression_of(url.lower()), path)
                finish(stored, path, inputs)
            if builder.size >= self.block_bytes:
                yield builder.take()
        if builder:
            yield builder.take()


def add_text(
    builder: BlockBuilder,
    raw: "RawFile | TextFiles",
    stored: StoredFile,
    compression: Compression | None,
    path: str,
) -> None:
    """Append the one document of a text file of `raw`, or say why it is none; `path` is its id.

    Raises `UsageError`: the mapping has no `source_name`.
    """
    if raw.mapping.source_name is None and raw.function is None:
        raise UsageError(
            f"{stored.url}: a text file does not say what source it is from; expected a name for all of them: --source NAME.",
            path=path,
        )
    data, size = _read_limited(stored, compression, raw.max_record_bytes)
    if size > raw.max_record_bytes:
        builder.refuse_size(stored.url, 0, size, raw.max_record_bytes, data)
        return
    decoder = Decoder(raw.encoding)
    try:
        builder.add(_documents(data, path, raw, decoder))
    except LineError as error:
        builder.refuse(stored.url, 0, error.reason, error.expected, data)
        return
    if decoder.found:
        builder.encodings.append(decoder.found)


@lru_cache
def own_fields(mapping: FieldMapping) -> FieldMapping:
    """Return what applies to text files: they have no fields, so those of the records beside them say nothing about them."""
    return replace(mapping, id=None, text="text", source=None, added=None, created=None)


def _read_limited(stored: StoredFile, compression: Compression | None, limit: int) -> tuple[bytes, int]:
    """Return the content and its size; of too long a content only the head is held, but all is read to check the file."""
    pieces: list[bytes] = []
    size = 0
    for piece in read_pieces(stored, compression):
        size += len(piece)
        if size <= limit:
            pieces.append(piece)
        elif len(pieces) != 1 or len(pieces[0]) > QUARANTINE_HEAD:
            pieces = [b"".join([*pieces, piece[:QUARANTINE_HEAD]])[:QUARANTINE_HEAD]]
    return b"".join(pieces), size


def _documents(
    data: bytes, path: str, raw: "RawFile | TextFiles", decoder: Decoder
) -> Document | RecordDocuments:
    kind = split_suffix(path).kind
    is_page = kind == "html"
    record = read_html(data, path, decoder, raw.pages) if is_page else _READERS[kind](data, path, decoder)
    if raw.function is not None:
        converter = FunctionConverter(raw.function, raw.mapping, path)
        return converter.convert(record, 0, identity=_decode_string(record["id"]))
    return RecordConverter(own_fields(raw.mapping), path).convert(record, 0)


def _read_text(data: bytes, path: str, decoder: Decoder) -> Record:
    """Return the fields of a text file."""
    text = decoder.text(data)
    nul = text.find("\0")
    if nul >= 0:
        raise LineError(
            "nul_byte",
            f"text without NUL bytes, found one at character {nul}; no text, or UTF-16 without a mark: --encoding utf-16-le",
        )
    identity = _encode(path)
    record = {"id": identity, "text": _encode(text), "path": identity}
    if decoder.found:
        record["encoding"] = _encode(decoder.found)
    return record


_READERS: dict[str, Callable[[bytes, str, Decoder], Record]] = {
    "mail": read_mail,
    "text": _read_text,
}
"""Kinds of files with one document, besides web pages, and what makes its fields of their bytes; the path is the id of one without."""
