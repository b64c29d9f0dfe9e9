"""The content of a page, put together from the journals and from what one pass over the documents found."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

import dolma_dask
from dolma_dask.verbs.report.agreement import Told, disagreement, filter_rows, remarks, what_was_told
from dolma_dask.verbs.report.history import History
from dolma_dask.verbs.report.model import ReportData, ResultTable, StageRow
from dolma_dask.verbs.report.origin import Origin
from dolma_dask.verbs.report.survey import Findings, Survey
from dolma_dask.verbs.report.tables import (
    QuarantineFile,
    example_rows,
    quarantine_files,
    quarantine_rows,
    rule_rows,
    signal_rows,
    source_rows,
    stage_row,
)


@dataclass(frozen=True)
class Known:
    """What is known of a page before a document is read.

    Attributes
    ----------
    title, dataset : str
        Heading, and the name a reader should see.
    created : str
        When the last thing happened that the page tells of.
    stages : tuple of StageRow
        What the journals tell of the shards that are shown.
    selecting : int or None
        Which of them selected.
    where : str or None
        The rule as the user wrote it.
    spelled : tuple of str
        Its conditions as a reader should see them.
    told : Told or None
        What the journal says of the selection.
    results : tuple of ResultTable
        What verbs found.
    quarantine : tuple of QuarantineFile
        Where records were set aside.
    """

    title: str
    dataset: str
    created: str
    stages: tuple[StageRow, ...]
    selecting: int | None
    where: str | None
    spelled: tuple[str, ...]
    told: Told | None
    results: tuple[ResultTable, ...] = ()
    quarantine: tuple[QuarantineFile, ...] = ()

    def decides(self) -> dict[str, Any]:
        """Return all of it that decides what the page says, but for the files, as JSON-able values; the same wherever the files lie."""
        content: dict[str, Any] = msgspec.to_builtins(replace(self, quarantine=()))
        return content


def what_is_known(
    title: str,
    dataset: str,
    history: History,
    origin: Origin,
    survey: Survey,
    spelled: Sequence[str],
    results: Sequence[ResultTable] = (),
) -> Known:
    """Gather what the journals tell.

    Parameters
    ----------
    title, dataset : str
        Heading, and the name a reader should see.
    history : History
        What the journals tell of the shards that are shown.
    origin : Origin
        What was selected from.
    survey : Survey
        What to look for.
    spelled : sequence of str
        The conditions of the rule as a reader should see them.
    results : sequence of ResultTable
        What verbs found.
    """
    steps = [(step.root, step.verb) for step in history.steps]
    selecting = (origin.step.root, origin.step.verb) if origin.step else None
    return Known(
        title=title,
        dataset=dataset,
        created=history.created(),
        stages=tuple(map(stage_row, history.steps)),
        selecting=steps.index(selecting) if selecting in steps else None,
        where=origin.where,
        spelled=tuple(spelled),
        told=what_was_told(history, origin, survey.parts),
        results=tuple(results),
        quarantine=tuple(quarantine_files(history.steps)),
    )


def report_data(known: Known, shards: int, survey: Survey, found: Findings) -> ReportData:
    """Put the content of a page together.

    Parameters
    ----------
    known : Known
        What the journals tell.
    shards : int
        How many were looked at.
    survey : Survey
        What was looked for.
    found : Findings
        What was found in all of them.
    """
    return ReportData(
        title=known.title,
        dataset=known.dataset,
        created=known.created,
        version=dolma_dask.__version__,
        stages=_stages(known, shards, found),
        sources=source_rows(survey, found),
        signals=signal_rows(survey, found),
        rules=[*rule_rows(known.spelled, found), *filter_rows(known.told)],
        examples=example_rows(survey, known.spelled, found),
        where=known.where,
        remarks=remarks(known.told, bool(survey.parts), found),
        quarantine=quarantine_rows(known.quarantine),
        results=known.results,
    )


def _stages(known: Known, shards: int, found: Findings) -> list[StageRow]:
    if not known.stages:
        return [_read_row(shards, found)]
    rows = list(known.stages)
    note = disagreement(known.told, known.spelled, found)
    if note and known.selecting is not None:
        row = rows[known.selecting]
        rows[known.selecting] = replace(row, note="; ".join(filter(None, (row.note, note))))
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
