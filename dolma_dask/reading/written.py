"""What journals tell of the files of a dataset: the newest record of each, and what proves that attributes belong to their documents.

Records stay in their journals.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import msgspec
from msgspec import Struct

from dolma_dask.formats import layout
from dolma_dask.formats.json.attributes import AttributeKind
from dolma_dask.formats.metadata import is_field
from dolma_dask.io.records import InputRecord
from dolma_dask.journal import Journal, Record
from dolma_dask.journal.kept import MadeOf, RecordsByFile
from dolma_dask.reading.sets import Proof

_DOCUMENT_FIELDS = {"id", "source", "added", "created", "metadata"}
"""Columns that a tagger may read without depending on the text."""

_UNDIGESTED = {"added", "created", "metadata"}
"""Fields that the digests of documents do not cover."""

_KINDS = dict[str, AttributeKind] | None

_SHARED = 256
"""Contents of `Record.info` whose meaning is kept: files of one run say the same."""


class Maker(NamedTuple):
    """A verb, and what its journal says of files."""

    verb: str
    records: RecordsByFile


class Written(MadeOf[tuple[str, Record]]):
    """The verb that wrote each file most lately, and its record."""

    def __init__(self, makers: Mapping[str, Maker]) -> None:
        self._held = makers

    @classmethod
    def of(cls, journals: Iterable[Journal]) -> Self:
        """Return what some journals say, of those that know a file the newest."""
        return cls(_Newest([Maker(journal.verb, journal.by_file()) for journal in journals]))

    def below(self, prefix: str) -> "Written":
        """Return those whose paths begin so."""
        if all(path.startswith(prefix) for path in self._held):
            return self
        return Written({path: self._held[path] for path in self._held if path.startswith(prefix)})

    def makers(self) -> Iterator[tuple[str, str, float]]:
        """Yield each path, the verb that wrote it, and when."""
        for path, maker in self._held.items():
            yield path, maker.verb, maker.records.finished(path)

    def told(self, path: str) -> "Told | None":
        """Return what the record of a file says of attributes; None: there is none."""
        maker = self._held.get(path)
        return None if maker is None else _told(maker.records.info(path))

    def __getitem__(self, path: str) -> tuple[str, Record]:
        maker = self._held[path]
        return maker.verb, maker.records[path]


class _Newest(Mapping[str, Maker]):
    """The maker that knows a file the newest, which is looked for each time: a dictionary of a million files takes a tenth of a gigabyte."""

    def __init__(self, makers: Sequence[Maker]) -> None:
        self._makers = makers

    def __getitem__(self, path: str) -> Maker:
        found = None
        for maker in self._makers:
            if path in maker.records and (
                found is None or found.records.finished(path) <= maker.records.finished(path)
            ):
                found = maker
        if found is None:
            raise KeyError(path)
        return found

    def __iter__(self) -> Iterator[str]:
        for number, maker in enumerate(self._makers):
            before = self._makers[:number]
            yield from (path for path in maker.records if not any(path in one.records for one in before))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Proofs(MadeOf[Proof]):
    """Proof of each attribute file."""

    def __init__(self, written: Written) -> None:
        self._held = written

    def __getitem__(self, path: str) -> Proof:
        return _proof(path, *self._held[path])


class Told(Struct, frozen=True):
    """What a record says of the attributes in a file."""

    kinds: dict[str, AttributeKind] | None  # of its keys; None: the file itself tells
    levels: tuple[str, ...]
    reads_text: bool
    undigested: tuple[str, ...]  # see `Proof`
    is_dataset_wide: bool
    is_unproved: bool

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> "Told":
        """Return what `Record.info` means."""
        reads = set(info.get("reads", ["text"]))
        return cls(
            _kinds(info),
            tuple(info.get("levels", ())),
            not reads <= _DOCUMENT_FIELDS,
            tuple(sorted(name for name in reads if name in _UNDIGESTED or is_field(name))),
            info.get("dataset_wide") is True,
            info.get("unproved") is True,
        )


def _kinds(info: Mapping[str, Any]) -> dict[str, AttributeKind] | None:
    kinds = dict.fromkeys(info["levels"], "level") if "levels" in info else info.get("kinds")
    try:
        found: dict[str, AttributeKind] | None = msgspec.convert(kinds, _KINDS)
    except msgspec.ValidationError:
        return None  # no record of ours: the file itself tells
    return found


def told(record: Record) -> Told:
    """Return what a record says of attributes."""
    return _told(record.info)


def _told(info: Mapping[str, Any]) -> Told:
    known = _meanings.get(id(info))
    if known is None or known[0] is not info:
        if len(_meanings) >= _SHARED:
            _meanings.clear()
        known = _meanings[id(info)] = info, Told.of(info)
    return known[1]


_meanings: dict[int, tuple[Mapping[str, Any], Told]] = {}


def _proof(path: str, verb: str, record: Record) -> Proof:
    file = next(file for file in record.files if file.path == path)
    document, means = layout.document_path(record.shard), told(record)
    # a file made of an unproved one is unproved too
    is_proved = bool(record.ids_digest) and not means.is_unproved
    return Proof(
        file=InputRecord(path, file.bytes, file.stamp, file.checksum),
        rows=record.rows,
        ids_digest=record.ids_digest if is_proved else "",
        content_digest=record.content_digest if is_proved else "",
        reads_text=means.reads_text and is_proved,
        verb=verb,
        documents=next((item for item in record.inputs if item.path == document), None),
        members=file.members if is_proved else (),
        undigested=means.undigested,
        is_dataset_wide=means.is_dataset_wide,
        levels=means.levels,
    )
