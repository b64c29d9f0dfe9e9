"""WARC files, as crawlers write them: a document for each page that was fetched, and for each text of a WET file.

Of responses with status 2xx, and of resources, pages become their main text and plain texts stay as they are; records that are neither are counted by
what they are. Id and metadata are those of the Dolma toolkit (``dolma warc``): the digest of the payload, ``warc_url``, ``url`` and so on. Cost: that of the
text of web pages, 1 ms for each; the records themselves are read at the speed of their decompression.
"""

import base64
import hashlib
import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

import msgspec
import xxhash
from msgspec import Struct

from dolma_dask.errors import UsageError
from dolma_dask.formats.http_messages import PayloadError, payload_of, split_response
from dolma_dask.formats.json.exact import LineError
from dolma_dask.io.gzip_members import find_member
from dolma_dask.io.records import TOO_LARGE, Block, InputRecord, too_large
from dolma_dask.io.stream import Compression, Member, Section, StoredFile, compression_of, read_pieces
from dolma_dask.io.warc import VERSION_LINE, WarcRecord, parse_head, read_records
from dolma_dask.sources.base import BlockBuilder, Cut, RawFile, finish
from dolma_dask.sources.documents import Document, Record, RecordConverter, join_members
from dolma_dask.sources.encoding import decode_page
from dolma_dask.sources.functions import FunctionConverter, converter_of
from dolma_dask.sources.html import declared_encoding
from dolma_dask.sources.inline import Candidate, Passed, Refusal, tagged
from dolma_dask.sources.rows import add_row
from dolma_dask.text.urls import normalized_url

_PAGES = ("text/html", "application/xhtml+xml")
_TYPES = ("request", "metadata", "revisit", "continuation", "warcinfo")
"""Types of records that hold no document."""

_NO_TYPES = ("", "unk", "application/octet-stream", "application/unknown")
"""Media types by which a server says that it does not know the type."""

_MIME = re.compile(r"[\w.+-]{1,40}/[\w.+-]{1,60}", re.ASCII)
_CHARSET = re.compile(r"charset\s*=\s*(?:[\"']\s*)?([\w.:-]+)", re.IGNORECASE | re.ASCII)
_LOOKS_LIKE_PAGE = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*<(?:!doctype\s+html|html|head|body|title|meta)\b", re.IGNORECASE
)

_encode = msgspec.json.Encoder().encode


class WarcArchive(RawFile, frozen=True):
    """The documents of one file."""

    def read(self, inputs: list[InputRecord] | None = None) -> Iterator[Block]:
        """Yield the documents; see `dolma_dask.sources.base.Source`."""
        section = None if self.cut is None else _section(self.url, self.cut)
        is_behind = section is not None and section.start.offset > 0
        first = _at_beginning(self.url, self.max_record_bytes) if is_behind else None
        with closing(StoredFile(self.url, section)) as stored:  # alone: a store may have one handle for all
            yield from read_warc(self, stored, compression_of(self.url.lower()), first)
            if section is None:
                finish(stored, self.path, inputs)
                return
            stored.check_unchanged()
            if inputs is not None:  # nobody has read all of it
                inputs.append(InputRecord(self.path, stored.info.bytes, stored.info.stamp, ""))


def _section(url: str, cut: Cut) -> Section:
    """Return the members of a part, which follow each other from part to part: both neighbours look for the end of the one in the same way."""
    start, stop = (find_member(url, at, VERSION_LINE) if at else 0 for at in (cut.start, cut.stop))
    return Section(Member(start), stop)


def _at_beginning(url: str, most: int) -> WarcRecord | None:
    """Return the first record of a file, which tells of all."""
    with closing(StoredFile(url)) as stored:
        return next(read_records(partial(_pieces, stored, "gzip"), url, most), None)


def read_warc(
    raw: RawFile, stored: StoredFile, compression: Compression | None, first: WarcRecord | None = None
) -> Iterator[Block]:
    """Yield the documents of an open file, or member of an archive; `first` is the first record of the file, of which `stored` is a later part.

    Raises `UsageError`: the mapping has no `source_name`.
    """
    if raw.mapping.source_name is None and raw.function is None:
        raise UsageError(
            f"{stored.url}: a WARC file does not say what source it is from; expected a name for all of them: --source NAME.",
            path=raw.path,
        )
    converter = converter_of(raw.function, raw.mapping, raw.path, raw.url)
    builder = BlockBuilder(stored.section.start.row, converter.schema)
    documents, most = _Documents(raw, stored.section.start.offset), raw.max_record_bytes
    rows = _Rows(raw, stored.url, builder, converter, documents)
    if first is not None:
        documents.told(first)
    for record in read_records(partial(_pieces, stored, compression), stored.url, most):
        try:
            fetched = documents.fetched(record)
            if record.size > most:
                rows.refuse(record, TOO_LARGE, too_large(record.size, most))
            else:
                rows.add(record, documents.found(record, fetched))
        except _NoDocument as passed:
            builder.passed[str(passed)] += 1
        except LineError as error:
            rows.refuse(record, error.reason, error.expected)
        if builder.size >= raw.block_bytes:
            yield builder.take()
    rows.flush()
    if builder:
        yield builder.take()


