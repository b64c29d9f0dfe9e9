"""An index for datasets to come: what was kept of each, as a segment of sorted keys that nobody writes again.

Layout::

    segments/000002-<id>/keys/000000.keys     keys of the documents that were kept, sorted (`dolma_dask.exchange.kept`)
    segments/000002-<id>/shards.json         path, stored bytes and checksum of each shard of the dataset
    segments/000002-<id>/merges.parquet      which documents have a survivor in an earlier dataset, and which
    segments/000002-<id>/segment.json        all of these, and with what the segment was compared; written last

A segment is there once its last file is. It belongs to a dataset, and names the segment before it: the dataset was compared with all up to that one, and will be
again if it is deduplicated again. Shards are numbered on from segment to segment, so that a key says where its document is, and documents of earlier segments
come first in every order. Only the last segment may be replaced: nothing was compared with it.
"""

from collections.abc import Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct

from dolma_dask.display import counted, listed
from dolma_dask.engine.lease import leased
from dolma_dask.engine.refusals import differing
from dolma_dask.errors import CorruptFileError, UsageError
from dolma_dask.exchange.kept import KeptPart
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.publish import publish, sweep
from dolma_dask.io.records import FileRecord
from dolma_dask.options.groups import datasets_above
from dolma_dask.reading.indexes import FORMAT, MANIFEST, manifest_of, read_manifest

SHARDS = "shards.json"

_HINT = (
    "Put the file back from a copy; or run dedupe on {dataset}, as it was then, with the same options, this index and --overwrite: it writes the same segment "
    "again. If that dataset is gone, begin a new index."
)


class Segment(Struct, frozen=True, kw_only=True):
    """What one dataset has put into an index; travels as JSON."""

    format: int
    id: str  # digest of all that decides it
    number: int  # place among all that were appended
    after: str = ""  # name of the segment before it
    params: dict[str, Any]  # of the index
    chosen: str  # digest of the other options
    dataset: str  # as seen from the index
    first_shard: int
    shards: int
    documents: int  # of the dataset
    kept: int  # documents with keys
    known: int  # documents that have a survivor in an earlier segment
    known_in: str = ""  # the one dataset that has all of these survivors; empty: there are several, or none
    first_document: int = 0  # number of the first that was kept, where such numbers are used
    keys: tuple[KeptPart, ...]
    files: tuple[FileRecord, ...]  # all others; below the index

    @property
    def name(self) -> str:
        """Name of its folder."""
        return f"{self.number:06d}-{self.id}"

    @property
    def path(self) -> str:
        """Path of its folder below the index."""
        return f"{layout.SEGMENTS}/{self.name}"

    @property
    def every(self) -> list[FileRecord]:
        """All its files but the last."""
        return [*(one.file for one in self.keys), *self.files]

    @property
    def bytes(self) -> int:
        """Stored bytes of its files."""
        return sum(file.bytes for file in self.every)

    def named(self, name: str) -> list[FileRecord]:
        """Return its files in a folder, or the one of that name."""
        return [file for file in self.files if file.path.startswith(f"{self.path}/{name}")]


class Index(Struct, frozen=True):
    """An index as a call of `dedupe` sees it, which holds its lease."""

    root: str
    segments: tuple[Segment, ...]  # that count, in order
    sizes: Mapping[str, int] = {}  # of all files, by path
    dataset: str = ""  # of the call, as seen from the index
    own: Segment | None = None  # of the dataset of the call
    overwrite: bool = False

    @property
    def before(self) -> tuple[Segment, ...]:
        """Segments that the dataset is compared with."""
        own = self.own
        return (
            self.segments if own is None else tuple(one for one in self.segments if one.number < own.number)
        )

    @property
    def is_last(self) -> bool:
        """True if nothing was compared with the segment of the dataset."""
        return self.own is None or self.own == self.segments[-1]

    @property
    def first_shard(self) -> int:
        """Number of the first shard of the dataset."""
        return sum(one.shards for one in self.before)

    @property
    def first_document(self) -> int:
        """Number of the first document that is kept of the dataset."""
        return sum(one.kept for one in self.before)

    def damage(self, segment: Segment) -> str:
        """Name the first file of a segment that has not its size; nothing if all have."""
        for file in segment.every:
            found = self.sizes.get(file.path)
            if found != file.bytes:
                size = "nothing" if found is None else f"{found:,} bytes"
                return f"{files.join(self.root, file.path)} is damaged: found {size}; expected {file.bytes:,} bytes, as dedupe wrote them."
        return ""

    def hint(self, segment: Segment) -> str:
        """Say what to do when a segment is damaged."""
        return _HINT.format(dataset=place_of(self.root, segment.dataset))

    def check(self, params: Mapping[str, Any]) -> None:
        """Refuse to read a damaged segment, or to compare with other parameters than those of the index."""
        for one in self.before:
            if found := self.damage(one):
                raise CorruptFileError(f"{found} {self.hint(one)}", url=self.root)
        if self.segments and (shown := differing(self.segments[0].params, params)):
            shown = [one for one in shown if one.startswith("how ")] or shown  # the others follow from it
            raise UsageError(
                f"the index {self.root} compares documents in another way: {'; '.join(shown)}; expected the parameters of the index, since its keys can be "
                "compared in no other way. Give these, or another --index."
            )


