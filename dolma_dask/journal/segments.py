"""Segments as they are read: each once in a process, since none ever changes."""

import io
from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock
from weakref import WeakValueDictionary

from msgspec import Struct

from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.journal.kept import Records
from dolma_dask.journal.lines import Foreign, is_foreign, is_of_run, read_line
from dolma_dask.journal.record import Record, RunRecord
from dolma_dask.metering import without_collection

REMEMBERED_BYTES = 128 << 20
"""Stored bytes of segments that are remembered though nobody holds them: a command reads the same journals several times."""

_RUNS_BYTES = 1 << 12
"""The same of a segment of which only the runs were read."""

_END_BYTES = 1 << 16
"""Bytes that are read at either end of a large segment, where its runs are."""


class Segment(Struct, weakref=True):
    """Content of a segment."""

    size: int  # stored bytes
    records: Records
    runs: dict[str, tuple[RunRecord, bytes]]  # with the line: a newer release may have written more fields
    foreign: set[str]  # units of records of another format
    lines: int = 0  # that are records
    garbage: int = 0  # lines that are no records of any format
    is_ours: bool = True  # every line was understood, so that compaction may remove it

    def take(self, line: bytes, verb: str) -> Record | RunRecord | None:
        """Take what a line says, and return it; None: it is not believed."""
        found = read_line(line, verb)
        match found:
            case Record():
                self.records.add(found)
                self.lines += 1
            case RunRecord():
                add_run(self.runs, found, line)
            case Foreign():
                self.foreign.add(found.unit)
                return None
        return found

    def refuse(self, line: bytes) -> None:
        """Count a line that is not believed."""
        self.is_ours = False
        self.garbage += not is_foreign(line)


def add_run(runs: dict[str, tuple[RunRecord, bytes]], run: RunRecord, line: bytes) -> None:
    """Take a run, unless it is known that it has ended."""
    known = runs.get(run.run)
    if known is None or known[0].finished <= run.finished:
        runs[run.run] = run, line


def read_segment(
    folder: str, info: FileInfo, verb: str, *, runs_only: bool = False, is_packed: bool = False
) -> Segment | None:
    """Return the content of a segment; None: it is not there any more."""
    key: tuple[object, ...] = (folder, info, is_packed)
    known = _remembered.find(key) or (_remembered.find((*key, "runs")) if runs_only else None)
    if known is not None:
        return known
    url = files.join(folder, info.path)
    try:
        data = (_ends(url, info.bytes, verb) if runs_only else b"") or files.read_bytes(url)
    except FileNotFoundError:
        return None
    segment = Segment(info.bytes, Records(verb, is_packed), {}, set())
    if runs_only:
        _read_runs(segment, data, verb)
        key, size = (*key, "runs"), _RUNS_BYTES
    else:
        with without_collection():
            _read_all(segment, data, verb)
        size = len(data)
    if files.is_settled(info):
        _remembered.keep(key, segment, size)
    return segment


def _read_all(segment: Segment, data: bytes, verb: str) -> None:
    for line, is_torn in each_line(data):
        if not segment.take(line, verb) and not (is_torn and line.startswith(b'{"')):
            segment.refuse(line)  # what is torn is no loss: the work that it spoke of is simply done again


def _read_runs(segment: Segment, data: bytes, verb: str) -> None:
    for line, _ in each_line(data):
        if is_of_run(line):
            segment.take(line, verb)


def _ends(url: str, size: int, verb: str) -> bytes:
    """Return the first and the last lines of a large segment if these are all that can speak of runs, else nothing.

    A run announces itself before its first record and says that it has ended after the last one; compaction puts runs first.
    """
    if size <= 2 * _END_BYTES:
        return b""
    with files.open_read(url, scattered=True) as stored:
        head = stored.read(_END_BYTES)
        stored.seek(size - _END_BYTES)
        tail = stored.read(_END_BYTES)
    first, last = head[: head.rfind(b"\n") + 1], tail.partition(b"\n")[2]
    # what is damaged may have been of a run, and others may follow it
    has_record = any(isinstance(read_line(line, verb), Record) for line, _ in each_line(first))
    is_whole = len(tail) == _END_BYTES  # some file systems give less at once
    return first + last if has_record and last and is_whole else b""


def each_line(data: bytes) -> Iterator[tuple[bytes, bool]]:
    """Yield the lines that are not empty, and whether each lacks its end."""
    for line in io.BytesIO(data):
        is_torn = not line.endswith(b"\n")
        if line := line if is_torn else line[:-1]:
            yield line, is_torn


class _Remembered:
    """Segments that somebody holds, and those that were read last."""

    def __init__(self) -> None:
        self._held: WeakValueDictionary[object, Segment] = WeakValueDictionary()
        self._last: OrderedDict[object, tuple[Segment, int]] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def find(self, key: object) -> Segment | None:
        with self._lock:
            return self._held.get(key)

    def keep(self, key: object, segment: Segment, size: int) -> None:
        with self._lock:
            self._held[key] = segment
            self._bytes += size - self._last.pop(key, (segment, 0))[1]
            self._last[key] = segment, size
            while self._bytes > REMEMBERED_BYTES:
                self._bytes -= self._last.popitem(last=False)[1][1]


_remembered = _Remembered()
