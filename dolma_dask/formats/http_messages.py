"""HTTP responses as crawlers keep them: status, fields, and the payload without its codings (RFC 9110, 9112).

Crawlers leave fields as they came, also where they have undone what these say: a body that is not chunked or compressed is taken as it stands.
"""

import re
import zlib
from collections.abc import Iterator, Mapping

import pyarrow as pa
from msgspec import Struct

_STATUS = re.compile(rb"HTTP/\d(?:\.\d)? +(\d{3})(?:[ \t][^\n]*)?\r?\n")
_END = re.compile(rb"\r?\n\r?\n")
_CHUNK = re.compile(rb"([0-9a-fA-F]{1,15})[ \t]*(?:;[^\r\n]*)?\r?\n")
_LIKE = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}
_NAMES = {"x-gzip": "gzip", "br": "brotli"}
_READ = 1 << 16


class PayloadError(Exception):
    """A body that cannot be decoded: what was expected."""


class Response(Struct, frozen=True):
    """A response, split."""

    status: int
    head: bytes  # its fields, without the line of the status
    body: bytes  # as it was stored


def split_response(data: bytes) -> Response | None:
    """Return the parts of a response; None if it begins with no line of a status."""
    status = _STATUS.match(data)
    if status is None:
        return None
    if (end := _END.search(data, status.end() - 2)) is None:
        return Response(int(status[1]), data[status.end() :], b"")
    return Response(int(status[1]), data[status.end() : end.start()], data[end.end() :])


def payload_of(body: bytes, fields: Mapping[str, str], limit: int, *, is_cut: bool) -> bytes:
    """Return a body without its codings; of one that was cut when it was fetched, what is there.

    Raises `PayloadError`: it is damaged, in a coding that nobody knows, or longer than `limit`.
    """
    transfer = fields.get("transfer-encoding", "").lower()
    if "chunked" in transfer:
        body = _without_chunks(body, is_cut)
    for coding in reversed(_codings(fields.get("content-encoding", ""))):
        body = _inflated(body, coding, limit, is_cut)
    return body


def _codings(field: str) -> list[str]:
    names = [name.strip().lower() for name in field.split(",")]
    return [_NAMES.get(name, name) for name in names if name not in ("", "identity", "none", "utf-8")]


def _without_chunks(body: bytes, is_cut: bool) -> bytes:
    if _CHUNK.match(body) is None:
        return body
    parts, at = list[bytes](), 0
    while (chunk := _CHUNK.match(body, at)) is not None:
        size = int(chunk[1], 16)
        if not size:
            return b"".join(parts)
        part = body[chunk.end() : chunk.end() + size]
        parts.append(part)
        at = chunk.end() + size
        if len(part) < size:
            break
        at += 2 if body.startswith(b"\r\n", at) else 1 if body.startswith(b"\n", at) else 0
    if not is_cut:
        raise PayloadError(
            f"chunks up to one of 0 bytes, found none at byte {min(at, len(body)):,} of the body"
        )
    return b"".join(parts)


def _inflated(body: bytes, coding: str, limit: int, is_cut: bool) -> bytes:
    if coding in _LIKE and not body.startswith(_LIKE[coding]):
        return body
    if coding not in ("gzip", "zstd", "brotli", "deflate"):
        raise PayloadError(f"a body in gzip, deflate, br or zstd, found Content-Encoding {coding[:40]!r}")
    parts, size = list[bytes](), 0
    try:
        for part in _by_arrow(body, coding) if coding in ("brotli", "zstd") else _by_zlib(body, coding):
            size += len(part)
            if size > limit:
                raise PayloadError(f"at most {limit:,} bytes (max_record_bytes) in a body in {coding}")
            parts.append(part)
    except (OSError, zlib.error) as error:
        if coding in ("deflate", "brotli") and not parts:
            return body  # they have no mark of their own: it was undone
        if not is_cut:
            raise PayloadError(f"a whole body in {coding}: {error}") from error
    return b"".join(parts)


def _by_arrow(body: bytes, coding: str) -> Iterator[bytes]:
    with pa.CompressedInputStream(pa.py_buffer(body), coding) as stream:
        while part := stream.read(_READ):
            yield part


def _by_zlib(body: bytes, coding: str) -> Iterator[bytes]:
    """Yield what is in a body in gzip, or in deflate with the head of zlib or, as some servers send it, without."""
    has_head = len(body) > 1 and body[0] & 15 == 8 and not int.from_bytes(body[:2]) % 31
    window = zlib.MAX_WBITS | 16 if coding == "gzip" else zlib.MAX_WBITS if has_head else -zlib.MAX_WBITS
    inflater = zlib.decompressobj(window)
    while (part := inflater.decompress(body, _READ)) or inflater.unconsumed_tail:
        yield part
        body = inflater.unconsumed_tail
    if not inflater.eof:
        raise zlib.error("it ends too early")
