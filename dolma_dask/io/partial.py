"""Partial files: what was received of an object so far, in a hidden folder beside its place, until it is whole.

``.<name>.part`` belongs to nobody; who works on it renames it to ``.<name>.<host>-<process>-<random>.part``, which only one can. In it are ``data``, and
``version.json``, which says of what: it is written first, after older data are gone, so that the two belong together whenever a process is killed. It also says how
many bytes are on disk for sure, which are all that is believed once the machine has started again. What a killed process held is set free by `set_free`. On a store, which cannot append, the folder lies among this machine's temporary files.
"""

import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

import msgspec

from dolma_dask.formats.json import NOT_JSON
from dolma_dask.io import files
from dolma_dask.io.objects import BrokenOffError, ObjectSource, Version
from dolma_dask.io.publish import explained, is_running, publish, sync_names, writer_space

_SUFFIX = ".part"
_DATA, _VERSION = "data", "version.json"

_NAME_BYTES = 120
"""Bytes of a target's name in that of its partial file; a longer one is cut and told by its digest."""

EXPIRE_SECONDS = 3600.0
"""After so long without a byte a process of another host counts as dead."""

_SAFE_BYTES = 256 << 20
"""After so many bytes more they are synced: a power failure costs no more than that."""

_HELD = re.compile(r"(?P<free>\..*)\.(?P<space>\w+)-(?P<pid>\d+)-[0-9a-f]{8}\.part", re.DOTALL)


class _Note(msgspec.Struct, frozen=True):
    """What ``version.json`` says."""

    version: Version
    start: str  # of the machine
    safe: int = 0  # bytes that are on disk


class Partial:
    """Bytes received of the object that becomes `target`: ``bytes`` of its ``version``; ``is_proved`` and ``host`` as `ObjectBytes` had them."""

    def __init__(self, target: str, folder: Path) -> None:
        self._target = target
        self._folder = folder
        self._handle: BinaryIO | None = None
        self.is_proved = True
        self.host = ""
        note = _read_note(folder)
        self.version = note.version if note else None
        self._safe = note.safe if note else 0
        self.bytes = _believed(folder, note) if note else 0

    @property
    def url(self) -> str:
        """URL of the bytes, to be read back."""
        return str(self._folder / _DATA)

    def receive(self, source: ObjectSource, url: str) -> None:
        """Fetch what is lacking of an object, in as many attempts as it takes; raises what `ObjectSource.open` and `ObjectSource.persistently` raise."""
        try:
            if self.version is None or self.version.bytes != self.bytes:
                source.persistently(url, lambda: self._attempt(source, url), lambda: self.bytes)
        finally:
            self.close()

    def _attempt(self, source: ObjectSource, url: str) -> None:
        with source.open(url, self.bytes, self.version) as answer:
            if answer.start != self.bytes or not answer.start:
                self.begin(answer.version)
            self.is_proved, self.host = answer.is_proved, answer.host
            while data := answer.read():
                self.write(memoryview(data))
        received, expected = self.bytes, answer.version.bytes
        if expected is not None and received != expected:
            if received > expected:
                self.discard()
            raise BrokenOffError(f"the connection ended at byte {received:,} of {expected:,}")

    def begin(self, version: Version) -> None:
        """Start anew with an object of this version."""
        self.discard()
        self.version = version
        self._write_note(synced=False)
        self.write(memoryview(b""))

    def _write_note(self, *, synced: bool) -> None:
        assert self.version is not None
        note = _Note(self.version, machine_start(), self._safe)
        with publish(str(self._folder / _VERSION), synced=synced) as out:
            out.write(msgspec.json.encode(note))

    def write(self, data: memoryview) -> None:
        """Append bytes."""
        with self._on_disk():
            if self._handle is None:
                self._handle = (self._folder / _DATA).open("ab", buffering=0)
            while data:
                count = self._handle.write(data)
                self.bytes += count
                data = data[count:]
            if self.bytes - self._safe >= _SAFE_BYTES:
                os.fsync(self._handle.fileno())
                self._safe = self.bytes
                self._write_note(synced=True)

    def publish(self) -> None:
        """Let the file appear in its place."""
        self.close()
        if not files.is_local(self._target):
            with publish(self._target) as out, files.open_read(self.url) as data:
                while piece := data.read(files.READ_BYTES):
                    out.write(piece)
            return
        target, data_file = files.local_path(self._target), self._folder / _DATA
        with self._on_disk():
            with data_file.open("ab") as handle:
                os.fsync(handle.fileno())
            data_file.replace(target)
            sync_names(target.parent)
        self.discard()

    def discard(self) -> None:
        """Remove what was received."""
        self.close()
        with suppress(FileNotFoundError):
            shutil.rmtree(self._folder)
        self.version, self.bytes, self._safe = None, 0, 0

    def close(self) -> None:
        """Close the file of bytes; `write` opens it again."""
        if self._handle is not None:
            self._handle.close()
            self._handle = None

    @contextmanager
    def _on_disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if explanation := explained(files.local_path(self._target), error):
                raise explanation from error
            raise


