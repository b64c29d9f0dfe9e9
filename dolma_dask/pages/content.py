"""The content of a page of one dataset: its journals, one pass over the documents that it was selected from, and the thresholds beside them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.dataset import Dataset
from dolma_dask.display import counted, shown_name
from dolma_dask.engine.fold import fold
from dolma_dask.figures.histogram import Histogram, signal_histogram
from dolma_dask.figures.model import SignalHistogram
from dolma_dask.options.groups import RunOptions
from dolma_dask.pages.clusters import cluster_examples
from dolma_dask.pages.highlights import beyond_published
from dolma_dask.pages.history import History, Origin, Step, find_origin, public_name, read_history, stem
from dolma_dask.pages.junk import junk_rows
from dolma_dask.pages.model import SIDES, ReportData, RuleRow, SourceRow, StageRow
from dolma_dask.pages.names import shown_names
from dolma_dask.pages.own_tokens import with_own_tokens
from dolma_dask.pages.record import Page
from dolma_dask.pages.recorded import (
    RecordedContent,
    RecordedSelection,
    outdated,
    quarantine_rows,
    recorded_content,
    recorded_selection,
    remarks,
)
from dolma_dask.pages.survey import Findings, Survey, View, left_out_notes, make_view, partial_bounds
from dolma_dask.pages.thresholds import PageThresholds, find_thresholds, threshold_tables, thresholds_part
from dolma_dask.questions.what_if.answer import WhatIf
from dolma_dask.rules.tally import Tally

if TYPE_CHECKING:
    from dolma_dask.pages.verb import ReportOptions

SHOWN_SOURCES = 200
"""Rows of the table of sources; the rest share one more row."""


class Reading(Struct, frozen=True):
    """Findings of the pass over the documents of a dataset."""

    data: ReportData
    survey: Survey
    findings: Findings
    notes: tuple[str, ...]


class DatasetContent(Struct, frozen=True):
    """A dataset, its history, and how its documents are read."""

    listed: Dataset
    history: History
    origin: Origin
    view: View
    recorded: RecordedContent
    thresholds: PageThresholds

    @property
    def root(self) -> str:
        """Dataset that is read."""
        return self.view.dataset.root

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for a person before anything is read."""
        return (*self.history.notes, *self.origin.notes, *self.view.notes)

    @property
    def shards(self) -> tuple[str, ...]:
        """Shards that are read."""
        return tuple(shard.path for shard in self.view.dataset.shards)

    def would(self) -> str:
        """Say what the page would be made of."""
        steps = ", ".join(f"{step.verb} in {shown_name(step.root)}" for step in self.history.steps) or "none"
        return f"would read {counted(len(self.view.survey.keys), 'signal')} of {shown_name(self.root)}; journals: {steps}"

    def draw(self, run: RunOptions) -> Page:
        """Read the documents and draw the page."""
        from dolma_dask.pages import (
            page,  # brings Bokeh along, which takes half a second: not for a rehearsal
        )

        found = self.read(run)
        counts = {
            "documents_in": found.findings.documents,
            "signals": len(found.data.signals),
            "stages": len(found.data.stages),
        }
        notes = (*self.notes, *found.notes)
        return Page(page.render(found.data), page.write_json(found.data), counts, len(self.shards), notes)

    def read(self, run: RunOptions) -> Reading:
        """Read the documents and put the content of a page together."""
        survey = replace(self.view.survey, counts_drops=self.recorded.drops is None)
        findings = fold(survey, self.view.shards(), run)
        survey = survey.without(
            [key for key, name in self.view.sets_of_keys.items() if name in findings.left_out]
        )
        changed = outdated(self.recorded.selection, findings.inputs)
        answer, why_not = self.thresholds.answer(run, self.recorded.data.stages)
        left_out = (*left_out_notes(self.root, findings.left_out), *filter(None, [why_not]))
        data = self._data(survey, findings, answer)
        data = replace(data, stages=self._stages(findings, changed), left_out=(*self.view.notes, *left_out))
        return Reading(data, survey, findings, (*left_out, *filter(None, [changed])))

    def _data(self, survey: Survey, findings: Findings, answer: WhatIf | None) -> ReportData:
        """Put together what the journals, the documents and the thresholds say."""
        recorded, thresholds = self.recorded, self.thresholds
        kept = findings.kept_signals if survey.parts else findings.signals
        drops = recorded.drops or findings.drops
        return replace(
            recorded.data,
            sources=source_rows(survey, drops, tokens_by_source(recorded.token_steps, findings)),
            signals=signal_rows(survey, findings),
            rules=rule_rows(survey, drops, recorded.selection),
            beyond=beyond_published(kept, shown_names(survey.keys), survey.cut),
            junk=junk_rows(survey.limits, findings, kept),
            junk_documents=findings.junk,
            examples=[
                near
                for bound in survey.bounds
                for side in SIDES
                for near in findings.near.get((bound, side), ())
            ],
            clusters=cluster_examples(recorded.similar),
            remarks=(
                *recorded.data.remarks,
                *remarks(recorded.selection, bool(survey.parts), drops.kept[0]),
            ),
            quarantine=quarantine_rows(
                recorded.quarantine,
                {stem(shard): source for shard, source in findings.single_sources.items()},
            ),
            results=(
                *threshold_tables(
                    None if thresholds.is_rule else answer, thresholds.is_used, thresholds.is_whole
                ),
                *recorded.data.results,
            ),
            thresholds=thresholds_part(answer, thresholds.is_used, thresholds.is_rule),
        )

    def _stages(self, findings: Findings, note: str | None) -> list[StageRow]:
        """Return the rows of the verbs, that of the selection with a note; of a dataset that other tools made what was read of it."""
        rows, selection = list(self.recorded.data.stages), self.recorded.selection
        if not rows:
            return [
                StageRow(
                    verb="read",
                    documents_in=findings.rows,
                    documents_out=findings.documents,
                    text_bytes=findings.text_bytes,
                    shards=len(self.shards),
                    bad_records=findings.bad,
                    note="no journal: counted for this page",
                )
            ]
        if note and selection:
            row = rows[selection.stage]
            rows[selection.stage] = replace(row, note="; ".join(filter(None, (row.note, note))))
        return rows


