"""What taggers have found in all shards, by those that count it: tables of the summary and of reports."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import asdict, replace

from dolma_dask.display import isolated, shown_name
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.journal import Record
from dolma_dask.results.summary import Recorded, Summary
from dolma_dask.results.table import Table
from dolma_dask.taggers.base import ViewTagger
from dolma_dask.taggers.registry import get_tagger

FOUND = "found"
"""Name of the counts in what records tell."""


class TagSummary(Summary, frozen=True):
    """The outcome of `tag` with taggers that count what they find.

    Attributes
    ----------
    found : Mapping
        By tagger: a record for each row of its table.
    """

    found: Mapping[str, Sequence[Any]] = {}

    def tables(self) -> list[Table]:
        return list(_tables(self.found))


def summarize(summary: Summary, records: Iterable[Record]) -> Summary:
    """Return a summary with what taggers have found, if one of them counts it."""
    # few taggers count: of a million records mostly none is held
    known = [record for record in records if FOUND in record.info]
    names = dict.fromkeys(name for record in known for name in record.info.get(FOUND, {}))
    found = {name: _merged(name, known) for name in names}
    return TagSummary(**asdict(summary), found=found) if found else summary


def _merged(name: str, records: Iterable[Record]) -> Sequence[Any]:
    tally = _tally(name)
    shards = (record.info[FOUND][name] for record in records if name in record.info.get(FOUND, {}))
    return tally.merged(shards) if tally else ()


def _tally(name: str) -> Any:
    with suppress(UsageError):  # of a plug-in that is not there any more
        known = get_tagger(name)
        return known.tally if isinstance(known, ViewTagger) else None
    return None


def _tables(found: Mapping[str, Sequence[Any]]) -> Iterator[Table]:
    for name, rows in found.items():
        tally = _tally(name)
        if tally and rows:
            yield tally.table(rows)


def recorded_tables(step: Recorded) -> Iterator[Table]:
    """Yield the tables of what taggers have found, of each attribute set, for a report."""
    known = {
        (record.unit.split("/")[1], name) for record in step.records for name in record.info.get(FOUND, {})
    }
    for set_name, name in sorted(known):
        own = [one for one in step.records if one.unit.startswith(f"{layout.ATTRIBUTES}/{set_name}/")]
        for table in _tables({name: _merged(name, own)}):
            title = f"{isolated(set_name)} in {shown_name(step.root)}"
            yield replace(table, section="Found by taggers", title=title)
