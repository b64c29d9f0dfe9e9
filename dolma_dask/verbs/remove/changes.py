"""Files that are written again without some rows: each is announced, with what it will be, before it appears.

So whoever goes on after a kill finds for each file whether it is still as before, or as announced, and what was taken out of it. Cost: an affected file is
read twice and written once.
"""

from collections.abc import Callable, Sequence

import msgspec
import xxhash
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.formats import layout
from dolma_dask.formats.json import NOT_JSON
from dolma_dask.io import files, late
from dolma_dask.io.publish import PublishedFile, publish, remove_for_good
from dolma_dask.io.records import FileRecord

WORK = f"{layout.WORK}/remove"
"""Folder of the lease and of announced changes, below the root."""


class Change(Struct, frozen=True, omit_defaults=True):
    """A file that was written again, or is about to be; paths are relative to the root."""

    path: str
    what: str  # for people: documents, attributes, tokens ...
    before: FileRecord
    after: FileRecord
    rows: tuple[int, ...] = ()  # that are gone; of rows of HDF5, those that were masked
    text_bytes: int = 0  # of the documents that are gone
    identities: tuple[tuple[str, str], ...] = ()  # source and id of these, as far as they can be read
    digests: dict[str, str] = {}  # of ids and texts of all rows of documents, before and after
    counts: dict[str, int] = {}  # numbers that are smaller by so much, in the words of the record of the file
    row_counts: dict[str, int] = {}  # the same of the counts of rows of HDF5
    notes: tuple[str, ...] = ()  # for people

    @property
    def removed(self) -> int:
        """Number of rows that are gone."""
        return self.before.rows - self.after.rows


class Written(Struct, frozen=True):
    """Facts about what was written in place of a file."""

    rows_before: int
    rows: int
    members: tuple[tuple[int, int, int], ...] = ()


class Work(Struct, frozen=True):
    """The folder of announced changes."""

    root: str

    def replace(
        self, path: str, what: str, write: Callable[[PublishedFile], Written], known: Change | None = None
    ) -> Change:
        """Write a file anew, unless that was done before; `known` holds further fields of its change.

        `write` gets the file that will appear, and may read the old one until it does.
        """
        url = files.join(self.root, path)
        done = self.announced(path)
        before = FileRecord(path, size_of(url), files.checksum(url))
        if done is not None and done.after.checksum == before.checksum:
            return done
        with publish(url) as out:
            made = write(out)
            change = Change(
                path,
                what,
                replace(before, rows=made.rows_before),
                FileRecord(path, out.bytes, out.checksum, made.rows, made.members),
            )
            if known is not None:
                change = replace(known, path=path, what=what, before=change.before, after=change.after)
            self.announce(change)
        return change

    def announce(self, change: Change) -> None:
        """Say what a file will be."""
        with publish(self._url(change.path)) as out:
            out.write(msgspec.json.encode(change))

    def announced(self, path: str) -> Change | None:
        """Return what was announced of a file, whether or not it came to that."""
        try:
            change = msgspec.json.decode(files.read_bytes(self._url(path)), type=Change)
        except (FileNotFoundError, *NOT_JSON):
            return None
        return change if change.path == path else None

    def done(self, path: str) -> Change | None:
        """Return the change of a file that is as it was announced."""
        change = self.announced(path)
        if change is None or files.stat(url := files.join(self.root, path)) is None:
            return None
        return change if files.checksum(url) == change.after.checksum else None

    def all_done(self) -> list[Change]:
        """Return the changes of all files that are as they were announced, by path."""
        names = [info.path for info in files.list_files(self._folder)]
        found = [files.read_bytes(files.join(self._folder, name)) for name in names]
        paths = sorted(msgspec.json.decode(data, type=Change).path for data in found)
        return [change for path in paths if (change := self.done(path)) is not None]

    def wait_for(self, changes: Sequence[Change]) -> None:
        """Wait until this process sees what workers have changed; see `dolma_dask.io.late.wait_for_all`."""
        late.wait_for_all(self.root, lambda: [change.path for change in changes if not self._is_seen(change)])

    def _is_seen(self, change: Change) -> bool:
        return (
            self.announced(change.path) is not None
            and size_of(files.join(self.root, change.path)) == change.after.bytes
        )

    def clear(self) -> None:
        """Forget all changes."""
        remove_for_good(self._folder)

    @property
    def _folder(self) -> str:
        return files.join(self.root, f"{WORK}/changes")

    def _url(self, path: str) -> str:
        return files.join(self._folder, f"{xxhash.xxh3_128_hexdigest(path.encode())}.json")


def size_of(url: str) -> int:
    """Return the stored bytes of a file; 0 if there is none."""
    info = files.stat(url)
    return 0 if info is None else info.bytes