def dataset_content(
    listed: Dataset, name: str, tokens: tuple[str, ...], options: "ReportOptions", is_compared: bool = False
) -> DatasetContent:
    """Find the history of a dataset and what it was selected from; `name` is what a reader should see.

    One that is compared needs no thresholds and no texts; its own signals come first, where it has any.
    """
    title, examples = (None, 0) if is_compared else (options.title, options.examples)
    history = read_history(listed.root, tokens)
    origin = find_origin(listed, history, options.source)
    if is_compared and origin.dataset.root != listed.root:
        origin = _own(listed, history, origin)
    dedupe = history.step(origin.dataset.root, "dedupe")
    view = make_view(origin, options.selected(origin.dataset), examples, dedupe)
    history = with_own_tokens(history, listed, origin, view.dataset.shards)
    recorded = recorded_content(title, public_name(name), history, origin, view)
    if is_compared:
        recorded, thresholds = replace(recorded, similar=()), PageThresholds()
    else:
        thresholds = find_thresholds(view.dataset, view.survey.parts, examples)
    return DatasetContent(listed, history, origin, view, recorded, thresholds)


def _own(listed: Dataset, history: History, origin: Origin) -> Origin:
    """Return what is read of a dataset that is compared: its own documents if they have signals, or if more than a rule made them what they are."""
    if listed.attributes:
        return Origin(listed, notes=origin.notes)
    recorded = recorded_selection(history, origin)
    if recorded is None or not (recorded.others or recorded.changed or recorded.gap or recorded.otherwise):
        return origin
    name = shown_name(listed.root)
    note = (
        f"more than the rule of {name} decided on its documents: they have no signals until tag has read them"
    )
    return Origin(listed, notes=(*origin.notes, note))


# ------------------------------------------------------------------------------------------------ rows


def rule_rows(survey: Survey, drops: Tally, recorded: RecordedSelection | None = None) -> list[RuleRow]:
    """Make the table of conditions, and of filters as the journal counted them."""
    documents = drops.total[0]
    amounts = np.concatenate([drops.dropped, drops.alone], axis=1).tolist()
    plain = survey.plain or ("",) * len(amounts)
    short = recorded.short if recorded else {}
    names = [
        short.get(str(part), spelled) for part, spelled in zip(survey.parts, survey.spelled, strict=True)
    ]
    rows = [
        _rule_row(rule, documents - amount[0], documents, *amount, words)
        for rule, words, amount in zip(names, plain, amounts, strict=True)
    ]
    if recorded is not None:
        rows += [_rule_row(name, count, recorded.documents_in) for name, count in recorded.filters]
    return rows


def _rule_row(rule: str, matched: int, documents: int, *drops: Any) -> RuleRow:
    return RuleRow(rule, matched, matched / documents if documents else 0.0, *drops)


def signal_rows(survey: Survey, findings: Findings) -> list[SignalHistogram]:
    """Bin every signal for the page."""
    histograms = (
        signal_histogram(
            key,
            findings.signals.get(key, Histogram()),
            findings.kept_signals.get(key, Histogram()) if survey.parts else None,
            tuple(dict.fromkeys((bound.sign, bound.value) for bound in survey.bounds if bound.key == key)),
        )
        for key in survey.keys
    )
    return [
        replace(one, is_cut=one.key in survey.cut, partial=partial_bounds(survey.parts, one.key))
        for one in histograms
    ]


def source_rows(survey: Survey, drops: Tally, tokens: Mapping[str, int] | None = None) -> list[SourceRow]:
    """Make the table of sources, largest first."""
    rows = []
    for source, one in drops.largest(SHOWN_SOURCES).by_group().items():
        kept, size = one.kept if survey.parts else (None, None)
        dropped = tuple(one.dropped[:, 0].tolist())
        rows.append(
            SourceRow(source, *one.total, kept, size, tokens.get(source) if tokens else None, dropped)
        )
    return rows


def tokens_by_source(steps: Sequence[Step], findings: Findings) -> dict[str, int]:
    """Add up the tokens of each source; nothing if some shard is of several sources, or was cut from several."""
    sources = {stem(shard): source for shard, source in findings.single_sources.items()}
    counted_by = next((step for step in steps if step.verb == "ragged"), None)
    tokens: Counter[str] = Counter()
    for record in counted_by.records if counted_by else ():
        source = sources.get(stem(record.shard))
        if source is None or "tokens" not in record.counts:
            return {}
        tokens[source] += int(record.counts["tokens"])
    return dict(tokens)
