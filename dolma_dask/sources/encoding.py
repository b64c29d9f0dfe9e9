"""Encodings of raw files: what the user names, what a byte order mark says, and what is guessed of bytes that are not UTF-8.

With ``auto`` what is UTF-8 stays so, each line of it. Only the rest of a file is guessed, once, from up to 64 KiB of its lines that are not UTF-8
(charset-normalizer), since a few letters among ASCII say too little: these are taken for those of Western Europe. A guess may be wrong, so what was found stands in
``metadata.encoding`` of each document, and the summary counts files by it.
"""

import codecs
import string
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from itertools import chain
from typing import NamedTuple

from dolma_dask.errors import CorruptFileError, UsageError
from dolma_dask.formats.json.exact import LineError, Reason
from dolma_dask.io.stream import LineBlock

AUTO = "auto"
UTF_8 = "utf-8"
WESTERN = "cp1252"
"""The commonest encoding of text that is not UTF-8; ISO 8859-1 is a part of it."""

_MARKS = (  # the mark of UTF-32 begins with that of UTF-16
    (codecs.BOM_UTF8, UTF_8),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_SAMPLE_BYTES = 1 << 16
_HEAD_BYTES = 1 << 20
_FEW = 0.06
"""Share of bytes above ASCII in lines that have any, below which they are single letters in a text of Latin ones: names in
English have 0.02, Czech has 0.1, Greek 0.8."""

_EBCDIC = ("cp037", "cp1026", "cp1140", "cp273", "cp424", "cp500", "cp875")
"""Encodings of mainframes, in which nearly any bytes are text."""


_OF_SURROGATES = ("utf-7", "unicode-escape", "raw-unicode-escape")
"""Encodings in which bytes can spell half of a surrogate pair, which no UTF-8 has."""

_OF_NAMES = ("idna", "punycode", "undefined")
"""Encodings that Python has for names of hosts, and one that is none."""


def known_encoding(name: str | None) -> str | None:
    """Return the usual name of an encoding; None for UTF-8.

    Raises `UsageError`: there is no such encoding of text.
    """
    if name is None or name == AUTO:
        return name
    try:
        found = codecs.lookup(name)
    except (LookupError, ValueError, TypeError):
        found = None
    if found is None or found.name in _OF_NAMES or not getattr(found, "_is_text_encoding", True):
        raise UsageError(
            f"encoding {name!r} is not known; expected auto, or one that Python has, such as latin-1, windows-1252, utf-16 or shift_jis.",
            encoding=name,
        )
    return None if found.name in (UTF_8, "utf-8-sig") else found.name


def mark_of(data: bytes) -> str | None:
    """Return the encoding that a byte order mark at the start of a file names."""
    return next((name for mark, name in _MARKS if data.startswith(mark)), None)


def advice(data: bytes) -> str:
    """Say what to do about bytes that are not UTF-8, from the start of a file or line."""
    mark = mark_of(data)
    if mark not in (None, UTF_8):
        return (
            f". The file begins with the byte order mark of {mark.upper()}: convert it with --encoding {mark}"
        )
    return ". In another encoding: convert it with --encoding NAME, such as latin-1, or --encoding auto, which guesses it file by file"


class Decoder:
    """Turns the bytes of one raw file into UTF-8; `found` is its encoding where that is another, once it is known."""

    def __init__(self, encoding: str | None) -> None:
        self._is_auto = encoding == AUTO
        self._is_recoded = False  # by `recoded`
        self.found = "" if encoding is None or self._is_auto else encoding

    def text(self, data: bytes) -> str:
        """Return the text of a whole file, without a byte order mark.

        Raises `LineError`: it is in another encoding.
        """
        if self._is_auto:
            self.found = self._found_in(data)
        if self._is_auto and _is_of_single_bytes(self.found):
            return "\n".join(self._either(line) for line in data.split(b"\n"))
        return _decode(data, self.found or UTF_8).removeprefix("\ufeff")

    def _found_in(self, data: bytes, *, is_cut: bool = False) -> str:
        """Return the encoding of bytes; empty for UTF-8, or what cannot be told."""
        mark = mark_of(data)
        if mark is not None:
            return "" if mark == UTF_8 else mark
        if b"\0" not in data[:_SAMPLE_BYTES] and _is_utf8(data, is_cut=is_cut):
            return ""
        return guess(data) or ""

    def _either(self, line: bytes) -> str:
        return line.decode() if _is_utf8(line) else _decode(line, self.found)

    def look(self, lines: LineBlock) -> None:
        """Guess the encoding of lines that are not UTF-8, once for a file."""
        if self._is_auto and not self.found:
            self.found = guess(lines.data.tobytes()) or ""

    def line(self, line: bytes) -> tuple[bytes, str]:
        """Return a line as UTF-8, and the encoding that it was in where that was another.

        Raises `LineError`: it is in neither.
        """
        if not self.found or self._is_recoded:
            return line, self.found
        if self._is_auto and _is_utf8(line):
            return line, ""
        return _decode(line, self.found).encode(), self.found

    def recoded(self, pieces: Iterator[bytes], url: str, *, is_all: bool = False) -> Iterator[bytes]:
        """Yield the pieces of a file as UTF-8 where its line ends are more than a byte, or for readers that understand nothing else (`is_all`); else as they are.

        Raises `CorruptFileError`: they are in another encoding than was named or found.
        """
        head = b""
        while len(head) < (_HEAD_BYTES if is_all else 4) and (piece := next(pieces, b"")):
            head += piece
        if self._is_auto:
            self.found = self._found_in(head, is_cut=True) if is_all else _wide(head)
        if is_all and not self.found and not self._is_auto and mark_of(head) not in (None, UTF_8):
            raise CorruptFileError(f"{url}: not in UTF-8{advice(head)}.", url=url)
        pieces = chain([head], pieces)
        if not self.found or (_has_ascii(self.found) and not is_all):
            return pieces
        self._is_recoded = True
        return _recoded(pieces, self.found, url)


def _recoded(pieces: Iterator[bytes], encoding: str, url: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        for piece in pieces:
            if text := decoder.decode(piece):
                yield text.encode()
        decoder.decode(b"", True)
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise CorruptFileError(
            f"{url}: not all of it is {encoding} ({error.reason}); expected the encoding of the file: --encoding NAME.",
            url=url,
        ) from error


def _decode(data: bytes, encoding: str) -> str:
    try:
        text = data.decode(encoding)
        if encoding in _OF_SURROGATES:
            text.encode()
    except UnicodeEncodeError as error:
        expected = f"whole characters in {encoding.upper()}; found half of a surrogate pair"
        raise LineError("wrong_encoding", expected) from error
    except UnicodeDecodeError as error:
        found = f"0x{data[error.start]:02X} at byte {error.start}"
        reason: Reason = "invalid_utf8" if encoding == UTF_8 else "wrong_encoding"
        raise LineError(reason, f"{encoding.upper()}; {found} is no part of it{advice(data)}") from error
    return text


def _is_utf8(data: bytes, *, is_cut: bool = False) -> bool:
    """Tell whether data are UTF-8; `is_cut`: more follows, so that a character at their end may be half."""
    try:
        codecs.getincrementaldecoder(UTF_8)().decode(data, not is_cut)
    except UnicodeDecodeError:
        return False
    return True


def _wide(head: bytes) -> str:
    """Return the encoding of JSON with more than a byte for each character, as its mark says it, or the NUL bytes around its first character (RFC 4627)."""
    mark = mark_of(head)
    if mark is not None:
        return "" if mark == UTF_8 else mark
    nuls = tuple(byte == 0 for byte in head[:4])
    shapes = {"utf-32-be": (True, True, True, False), "utf-32-le": (False, True, True, True)}
    shapes |= {"utf-16-be": (True, False, True, False), "utf-16-le": (False, True, False, True)}
    return next((name for name, shape in shapes.items() if nuls == shape), "")


@cache
def _has_ascii(encoding: str) -> bool:
    """Tell whether ASCII in an encoding is ASCII, so that lines end where they do in UTF-8."""
    return string.printable.encode(encoding, "replace") == string.printable.encode()


@cache
def _is_of_single_bytes(encoding: str) -> bool:
    """Tell whether each byte is a character: then no text of it but ASCII is by chance UTF-8 as well."""
    return encoding != "" and len(bytes(range(128, 256)).decode(encoding, "replace")) == 128


def guess(data: bytes) -> str | None:
    """Return the encoding that data are likely in, from those of their lines that are not UTF-8; None if it cannot be told."""
    from charset_normalizer import from_bytes

    sample = data[:_SAMPLE_BYTES]
    if b"\0" not in sample:
        lines = (line for line in data.split(b"\n") if not line.isascii() and not _is_utf8(line))
        sample = b"\n".join(lines)[:_SAMPLE_BYTES]
    if not sample:
        return None
    if _is_western(sample):
        return WESTERN
    matches = list(from_bytes(sample, cp_exclusion=list(_EBCDIC)))
    best = matches[0] if matches else None
    western = next((match for match in matches if WESTERN in match.could_be_from_charset), None)
    if best and western and western.chaos <= best.chaos and western.coherence >= best.coherence:
        return WESTERN
    return None if best is None else codecs.lookup(best.encoding).name


def _is_western(sample: bytes) -> bool:
    """Tell whether a text of Latin letters has a few others, all of which the encoding of Western Europe has."""
    few = sum(byte > 127 for byte in sample) <= max(_FEW * len(sample), 2)
    return few and b"\0" not in sample and "\ufffd" not in sample.decode(WESTERN, "replace")


class PageText(NamedTuple):
    """Text of a web page, the encoding that it was in if that is not UTF-8, and how many characters stand for bytes that are none in it."""

    text: str
    encoding: str
    replaced: int


_AS_BROWSERS = {
    **dict.fromkeys(("iso-8859-1", "latin1", "latin-1", "us-ascii", "ascii"), WESTERN),
    **dict.fromkeys(("gb2312", "gbk", "x-gbk"), "gb18030"),
    **dict.fromkeys(("euc-kr", "ks_c_5601-1987", "korean"), "cp949"),
    **dict.fromkeys(("shift_jis", "shift-jis", "x-sjis", "sjis"), "cp932"),
    **dict.fromkeys(("tis-620", "iso-8859-11"), "cp874"),
    **{"iso-8859-9": "cp1254", "big5": "big5hkscs", "unicode": UTF_8},
}
"""Encodings as they are meant on the web, where they are others than of that name (WHATWG, Encoding)."""

_NOT_ON_PAGES = (*_OF_SURROGATES, *_OF_NAMES)
_GOOD = 3
"""Characters outside of ASCII for each byte that is none, from which on an encoding is taken for the right one."""


def decode_page(
    data: bytes, names: Sequence[str], encoding: str | None = None, *, is_cut: bool = False
) -> PageText:
    """Return the text of a page from the web: in the `encoding` that the user names; else as its mark, or the first of `names` that fits; else UTF-8, with a few bytes that are none
    replaced; else what its bytes look like. `is_cut`: it may end within a character.

    Raises `LineError`: it is in none of them.
    """
    is_wide = b"\0" in data[:64]  # UTF-16 without a mark
    if encoding not in (None, AUTO) or mark_of(data) is not None or is_wide:
        decoder = Decoder(AUTO if encoding is None else encoding)
        return PageText(decoder.text(data), decoder.found, 0)
    known = [found for name in names if (found := on_pages(name))]
    for name in dict.fromkeys((*known, UTF_8)):
        with suppress(ValueError):
            text = codecs.getincrementaldecoder(name)().decode(data, not is_cut)
            return PageText(text, "" if name == UTF_8 else name, 0)
    for name in dict.fromkeys((*known, UTF_8)):
        text = data.decode(name, "replace")
        bad = text.count("\ufffd")
        if len(text) - len(text.encode("ascii", "ignore")) >= (1 + _GOOD) * bad:
            return PageText(text, "" if name == UTF_8 else name, bad)
    decoder = Decoder(AUTO)
    return PageText(decoder.text(data), decoder.found, 0)


@lru_cache(1024)  # pages may call them anything
def on_pages(name: str) -> str:
    """Return the encoding that a page or server means by a name; empty if that is none."""
    try:
        found = codecs.lookup(_AS_BROWSERS.get(name, name))
    except (LookupError, ValueError):
        return ""
    is_text = getattr(found, "_is_text_encoding", True) and found.name.replace("_", "-") not in _NOT_ON_PAGES
    # who can read that it is UTF-16 does not read UTF-16
    return "" if not is_text or found.name.startswith(("utf-16", "utf-32")) else found.name
