"""The work of `remove` on token files: those with an entry for each document are made anew by the writer of their format, rows of HDF5 are masked.

Memory: a few MB of ids, and the segments of a file.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Self

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import UNSET
from numpy.typing import NDArray

from dolma_dask.formats.digests import DocumentDigests
from dolma_dask.formats.ragged import RaggedNames, RaggedSidecar
from dolma_dask.formats.token_files import FORMATS, SIDECAR, FormatName, dolma_rows
from dolma_dask.io import files
from dolma_dask.io.publish import PublishedFile, publish
from dolma_dask.io.records import FileRecord
from dolma_dask.reading.segments import read_segments
from dolma_dask.sinks.jsonl import gzip_member
from dolma_dask.sinks.ragged import TokenWriter
from dolma_dask.sinks.segments import PATH
from dolma_dask.sinks.sink import DocumentRows
from dolma_dask.sinks.token_files import WRITERS
from dolma_dask.tokens.encoding import Tokens
from dolma_dask.verbs.remove.changes import Change, Work, Written, size_of
from dolma_dask.verbs.remove.hdf5 import MaskedRows
from dolma_dask.verbs.remove.identities import Wanted
from dolma_dask.verbs.remove.rewriting import shifted
from dolma_dask.verbs.remove.shards import Outcome, RemoveStage
from dolma_dask.verbs.remove.token_files import (
    DOCUMENTS_AT_ONCE,
    Mask,
    Rewriting,
    TokenWork,
    check_segments,
    identities_in,
    other_segments,
    texts_in,
)
from dolma_dask.verbs.remove.token_ids import ids_of, sidecar_of

TOKENS_AT_ONCE = 1 << 21


class TokenStage(RemoveStage, frozen=True):
    """Takes documents out of a token file."""

    def outcome(self, work: TokenWork, checksum: str) -> Outcome:
        """See `RemoveStage`."""
        path = work.place.path
        if (done := Work(self.root).done(str(work.place.segments))) is not None:
            return Outcome(path, (done,), done.identities)
        check_segments(self.root, work, checksum)
        segments = read_segments(files.join(self.root, work.folder), work.name)
        gone = segments_of(segments, work, self.wanted)
        moved = moved_documents(segments, work)
        identities = identities_in(segments, gone)
        if not gone.any() and moved is None:
            return Outcome(path)
        if self.dry_run:
            return Outcome(path, (_planned(work, segments, gone),), identities)
        segments = segments if moved is None else with_documents(segments, moved)
        changes = _kind(self.root, work)(self.root, work, segments, gone).run()
        return Outcome(path, changes, identities)


def _kind(root: str, work: TokenWork) -> type[Rewriting]:
    """Return what makes a token file anew; those that `reshard` has joined have no record of origin."""
    if work.place.file.format == "hdf5":
        return MaskedRows
    if work.place.file.format == "dolma" and files.stat(files.join(root, work.record)) is None:
        return JoinedTokens
    return RewrittenTokens


def _planned(work: TokenWork, segments: pa.Table, gone: Mask) -> Change:
    """Return what would be done to a file."""
    place, rows = work.place, len(segments)
    if not gone.any():
        return _change(str(place.segments), "segments", rows, rows)
    if place.file.format == "hdf5":
        rows = int(segments.column("row")[-1].as_py()) + 1
        return _change(place.path, "HDF5 rows", rows, rows)
    return _change(place.path, "tokens", rows, rows - int(gone.sum()))


def _change(path: str, what: str, before: int, after: int) -> Change:
    return Change(path, what, FileRecord(path, 0, "", before), FileRecord(path, 0, "", after))


def segments_of(segments: pa.Table, work: TokenWork, wanted: Wanted) -> Mask:
    """Tell which segments (n,) are of documents that were taken down: by source and id, or by their places in files that were cut."""
    sources, ids = (texts_in(segments, name) for name in ("source", "id"))
    gone = wanted.find(sources, ids)
    documents = segments.column("document").to_numpy()
    for mask, cut in _cut_in(segments, work):
        gone |= mask & np.isin(documents, cut)
    return gone


def moved_documents(segments: pa.Table, work: TokenWork) -> NDArray[np.int64] | None:
    """Return the rows (n,) that documents have in their shards now; None if none has another one."""
    before = segments.column("document").to_numpy()
    after = before.copy()
    for mask, cut in _cut_in(segments, work):
        after[mask] = shifted(before[mask], cut)
    return None if np.array_equal(before, after) else after


def _cut_in(segments: pa.Table, work: TokenWork) -> Iterator[tuple[Mask, NDArray[np.int64]]]:
    """Yield which segments are of a file of documents that was cut, and its rows that are gone."""
    paths = segments.column("path").combine_chunks()
    names = [f"{work.origin}/{path}".strip("/") for path in paths.dictionary.to_pylist()]
    numbers = paths.indices.to_numpy()
    for at, name in enumerate(names):
        if name in work.cuts:
            yield numbers == at, np.array(work.cuts[name], np.int64)


def with_documents(segments: pa.Table, documents: NDArray[np.int64]) -> pa.Table:
    """Return segments with other rows in their shards."""
    at = segments.schema.get_field_index("document")
    return segments.set_column(at, segments.schema.field(at), pa.array(documents, pa.int64()))


class RewrittenTokens(Rewriting):
    """A token file with an entry for each document."""

    def renumbered(self, segments: pa.Table) -> pa.Table:
        """See `Rewriting`."""
        numbers = pa.array(np.arange(len(segments)), pa.int64())
        return segments.set_column(0, self.segments.schema.field("row"), numbers)

    def files(self, folder: str, kept: pa.Table) -> list[Change]:
        """See `Rewriting`."""
        data, *beside = self._tokens(folder).files
        others = [self.change(file, "beside", len(self.segments)) for file in beside]
        return [*others, self._data(data, kept)]

    def _data(self, file: FileRecord, kept: pa.Table) -> Change:
        change = self.change(file, "tokens", len(self.segments))
        gone = np.flatnonzero(self.gone)
        sizes = self.segments.column("size").to_numpy()
        return Change(
            change.path,
            "tokens",
            change.before,
            change.after,
            tuple(gone.tolist()),
            identities=identities_in(self.segments, self.gone),
            digests={digest_of(self.segments): digest_of(kept)},
            counts={"tokens": int(sizes[gone].sum())},
        )

    def _tokens(self, folder: str) -> "TokenWriter | Joined":
        name: FormatName = self.work.place.file.format  # type: ignore[assignment]
        known = sidecar_of(self.url, name)
        self._check(known)
        names = RaggedNames(self.work.name.removesuffix(FORMATS[name].data))
        with WRITERS[name](folder, names, known.tokenizer, source=known.source) as writer:
            writer.special_tokens = known.special_tokens
            lost = known.documents_with_lost_characters
            writer.lossy_documents = 0 if lost is UNSET else lost
            for tokens, rows in self._documents(name, np.dtype(known.dtype), has_paths=known.source is None):
                writer.write(tokens, rows)
        return writer

    def _check(self, known: RaggedSidecar) -> None:
        expected = len(self.segments), int(self.segments.column("size").to_numpy().sum())
        if (known.documents, known.tokens) != expected:
            raise other_segments(
                self.url,
                f"it has {known.documents:,} documents and {known.tokens:,} tokens, and they {expected[0]:,} and {expected[1]:,}",
            )

    def _documents(
        self, name: FormatName, dtype: np.dtype, *, has_paths: bool
    ) -> Iterator[tuple[Tokens, DocumentRows]]:
        """Yield the documents that stay, some at a time."""
        sizes = self.segments.column("size").to_numpy()
        bounds = _bounds(sizes)
        counts = [int(sizes[start:stop].sum()) for start, stop in bounds]
        columns = ("id", "source", *((PATH,) if has_paths else ()))
        for (start, stop), ids in zip(bounds, ids_of(self.url, name, dtype, counts), strict=True):
            kept, lengths = ~self.gone[start:stop], sizes[start:stop]
            part = self.segments.slice(start, stop - start).filter(pa.array(kept))
            batch = pa.record_batch({column: texts_in(part, column) for column in columns})
            tokens = Tokens(ids[np.repeat(kept, lengths)], lengths[kept].astype(np.int32))
            yield tokens, DocumentRows(batch, part.column("document").to_numpy())


class JoinedTokens(RewrittenTokens):
    """Files of the Dolma toolkit's format, joined of others: ids and a table alone."""

    def _tokens(self, folder: str) -> "Joined":
        with Joined(folder, self.work.name.removesuffix(_DOLMA.data)) as out:
            for tokens, rows in self._documents("dolma", self._dtype(), has_paths=True):
                out.write(tokens, rows)
        return out

    def _dtype(self) -> np.dtype[Any]:
        """Return the type of ids, by their number."""
        expected, size = int(self.segments.column("size").to_numpy().sum()), size_of(self.url)
        if expected and size not in (2 * expected, 4 * expected):
            raise other_segments(self.url, f"it has {size:,} bytes, and they {expected:,} tokens")
        return np.dtype("<u4" if expected and size == 4 * expected else "<u2")


