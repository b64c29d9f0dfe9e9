"""WARC files to try things with, as crawlers write them: a gzip member for each record."""

import gzip
from collections.abc import Sequence
from uuid import NAMESPACE_URL, uuid5


def warc_record(kind: str, block: bytes, length: str | None = None, **fields: str) -> bytes:
    """Return a record; `fields` are further ones, with ``_`` for ``-``; one that is empty is left out; `length` is said in place of the true one."""
    known = {
        "warc_type": kind,
        "warc_date": "2024-05-01T12:30:00Z",
        "warc_record_id": f"<urn:uuid:{uuid5(NAMESPACE_URL, kind + block.hex())}>",
        "content_length": str(len(block)) if length is None else length,
    }
    lines = [f"{_name(name)}: {value}" for name, value in (known | fields).items() if value]
    return "\r\n".join(["WARC/1.0", *lines, "", ""]).encode() + block + b"\r\n\r\n"


def _name(field: str) -> str:
    return "-".join(
        {"id": "ID", "uri": "URI", "warc": "WARC"}.get(part, part.title()) for part in field.split("_")
    )


def response(
    body: bytes,
    url: str = "http://example.org/",
    *,
    head: str = "Content-Type: text/html",
    status: str = "200 OK",
    **fields: str,
) -> bytes:
    """Return the record of a page that was fetched; `head`: the fields of the response."""
    block = "\r\n".join([f"HTTP/1.1 {status}", *filter(None, [head]), "", ""]).encode() + body
    known = {"content_type": "application/http; msgtype=response", "warc_target_uri": url}
    length = fields.pop("content_length", None)
    return warc_record("response", block, length, **(known | fields))


def warc_file(records: Sequence[bytes]) -> bytes:
    """Return the bytes of a ``.warc.gz``: each record in a member of its own, the first of them ``warcinfo``."""
    info = warc_record("warcinfo", b"software: none\r\n", warc_filename="CRAWL-00000.warc.gz")
    return b"".join(gzip.compress(record, 6, mtime=0) for record in (info, *records))
