"""Summaries of `mix`, of its token files and of several streams."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from dolma_dask.io.records import merge_rules
from dolma_dask.summary import Summary
from dolma_dask.verbs.selection import rule_notes


@dataclass(frozen=True, repr=False)
class MixSummary(Summary):
    """The outcome of a mix; ``others`` holds that of the token files which it made too, by their verbs."""

    others: tuple[tuple[str, Summary], ...] = ()

    def rows(self) -> list[tuple[str, str]]:
        """Return the lines of the table; see `Summary`."""
        rows = super().rows()
        for name, other in self.others:
            own = {
                key: value
                for key, value in other.counts.items()
                if key not in self.counts or key == "bytes_out"
            }
            rows += [
                (name, ""),
                *((f"  {label}", value) for label, value in replace(other, counts=own, rules=()).rows()),
            ]
        return rows

    def to_json(self) -> dict[str, Any]:
        """Return the summary as JSON-able values."""
        known = super().to_json()
        return known | {name: other.to_json() for name, other in self.others}


def summarize(summary: Summary, notes: tuple[str, ...] = ()) -> MixSummary:
    """Return the summary of a run of mix, with what its counts say of rules and filters."""
    known = {item.name: getattr(summary, item.name) for item in fields(Summary)}
    every = (*summary.notes, *notes, *rule_notes(summary))
    return MixSummary(**known | {"notes": tuple(dict.fromkeys(every))})


def with_others(mixed: MixSummary, others: Sequence[tuple[str, Summary]]) -> MixSummary:
    """Return the outcome of a mix with that of the token files that it made."""
    notes = (f"{name}: {note}" for name, other in others for note in other.notes if note not in mixed.notes)
    planned = (*mixed.planned, *(path for _, other in others for path in other.planned))
    return replace(
        mixed,
        notes=(*mixed.notes, *notes),
        planned=tuple(dict.fromkeys(planned)),
        lost=mixed.lost or any(other.lost for _, other in others),
        seconds=max(mixed.seconds, *(other.seconds for _, other in others), 0.0),
        others=tuple(others),
    )


@dataclass(frozen=True, repr=False)
class StreamsSummary(MixSummary):
    """The outcome of several streams; ``streams`` holds that of each by its name."""

    streams: tuple[tuple[str, MixSummary], ...] = ()

    def rows(self) -> list[tuple[str, str]]:
        """Return the lines of the table: those of each stream below its name."""
        rows = []
        for name, summary in self.streams:
            rows += [("stream", name), *((f"  {label}", value) for label, value in summary.rows())]
        return rows

    def to_json(self) -> dict[str, Any]:
        """Return the summary as JSON-able values."""
        return {**super().to_json(), "streams": {name: summary.to_json() for name, summary in self.streams}}


def sum_streams(summaries: Sequence[tuple[str, MixSummary]]) -> StreamsSummary:
    """Return the summary of several streams, with their names."""
    counts: dict[str, float] = {}
    for _, summary in summaries:
        for name, count in summary.counts.items():
            counts[name] = counts.get(name, 0) + count
    every = [summary for _, summary in summaries]
    return StreamsSummary(
        verb="mix",
        rules=merge_rules(summary.rules for _, summary in summaries),
        target=", ".join(dict.fromkeys(item.target for item in every)),
        done=sum(item.done for item in every),
        skipped=sum(item.skipped for item in every),
        seconds=sum(item.seconds for item in every),
        counts=counts,
        notes=tuple(f"{name}: {note}" for name, item in summaries for note in item.notes),
        planned=tuple(f"{name}: {shard}" for name, item in summaries for shard in item.planned),
        streams=tuple(summaries),
    )