@contextmanager
def partial(target: str) -> Iterator[Partial]:
    """Hold the partial file of a local path or URL, with what an earlier attempt has received; what is neither published nor discarded stays for the next one."""
    with ExitStack() as stack:
        if not files.is_local(target):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dolma-dask-")))
            yield Partial(target, folder / "object")
            return
        path = files.local_path(target)
        free = _free_place(path)
        mine = path.with_name(
            f".{_short(path.name)}.{writer_space()}-{os.getpid()}-{os.urandom(4).hex()}{_SUFFIX}"
        )
        with suppress(OSError):
            free.rename(mine)
        part = Partial(target, mine)
        stack.callback(_release, mine, free)
        stack.callback(part.close)
        yield part


def set_free(root: str, folders: Sequence[str]) -> dict[str, int]:
    """Set free what dead processes held below some folders of a local `root`; return the bytes of all partial files that belong to nobody, by the path of their
    target.
    """
    found: dict[str, int] = {}
    if not files.is_local(root):
        return found
    top = files.local_path(root)
    for path in (path for folder in folders for path in (top / folder).glob(f"**/.*{_SUFFIX}")):
        held = _HELD.fullmatch(path.name)
        if held and not _is_dead(held, path):
            continue
        free = path.with_name(f"{held['free']}{_SUFFIX}") if held else path
        if held:
            _release(path, free)
        found[_target(free).relative_to(top).as_posix()] = _data_bytes(free)
    return found


def remove_outdated(root: str, folders: Sequence[str]) -> None:
    """Remove below some folders of a local `root` what belongs to nobody and has become a file by other hands."""
    for name in set_free(root, folders):
        target = files.local_path(root) / name
        if target.exists():
            shutil.rmtree(_free_place(target), ignore_errors=True)


def _free_place(target: Path) -> Path:
    """Return where the partial file of a target lies that belongs to nobody."""
    return target.with_name(f".{_short(target.name)}{_SUFFIX}")


def _target(free: Path) -> Path:
    return free.with_name(free.name[1 : -len(_SUFFIX)])


def _release(mine: Path, free: Path) -> None:
    """Give a partial file up; if there is another one already, the larger stays."""
    if not _data_bytes(mine):
        shutil.rmtree(mine, ignore_errors=True)
        return
    if _data_bytes(free) < _data_bytes(mine):
        shutil.rmtree(free, ignore_errors=True)
    with suppress(OSError):
        mine.rename(free)
    shutil.rmtree(mine, ignore_errors=True)


def _is_dead(held: re.Match[str], path: Path) -> bool:
    if held["space"] == writer_space():
        return not is_running(int(held["pid"]))
    newest = max((item.stat().st_mtime for item in (path, *path.glob("*"))), default=0.0)
    return time.time() - newest > EXPIRE_SECONDS


def _short(name: str) -> str:
    """Return the name of a target as it stands in that of its partial file."""
    if len(name.encode()) <= _NAME_BYTES:
        return name
    return f"{name.encode()[:80].decode(errors='ignore')}~{sha256(name.encode()).hexdigest()[:8]}"


def _data_bytes(folder: Path) -> int:
    try:
        return (folder / _DATA).stat().st_size
    except OSError:
        return 0


def _read_note(folder: Path) -> _Note | None:
    try:
        return msgspec.json.decode((folder / _VERSION).read_bytes(), type=_Note)
    except (OSError, *NOT_JSON):
        return None


def _believed(folder: Path, note: _Note) -> int:
    """Return how many bytes of the data are as they were written, and drop the others."""
    count = _data_bytes(folder)
    if note.start == machine_start() or count <= note.safe:
        return count
    os.truncate(folder / _DATA, note.safe)
    return note.safe


def machine_start() -> str:
    """Return what tells this start of this machine from all others, as Linux has it; elsewhere what was not synced is not believed."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"unknown {os.getpid()}"
