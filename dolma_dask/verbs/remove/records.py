"""Journals after a takedown: records speak of the files as they are now, so that reading proves alignment and nothing that is unaffected is done again.

What a run counted stays, less what was taken out of what it wrote. Results that depend on all documents stay believed if they line up with documents, and are named
where they may say something else now; those that only add documents up are left as they are, and the same command makes them anew.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.formats import layout
from dolma_dask.formats.hdf5 import MADE_OF
from dolma_dask.io import files
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.journal import Journal, Record
from dolma_dask.reading.tombstones import REMOVED
from dolma_dask.verbs.remove.changes import Change
from dolma_dask.verbs.remove.identities import Wanted
from dolma_dask.verbs.remove.listing import TOKEN_VERBS, Listing
from dolma_dask.verbs.remove.summary import Left

SUMS = ("quantiles", "validate", "report")
"""Verbs whose results only add documents up or check them: the same command makes them again."""

_TOKENS = "tokens"
"""Unit of the sums of rows of HDF5."""

_OF_READERS = frozenset(
    {"call", "component", "datasets", "depends_on", "key", "kinds", "levels", "reads", "segment", "taggers"}
)
"""Parts of a record that readers believe: digests, columns, names of keys and options. An id that is such a word, like ``text``, is none there."""

_OF_DOCUMENTS = ("documents", "attributes", "tokens", "HDF5 rows", "rows")
"""Files with a row for each document, or several."""


class Changed(Struct, frozen=True, dict=True):
    """All changes below a root, and the files as they are now."""

    listing: Listing
    by_path: Mapping[str, Change]
    by_content: Mapping[tuple[str, int], tuple[Change, ...]]  # checksum and bytes before
    digests: Mapping[str, str]
    stamps: Mapping[str, str]
    to_write_again: frozenset[str] = frozenset()  # folders of token files that were not taken apart

    @classmethod
    def of(cls, listing: Listing, changes: Iterable[Change], failed: Collection[str]) -> "Changed":
        """Return what is known of some changes; `failed` are files that are as they were since they could not be read."""
        by_path = {change.path: change for change in changes}
        by_content: dict[tuple[str, int], tuple[Change, ...]] = {}
        for change in by_path.values():
            before = change.before.checksum, change.before.bytes
            by_content[before] = (*by_content.get(before, ()), change)
        digests = {old: new for change in by_path.values() for old, new in change.digests.items()}
        stamps = {path: info.stamp for path in by_path if (info := files.stat(listing.url(path))) is not None}
        whole = frozenset(
            place.folder for place in listing.tokens if place.segments is None or place.path in failed
        )
        return cls(listing, by_path, by_content, digests, stamps, whole)

    def file(self, root: str, file: FileRecord) -> tuple[FileRecord, Change | None]:
        """Return an output as it is now, and its change."""
        change = self.by_path.get(f"{root}/{file.path}".strip("/"))
        if change is None or file.checksum != change.before.checksum:
            return file, None
        now, stamp = change.after, self.stamps.get(change.path, "") if file.stamp else ""
        rows = now.rows if file.rows == change.before.rows else file.rows - change.removed
        return FileRecord(file.path, now.bytes, now.checksum, rows, now.members, stamp), change

    def input(self, item: InputRecord, verb: str = "") -> InputRecord:
        """Return an input as it is now."""
        path = item.path.strip("/")
        if verb == "reshard":
            path = path.partition("/")[2]  # behind the number of its source
        for change in self.by_content.get((item.checksum, item.bytes), ()):
            if f"/{change.path}".endswith(f"/{path}") or path.endswith(f"/{change.path}"):
                now = change.after
                return replace(
                    item, bytes=now.bytes, checksum=now.checksum, stamp=self.stamps.get(change.path, "")
                )
        return item


def renewed(record: Record, verb: str, root: str, changed: Changed) -> Record:
    """Return a record that speaks of the files as they are now; `root` is that of its journal."""
    if verb in SUMS or (verb in TOKEN_VERBS and root in changed.to_write_again):
        return record
    found = [changed.file(root, file) for file in record.files]
    own = [change for _, change in found if change is not None]
    digests = changed.digests
    content = record.content_digest
    if any(change.what == "tokens" for change in own):
        content = ""  # of texts that token files do not tell, unless these are those of a shard
    info = record.info
    document = changed.by_path.get(f"{root}/{layout.document_path(record.shard)}".strip("/"))
    if own and document is not None and "clusters" in info:
        info = {**info, "clusters": [_moved(survivor, document) for survivor in info["clusters"]]}
    info = _rows_of(info, own)
    if verb == "hdf5" and record.unit == _TOKENS:
        made_of = {old.path: old.checksum for old in record.inputs if changed.input(old) != old}
        info = {**info, MADE_OF: {**made_of, **info.get(MADE_OF, {})}} if made_of else info
    record = replace(
        record,
        info=info,
        inputs=tuple(changed.input(item, verb) for item in record.inputs),
        files=tuple(file for file, _ in found),
        ids_digest=digests.get(record.ids_digest, record.ids_digest),
        content_digest=digests.get(record.content_digest, content),
    )
    return _less(record, own)


def _rows_of(info: dict[str, Any], own: Sequence[Change]) -> dict[str, Any]:
    """Return what is known of rows of HDF5, less what was masked."""
    for change in own:
        if change.row_counts:
            rows = {name: count - change.row_counts.get(name, 0) for name, count in info["rows"].items()}
            info = {**info, "rows": rows}
    return info


def _moved(survivor: list[Any], document: Change) -> list[Any]:
    """Return a survivor of a cluster, its size and row first, with the row that it has now."""
    size, row, *others = survivor
    return [size, row - bisect_left(document.rows, row), *others]


def _less(record: Record, changes: list[Change]) -> Record:
    """Return a record with the counts of its outputs less what was taken out of these."""
    outputs = [change for change in changes if change.what in _OF_DOCUMENTS]
    if not outputs:
        return record
    gone = sum(change.removed for change in outputs)
    counts = dict(record.counts)
    less = {"documents_out": gone, "text_bytes_out": sum(change.text_bytes for change in outputs)}
    for change in changes:
        smaller = change.before.bytes - change.after.bytes
        less["bytes_out"] = less.get("bytes_out", 0) + (smaller if change.what != "bad records" else 0)
        less |= {name: less.get(name, 0) + count for name, count in change.counts.items()}
    for name, count in less.items():
        if name in counts:
            counts[name] -= count
    if gone:
        counts[REMOVED] = counts.get(REMOVED, 0) + gone
    return replace(record, rows=max(record.rows - gone, 0), counts=counts)


def renew(listing: Listing, changed: Changed, wanted: Wanted) -> Iterator[str]:
    """Write the records that changes make others into their journals; yield the paths of these journals."""
    for journal in listing.journals:
        root = listing.place_of(journal)
        new = []
        for record in journal.records.values():
            other = _without_ids(renewed(record, journal.verb, root, changed), journal.verb, wanted)
            if other != record:
                new.append(other)
        if new:
            journal.append(*new)
            yield f"{root}/_journal/{journal.verb}".strip("/")


def _without_ids(record: Record, verb: str, wanted: Wanted) -> Record:
    """Return a record that names no document that was taken down; a check that found one is forgotten."""
    cleaned = {
        name: value if name in _OF_READERS else _cleaned(value, wanted.ids)
        for name, value in record.info.items()
    }
    if cleaned == record.info:
        return record
    return record.forgotten() if verb in SUMS else replace(record, info=cleaned)


def _cleaned(value: Any, ids: frozenset[str]) -> Any:
    """Return JSON without the texts that are or begin with one of some ids, and without the lists that name them."""
    if isinstance(value, dict):
        return {name: _cleaned(item, ids) for name, item in value.items() if not _names(name, ids)}
    if isinstance(value, list | tuple):
        kept = [item for item in value if not _names(item, ids)]
        return type(value)(
            _cleaned(item, ids)
            for item in kept
            if not (isinstance(item, list | tuple) and any(_names(one, ids) for one in item))
        )
    return "" if _names(value, ids) else value


def _names(value: Any, ids: frozenset[str]) -> bool:
    return isinstance(value, str) and (value in ids or value.rpartition("\t")[2] in ids)


def bare_token_files(
    listing: Listing, cuts: Mapping[str, Change], before: Sequence[Change]
) -> Iterator[Left]:
    """Yield the token files that were, or may have been, made of documents that were taken down, and do not say of which: without segments, or with `id_key`; `before` are changes of a run that was stopped."""
    records = {
        f"{listing.place_of(journal)}/{file.path}".strip("/"): (journal, record)
        for journal in listing.journals
        if journal.verb in TOKEN_VERBS
        for record in journal.records.values()
        for file in record.files
    }
    for place in listing.tokens:
        journal, record = records.get(place.path, (None, None))
        if place.segments is not None:
            if journal is not None and record is not None and _has_own_ids(journal):
                yield from _changed_since(listing, journal, record, place.path, (*cuts.values(), *before))
            continue
        if journal is None or record is None:
            yield Left(place.path, "a token file that no journal knows, without segments", _UNKNOWN)
        elif why := _why(listing, journal, record, cuts):
            yield Left(
                place.path,
                f"a token file without segments, {why}",
                f"write it again: the same {journal.verb} with --overwrite",
            )


def _has_own_ids(journal: Journal) -> bool:
    return any(run.params.get("id_key") for run in journal.runs)


def _changed_since(
    listing: Listing, journal: Journal, record: Record, path: str, changes: Iterable[Change]
) -> Iterator[Left]:
    """Yield a token file whose documents are known by their rows alone, if these are not those of the shards any more."""
    known = {(change.before.checksum, change.before.bytes) for change in changes}
    others = [item for item in record.inputs if (item.checksum, item.bytes) not in known]
    if why := _why(listing, journal, replace(record, inputs=tuple(others)), ()):
        yield Left(
            path,
            f"a token file with id_key, {why}: its ids are not those of documents",
            f"write it again: the same {journal.verb} with --overwrite",
        )


_UNKNOWN = "find out whether its documents are among those of the list, and write it again without them"


def _why(listing: Listing, journal: Journal, record: Record, cuts: Collection[str]) -> str:
    """Say why a token file may hold documents that were taken down; nothing if it does not."""
    whole = journal.records.get("tokens", record)  # of HDF5 rows
    origin = next((run.origin for run in reversed(journal.runs) if run.origin), "")
    root = files.seen_from(journal.root, origin) if origin else ""
    if not f"{root}/".startswith(f"{listing.root}/"):
        return "made from documents elsewhere"
    for item in whole.inputs:
        path = f"{root}/{item.path}".removeprefix(listing.root).strip("/")
        info, known = listing.infos.get(path), listing.members_of(path)
        is_other = bool(known) and all(file.checksum != item.checksum for file in known)
        if path in cuts or info is None or info.bytes != item.bytes or is_other:
            return f"made from {path} before it was changed"
    return ""