_DOLMA = FORMATS["dolma"]


class Joined:
    """Writes ids, and the table of their documents."""

    files: tuple[FileRecord, ...]

    def __init__(self, folder: str, stem: str) -> None:
        (suffix,) = set(_DOLMA.beside) - {SIDECAR}
        self._names = stem + _DOLMA.data, stem + suffix
        self._folder, self._stack, self._documents, self._tokens = folder, ExitStack(), 0, 0

    def __enter__(self) -> Self:
        urls = (files.join(self._folder, name) for name in self._names)
        self._ids, self._table = (self._stack.enter_context(publish(url)) for url in urls)
        return self

    def __exit__(self, *error: Any) -> None:
        if error[0] is None and not self._documents:
            self._add(b"")
        self._stack.__exit__(*error)
        both = zip(self._names, (self._ids, self._table), strict=True)
        self.files = tuple(FileRecord(name, one.bytes, one.checksum, self._documents) for name, one in both)

    def write(self, tokens: Tokens, rows: DocumentRows) -> None:
        """Append documents."""
        self._ids.write(tokens.ids.tobytes())
        paths = rows.batch.column(PATH)
        lines = dolma_rows(rows.batch.column("id"), tokens.lengths, self._tokens, paths, rows.numbers)
        self._add("".join(lines.to_pylist()).encode())
        self._documents, self._tokens = self._documents + len(tokens.lengths), self._tokens + len(tokens.ids)

    def _add(self, text: bytes) -> None:
        for part in gzip_member(memoryview(text)):
            self._table.write(part)


