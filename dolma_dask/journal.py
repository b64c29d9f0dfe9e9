"""Records of finished work, which say which bytes made which bytes, so that the same command goes on where it stopped.

A unit of work is finished if and only if its newest record has the current key, its inputs are the files the record names, and its
outputs are there with the recorded sizes. An input is the same file when size and stamp agree; when only the stamp differs (a copied or
moved dataset) its bytes are hashed, so neither moving nor copying redoes work and no change slips through.

On disk: immutable segments ``_journal/<verb>/<run>-<n>.jsonl``, one JSON object per line with a digest of it, written every few seconds, merged on read
(newest record of a unit wins, a torn last line is ignored, damaged lines and records of another `FORMAT` are not believed), compacted at the end of a run.
Two runs at once are safe: each writes its own segments, and compaction removes only segments it has read. Cost: about 1 kB per unit.
"""

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import xxhash
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.display import counted
from dolma_dask.errors import DataError, UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.json import NOT_JSON
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.publish import publish
from dolma_dask.io.record_info import KnownInfo
from dolma_dask.io.records import Count, FileRecord, InputRecord, RuleCount
from dolma_dask.registry import VERBS

if TYPE_CHECKING:
    from dolma_dask.rules.tally import Tally

FORMAT = 2
"""Format of records; raised when their fields change their meaning. Records of another format are never believed."""

FLUSH_SECONDS = 5.0
FLUSH_RECORDS = 500

_LISTINGS = 20
"""Compactions by other runs that a reader lives through."""

_TICK = 1e-6
"""Seconds by which a record is newer than one that it replaces."""


Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e11)]
"""Time since 1970, or how long something took; larger numbers are no time that can be shown."""


class Record(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="format", tag=FORMAT):
    """One finished unit of work."""

    unit: str  # name of the unit: the path of its main output, relative to the output root
    shard: str  # the shard it was made from, relative to ``documents/`` of its dataset
    key: str  # digest of parameters and versions (`work_key`)
    # what was read and written
    inputs: tuple[InputRecord, ...] = ()
    files: tuple[FileRecord, ...] = ()
    rows: Count = 0  # rows of the input
    # xxh3-128 over (source, id) and (source, id, text) of every row of the documents that the outputs line up with
    ids_digest: str = ""
    content_digest: str = ""
    # numbers for the summary and the report, such as documents and text bytes in and out
    counts: dict[str, float] = {}
    rules: tuple[RuleCount, ...] = ()  # documents for which each part of a rule holds
    # what the parts of a `where` rule drop by source, in the order of `rules` (`Tally.to_json`); None: not counted
    drops: dict[str, list[tuple[int, int]]] | None = None
    info: dict[str, Any] = {}  # what only this verb knows (tagger types, thresholds, histograms...)
    # wall seconds of the work; when it ended, in seconds since 1970
    seconds: Seconds = 0.0
    finished: Seconds = 0.0
    # a later run was about to make the unit again: the files may be those of that run, which was stopped before it could say so
    stale: bool = False

    def forgotten(self) -> "Record":
        """Return the record that takes the place of this one when its files were removed since no run makes them any more: it has no key."""
        return Record(self.unit, self.shard, key="", finished=self.finished)

    @property
    def is_forgotten(self) -> bool:
        """True if nothing is to be made or missed of the unit."""
        return not (self.key or self.files or self.info)


def sum_drops(records: Sequence[Record]) -> "Tally | None":
    """Return what conditions drop in several shards; None where it was not counted, or not by the same rule."""
    rules = {tuple(rule.rule for rule in record.rules if rule.kind == "where") for record in records}
    if len(rules) != 1 or any(record.drops is None for record in records):
        return None
    from dolma_dask.rules.tally import Tally  # brings Arrow along, which most readers of journals do without

    found = Tally(len(rules.pop()))
    for record in records:
        found.add(Tally.from_json(found.conditions, record.drops or {}))
    return found


