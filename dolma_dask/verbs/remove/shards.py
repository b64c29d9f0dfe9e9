"""The work of `remove` on a file of documents with all that lines up with it.

Each file is written again at most once; what a killed run has done is found by what it announced. Memory: a few blocks, and a row group of a table.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from dolma_dask.engine import Task
from dolma_dask.formats.digests import DocumentDigests
from dolma_dask.formats.documents import text_bytes
from dolma_dask.io import files
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.publish import PublishedFile
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.verbs.remove.changes import Change, Work, Written, size_of
from dolma_dask.verbs.remove.identities import FoundRows, Wanted, find_documents, find_rows
from dolma_dask.verbs.remove.listing import Reading
from dolma_dask.verbs.remove.rewriting import copy_lines, copy_table, is_table

Rows = NDArray[np.int64]
Records = tuple[FileRecord, ...]


class ShardWork(Struct, frozen=True):
    """A file of documents with the attribute files beside it; paths are relative to the root."""

    path: str
    readings: tuple[Reading, ...]
    attributes: tuple[str, ...]
    known: Mapping[str, Records]  # what journals know of these files


class Outcome(Struct, frozen=True):
    """Changes that were made, or in a rehearsal would be, and what was looked at in vain."""

    path: str
    changes: tuple[Change, ...] = ()
    identities: tuple[tuple[str, str], ...] = ()  # source and id of the documents that are gone
    inputs: tuple[InputRecord, ...] = ()  # the file as it was before
    is_left: bool = False  # whether it still holds some of the documents, or may
    unread: str = ""  # why nobody can tell


def input_of(task: Task) -> InputRecord:
    """Return the file of a task as it is."""
    (one,) = task.inputs
    return InputRecord(one.info.path, one.info.bytes, one.info.stamp, files.checksum(one.url))


class RemoveStage(Struct, frozen=True):
    """The work of `remove` on a file; see `dolma_dask.engine.Stage`. A kind of files says what becomes of one."""

    root: str
    wanted: Wanted
    dry_run: bool = False
    verb: str = "remove"

    def run_shard(self, task: Task) -> Outcome:
        """Do one file."""
        before = input_of(task)
        return replace(self.outcome(task.work, before.checksum), inputs=(before,))

    def outcome(self, work: Any, checksum: str) -> Outcome:
        """Take documents out of a file with this checksum."""
        raise NotImplementedError


class ShardStage(RemoveStage, frozen=True):
    """Takes documents out of a file, and their rows out of all that lines up with it."""

    def outcome(self, work: ShardWork, checksum: str) -> Outcome:
        """See `RemoveStage`."""
        done = Work(self.root).done(work.path)
        url = files.join(self.root, work.path)
        if done is None:
            found = find_documents(url, self.wanted, _source_of(work.readings))
        else:
            found = FoundRows(done.rows, done.before.rows, done.identities)
        if not found.rows:
            return Outcome(work.path)
        document = done or self._cut(work, url, found)
        beside = [self._attributes(path, work, found) for path in work.attributes]
        changes = (document, *(change for change in beside if change is not None))
        return Outcome(work.path, changes, found.identities)

    def _cut(self, work: ShardWork, url: str, found: FoundRows) -> Change:
        gone = np.array(found.rows, np.int64)
        digests, size = digests_without(url, gone, work.readings)
        known = Change(
            work.path,
            "documents",
            FileRecord(work.path, 0, "", found.total),
            FileRecord(work.path, 0, "", found.total - len(gone)),
            found.rows,
            size,
            found.identities,
            digests,
        )
        return self._copied(work.path, gone, found.total, work.known, known)

    def _attributes(self, path: str, work: ShardWork, found: FoundRows) -> Change | None:
        """Take the rows of documents out of an attribute file: by their numbers if it lines up with the documents, else by their own ids.

        Rows without a source go by their numbers alone where that is known: another source may have the same id.
        """
        if (done := Work(self.root).done(path)) is not None:
            return done
        own = find_rows(files.join(self.root, path), self.wanted, found.rows)
        lines_up = own.total == found.total and not own.others
        rows = sorted({*own.rows} - {*own.guessed} | {*found.rows} if lines_up else own.rows)
        if not rows:
            return None
        notes = () if lines_up else (_unlike(own, found),)
        known = Change(
            path,
            "attributes",
            FileRecord(path, 0, "", own.total),
            FileRecord(path, 0, "", own.total - len(rows)),
            tuple(rows),
            notes=notes,
        )
        return self._copied(path, np.array(rows, np.int64), own.total, work.known, known)

    def _copied(
        self, path: str, gone: Rows, total: int, known: Mapping[str, Records], change: Change
    ) -> Change:
        url = files.join(self.root, path)
        if self.dry_run:
            return replace(
                change, before=replace(change.before, checksum=files.checksum(url), bytes=size_of(url))
            )

        def write(out: PublishedFile) -> Written:
            if is_table(path):
                return copy_table(url, out, gone)
            return copy_lines(url, out, gone, total, _members(url, known.get(path, ())))

        return Work(self.root).replace(path, change.what, write, change)


def _unlike(own: FoundRows, documents: FoundRows) -> str:
    """Say why an attribute file does not line up with its documents."""
    if own.total != documents.total:
        return f"{own.total:,} rows beside {documents.total:,} documents"
    return f"{own.others:,} rows have other ids than their documents"


def _members(url: str, known: Records) -> Sequence[tuple[int, int, int]]:
    """Return the members of a file if a journal knows it as it is."""
    if not any(record.members for record in known):
        return ()
    checksum = files.checksum(url)
    return next((record.members for record in known if record.checksum == checksum), ())


def _source_of(readings: Sequence[Reading]) -> str | None:
    return next((one.source for one in readings if one.source), None)


def digests_without(url: str, gone: Rows, readings: Sequence[Reading]) -> tuple[dict[str, str], int]:
    """Return the digests of documents with and without some rows, for each way in which runs have read them; and the bytes of the texts that are gone."""
    found: dict[str, str] = {}
    size = 0
    for number, reading in enumerate(readings):
        before, after = DocumentDigests(), DocumentDigests()
        documents = DocumentFile(
            url,
            ("id", "text", "source"),
            source=reading.source,
            ids_as_text=reading.ids_as_text,
            checksum=False,
        )
        for block in documents:
            mask = np.ones(block.num_rows, np.bool_)
            start, stop = np.searchsorted(gone, [block.first_row, block.first_row + block.num_rows])
            mask[gone[start:stop] - block.first_row] = False
            before.update(block.batch)
            kept = block.batch if mask.all() else block.batch.filter(pa.array(mask))
            after.update(kept)
            size += 0 if number else text_bytes(block.batch.column("text")) - text_bytes(kept.column("text"))
        found |= {before.ids: after.ids, before.content: after.content}
    return found, size
