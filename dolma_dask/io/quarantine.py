"""Bad records: the shard fails at the first, or they go to a file with their location, reason and bytes."""

import tempfile
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from numbers import Integral, Real
from typing import IO, Any, Literal, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.json import NOT_JSON
from dolma_dask.io.files import READ_BYTES, join, open_read, remove
from dolma_dask.io.publish import publish_later
from dolma_dask.io.records import OF_FUNCTIONS, BadRecord, Block, FileRecord
from dolma_dask.io.stream import MAX_RECORD_BYTES

OnBadRecord = Literal["fail", "quarantine"]

MAX_BAD_FRACTION = 0.01
"""Default share of rows that may be quarantined in a run."""

_HELD_BYTES = 8 << 20
"""Bytes of bad records that are held in memory; more wait in a temporary file."""

NAMED_MEMBERS = 20
"""Skipped members of a shard that are kept by name."""

_READ_BYTES = 64 << 20
"""Bytes of quarantine files that are read to find the commonest reason."""


class RecordPolicy(Struct, frozen=True):
    """Limits of records, and the treatment of bad ones.

    Raises `UsageError`: a value is none of these.
    """

    on_bad_record: OnBadRecord = "fail"  # fail the shard, or go on and keep the record aside
    max_bad_fraction: float = MAX_BAD_FRACTION  # share of all rows of a run that may be quarantined
    max_record_bytes: int = MAX_RECORD_BYTES  # a longer line is bad

    def __post_init__(self) -> None:
        """Refuse values that mean no policy; Python checks no literals."""
        if self.on_bad_record not in get_args(OnBadRecord):
            raise UsageError(
                f"on_bad_record={self.on_bad_record!r}; expected one of {', '.join(get_args(OnBadRecord))}."
            )
        if not isinstance(self.max_bad_fraction, Real) or not 0 <= self.max_bad_fraction <= 1:
            raise UsageError(
                f"max_bad_fraction={self.max_bad_fraction!r}; expected a share of rows, from 0 to 1 (0.01 is one in a hundred)."
            )
        if not isinstance(self.max_record_bytes, Integral) or self.max_record_bytes < 1:
            raise UsageError(
                f"max_record_bytes={self.max_record_bytes!r}; expected a whole number of bytes, 1 or more."
            )

    def params(self) -> dict[str, Any]:
        """Return what decides the bytes of outputs, for keys."""
        return {"max_record_bytes": self.max_record_bytes, "on_bad_record": self.on_bad_record}


class _Kept(msgspec.Struct):
    """A line of a quarantine file, without the record."""

    url: str
    row: int
    byte_offset: int
    reason: str
    expected: str

    @property
    def kind(self) -> tuple[str, str]:
        """The reason and the field it is about."""
        return self.reason, self.expected.partition("'")[2].partition("'")[0]


def commonest(folder: str, shards: Iterable[str]) -> str:
    """Say what is wrong with most bad records of some shards, and where the first of them stands in the file that has most of them.

    Only the beginning of large files is read.
    """
    counts: Counter[tuple[str, str]] = Counter()
    of_files: Counter[tuple[tuple[str, str], str]] = Counter()
    first: dict[tuple[tuple[str, str], str], _Kept] = {}
    left = _READ_BYTES
    for shard in shards:
        with suppress(FileNotFoundError), open_read(join(folder, f"{shard}.jsonl")) as handle:
            lines = handle.read(min(left, _HELD_BYTES)).splitlines(keepends=True)
            left -= sum(map(len, lines))
            for line in (line for line in lines if line.endswith(b"\n")):
                try:
                    kept = msgspec.json.decode(line, type=_Kept)
                except NOT_JSON:
                    continue  # not of ours; the report names it
                counts[kept.kind] += 1
                of_files[kept.kind, kept.url] += 1
                first.setdefault((kept.kind, kept.url), kept)
    if not counts:
        return ""
    ((kind, count),) = counts.most_common(1)
    most = max((place for place in first if place[0] == kind), key=of_files.__getitem__)
    example = BadRecord(**asdict(first[most]), raw=b"")
    return f" Most often ({count:,} of {counts.total():,} looked at): {example}."