class Unit(Struct, frozen=True):
    """Smallest thing that is finished or not: an output, known under a key."""

    name: str  # path of the main output relative to the output root
    key: str  # `work_key` of all that decides the output besides the input bytes


class RunRecord(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="run"):
    """A run: its options, the folders or files it may replace, and how it ended.

    ``origin`` is the root of its input, relative to the output root where both are local. ``finished`` is 0 until the run has ended by
    itself; ``missing`` counts the units that it left undone; ``over_budget`` says how many bad records there are, if they are too many.
    """

    run: str
    verb: str
    params: dict[str, Any]
    writes: tuple[str, ...]
    started: Seconds
    version: str = ""
    origin: str = ""
    finished: Seconds = 0.0
    missing: Count = 0
    over_budget: str = ""
    cpu: Seconds = 0.0  # CPU-seconds of all processes until it ended; of a job, of the passes before it too

    @property
    def is_open(self) -> bool:
        """True if it was stopped, still goes on, left units undone or ended over its budget."""
        return bool(self.missing or not self.finished or self.over_budget)


class _AnyRecord(msgspec.Struct):
    """Fields of records of any format."""

    unit: str
    format: int = 1


_HEAD = len('{ "format" : 99')
"""Bytes in which a record of this format names it."""

_record_decoder = msgspec.json.Decoder(Record)
_any_decoder = msgspec.json.Decoder(_AnyRecord)


def _is_current(line: bytes) -> bool:
    """Tell whether a record is of `FORMAT`; only those of other formats are decoded for it."""
    return b'"format":%d,' % FORMAT in line[:_HEAD] or _any_decoder.decode(line).format == FORMAT


def _is_foreign(line: bytes) -> bool:
    """Tell whether a line is a record of another format."""
    try:
        return _any_decoder.decode(line).format != FORMAT
    except NOT_JSON:
        return False


_run_decoder = msgspec.json.Decoder(RunRecord)
_encoder = msgspec.json.Encoder(order="deterministic")


def _encode(value: Any) -> bytes:
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{error.object[:200]!r}: text that is not UTF-8; expected UTF-8, which journals and reports can write. "
            "Rename the folder or file, or give another text."
        ) from None


_SEAL = b',"check":"'
_SEAL_BYTES = len(_SEAL) + 16 + len(b'"}')


def _sealed(line: bytes) -> bytes:
    """Return a line with a digest of it as its last member: what was damaged is not believed, whatever its values seem to be."""
    return b'%b%b%016x"}' % (line[:-1], _SEAL, xxhash.xxh3_64_intdigest(line))


def _is_sealed(line: bytes) -> bool:
    return line[-_SEAL_BYTES:].startswith(_SEAL)


def _is_damaged(line: bytes) -> bool:
    """Tell whether a line is not as it was sealed; those of earlier releases have no seal."""
    body, seal = line[:-_SEAL_BYTES], line[-_SEAL_BYTES:]
    return b'"check"' in line[-2 * _SEAL_BYTES :] and seal != _sealed(body + b"}")[-_SEAL_BYTES:]


def canonical(params: Mapping[str, Any]) -> str:
    """Return the canonical JSON of parameters: sorted keys, no white space.

    Raises `UsageError`: a text in them is not UTF-8.
    """
    return _encode(params).decode()


def work_key(verb: str, version: int, params: Mapping[str, Any]) -> str:
    """Return the digest under which finished work is known: of the verb, its version (raised when its output changes for the same
    parameters), and everything that decides the output besides the input bytes.
    """
    return xxhash.xxh3_128_hexdigest(canonical({"verb": verb, "version": version, "params": params}).encode())