class _Rows:
    """Makes rows of records: at once, or where taggers look at them, of many records at a time."""

    def __init__(
        self,
        raw: RawFile,
        url: str,
        builder: BlockBuilder,
        converter: RecordConverter | FunctionConverter,
        documents: "_Documents",
    ) -> None:
        self._raw, self._url, self._builder = raw, url, builder
        self._converter, self._documents = converter, documents
        self._waiting: list[tuple[WarcRecord, _Found | Refusal]] = []
        self._size = 0

    def add(self, record: WarcRecord, found: "_Found") -> None:
        """Append the document of a record."""
        if self._raw.pages.taggers:
            self._wait(record, found, len(found.content))
        else:
            fields = self._documents.fields(found)
            add_row(self._builder, self._raw, self._converter, fields, self._url, record.offset)

    def refuse(self, record: WarcRecord, reason: str, expected: str) -> None:
        """Append a record that is bad."""
        self._wait(record, Refusal(reason, expected), 0)

    def _wait(self, record: WarcRecord, what: "_Found | Refusal", size: int) -> None:
        self._waiting.append((record, what))
        self._size += size + len(record.block)
        if not self._raw.pages.taggers or self._size >= self._raw.block_bytes:
            self.flush()

    def flush(self) -> None:
        """Append what waits, in order."""
        found = [what for _, what in self._waiting if isinstance(what, _Found)]
        source = self._raw.mapping.source_name or ""
        made: Iterator[Document | Refusal | Passed] = iter(())
        if found:
            pages = list(map(self._candidate, found))
            made = tagged(pages, self._raw.pages.taggers, source, self._raw.max_record_bytes)
        for record, what in self._waiting:
            one = what if isinstance(what, Refusal) else next(made)
            if isinstance(one, Document):
                self._builder.add(one)
            elif isinstance(one, Passed):
                self._builder.passed[one.by] += 1
            else:
                kept = record.block if one.raw is None else one.raw
                self._builder.refuse(self._url, record.offset, one.reason, one.expected, kept)
        self._waiting, self._size = [], 0

    def _candidate(self, found: "_Found") -> Candidate:
        """Return a record as taggers take it."""
        values = self._documents.encoded(found.values | found.about | self._documents.html(found))
        identity = found.values.get(self._raw.mapping.id or "id", "")
        metadata = join_members({name: value for name, value in values.items() if name not in _TOP})
        return Candidate(
            str(identity), found.values["created"], metadata or b"{}", partial(self._document, found)
        )

    def _document(self, found: "_Found") -> Document | Refusal:
        assert isinstance(self._converter, RecordConverter)
        record = self._documents.fields(found)
        values = dict(record)  # which the converter uses up
        try:
            return self._converter.convert(record, self._builder.row)
        except LineError as error:
            return Refusal(error.reason, error.expected, join_members(values) or b"{}")


def _pieces(stored: StoredFile, compression: Compression | None) -> Iterator[bytes]:
    """Return the pieces of a file from its beginning, where it may have been read before."""
    if stored.position > stored.section.start.offset:
        info = stored.info
        stored.rewind()
        stored.info = info  # which the file is compared with in the end
    return read_pieces(stored, compression)


class _NoDocument(Exception):  # noqa: N818 - nothing is wrong
    """A record that holds no document; its text says what the record is."""


class _Fetched(Struct, frozen=True):
    """What a record holds."""

    body: bytes  # as it is stored
    type: str  # its media type, as the server says it
    kind: str  # the same, as far as anybody knows: of a page, or of plain text
    charset: str
    fields: Mapping[str, str]  # of the response


class _Found(NamedTuple):
    """A page or text, before a document is made of it."""

    values: dict[str, Any]  # what is known of it, and its id
    about: dict[str, Any]  # how it was decoded
    content: str
    is_page: bool


