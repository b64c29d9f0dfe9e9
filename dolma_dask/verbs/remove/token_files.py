"""Token files and their segments while they are made anew: staged whole, then put in place. The file of ids goes first and comes last: who sees it, sees a whole shard."""

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from dolma_dask.errors import CorruptFileError
from dolma_dask.formats.token_files import FORMATS, SIDECAR
from dolma_dask.io import files
from dolma_dask.io.records import FileRecord
from dolma_dask.sinks.segments import WAITING_SCHEMA, SegmentsWriter
from dolma_dask.verbs.remove.changes import Change
from dolma_dask.verbs.remove.edits import Cuts
from dolma_dask.verbs.remove.listing import TokenPlace
from dolma_dask.verbs.remove.staged import Staged

Mask = NDArray[np.bool_]

DOCUMENTS_AT_ONCE = 1 << 14


class TokenWork(Struct, frozen=True):
    """A token file with its segments."""

    place: TokenPlace
    origin: str  # root of the dataset of its documents, relative to the root
    cuts: Cuts = {}
    made: tuple[FileRecord, ...] = ()  # files of the same record; paths are relative to the root

    @property
    def folder(self) -> str:
        """Folder of the file, relative to the root."""
        return self.place.path.rpartition("/")[0]

    @property
    def record(self) -> str:
        """Record of origin of the file, where one stands beside it, relative to the root."""
        return self.place.path.removesuffix(FORMATS["dolma"].data) + SIDECAR

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.place.path.rpartition("/")[2]


def check_segments(root: str, work: TokenWork, checksum: str) -> None:
    """Refuse segments that were not written with their token file, of this checksum, as an earlier version or a copy may have replaced it.

    Raises `CorruptFileError`: one of both is what the journal knows, and the other is not.
    """
    known = {file.path: file.checksum for file in work.made}
    path, beside = work.place.path, str(work.place.segments)
    if path not in known:
        return
    has_segments = known.get(beside) == files.checksum(files.join(root, beside))
    if has_segments != (known[path] == checksum):
        raise other_segments(files.join(root, path), "one of both has changed since")


def other_segments(url: str, why: str) -> CorruptFileError:
    """Return the error of a token file whose segments are of another one."""
    return CorruptFileError(
        f"{url} and its segments were not written together: {why}. Expected those of this file, which tell its documents. Write it again with --overwrite.",
        url=url,
    )


class Rewriting:
    """A token file while it is made anew."""

    def __init__(self, root: str, work: TokenWork, segments: pa.Table, gone: Mask) -> None:
        self.root, self.work, self.segments, self.gone = root, work, segments, gone
        self.url = files.join(root, work.place.path)
        self.staged = Staged(root, work.place.path)

    def run(self) -> tuple[Change, ...]:
        """Stage all files, and put them in place."""
        folder = self.staged.begin()
        kept = self.renumbered(self.segments.filter(pa.array(~self.gone)))
        made = [self.change(write_segments(folder, self.work.name, kept), "segments", len(self.segments))]
        if self.gone.any():
            made += self.files(folder, kept)
        return self.staged.ready(made)

    def renumbered(self, segments: pa.Table) -> pa.Table:
        """Return the segments that stay, by the rows that are left."""
        raise NotImplementedError

    def files(self, folder: str, kept: pa.Table) -> list[Change]:
        """Stage the files of the shard, and return their changes."""
        raise NotImplementedError

    def change(self, file: FileRecord, what: str, rows: int) -> Change:
        """Return the change of a staged file; `rows` are those before."""
        path = f"{self.work.folder}/{file.path}".strip("/")
        url = files.join(self.root, path)
        info = files.stat(url)
        before = FileRecord(path, 0 if info is None else info.bytes, files.checksum(url), rows)
        return Change(path, what, before, FileRecord(path, file.bytes, file.checksum, file.rows))


def write_segments(folder: str, name: str, segments: pa.Table) -> FileRecord:
    """Write segments beside a token file, and return their file relative to the folder."""
    plain = pa.table(
        [segments.column(field.name).cast(field.type) for field in WAITING_SCHEMA], WAITING_SCHEMA
    )
    with SegmentsWriter(folder, name) as writer:
        for batch in plain.to_batches(DOCUMENTS_AT_ONCE):
            writer.write(batch)
    return writer.record


def texts_in(segments: pa.Table, name: str) -> pa.Array:
    """Return a column of texts (n,)."""
    return segments.column(name).cast(pa.large_string()).combine_chunks()


def identities_in(segments: pa.Table, gone: Mask) -> tuple[tuple[str, str], ...]:
    """Return source and id of the documents that are gone, where both are known."""
    part = segments.filter(pa.array(gone))
    pairs = zip(texts_in(part, "source").to_pylist(), texts_in(part, "id").to_pylist(), strict=True)
    return tuple(dict.fromkeys(pair for pair in pairs if None not in pair))
