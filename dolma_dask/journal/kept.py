"""Records in memory: as they are, or where they are very many as bytes that are decoded when one is looked at.

A record of a small shard takes 1.4 kB, packed 0.2 to 0.3; decoding costs 4 microseconds.
"""

import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from threading import Lock
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from dolma_dask.journal.record import Record

Value = TypeVar("Value")

UNPACKED = 25_000
"""Records of a journal that are kept as they are; when there are more, all are packed."""


class _Rest(Record, frozen=True, array_like=True, gc=False):
    """A record without what it shares with others."""


_HEAD = struct.Struct("<d?")
"""What is looked at without decoding: when a record was made, and whether its only file is called as its unit."""


class Packed(Struct, frozen=True, gc=False):
    """A record as bytes, beside what it shares with others."""

    key: str
    info: dict[str, Any]
    data: bytes  # `_HEAD`, and the rest deflated

    @property
    def finished(self) -> float:
        """When it was made."""
        found: float = _HEAD.unpack_from(self.data)[0]
        return found

    @property
    def is_of_own_file(self) -> bool:
        """True if its only file is called as its unit."""
        return self.data[_HEAD.size - 1] == 1


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Rest).decode


class _Packing:
    """Records of one verb as bytes: what they have in common with the first that was packed, such as a rule, is kept once."""

    def __init__(self, first: bytes) -> None:
        import zstandard

        alike = zstandard.ZstdCompressionDict(first, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        self._deflate = zstandard.ZstdCompressor(level=1, dict_data=alike, write_dict_id=False).compress
        self._inflate = zstandard.ZstdDecompressor(dict_data=alike).decompress
        self._lock = Lock()

    def pack(self, record: Record, rest: bytes) -> Packed:
        with self._lock:
            data = self._deflate(rest)
        return Packed(record.key, record.info, _HEAD.pack(record.finished, _is_of_own_file(record)) + data)

    def unpack(self, kept: Packed) -> Record:
        with self._lock:
            rest = self._inflate(memoryview(kept.data)[_HEAD.size :])
        return _decode(rest).with_shared(Record, kept.key, kept.info, kept.finished)


_packings: dict[str, _Packing] = {}
"""By verb."""


def _packed(record: Record, verb: str) -> Packed:
    rest = _encode(record.with_shared(_Rest, "", {}, 0.0))
    packing = _packings.get(verb) or _packings.setdefault(verb, _Packing(rest))
    return packing.pack(record, rest)


def _is_of_own_file(record: Record) -> bool:
    return len(record.files) == 1 and record.files[0].path == record.unit


class MadeOf(Mapping[str, Value]):
    """A mapping that makes its values of what it holds, when they are looked at."""

    _held: Mapping[str, Any]

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, name: object) -> bool:
        return name in self._held


class _Same(MadeOf[str]):
    """Names that are held anyway, each of which stands for itself."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._held = names

    def __getitem__(self, name: str) -> str:
        if name not in self._held:
            raise KeyError(name)
        return name


class Records(MadeOf[Record]):
    """The newest record of each unit of a verb."""

    def __init__(self, verb: str, is_packed: bool = False) -> None:
        self._held: dict[str, Record | Packed] = {}
        self._verb, self._is_packed = verb, is_packed

    def __getitem__(self, unit: str) -> Record:
        kept = self._held[unit]
        return _packings[self._verb].unpack(kept) if isinstance(kept, Packed) else kept

    def add(self, record: Record) -> None:
        """Take a record, unless a newer one of its unit is known."""
        if not self._is_packed and len(self._held) >= UNPACKED:
            self._is_packed = True
            for unit, kept in self._held.items():
                if not isinstance(kept, Packed):
                    self._held[unit] = _packed(kept, self._verb)
        self._put(record.unit, _packed(record, self._verb) if self._is_packed else record)

    def add_all(self, others: "Records") -> None:
        """Take the records of another segment."""
        for unit, kept in others._held.items():
            self._put(unit, kept)

    def _put(self, unit: str, kept: Record | Packed) -> None:
        known = self._held.get(unit)
        if known is None or known.finished <= kept.finished:
            self._held[unit] = kept

    def finished(self, unit: str) -> float | None:
        """Return when the newest record of a unit was made; None: there is none."""
        known = self._held.get(unit)
        return None if known is None else known.finished

    def units_by_file(self) -> Mapping[str, str]:
        """Return the unit of each output file; mostly it is called as the file."""
        held = self._held.items()
        if all(isinstance(kept, Packed) and kept.is_of_own_file for _, kept in held):
            return _Same(self._held)
        return {
            unit if file.path == unit else file.path: unit
            for unit, record in self.items()
            for file in record.files
        }

    def info(self, unit: str) -> dict[str, Any]:
        """Return what only the verb knows of a unit; it is one object for records that say the same."""
        return self._held[unit].info

    def count_newest(self, segment: "Records") -> int:
        """Count the records of a segment that are the newest."""
        return sum(kept.finished == self.finished(unit) for unit, kept in segment._held.items())


class Chosen(MadeOf[Record]):
    """Records of some units, in their order."""

    def __init__(self, records: Records, units: Iterable[str] = ()) -> None:
        self._records = records
        self._held: dict[str, None] = dict.fromkeys(units)

    def __getitem__(self, unit: str) -> Record:
        if unit not in self._held:
            raise KeyError(unit)
        return self._records[unit]

    def decoded(self) -> Collection[Record]:
        """Return the records, each decoded once unless they are very many."""
        return self.values() if len(self) > UNPACKED else [*self.values()]

    def copy(self) -> "Chosen":
        """Return the same units, to choose more."""
        return Chosen(self._records, self._held)

    def choose(self, unit: str) -> None:
        """Take another unit."""
        self._held[unit] = None


class InOrder(MadeOf[Record]):
    """Chosen records in the order of some names, all of them among these, which are made when they are looked at: a million take 0.1 GB."""

    def __init__(self, records: Chosen, names: Callable[[], Iterable[str]]) -> None:
        self._held, self._names = records, names

    def __getitem__(self, unit: str) -> Record:
        record: Record = self._held[unit]
        return record

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._names() if name in self._held)


class RecordsByFile(MadeOf[Record]):
    """The record of each output file."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._held = records.units_by_file()

    def __getitem__(self, path: str) -> Record:
        return self._records[self._held[path]]

    def finished(self, path: str) -> float:
        """Return when the record of a file was made."""
        return self._records.finished(self._held[path]) or 0.0

    def info(self, path: str) -> dict[str, Any]:
        """Return what only the verb knows of the unit of a file."""
        return self._records.info(self._held[path])
