"""The content of a page, put together from the journals and from what one pass over the documents found."""

from collections.abc import Sequence
from dataclasses import replace

import dolma_dask
from dolma_dask.display import counted
from dolma_dask.reports.history import History, stem
from dolma_dask.reports.model import ReportData, ResultTable, StageRow
from dolma_dask.reports.origin import Origin
from dolma_dask.reports.survey import Findings, Survey
from dolma_dask.reports.tables import (
    example_rows,
    quarantine_rows,
    rule_rows,
    signal_rows,
    source_rows,
    stage_row,
)


def report_data(
    title: str,
    dataset: str,
    history: History,
    origin: Origin,
    shards: Sequence[str],
    survey: Survey,
    spelled: Sequence[str],
    found: Findings,
    results: Sequence[ResultTable] = (),
) -> ReportData:
    """Put the content of a page together.

    Parameters
    ----------
    title, dataset : str
        Heading, and the name a reader should see.
    history : History
        What the journals tell of `shards`.
    origin : Origin
        What was selected from.
    shards : sequence of str
        Paths of the shards that were looked at.
    survey : Survey
        What was looked for.
    spelled : sequence of str
        The conditions of the rule as a reader should see them.
    found : Findings
        What was found in all of `shards`.
    results : sequence of ResultTable
        What verbs found.
    """
    return ReportData(
        title=title,
        dataset=dataset,
        created=history.created(),
        version=dolma_dask.__version__,
        stages=_stages(history, origin, len(shards), found),
        sources=source_rows(survey, found),
        signals=signal_rows(survey, found),
        rules=rule_rows(spelled, found),
        examples=example_rows(survey, spelled, found),
        where=origin.where,
        quarantine=quarantine_rows(history.steps, {stem(path) for path in shards}),
        results=results,
    )


def disagreement(history: History, origin: Origin, found: Findings) -> str | None:
    """Compare what the rule keeps now with what the journal says was kept, and how; None if it is the same."""
    step = origin.step and history.step(origin.step.root, origin.step.verb)
    if step is None or not step.records:
        return None
    others = len({record.shard for record in step.records}) - len({record.shard for record in step.current})
    if others:
        return (
            f"{counted(others, 'shard')} {'was' if others == 1 else 'were'} made with another rule or other options than the newest, which "
            f"this page shows: run {step.verb} again for all shards"
        )
    told = int(sum(record.counts.get("documents_out", 0) for record in step.records))
    if told == found.kept:
        return None
    return (
        f"the rule keeps {found.kept:,} documents now, {told:,} when {step.verb} ran: documents or attributes were made again since; "
        f"run {step.verb} again"
    )


def _stages(history: History, origin: Origin, shards: int, found: Findings) -> list[StageRow]:
    if not history.steps:
        return [_read_row(shards, found)]
    rows = [stage_row(step) for step in history.steps]
    note = disagreement(history, origin, found)
    for index, step in enumerate(history.steps):
        if note and origin.step and (step.root, step.verb) == (origin.step.root, origin.step.verb):
            rows[index] = replace(rows[index], note="; ".join(filter(None, (rows[index].note, note))))
    return rows


def _read_row(shards: int, found: Findings) -> StageRow:
    """Tell what was read of a dataset that other tools made."""
    return StageRow(
        verb="read",
        documents_in=found.rows,
        documents_out=found.rows - found.bad,
        text_bytes=found.text_bytes,
        shards=shards,
        bad_records=found.bad,
        note="no journal: counted for this page",
    )
