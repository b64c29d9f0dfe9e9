"""What `mix` returns: its filters stand in the table as they were written."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from dolma_dask.stages.selection import rule_notes
from dolma_dask.summary import LONGEST_RULE, Summary, label, show

FILTERS = ("include ", "exclude ")
"""What the names of counts begin with that tell how many documents a filter matched."""


@dataclass(frozen=True, repr=False)
class MixSummary(Summary):
    """The outcome of a mix."""

    def rows(self) -> list[tuple[str, str]]:
        """Return the lines of the table; see `Summary`."""
        told = {label(name): (name, count) for name, count in self.counts.items() if name.startswith(FILTERS)}
        return [_spelled(row, told) for row in super().rows()]


def _spelled(row: tuple[str, str], told: Mapping[str, tuple[str, float]]) -> tuple[str, str]:
    if row[0] not in told:
        return row
    name, count = told[row[0]]
    shown = name if len(name) <= LONGEST_RULE else f"{name[: LONGEST_RULE - 4]} ..."
    return shown, show("documents", count)


def summarize(summary: Summary, notes: tuple[str, ...] = ()) -> MixSummary:
    """Return the summary of a run of mix, with what its counts say of rules and filters."""
    known = {item.name: getattr(summary, item.name) for item in fields(Summary)}
    counts = summary.counts
    every = (*summary.notes, *notes, *rule_notes(counts), *_filter_notes(counts))
    return MixSummary(**known | {"notes": tuple(dict.fromkeys(every))})


def _filter_notes(counts: Mapping[str, float]) -> tuple[str, ...]:
    notes = []
    for name, count in counts.items():
        if count == 0 and name.startswith(FILTERS):
            what, _, text = name.partition(" ")
            effect = "it lets nothing in" if what == "include" else "it drops nothing"
            notes.append(f"{text} matches none of the documents: {effect}")
    return tuple(notes)