class _Documents:
    """Makes documents of the records of one file."""

    def __init__(self, raw: RawFile, start: int) -> None:
        self._raw = raw
        self._start = start  # stored byte from which offsets are counted
        self._name = posixpath.basename(raw.path)
        self._date = ""  # of the file, as its record ``warcinfo`` says
        self._seen: Counter[int] = Counter()  # ids

    def told(self, record: WarcRecord) -> None:
        """Keep what a record ``warcinfo`` says of the file."""
        if record.type == "warcinfo":
            self._name, self._date = record.head.get("warc-filename") or self._name, record.date

    def fetched(self, record: WarcRecord) -> _Fetched:
        """Return what a record holds, if that may be a document.

        Raises `LineError`: it is damaged. Raises `_NoDocument`.
        """
        if record.damage:
            raise LineError("damaged_record", record.damage)
        self.told(record)
        if record.type not in ("response", "resource", "conversion"):
            raise _NoDocument(record.type if record.type in _TYPES else "other types of records")
        if not record.size:
            raise _NoDocument("empty")
        return _fetched(record)

    def found(self, record: WarcRecord, fetched: _Fetched) -> "_Found":
        """Return the page or text of a record.

        Raises `LineError`: the payload is damaged, or its text in an encoding that nobody knows. Raises `_NoDocument`: it is empty.
        """
        is_cut = "warc-truncated" in record.head
        try:
            data = payload_of(fetched.body, fetched.fields, self._raw.max_record_bytes, is_cut=is_cut)
        except PayloadError as error:
            raise LineError("damaged_record", str(error)) from error
        if not data.strip():
            raise _NoDocument("empty")
        is_page = fetched.kind in _PAGES
        names = [fetched.charset, declared_encoding(data) if is_page else ""]
        found = decode_page(data, names, self._raw.encoding, is_cut=is_cut)
        values = self._values(record, fetched)
        content = found.text if is_page else _plain(found.text)
        about = {"encoding": found.encoding, "replaced_characters": found.replaced}
        return _Found(values | {"id": self._id(record, fetched)}, about, content, is_page)

    def fields(self, found: "_Found") -> Record:
        """Return the fields of a document."""
        text = {"text": found.content}
        if found.is_page:
            page = self._raw.pages.read(found.content, alt_texts=False)  # as the Dolma toolkit does
            text = {"text": page.text, "title": page.title}
        html = self.html(found) if self._raw.pages.keeps_html else {}
        return self.encoded({**found.values, **text, **found.about, **html})

    def html(self, found: "_Found") -> dict[str, str]:
        """Return the page of a record, if it has one."""
        return {"html": found.content} if found.is_page else {}

    def encoded(self, values: Mapping[str, Any]) -> Record:
        """Return those of some values that a document has, in JSON."""
        return {name: _encode(value) for name, value in values.items() if value or name in _ALWAYS}

    def _values(self, record: WarcRecord, fetched: _Fetched) -> dict[str, Any]:
        """Return what is known without the payload."""
        head = record.head
        url = head.get("warc-target-uri", "").strip("<>")
        if not url:
            raise LineError("damaged_record", "a field WARC-Target-URI: where it was fetched")
        return {
            "created": record.date,
            "warc_url": url,
            "url": normalized_url(url),
            "warc_date": self._date or record.date,
            "warc_filename": self._name,
            "content_type": fetched.type,
            "uncompressed_offset": record.offset,
            "part_offset": self._start,
            "warc_record_id": head.get("warc-record-id", "").strip("<>"),
            "warc_refers_to": head.get("warc-refers-to", "").strip("<>"),
            "warc_languages": head.get("warc-identified-content-language", ""),
        }

    def _id(self, record: WarcRecord, fetched: _Fetched) -> str:
        """Return the digest of the payload; behind it a number, if that is not the first of the file or part."""
        names = ("warc-payload-digest", *(() if record.type == "response" else ("warc-block-digest",)))
        digests = (record.head.get(name, "").rpartition(":")[2].strip().lower() for name in names)
        digest = next(filter(None, digests), "") or _digest(fetched.body)
        key = xxhash.xxh3_64_intdigest(digest.encode())
        number = self._seen[key]
        self._seen[key] += 1
        return f"{digest}-{number}" if number else digest


_ALWAYS = ("text", "uncompressed_offset")
"""Fields that are there with any value."""

_TOP = ("id", "created", "text")
"""Fields of a document that are not in its metadata."""


def _fetched(record: WarcRecord) -> _Fetched:
    """Return what a record holds.

    Raises `LineError`: it is damaged. Raises `_NoDocument`: it is no page or text.
    """
    body, fields = record.block, record.head
    if record.type == "response" and (body[:5] == b"HTTP/" or "http" in fields.get("content-type", "")):
        response = split_response(body)
        if response is None:
            raise LineError("damaged_record", "a response that begins with a line such as HTTP/1.1 200 OK")
        if not 200 <= response.status < 300:
            raise _NoDocument(f"status {response.status}")
        body, fields = response.body, parse_head(response.head)
    full = fields.get("content-type", "")
    said = full.partition(";")[0].strip()
    kind = (record.head.get("warc-identified-payload-type") or said).lower()
    if kind in _NO_TYPES and _LOOKS_LIKE_PAGE.match(body):
        kind = _PAGES[0]
    if kind not in (*_PAGES, "text/plain"):
        raise _NoDocument(kind if _MIME.fullmatch(kind) else "other content types")
    charset = _CHARSET.search(full)
    return _Fetched(body, said, kind, charset[1].lower() if charset else "", fields)


def _digest(body: bytes) -> str:
    return base64.b32encode(hashlib.sha1(body, usedforsecurity=False).digest()).decode().lower()


def _plain(text: str) -> str:
    if "\0" in text:
        raise LineError("nul_byte", "plain text without NUL characters")
    return text