def place_of(root: str, dataset: str) -> str:
    """Return where a dataset of an index is, as people read it."""
    return dataset if "://" in dataset or dataset.startswith("/") else files.seen_from(root, dataset)


# ------------------------------------------------------------------------------------------------ reading


def lease_of(url: str | None, *, dry_run: bool) -> AbstractContextManager[None]:
    """Hold the lease of an index while the block runs; a rehearsal and a call without index need none."""
    if url is None or dry_run:
        return nullcontext()
    root = files.normalize(url)
    return leased(files.join(root, f"{layout.WORK}/{layout.SEGMENTS}"), "dedupe", output=root)


def check_place(url: str, dataset: str) -> None:
    """Refuse an index in a dataset, or where something else is, before anything is written there."""
    root, place = files.normalize(url), files.resolved(files.normalize(url))
    for one in (dataset, *datasets_above(place)):
        if f"{place}/".startswith(f"{files.resolved(one)}/"):
            raise UsageError(f"index={url!r} lies in the dataset {one}; expected a folder of its own.")
    folders = set(files.list_folders(root)) - {layout.WORK}
    found = sorted(folders - {layout.SEGMENTS})
    if layout.SEGMENTS not in folders and not found:
        found = [info.path for info in files.list_files(root) if "/" not in info.path]
    if files.stat(root) is not None or found:
        raise _no_index(root, found)


def _no_index(root: str, found: Sequence[str]) -> UsageError:
    what = f": {listed(found[:3])} in it {'is' if len(found) == 1 else 'are'} not of dedupe" if found else ""
    return UsageError(
        f"{root} is no index{what}; expected one that dedupe wrote, or a free place. Give a folder of its own."
    )


def open_index(url: str) -> Index:
    """Return an index; one of which nothing is there yet is empty.

    Raises `UsageError`: there is something else. Raises `CorruptFileError`: a segment is gone, or does not say what it was compared with.
    """
    root = files.normalize(url)
    sizes = {
        f"{layout.SEGMENTS}/{info.path}": info.bytes
        for info in files.list_files(files.join(root, layout.SEGMENTS))
    }
    if strange := [path for path in sizes if not layout.is_segment(path.split("/")[1])]:
        raise _no_index(root, strange)
    found = [
        read_manifest(files.join(root, path), Segment) for path in sizes if path.endswith(f"/{MANIFEST}")
    ]
    segments = sorted(found, key=lambda one: (one.number, one.id))
    _check_chain(root, segments)
    return Index(root, tuple(segments), sizes)


def _check_chain(root: str, segments: Sequence[Segment]) -> None:
    """Refuse an index of which a segment is gone, or to which two runs have appended at once."""
    for before, one in pairwise([None, *segments]):
        if one is None or one.after == (before.name if before else ""):
            continue
        if before and before.after == one.after:
            raise CorruptFileError(
                f"{files.join(root, one.path)} and {before.name} were appended at once; expected one after the other. Remove the folder of one of them, "
                f"and run dedupe on its dataset again: {place_of(root, one.dataset)} or {place_of(root, before.dataset)}."
            )
        raise CorruptFileError(
            f"{files.join(root, layout.SEGMENTS)}/{one.after} is gone, with which {one.name} was compared; expected all segments. Put it back from a copy, or begin "
            "a new index."
        )


