"""Rows of status on pages: a page lies outside of the dataset that it shows, and is old once anything was made there after it.

Cost: two requests for each page, and the journals that are read anyway. What was made elsewhere, in earlier versions or of tokens, is not looked at:
the next `report` does.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import msgspec

from dolma_dask.errors import CorruptFileError, StoreAccessError
from dolma_dask.io import files
from dolma_dask.io.records import InputRecord
from dolma_dask.journal import Journal, Record
from dolma_dask.questions.status.inputs import Listing
from dolma_dask.questions.status.rows import StatusRow, rows_of
from dolma_dask.registry import names_of


def rows_of_pages(journal: Journal, listed: Listing, known: Sequence[Journal]) -> Iterator[StatusRow]:
    """Yield the rows of a verb that makes pages, with the state of each page; `known` are all journals of the dataset."""
    newest = _newest(known)
    for row in rows_of(journal, listed):
        record = journal.records.get(row.writes)
        yield row if record is None else _as_found(row, record, listed.root, newest)


def _newest(known: Sequence[Journal]) -> float:
    """Return when the last unit was finished that a page could show."""
    pages = names_of("page")
    others = (one.records.values() for one in known if one.verb not in pages)
    return max((record.finished for records in others for record in records), default=0.0)


def _as_found(row: StatusRow, record: Record, root: str, newest: float) -> StatusRow:
    """Return the row of a page with its size; one that is gone is neither done nor missed, since pages are carried elsewhere."""
    try:
        written = msgspec.convert(record.info.get("written"), list[InputRecord])
        found = [files.stat(url) for url in _urls(root, record.unit, written)]
    except (
        msgspec.ValidationError,
        CorruptFileError,
        OSError,
        StoreAccessError,
    ):  # no record of ours, or nobody may look
        return row
    there = [info.bytes for info in found if info is not None]
    is_whole = len(there) == len(written)
    is_old = newest > record.finished - record.seconds or there != [item.bytes for item in written]
    changed = int(is_whole and is_old)
    return dataclasses.replace(row, done=int(is_whole) - changed, changed=changed, bytes=sum(there))


def _urls(root: str, unit: str, written: Sequence[InputRecord]) -> list[str]:
    """Return where the files of a page are: beside it, by their last names."""
    is_relative = "://" not in unit and not unit.startswith("/")
    page = files.seen_from(root, unit) if is_relative else unit
    return [f"{page.rpartition('/')[0]}/{item.path}" for item in written]
