"""Lines of segments: one JSON object each, with a digest of it as its last member.

What many records of a run say alike, such as the types of attributes, is decoded once and shared: most of a line, and of what a record takes in memory. So are parts of what
each says in its own words.
"""

from functools import lru_cache
from sys import intern
from typing import Any

import msgspec
import xxhash

from dolma_dask.formats.json import NOT_JSON
from dolma_dask.io import files
from dolma_dask.io.record_info import KnownInfo
from dolma_dask.journal.record import FORMAT, Record, RunRecord, encode
from dolma_dask.registry import VERBS

SHARED = 256
"""Contents of `Record.info` that are kept to be shared, of at most `SHARED_BYTES`."""

SHARED_BYTES = 1 << 14

PART_BYTES = 1 << 8
"""Parts of `Record.info` from this size on are shared by themselves."""

_SEAL = b',"check":"'
_SEAL_BYTES = len(_SEAL) + 16 + len(b'"}')

_HEAD = b'{"format":%d,' % FORMAT
"""How a record of this format begins, as it is written here."""


class Foreign(msgspec.Struct):
    """A record of another format, of which no more is believed."""

    unit: str
    format: int = 1


class Stated(msgspec.Struct, gc=False):
    """What decides whether a record is the newest of its unit."""

    unit: str
    finished: float = 0.0


class _Line(Record, frozen=True, omit_defaults=True):
    """A record whose `info` was not looked at."""

    info: msgspec.Raw = msgspec.Raw(b"{}")  # type: ignore[assignment]


_decode = msgspec.json.Decoder(_Line).decode
_decode_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_part = msgspec.json.Decoder().decode
_decode_foreign = msgspec.json.Decoder(Foreign).decode
_decode_run = msgspec.json.Decoder(RunRecord).decode

stated = msgspec.json.Decoder(Stated).decode


def sealed(value: Record | RunRecord) -> bytes:
    """Return the line of a record: what was damaged is not believed, whatever its values seem to be."""
    return _sealed(encode(value))


def _sealed(line: bytes) -> bytes:
    return b'%b%b%016x"}' % (line[:-1], _SEAL, xxhash.xxh3_64_intdigest(line))


def is_damaged(line: bytes) -> bool:
    """Tell whether a line is not as it was sealed; those of earlier releases have no seal."""
    seal = b'%b%b"}' % (_SEAL, xxhash.xxh3_64_hexdigest(line[:-_SEAL_BYTES] + b"}").encode())
    return not line.endswith(seal) and b'"check"' in line[-2 * _SEAL_BYTES :]


def is_of_run(line: bytes) -> bool:
    """Tell whether a line announces a run, or its end."""
    return line.startswith(b'{"kind"')


def read_line(line: bytes, verb: str) -> Record | RunRecord | Foreign | None:
    """Return what a line of the journal of a verb says; None: it is damaged, or nothing of ours."""
    if is_damaged(line):
        return None
    try:
        if is_of_run(line):
            return _decode_run(line)
        if not _is_current(line):
            return _decode_foreign(line)
        record = _record(line)
        if record.info and not line[-_SEAL_BYTES:].startswith(_SEAL) and verb in VERBS:
            msgspec.convert(record.info, KnownInfo)  # as this package never wrote it
    except NOT_JSON:
        return None
    return record if _is_harmless(record, verb) else None


def is_foreign(line: bytes) -> bool:
    """Tell whether a line is a record of another format."""
    try:
        return _decode_foreign(line).format != FORMAT
    except NOT_JSON:
        return False


def _is_current(line: bytes) -> bool:
    """Tell whether a record is of `FORMAT`; only those of other formats are decoded for it."""
    return line.startswith(_HEAD) or _decode_foreign(line).format == FORMAT


def _record(line: bytes) -> Record:
    found = _decode(line)
    info = bytes(found.info)
    told = _shared_info(info) if len(info) <= SHARED_BYTES else _info(info)
    return found.with_shared(Record, intern(found.key), told, found.finished)


def _info(data: bytes) -> dict[str, Any]:
    return {name: _part(bytes(part)) for name, part in _decode_parts(data).items()}


def _part(data: bytes) -> Any:
    return _shared_part(data) if PART_BYTES <= len(data) <= SHARED_BYTES else _decode_part(data)


_shared_info = lru_cache(maxsize=SHARED)(_info)
_shared_part = lru_cache(maxsize=SHARED)(_decode_part)


def _is_harmless(record: Record, verb: str) -> bool:
    """Tell whether all that a record names lies below the root: a dataset from elsewhere may be hostile, and what records name may be removed."""
    paths = [file.path for file in record.files]
    if verb == "report":  # a page may lie anywhere, and is no file of its record
        return all(map(files.is_file_inside, paths))
    return all(map(files.is_file_inside, paths)) and (record.unit in paths or files.is_inside(record.unit))
