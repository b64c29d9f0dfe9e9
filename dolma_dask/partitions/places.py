"""Entry points and numbers of rows of files: from the journal, the footers of tables, or a look for newlines.

The journal's word on a file counts while the file has the recorded size and time stamp, or else bytes, which are hashed when the number of
rows alone is asked. Where a file can be cut is taken on its word for a file of the recorded size: readers of parts see what is wrong. Cost:
the journals of the dataset; of shards that are to be cut and that no journal knows, a table's footer, or one pass over the bytes of a plain
file.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dolma_dask.dataset import Shard
from dolma_dask.formats import layout
from dolma_dask.formats.layout import FileFormat
from dolma_dask.io import files
from dolma_dask.io.files import READ_BYTES, FileInfo
from dolma_dask.io.parquet import row_groups
from dolma_dask.io.stored import START, Member
from dolma_dask.journal import Record, journals

TEXT_PER_STORED_BYTE: Mapping[FileFormat, float] = {
    "jsonl": 1.0,
    "jsonl.gz": 3.0,
    "jsonl.zst": 3.3,
    "parquet": 3.0,
}
"""Bytes of lines for a stored byte where nothing tells them; measured on 22 MB of web text in many languages (gzip level 6, zstd level 3)."""


@dataclass(frozen=True)
class KnownFile:
    """Facts of a record about a file that was written or read."""

    finished: float  # when, in seconds since 1970
    bytes: int  # its stored size
    checksum: str  # of its stored bytes
    stamp: str  # when it was read; empty: not known
    rows: int | None  # None: not known
    members: tuple[tuple[int, int, int], ...] = ()
    """See `dolma_dask.io.records.FileRecord`; empty: not known, or none."""


@dataclass(frozen=True)
class Extent:
    """The size of a document file, and where it can be cut."""

    text_bytes: int  # of its lines, decompressed; an estimate where nothing tells it
    rows: int | None  # None: not known
    members: tuple[Member, ...] = ()  # places in order, the start first; empty where it cannot be cut
    checksum: str = ""  # of the file that has so many rows; empty: the listed one is known to be that


@dataclass(frozen=True)
class Places:
    """Places in the files of a dataset."""

    root: str  # of the dataset
    _known: Mapping[str, Sequence[KnownFile]] = field(default_factory=dict, repr=False)
    _tables: dict[str, tuple[Member, ...]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, root: str) -> "Places":
        """Read what the journals say."""
        return cls(root, _known_files(root))

    def documents(self, shard: Shard, largest: int | None) -> Extent:
        """Return the extent of a document file; one with more than `largest` bytes of lines is searched for places to cut it at if no journal knows them."""
        path = layout.document_path(shard.path)
        kind = layout.format_of(path)
        rows, members, checksum = self._recorded(path, shard.bytes, shard.stamp)
        end = members[-1] if members else START
        size = end.text_offset + int(TEXT_PER_STORED_BYTE[kind] * (shard.bytes - end.offset))
        if largest is None or size <= largest:
            return Extent(size, rows, (), checksum)
        if len(members) > 1:
            return Extent(size, rows, members, checksum)
        if kind == "parquet":
            members, rows = row_groups(files.join(self.root, path))
            checksum = ""
        elif kind == "jsonl":
            members, rows = scan_lines(files.join(self.root, path), largest)
            checksum = ""
        return Extent(size, rows, members if len(members) > 1 else (), checksum)

    def attributes(self, info: FileInfo) -> tuple[Member, ...]:
        """Return the places of an attribute file, the start first."""
        if layout.format_of(info.path) != "parquet":
            return self._recorded(info.path, info.bytes, info.stamp)[1] or (START,)
        if info.path not in self._tables:
            self._tables[info.path] = row_groups(files.join(self.root, info.path))[0] or (START,)
        return self._tables[info.path]

    def _recorded(self, path: str, size: int, stamp: str) -> tuple[int | None, tuple[Member, ...], str]:
        """Return the rows and members of a file of that size, and its checksum if that has to tell whether it is the one.

        The records that speak of the same bytes as the newest one that knows the stamp, or as the newest of all.
        """
        records = [known for known in self._known.get(path, ()) if known.bytes == size]
        if not records:
            return None, (), ""
        proved = [known for known in records if stamp and known.stamp == stamp]
        newest = max(proved or records, key=lambda known: known.finished)
        same = [known for known in records if known.checksum == newest.checksum]
        members = max((known.members for known in same), key=len)
        rows = next((known.rows for known in same if known.rows is not None), None)
        checksum = "" if proved or rows is None else newest.checksum
        return rows, tuple(Member(*each) for each in members), checksum


def last_before(members: Sequence[Member], row: int) -> Member:
    """Return the last place at or before a row."""
    return max((member for member in members if member.row <= row), key=lambda member: member.row)


def scan_lines(url: str, step: int) -> tuple[tuple[Member, ...], int]:
    """Find the starts of lines about every `step` bytes of a plain file, and the number of its lines.

    Cost: 3 GB/s where the disk gives as much.
    """
    members, row, offset, last = [START], 0, 0, b"\n"
    with files.open_read(url) as handle:
        while piece := handle.read(READ_BYTES):
            wanted = members[-1].offset + step
            at = piece.find(b"\n", max(wanted - offset - 1, 0)) if wanted <= offset + len(piece) else -1
            while at >= 0:
                members.append(Member(offset + at + 1, row + piece.count(b"\n", 0, at + 1), offset + at + 1))
                at = piece.find(b"\n", at + step)
            row += piece.count(b"\n")
            offset += len(piece)
            last = piece[-1:]
    if len(members) > 1 and members[-1].offset == offset:
        members.pop()
    return tuple(members), row + (last != b"\n")


def _known_files(root: str) -> dict[str, list[KnownFile]]:
    """Return what records say of each file, by its path."""
    found: dict[str, list[KnownFile]] = {}
    for journal in journals(root):
        for record in journal.records.values():
            for path, known in (*_written(record), *_read(record)):
                found.setdefault(path, []).append(known)
    return found


def _written(record: Record) -> Iterator[tuple[str, KnownFile]]:
    """Yield the documents and attributes that a record says were written."""
    for file in record.files:
        if file.path.startswith((f"{layout.DOCUMENTS}/", f"{layout.ATTRIBUTES}/")):
            rows = file.rows if file.rows or file.members else None
            yield (
                file.path,
                KnownFile(record.finished, file.bytes, file.checksum, file.stamp, rows, file.members),
            )


def _read(record: Record) -> Iterator[tuple[str, KnownFile]]:
    """Yield the documents that attributes were made from: they have as many rows."""
    if any(file.path.startswith(f"{layout.ATTRIBUTES}/") for file in record.files):
        path = layout.document_path(record.shard)
        for item in record.inputs:
            if item.path == path:
                yield path, KnownFile(record.finished, item.bytes, item.checksum, item.stamp, record.rows)