class Journal:
    """The journal of one verb below a dataset or output root: the newest record of each unit, and the units with records of another format
    (``foreign``), which are not believed. With `runs_only` it knows runs alone.
    """

    def __init__(self, root: str, verb: str, *, runs_only: bool = False) -> None:
        self.root = root
        self._runs_only = runs_only
        self.verb = verb
        self.folder = files.join(root, f"{layout.JOURNAL}/{verb}")
        self.records: dict[str, Record] = {}
        self._runs: dict[str, RunRecord] = {}
        self._run_lines: dict[
            str, bytes
        ] = {}  # as they were read: a newer release may have written more fields
        self._lines: dict[str, bytes] = {}  # of each record, likewise
        self.foreign: set[str] = set()  # units with records of another format
        self.garbage: dict[str, int] = {}  # lines of each segment that are no records of ours
        self._segments: set[str] = set()  # read in full, so that compaction may remove them
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
            names = {info.path for info in files.list_files(self.folder)} - seen
            missing = {name for name in sorted(names) if not self._read_segment(name)}
            self._listed |= names - missing
            if not missing and not ((names or not number) and files.is_local(self.folder)):
                return
            seen |= names

    def _read_segment(self, name: str) -> bool:
        try:
            data = files.read_bytes(files.join(self.folder, name))
        except FileNotFoundError:
            return False
        *lines, torn = data.split(b"\n")
        strange = [line for line in lines if not self._read_line(line)]
        if not self._read_line(torn) and not torn.startswith(b'{"'):
            strange.append(torn)  # else it is torn, and the work that it spoke of is simply done again
        if not strange:
            self._segments.add(name)
        elif garbage := sum(not _is_foreign(line) for line in strange):
            self.garbage[name] = garbage
        return True

    def _read_line(self, line: bytes) -> bool:
        if not line:
            return True
        if _is_damaged(line):
            return False
        try:
            if line.startswith(b'{"kind"'):
                run = _run_decoder.decode(line)
                self._runs[run.run], self._run_lines[run.run] = run, line
            elif self._runs_only:
                return True
            elif _is_current(line):
                record = _record_decoder.decode(line)
                if (
                    record.info and self.verb in VERBS and not _is_sealed(line)
                ):  # as this package never wrote it
                    msgspec.convert(record.info, KnownInfo)
                paths = [file.path for file in record.files]
                if self.verb != "report":  # a page may lie anywhere, and is no file of its record
                    paths.append(record.unit)
                names_files = all(files.is_file_inside(file.path) for file in record.files)
                if not (names_files and all(map(files.is_inside, paths))):
                    return False  # a dataset from elsewhere may be hostile: what records name may be removed
                self._merge(record, line)
            else:
                self.foreign.add(_any_decoder.decode(line).unit)
                return False
        except NOT_JSON:
            return False
        return True

    def _merge(self, record: Record, line: bytes) -> None:
        known = self.records.get(record.unit)
        if known is None or known.finished <= record.finished:
            self.records[record.unit] = record
            self._lines[record.unit] = line

    @property
    def runs(self) -> list[RunRecord]:
        """Announced runs, in the order in which they started."""
        return sorted(self._runs.values(), key=lambda run: run.started)

    @property
    def newest(self) -> dict[tuple[str, ...], RunRecord]:
        """Newest run of each set of folders or files that runs have announced."""
        return {run.writes: run for run in self.runs}

    def may_write(self, path: str) -> bool:
        """Tell whether some run of this verb announced that it writes `path`, so that a file there is ours."""
        return any(path.startswith(prefix) for run in self._runs.values() for prefix in run.writes)

    @property
    def may_lack_records(self) -> bool:
        """True if files may be of this verb that no record names: a run was stopped or failed, or lines are not believed."""
        return bool(self.foreign or self.garbage) or any(run.is_open for run in self._runs.values())

    def by_file(self) -> dict[str, Record]:
        """Return the record of each output file."""
        return {file.path: record for record in self.records.values() for file in record.files}

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
    ) -> "JournalWriter":
        """Announce a run and return the writer of its records."""
        run = RunRecord(_run_name(), self.verb, dict(params), tuple(writes), time.time(), version, origin)
        return JournalWriter(self, run)


def _run_name() -> str:
    return f"{time.time_ns():020d}-{os.urandom(3).hex()}"


