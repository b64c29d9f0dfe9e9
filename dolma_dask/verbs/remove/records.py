"""Journals after a takedown: records speak of the files as they are now, so that reading proves alignment and nothing that is unaffected is done again.

What a run counted stays, less what was taken out of what it wrote. Results that depend on all documents stay believed if they line up with documents, and are named
where they may say something else now; those that only add documents up are left as they are, and the same command makes them anew.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.io import files
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.journal import Record
from dolma_dask.reading.tombstones import REMOVED
from dolma_dask.verbs.remove.changes import Change
from dolma_dask.verbs.remove.identities import Wanted
from dolma_dask.verbs.remove.listing import Listing

SUMS = ("quantiles", "validate", "report")
"""Verbs whose results only add documents up or check them: the same command makes them again."""


class Changed(Struct, frozen=True, dict=True):
    """All changes below a root, and the files as they are now."""

    listing: Listing
    by_path: Mapping[str, Change]
    by_content: Mapping[tuple[str, int], tuple[Change, ...]]  # checksum and bytes before
    digests: Mapping[str, str]
    stamps: Mapping[str, str]

    @classmethod
    def of(cls, listing: Listing, changes: Iterable[Change]) -> "Changed":
        """Return what is known of some changes."""
        by_path = {change.path: change for change in changes}
        by_content: dict[tuple[str, int], tuple[Change, ...]] = {}
        for change in by_path.values():
            before = change.before.checksum, change.before.bytes
            by_content[before] = (*by_content.get(before, ()), change)
        digests = {old: new for change in by_path.values() for old, new in change.digests.items()}
        stamps = {path: info.stamp for path in by_path if (info := files.stat(listing.url(path))) is not None}
        return cls(listing, by_path, by_content, digests, stamps)

    def file(self, root: str, file: FileRecord) -> tuple[FileRecord, Change | None]:
        """Return an output as it is now, and its change."""
        change = self.by_path.get(f"{root}/{file.path}".strip("/"))
        if change is None or file.checksum != change.before.checksum:
            return file, None
        now, stamp = change.after, self.stamps.get(change.path, "") if file.stamp else ""
        rows = now.rows if file.rows == change.before.rows else file.rows - change.removed
        return FileRecord(file.path, now.bytes, now.checksum, rows, now.members, stamp), change

    def input(self, item: InputRecord) -> InputRecord:
        """Return an input as it is now."""
        for change in self.by_content.get((item.checksum, item.bytes), ()):
            if f"/{change.path}".endswith(f"/{item.path.strip('/')}") or item.path.endswith(
                f"/{change.path}"
            ):
                now = change.after
                return replace(
                    item, bytes=now.bytes, checksum=now.checksum, stamp=self.stamps.get(change.path, "")
                )
        return item


def renewed(record: Record, verb: str, root: str, changed: Changed) -> Record:
    """Return a record that speaks of the files as they are now; `root` is that of its journal."""
    if verb in SUMS:
        return record
    found = [changed.file(root, file) for file in record.files]
    own = [change for _, change in found if change is not None]
    digests = changed.digests
    content = record.content_digest
    if any(change.what == "tokens" for change in own):
        content = ""  # of texts that token files do not tell, unless these are those of a shard
    record = replace(
        record,
        inputs=tuple(map(changed.input, record.inputs)),
        files=tuple(file for file, _ in found),
        ids_digest=digests.get(record.ids_digest, record.ids_digest),
        content_digest=digests.get(record.content_digest, content),
    )
    return _less(record, own)


def _less(record: Record, changes: list[Change]) -> Record:
    """Return a record with the counts of its outputs less what was taken out of these."""
    outputs = [change for change in changes if change.what not in ("bad records", "segments", "beside")]
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
    counts[REMOVED] = counts.get(REMOVED, 0) + gone
    return replace(record, rows=record.rows - gone, counts=counts)


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
    line = msgspec.json.encode(record)
    if not any(spelled in line for spelled in wanted.spelled):
        return record
    return record.forgotten() if verb in SUMS else replace(record, info=_cleaned(record.info, wanted.ids))


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
