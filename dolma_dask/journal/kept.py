"""Records in memory: as they are, or where they are very many as bytes that are decoded when one is looked at.

A record of a small shard takes 1.4 kB, packed 0.6; decoding costs 3 microseconds.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from dolma_dask.journal.record import Record

Value = TypeVar("Value")

UNPACKED = 100_000
"""Records of a journal that are kept as they are."""


class _Rest(Record, frozen=True, array_like=True, gc=False):
    """A record without what it shares with others."""


class Packed(Struct, frozen=True, gc=False):
    """A record as bytes, beside what it shares with others and what tells the newest."""

    finished: float
    key: str
    info: dict[str, Any]
    data: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Rest).decode


def packed(record: Record) -> Packed:
    """Return a record as bytes."""
    rest = record.with_shared(_Rest, "", {}, 0.0)
    return Packed(record.finished, record.key, record.info, _encode(rest))


def _unpacked(kept: Record | Packed) -> Record:
    if isinstance(kept, Record):
        return kept
    return _decode(kept.data).with_shared(Record, kept.key, kept.info, kept.finished)


class MadeOf(Mapping[str, Value]):
    """A mapping that makes its values of what it holds, when they are looked at."""

    _held: Mapping[str, Any]

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, name: object) -> bool:
        return name in self._held


class Records(MadeOf[Record]):
    """The newest record of each unit."""

    def __init__(self, is_packed: bool = False) -> None:
        self._held: dict[str, Record | Packed] = {}
        self._is_packed = is_packed

    def __getitem__(self, unit: str) -> Record:
        return _unpacked(self._held[unit])

    def add(self, record: Record) -> None:
        """Take a record, unless a newer one of its unit is known."""
        is_packed = self._is_packed or len(self._held) >= UNPACKED
        self._put(record.unit, packed(record) if is_packed else record)

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

    def copy(self) -> "Chosen":
        """Return the same units, to choose more."""
        return Chosen(self._records, self._held)

    def choose(self, unit: str) -> None:
        """Take another unit."""
        self._held[unit] = None


class RecordsByFile(MadeOf[Record]):
    """The record of each output file."""

    def __init__(self, records: Records) -> None:
        self._records = records
        units = ((file.path, unit) for unit, record in records.items() for file in record.files)
        self._held: dict[str, str] = {unit if path == unit else path: unit for path, unit in units}

    def __getitem__(self, path: str) -> Record:
        return self._records[self._held[path]]

    def finished(self, path: str) -> float:
        """Return when the record of a file was made."""
        return self._records.finished(self._held[path]) or 0.0

    def info(self, path: str) -> dict[str, Any]:
        """Return what only the verb knows of the unit of a file."""
        return self._records.info(self._held[path])