class JournalWriter:
    """Appends records of one run to its journal, and to the `Journal` in memory; safe to use from several threads."""

    def __init__(self, journal: Journal, announced: RunRecord | None = None) -> None:
        files.check_links(journal.root, f"{layout.JOURNAL}/{journal.verb}")
        self._journal = journal
        self._announced = announced
        self._run = _run_name() if announced is None else announced.run
        self._waiting: list[bytes] = []
        self._written = 0
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None
        if announced is not None:  # its first line is on disk before anything else
            self._take(announced)
            self.flush()

    def add(self, record: Record) -> None:
        """Take a finished unit; it is on disk within `FLUSH_SECONDS`, whether or not another follows.

        The new record replaces what is known of its unit, even if the clock of the worker that made it is behind.
        """
        with self._lock:
            known = self._journal.records.get(record.unit)
            if known is not None and record.finished <= known.finished:
                record = replace(record, finished=known.finished + _TICK)
            self._take(record)
            if len(self._waiting) >= FLUSH_RECORDS:
                self.flush()
            elif self._timer is None:
                self._start_timer()

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

    def _take(self, record: Record | RunRecord) -> None:
        line = _sealed(_encode(record))
        if not self._journal._read_line(line):
            raise DataError(
                f"the journal could not read back what it would write; expected finite numbers: {line[:2000]!r}"
            )
        self._waiting.append(line)

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
            name = f"{self._run}-{self._written:06d}.jsonl"
            _write_lines(files.join(self._journal.folder, name), self._waiting)
            self._journal._segments.add(name)
            self._written += 1
            self._waiting = []

    def close(self) -> None:
        """Flush, and merge all segments that were read or written into one."""
        with self._lock:
            if len(self._journal._segments) + bool(self._waiting) > 1:
                self._compact()
            self.flush()

    def _compact(self) -> None:
        journal = self._journal
        merged = f"{self._run}-{self._written:06d}.jsonl"
        lines = [*journal._run_lines.values(), *journal._lines.values()]
        _write_lines(files.join(journal.folder, merged), lines)
        self._written += 1
        self._waiting = []  # these are among the lines
        for name in sorted(journal._segments):
            files.remove(files.join(journal.folder, name))
        journal._segments = {merged}


def _write_lines(url: str, lines: Iterable[bytes]) -> None:
    is_staging = f"/{layout.WORK}/" in url  # if it is lost, what it names is made again
    with publish(url, synced=not is_staging) as out:
        for line in lines:
            out.write(line + b"\n")


def journals(root: str) -> Iterator[Journal]:
    """Yield the journals of all verbs that wrote below `root`."""
    for verb in files.list_folders(files.join(root, layout.JOURNAL)):
        yield Journal(root, verb)


def garbage_notes(known: Iterable[Journal]) -> Iterator[str]:
    """Name the segments with lines that are no records."""
    for journal in known:
        for name, count in sorted(journal.garbage.items()):
            yield (
                f"{layout.JOURNAL}/{journal.verb}/{name}: {counted(count, 'line')} that no record of {journal.verb} is in, not believed; the same "
                "command does again what they may have spoken of. Remove the file if it does not belong there"
            )


def is_there(record: Record, listed: Mapping[str, FileInfo]) -> bool:
    """Tell whether the outputs of a record are among some files with the sizes that it names; quarantine files may be gone."""
    outputs = (file for file in record.files if not layout.is_set_aside(file.path))
    return not record.stale and all(
        file.path in listed and listed[file.path].bytes == file.bytes for file in outputs
    )


def is_same_file(record: InputRecord, url: str, info: FileInfo | None) -> bool:
    """Tell whether the file at `url` still holds the bytes that were read; `info` is what the listing says of it now, None if it is gone."""
    if info is None or info.bytes != record.bytes:
        return False
    if info.stamp and info.stamp == record.stamp:
        return True
    try:
        return files.checksum(url) == record.checksum
    except FileNotFoundError:
        return False