# ------------------------------------------------------------------------------------------------ appending


def draft(index: Index, segment: str, params: Mapping[str, Any], **known: Any) -> Segment:
    """Return the segment of a dataset as it will be, without what is counted when it is written.

    Raises `UsageError`: there is another one of the dataset, which cannot be replaced.
    """
    own, before = index.own, index.before
    common: dict[str, Any] = {
        **known,
        "format": FORMAT,
        "id": segment,
        "number": len(before) + 1,
        "after": before[-1].name if before else "",
        "params": dict(params),
        "dataset": index.dataset,
        "first_shard": index.first_shard,
        "first_document": index.first_document,
        "kept": 0,
        "known": 0,
        "keys": (),
        "files": (),
    }
    if own is not None and own.id == segment:
        return Segment(**{**common, "dataset": own.dataset})
    check_replaceable(index, _CHANGED)
    return Segment(**common)


_CHANGED = "has changed since the index {root} has its documents"

OTHER_OPTIONS = "is in the index {root} with other options, such as keep, rank or where"


def check_replaceable(index: Index, why: str = _CHANGED) -> None:
    """Refuse to replace a segment that others were compared with."""
    if index.is_last:
        return
    later = len(index.segments) - len(index.before) - 1
    raise UsageError(
        f"{place_of(index.root, index.dataset)} {why.format(root=index.root)}: {counted(later, 'dataset')} appended after it may count on what was kept. Expected "
        "the same documents and options as then, since the index is only appended to. Give new documents as a dataset in a folder of its own, or begin a new "
        "index."
    )


def write_small(root: str, path: str, data: bytes) -> FileRecord:
    """Write a small file of a segment."""
    with publish(files.join(root, path)) as out:
        out.write(data)
    return FileRecord(path, out.bytes, out.checksum)


def prepare(index: Index, segment: Segment) -> None:
    """Clear away what a killed run has left where a segment will be."""
    folder = files.join(index.root, segment.path)
    if index.own is not None and index.own.name == segment.name:  # it is written again
        sweep(folder)
    else:
        files.remove_tree(folder)


def commit(index: Index, segment: Segment) -> Segment:
    """Write the manifest of a segment, by which it counts, and remove folders of segments that do not count. Its other files have to be there.

    The manifest of a segment that it replaces is removed first: if the run is killed in between, the index has neither, and the next run appends.

    Raises `UsageError`: this run has lost its lease, and another one has appended meanwhile; nothing is appended.
    """
    own = index.own
    if own is not None and own.name != segment.name:
        files.remove(_manifest(index, own.name))
    stored = manifest_of(msgspec.json.encode(segment))
    write_small(index.root, f"{segment.path}/{MANIFEST}", stored)
    kept = {segment.name, *(one.name for one in index.segments if one != own)}
    names = _folders_besides(index.root, kept)
    for name in names:
        if files.stat(_manifest(index, name)) is not None:
            files.remove(_manifest(index, segment.name))
            raise UsageError(
                f"another run has appended {name} to {index.root} meanwhile; expected one at a time. Run the same command again."
            )
    for name in names:  # of runs that were killed, and the segment that is replaced
        files.remove_tree(files.join(index.root, f"{layout.SEGMENTS}/{name}"))
    return segment


def clear(index: Index) -> None:
    """Remove folders of replaced segments, left by runs that were killed while they removed them: their numbers are at most that of the last segment.

    Folders with higher numbers stay: a run that has lost its lease may be writing there.
    """
    for name in _folders_besides(index.root, {one.name for one in index.segments}):
        if index.segments and int(name[:6]) <= index.segments[-1].number:
            files.remove_tree(files.join(index.root, f"{layout.SEGMENTS}/{name}"))


def _folders_besides(root: str, names: Set[str]) -> list[str]:
    """Return the folders of segments that have none of these names."""
    found = files.list_folders(files.join(root, layout.SEGMENTS))
    return [name for name in found if layout.is_segment(name) and name not in names]


def _manifest(index: Index, name: str) -> str:
    return files.join(index.root, f"{layout.SEGMENTS}/{name}/{MANIFEST}")