def _bounds(sizes: NDArray[np.int32]) -> list[tuple[int, int]]:
    """Cut documents (n,) into neighbours of a few MB."""
    ends, bounds, start = np.cumsum(sizes, dtype=np.int64), [], 0
    while start < len(sizes):
        done = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, done + TOKENS_AT_ONCE)) + 1
        stop = min(max(stop, start + 1), start + DOCUMENTS_AT_ONCE, len(sizes))
        bounds.append((start, stop))
        start = stop
    return bounds


def digest_of(segments: pa.Table) -> str:
    """Return the digest of source and id of documents, as records of token files have it."""
    digests = DocumentDigests()
    for batch in segments.select(["source", "id"]).to_batches(DOCUMENTS_AT_ONCE):
        columns = {name: batch.column(name).cast(pa.large_string()) for name in ("source", "id")}
        digests.update(pa.record_batch(columns))
    return digests.ids


def renew_indexes(root: str, changes: Sequence[Change]) -> Iterator[Change]:
    """Write the files anew that name the token files of a folder with their sizes; yield their changes."""
    made = {change.path: change for change in changes if change.what == "tokens"}
    suffix = FORMATS["mds"].data
    for folder in sorted({path.rpartition("/")[0] for path in made if path.endswith(suffix)}):
        path = f"{folder}/{FORMATS['mds'].index}".strip("/")
        if files.stat(url := files.join(root, path)) is not None:
            before = files.read_bytes(url)
            content = _index_without(
                before,
                {
                    name.rpartition("/")[2]: one
                    for name, one in made.items()
                    if name.rpartition("/")[0] == folder
                },
            )
            if content != before:
                yield Work(root).replace(path, "beside", partial(_write_whole, content))


def _write_whole(content: bytes, out: PublishedFile) -> Written:
    out.write(content)
    return Written(0, 0)


def _index_without(content: bytes, made: Mapping[str, Change]) -> bytes:
    index = msgspec.json.decode(content)
    for shard in index["shards"]:
        change = made.get(shard["raw_data"]["basename"])
        if change is not None:
            shard["raw_data"]["bytes"] = change.after.bytes
            shard["samples"] = change.after.rows
    index["shards"] = [shard for shard in index["shards"] if shard["samples"]]
    return msgspec.json.encode(index, order="sorted")
