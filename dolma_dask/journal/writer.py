"""Writing of segments, and their compaction while a run works and at its end.

Segments of a run are merged eight by eight, so that their number grows with the logarithm of what was written. At the end what was read or written is merged into segments of
`FULL_BYTES`; full ones stay as they are until newer records have replaced half of theirs. Merged segments are there before those that they stand for are removed: who
is killed in between leaves records twice, and who reads meanwhile looks again.
"""

import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, TypeVar, cast

from msgspec.structs import replace

from dolma_dask.errors import DataError
from dolma_dask.formats import layout
from dolma_dask.formats.json import NOT_JSON
from dolma_dask.io import files
from dolma_dask.io.publish import publish
from dolma_dask.journal.lines import is_damaged, is_of_run, sealed, stated
from dolma_dask.journal.record import Record, RunRecord
from dolma_dask.journal.segments import each_line

if TYPE_CHECKING:
    from dolma_dask.journal import Journal

AnyRecord = TypeVar("AnyRecord", Record, RunRecord)

FLUSH_SECONDS = 5.0
FLUSH_RECORDS = 500

MERGED = 8
"""Segments of a run that become one."""

FULL_BYTES = 64 << 20
"""Stored bytes of a segment that others are not merged into."""

_TICK = 1e-6
"""Seconds by which a record is newer than one that it replaces."""


def run_name() -> str:
    """Return a new name; those of later runs are greater."""
    return f"{time.time_ns():020d}-{os.urandom(3).hex()}"


class JournalWriter:
    """Appends records of one run to its journal, and to the `Journal` in memory; safe to use from several threads."""

    def __init__(self, journal: "Journal", announced: RunRecord | None = None) -> None:
        files.check_links(journal.root, f"{layout.JOURNAL}/{journal.verb}")
        self._journal = journal
        self._announced = announced
        self._run = run_name() if announced is None else announced.run
        self._waiting: list[bytes] = []
        self._written = 0
        self._tiers: list[list[str]] = []  # segments of the run that were merged equally often
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None
        if announced is not None:  # its first line is on disk before anything else
            self._take(announced)
            self.flush()

    def add(self, record: Record) -> str:
        """Take a finished unit; it is on disk within `FLUSH_SECONDS`, whether or not another follows.

        The new record replaces what is known of its unit, even if the clock of the worker that made it is behind. Returned is the name of the unit as the journal holds it:
        who keeps this very text keeps no second one of each unit.
        """
        with self._lock:
            known = self._journal.records.finished(record.unit)
            if known is not None and record.finished <= known:
                record = replace(record, finished=known + _TICK)
            taken = self._take(record)
            if len(self._waiting) >= FLUSH_RECORDS:
                self.flush()
            elif self._timer is None:
                self._start_timer()
        return taken.unit

    def finish(self, missing: int, over_budget: str = "", cpu: float = 0.0) -> None:
        """Record that the announced run has ended by itself, with so many units left undone, perhaps too many bad records, and CPU-seconds."""
        if self._announced is None:
            return
        with self._lock:
            ended = replace(
                self._announced,
                finished=time.time(),
                missing=missing,
                over_budget=over_budget,
                cpu=round(cpu, 3),
            )
            self._take(ended)

    def _take(self, record: AnyRecord) -> AnyRecord:
        line = sealed(record)
        taken = self._journal.take(line)
        if taken is None:
            raise DataError(
                f"the journal could not read back what it would write; expected finite numbers: {line[:2000]!r}"
            )
        self._waiting.append(line)
        return cast("AnyRecord", taken)

    def _start_timer(self) -> None:
        self._timer = threading.Timer(FLUSH_SECONDS, self._flush_late)
        self._timer.daemon = True
        self._timer.start()

    def _flush_late(self) -> None:
        with self._lock, suppress(Exception):  # what waits goes on waiting, and the next flush raises
            self._timer = None
            self.flush()

    def flush(self) -> None:
        """Write what waits as a new segment."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if not self._waiting:
                return
            name = self._write(self._waiting)
            self._waiting = []
            self._merge_own(name)

    def _write(self, lines: Sequence[bytes]) -> str:
        """Write a segment, and return its name."""
        name = f"{self._run}-{self._written:06d}.jsonl"
        _write_lines(files.join(self._journal.folder, name), lines)
        self._journal.written[name] = sum(map(len, lines)) + len(lines)
        self._written += 1
        return name

    def _merge_own(self, name: str, tier: int = 0) -> None:
        """Merge the segments of this run once there are `MERGED` of about one size."""
        if tier == len(self._tiers):
            self._tiers.append([])
        names = self._tiers[tier]
        names.append(name)
        if len(names) < MERGED:
            return
        self._tiers[tier] = []
        if sum(self._journal.written[each] for each in names) <= FULL_BYTES:
            self._merge_own(self._write([line for each in names for line in self._lines(each)]), tier + 1)
            self._remove(names)

    def _lines(self, name: str) -> Iterator[bytes]:
        """Yield the lines of a segment; none if it was merged into one of another run."""
        with suppress(FileNotFoundError):
            for line, _ in each_line(files.read_bytes(files.join(self._journal.folder, name))):
                yield line

    def _remove(self, names: Iterable[str]) -> None:
        for name in sorted(names):
            files.remove(files.join(self._journal.folder, name))
            self._journal.written.pop(name, None)
            self._journal.segments.pop(name, None)

    def close(self) -> None:
        """Merge the segments that were read or written, and write what waits with them, so that it is written once."""
        with self._lock:
            if names := self._journal.to_merge(FULL_BYTES, more=bool(self._waiting)):
                self._compact(names)
            self.flush()

    def _compact(self, names: Sequence[str]) -> None:
        waiting: list[bytes] = []
        size = 0
        for line in self._newest(names):
            waiting.append(line)
            size += len(line) + 1
            if size >= FULL_BYTES:
                self._write(waiting)
                waiting, size = [], 0
        if waiting:
            self._write(waiting)
        self._waiting = []  # these are among the lines
        self._remove(names)

    def _newest(self, names: Iterable[str]) -> Iterator[bytes]:
        """Yield the lines of all runs, and of the newest records in some segments, each once."""
        yield from (line for _, line in self._journal.known_runs.values())
        seen: set[str] = set()
        for line in chain((line for name in names for line in self._lines(name)), self._waiting):
            with suppress(*NOT_JSON):
                if is_of_run(line) or is_damaged(line):
                    continue
                record = stated(line)
                if record.unit not in seen and self._journal.records.finished(record.unit) == record.finished:
                    seen.add(record.unit)
                    yield line


def _write_lines(url: str, lines: Iterable[bytes]) -> None:
    is_staging = f"/{layout.WORK}/" in url  # if it is lost, what it names is made again
    with publish(url, synced=not is_staging) as out:
        for line in lines:
            out.write(line + b"\n")
