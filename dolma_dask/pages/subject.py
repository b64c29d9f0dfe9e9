"""The page of one dataset: its journals, one pass over the documents that it was selected from, and the thresholds beside them."""

from dataclasses import dataclass, replace

from dolma_dask.dataset import Dataset
from dolma_dask.display import counted, shown_name
from dolma_dask.engine.fold import fold
from dolma_dask.options.groups import RunOptions, ShardOptions
from dolma_dask.pages.content import (
    RecordedContent,
    known_content,
    outdated,
    recorded_selection,
    report_data,
)
from dolma_dask.pages.history import (
    History,
    Origin,
    find_origin,
    public_name,
    read_history,
)
from dolma_dask.pages.model import ReportData
from dolma_dask.pages.record import Page
from dolma_dask.pages.survey import Findings, Survey, View, left_out_notes, make_view
from dolma_dask.pages.thresholds import Found, find_thresholds


@dataclass(frozen=True)
class Reading:
    """Findings of the pass over the documents of a dataset."""

    data: ReportData
    survey: Survey
    findings: Findings
    notes: tuple[str, ...]


@dataclass(frozen=True)
class PageDataset:
    """A dataset, its history, and how its documents are read."""

    listed: Dataset
    history: History
    origin: Origin
    view: View
    known: RecordedContent
    thresholds: Found

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

    def read(self, run: RunOptions) -> Reading:
        """Read the documents and put the content of a page together."""
        survey = replace(self.view.survey, counts_drops=self.known.drops is None)
        findings = fold(survey, self.view.shards(), run)
        survey = survey.without(
            [key for key, name in self.view.sets_of_keys.items() if name in findings.left_out]
        )
        changed = outdated(self.known.recorded, findings.inputs)
        answer, why_not = self.thresholds.answer(run, self.known.data.stages)
        left_out = (*left_out_notes(self.root, findings.left_out), *filter(None, [why_not]))
        shards, unread = len(self.view.dataset.shards), (*self.view.notes, *left_out)
        is_used = self.thresholds.is_used
        data = report_data(self.known, shards, survey, findings, changed, unread, answer, is_used)
        return Reading(data, survey, findings, (*left_out, *filter(None, [changed])))

    def draw(self, run: RunOptions) -> Page:
        """Read the documents and draw the page."""
        # brings Bokeh along, which takes half a second: not for --help, nor where the page is there
        from dolma_dask.pages import page

        found = self.read(run)
        data = found.data
        counts = {
            "documents_in": found.findings.documents,
            "signals": len(data.signals),
            "stages": len(data.stages),
        }
        notes = (*self.notes, *found.notes)
        return Page(page.render(data), page.write_json(data), counts, len(self.shards), notes)


def subject(
    listed: Dataset,
    name: str,
    tokens: tuple[str, ...],
    options: ShardOptions,
    *,
    title: str | None = None,
    source: str | None = None,
    examples: int = 0,
    is_compared: bool = False,
) -> PageDataset:
    """Find the history of a dataset and what it was selected from; `name` is what a reader should see.

    One that is compared needs no thresholds and no texts; its own signals come first, where it has any.
    """
    history = read_history(listed.root, tokens)
    origin = find_origin(listed, history, source)
    if is_compared and origin.dataset.root != listed.root:
        origin = _own(listed, history, origin)
    view = make_view(origin, options.selected(origin.dataset), examples)
    known = known_content(title, public_name(name), history, origin, view)
    if is_compared:
        return PageDataset(listed, history, origin, view, replace(known, similar=()), Found())
    found = find_thresholds(view.dataset, view.survey.parts, examples)
    return PageDataset(listed, history, origin, view, known, found)


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