class Quarantine:
    """Bad records of one shard, of which ``count`` were admitted, and names of skipped members; memory is bounded, however many there are.

    An output may refuse further ones, which stand in its own file alone.
    """

    def __init__(self, policy: RecordPolicy) -> None:
        self.count = 0
        self.skipped = 0  # members of archives that hold no records
        self.skipped_names: list[str] = []  # of the first of them
        self._policy = policy
        self._adopted: tuple[FileRecord, ...] | None = None
        self._admitted: IO[bytes] | None = None
        self._refused: dict[int, IO[bytes]] = {}  # by the number of the output

    def admit(self, block: Block) -> None:
        """Take the bad records of a block.

        Raises `BadRecordError`: the policy is to fail.
        """
        self.skipped += len(block.skipped)
        self.skipped_names += block.skipped[: NAMED_MEMBERS - len(self.skipped_names)]
        if block.bad:
            self._admitted = self._admitted or self._spool()
            self._write(block.bad, self._admitted)
            self.count += len(block.bad)

    def refuse(self, output: int, records: Sequence[BadRecord]) -> None:
        """Take documents that the output of that number refuses, and others may take.

        Raises `BadRecordError`: the policy is to fail.
        """
        if records:
            if output not in self._refused:
                self._refused[output] = self._spool()
            self._write(records, self._refused[output])

    def _write(self, records: Sequence[BadRecord], waiting: IO[bytes]) -> None:
        for record in records:
            if self._policy.on_bad_record == "fail":
                mend = "function" if record.reason in OF_FUNCTIONS else "file"
                raise record.error(
                    f"Mend the {mend}, or set such rows aside with --on-bad-record quarantine."
                )
            waiting.write(msgspec.json.encode(record.to_json()) + b"\n")

    def _spool(self) -> IO[bytes]:
        """Return a file in memory, and on disk once it is large, which is closed, and gone, with the quarantine."""
        spool = tempfile.SpooledTemporaryFile(max_size=_HELD_BYTES)  # noqa: SIM115
        weakref.finalize(self, spool.close)
        return spool

    def adopt(self, files: tuple[FileRecord, ...]) -> None:
        """Take the bad records that an earlier pass has found in the same rows; their files stay as they are."""
        self._adopted = files

    def publish(self, root: str, verb: str, shard: str, output: int = 0) -> tuple[FileRecord, ...]:
        """Write the quarantine file of an output by its number, or remove the one of an earlier run if there is nothing to keep."""
        if self._adopted is not None:
            return self._adopted
        path = f"{layout.QUARANTINE}/{verb}/{shard}.jsonl"
        refused = self._refused.get(output)
        waiting = [one for one in (self._admitted, refused) if one is not None]
        if waiting:
            return _publish(root, path, waiting)
        remove(join(root, path))
        return ()

    def publish_refused(
        self, root: str, verb: str, shard: str, output: int, name: str
    ) -> tuple[FileRecord, ...]:
        """Write what one of several outputs has refused that share the quarantine file, to one with its name; that of an earlier run is in its record."""
        refused = self._refused.get(output)
        path = f"{layout.QUARANTINE}/{verb}/{shard}.{name}.jsonl"
        return () if refused is None else _publish(root, path, [refused])


def _publish(root: str, path: str, waiting: Sequence[IO[bytes]]) -> tuple[FileRecord, ...]:
    rows = 0
    with publish_later(join(root, path)) as out:
        for each in waiting:
            each.seek(0)
            while piece := each.read(READ_BYTES):
                out.write(piece)
                rows += piece.count(b"\n")
    return (FileRecord(path, out.bytes, out.checksum, rows),)
