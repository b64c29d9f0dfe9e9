"""Records of finished work, which say which bytes made which bytes, so that the same command goes on where it stopped.

A unit of work is finished if and only if its newest record has the current key, its inputs are the files the record names, and its
outputs are there with the recorded sizes. An input is the same file when size and stamp agree; when only the stamp differs (a copied or
moved dataset) its bytes are hashed, so neither moving nor copying redoes work and no change slips through.

On disk: immutable segments ``_journal/<verb>/<run>-<n>.jsonl``, one JSON object per line with a digest of it, written every few seconds, merged on read
(newest record of a unit wins, a torn last line is ignored, damaged lines and records of another `FORMAT` are not believed), and compacted (`writer`).
Two runs at once are safe: each writes its own segments, and compaction removes only segments it has read. Cost: 1 to 2 kB per unit.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dolma_dask.display import counted
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.journal.kept import Chosen, InOrder, Records, RecordsByFile
from dolma_dask.journal.record import (
    FORMAT,
    Record,
    RunRecord,
    Unit,
    canonical,
    is_same_file,
    is_there,
    sum_drops,
    work_key,
)
from dolma_dask.journal.segments import REMEMBERED_BYTES, Segment, add_run, read_segment
from dolma_dask.journal.writer import JournalWriter, run_name

__all__ = [
    "FORMAT",
    "Chosen",
    "InOrder",
    "Journal",
    "JournalWriter",
    "Record",
    "RunRecord",
    "Unit",
    "canonical",
    "garbage_notes",
    "is_same_file",
    "is_there",
    "journals",
    "sum_drops",
    "work_key",
]

_LISTINGS = 20
"""Compactions by other runs that a reader lives through."""


class Journal:
    """The journal of one verb below a dataset or output root: the newest record of each unit, and the units with records of another format
    (``foreign``), which are not believed. With `runs_only` it knows runs alone.
    """

    def __init__(self, root: str, verb: str, *, runs_only: bool = False) -> None:
        self.root = root
        self._runs_only = runs_only
        self.verb = verb
        self.folder = files.join(root, f"{layout.JOURNAL}/{verb}")
        self.records = Records(verb)
        self.known_runs: dict[str, tuple[RunRecord, bytes]] = {}
        self.foreign: set[str] = set()  # units with records of another format
        self.garbage: dict[str, int] = {}  # lines of each segment that are no records of ours
        # by name: read in full, and stored bytes of those that were written; compaction may remove both
        self.segments: dict[str, Segment] = {}
        self.written: dict[str, int] = {}
        self._listed: set[str] = set()
        self._read()

    def is_current(self) -> bool:
        """Tell whether no other run has written into it since it was read."""
        return {info.path for info in files.list_files(self.folder)} == self._listed

    def _read(self) -> None:
        """Read all segments; again from a new listing if another run's compaction removed one meanwhile.

        The listing of a local folder that changes may miss what is merged and what it was merged from: it is complete if the next one says the same, also one
        that found nothing.
        """
        seen: set[str] = set()
        for number in range(_LISTINGS):
            found = {info.path: info for info in files.list_files(self.folder) if info.path not in seen}
            is_packed = sum(info.bytes for info in found.values()) > REMEMBERED_BYTES
            missing = {name for name in found if not self._read_segment(found[name], is_packed)}
            self._listed |= found.keys() - missing
            if not missing and not ((found or not number) and files.is_local(self.folder)):
                return
            seen |= found.keys()

    def _read_segment(self, info: FileInfo, is_packed: bool) -> bool:
        segment = read_segment(self.folder, info, self.verb, runs_only=self._runs_only, is_packed=is_packed)
        if segment is None:
            return False
        self.foreign |= segment.foreign
        for run, line in segment.runs.values():
            add_run(self.known_runs, run, line)
        if not self._runs_only:
            self.records.add_all(segment.records)
        if segment.is_ours:
            self.segments[info.path] = segment
        elif segment.garbage:
            self.garbage[info.path] = segment.garbage
        return True

    def take(self, line: bytes) -> Record | RunRecord | None:
        """Take a line that is about to be written, and return what it says; None: it could not be read."""
        segment = Segment(0, self.records, self.known_runs, self.foreign)
        return segment.take(line, self.verb)

    def to_merge(self, full_bytes: int, *, more: bool) -> list[str]:
        """Return the segments, of those that were read or written, that compaction replaces: small ones, and those that newer records have replaced by half; `more`: others come to them."""
        sizes = {name: segment.size for name, segment in self.segments.items()} | self.written
        small = [name for name, size in sizes.items() if 2 * size < full_bytes]
        old = [
            name
            for name, segment in self.segments.items()
            if name not in small and 2 * self.records.count_newest(segment.records) < segment.lines
        ]
        return sorted(small + old) if old or len(small) + more > 1 else []

    @property
    def runs(self) -> list[RunRecord]:
        """Announced runs, in the order in which they started."""
        return sorted((run for run, _ in self.known_runs.values()), key=lambda run: run.started)

    @property
    def newest(self) -> dict[tuple[str, ...], RunRecord]:
        """Newest run of each set of folders or files that runs have announced."""
        return {run.writes: run for run in self.runs}

    def may_write(self, path: str) -> bool:
        """Tell whether some run of this verb announced that it writes `path`, so that a file there is ours."""
        return any(path.startswith(run.writes) for run, _ in self.known_runs.values())

    @property
    def may_lack_records(self) -> bool:
        """True if files may be of this verb that no record names: a run was stopped or failed, or lines are not believed."""
        return bool(self.foreign or self.garbage) or any(run.is_open for run, _ in self.known_runs.values())

    def by_file(self) -> RecordsByFile:
        """Return the record of each output file."""
        return RecordsByFile(self.records)

    def append(self, *records: Record) -> None:
        """Append records outside of a run; nothing is written for none."""
        if not records:
            return
        writer = JournalWriter(self)
        for record in records:
            writer.add(record)
        writer.close()

    def start(
        self, params: Mapping[str, Any], writes: Sequence[str], version: str, origin: str = ""
    ) -> JournalWriter:
        """Announce a run and return the writer of its records."""
        run = RunRecord(run_name(), self.verb, dict(params), tuple(writes), time.time(), version, origin)
        return JournalWriter(self, run)


def journals(root: str, *, of_files: bool = False) -> Iterator[Journal]:
    """Yield the journals of all verbs that wrote below `root`; with `of_files` only those whose records can name files: no run of the others has announced any."""
    for verb in files.list_folders(files.join(root, layout.JOURNAL)):
        if not (of_files and _announces_none(Journal(root, verb, runs_only=True))):
            yield Journal(root, verb)


def _announces_none(journal: Journal) -> bool:
    return bool(journal.runs) and not any(run.writes for run in journal.runs)


def garbage_notes(known: Iterable[Journal]) -> Iterator[str]:
    """Name the segments with lines that are no records."""
    for journal in known:
        for name, count in sorted(journal.garbage.items()):
            yield (
                f"{layout.JOURNAL}/{journal.verb}/{name}: {counted(count, 'line')} that no record of {journal.verb} is in, not believed; the same "
                "command does again what they may have spoken of. Remove the file if it does not belong there"
            )
