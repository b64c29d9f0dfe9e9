"""Messages of mail: Message-ID, subject, date, sender and the body as text; a file each in a maildir and as ``.eml``, many in a mailbox.

The body is its plain text; of a message that has HTML alone the text of that (extra ``web``). Attachments are named in the metadata and left out.
"""

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from dolma_dask.formats.json.exact import LineError
from dolma_dask.sources.documents import Record
from dolma_dask.sources.encoding import Decoder
from dolma_dask.sources.pages import text_of_html

if TYPE_CHECKING:
    from email.message import Message

_KEPT = ("from", "to", "cc", "date", "subject", "in-reply-to", "references", "list-id")
"""Fields of the head that become metadata, in this order."""

_encode = msgspec.json.Encoder().encode


def read_mail(data: bytes, path: str | None, decoder: Decoder) -> Record:
    """Return the fields of one message; without a Message-ID its id is `path`, if there is one.

    Raises `LineError`: its text is in another encoding than it says, or its parts are nested too deeply.
    """
    try:
        return _fields(data, path, decoder)
    except RecursionError:
        raise LineError("damaged_record", "parts of a message that are not nested hundreds deep") from None


def _fields(data: bytes, path: str | None, decoder: Decoder) -> Record:
    from email import message_from_bytes

    message = message_from_bytes(data)
    head = {name.lower(): _header(value, decoder) for name, value in reversed(list(message.raw_items()))}
    fields: dict[str, Any] = {"text": _body(message, decoder)}
    if identity := head.get("message-id", "").strip().strip("<>") or path:
        fields["id"] = identity
    if created := _created(head.get("date", "")):
        fields["created"] = created
    fields |= {name.replace("-", "_"): head[name] for name in _KEPT if name in head}
    if attached := [str(part.get_filename()) for part in message.walk() if part.get_filename()]:
        fields["attachments"] = [name.encode(errors="replace").decode() for name in attached]
    if path is not None:
        fields["path"] = path
    if decoder.found:
        fields["encoding"] = decoder.found
    return {name: _encode(value) for name, value in fields.items()}


def _header(value: str, decoder: Decoder) -> str:
    """Return a field of the head as people read it; raw bytes in it are text of the file's encoding."""
    from email.errors import HeaderParseError
    from email.header import decode_header, make_header

    text = value if value.isascii() else decoder.text(value.encode("utf-8", "surrogateescape"))
    text = re.sub(r"\r?\n[ \t]*", " ", text).strip()
    try:
        return _encodable(str(make_header(decode_header(text)))) if "=?" in text else text
    except (LookupError, ValueError, HeaderParseError):
        return text  # an encoding that nobody knows, or a damaged word: as it stands


def _encodable(text: str) -> str:
    """Return a text; raise `ValueError` if it has half of a surrogate pair: a message may name encodings such as UTF-7, whose bytes can spell one."""
    text.encode()
    return text


def _created(date: str) -> str:
    """Return the time of a message in ISO 8601; empty if it says none."""
    from email.utils import parsedate_to_datetime

    try:
        found: datetime = parsedate_to_datetime(date)
    except (ValueError, TypeError, IndexError, OverflowError):
        return ""
    return found.isoformat()


def _body(message: "Message", decoder: Decoder) -> str:
    """Return the plain text of a message, all parts of it that are no attachments; else that of its HTML."""
    parts = [part for part in message.walk() if not part.is_multipart() and not part.get_filename()]
    plain = [_text(part, decoder) for part in parts if part.get_content_type() == "text/plain"]
    if plain:
        return "\n".join(plain)
    pages = [_text(part, decoder) for part in parts if part.get_content_type() == "text/html"]
    return "\n".join(text_of_html(page).text for page in pages)


def _text(part: "Message", decoder: Decoder) -> str:
    payload = part.get_payload(decode=True)
    data = payload if isinstance(payload, bytes) else b""
    try:
        text = _encodable(data.decode(part.get_content_charset() or "utf-8"))
    except (LookupError, ValueError):
        text = decoder.text(data)
    if "\0" in text:
        raise LineError("nul_byte", "text without NUL characters in the body of a message")
    return text.replace("\r\n", "\n")
