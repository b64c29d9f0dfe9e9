"""Parts of a page as its template needs them: tables, the funnel, and the plots of signals and results."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from dolma_dask.display import percent, real
from dolma_dask.figures import axes
from dolma_dask.figures.model import SignalHistogram
from dolma_dask.pages.markup import beginning, breakable, folded, visible
from dolma_dask.pages.model import ReportData, ResultTable, RuleRow, StageRow
from dolma_dask.pages.story import CHAPTER_OF, costliest, makes_rows
from dolma_dask.pages.tables import Column, Table, by_looks, table

MOST_PLOTS = 8
"""Plots of signals without a bound that are shown at first, if there are no more."""

MOST_HEATED = 8
"""Rules that have a column in the table of sources."""


# ------------------------------------------------------------------------------------------------ the funnel


class Bar(NamedTuple):
    """A bar of the funnel: a number, and its share of the first one."""

    value: int
    share: float


class Step(NamedTuple):
    """A line of the funnel: documents and text after some verbs."""

    label: str
    documents: Bar
    text: Bar | None


def funnel(stages: Sequence[StageRow]) -> list[Step]:
    """Lay out documents and text wherever their number changes; nothing where it never does."""
    rows = [stage for stage in stages if makes_rows(stage)]
    lines: list[tuple[str, int, int | None]] = []
    if rows and rows[0].documents_in is not None:
        lines.append(("came in", rows[0].documents_in, None))
    for stage in stages:
        is_same = bool(lines) and lines[-1][1] == stage.documents_out
        if stage.documents_out is None or not (is_same or makes_rows(stage)):
            continue
        if not lines or lines[-1][1] != stage.documents_out:
            lines.append((f"after {stage.verb}", stage.documents_out, stage.text_bytes))
        elif lines[-1][2] is None:
            lines[-1] = (*lines[-1][:2], stage.text_bytes)
    most_text = max((text or 0 for *_, text in lines), default=0)
    most = max((documents for _, documents, _ in lines), default=0)
    return [
        Step(label, Bar(documents, documents / most), Bar(text, text / most_text) if text else None)
        for label, documents, text in lines
        if most and len(lines) > 1
    ]


# ------------------------------------------------------------------------------------------------ tables


def problem_tables(data: ReportData) -> list[Table]:
    """Make the tables of failed shards and quarantined records."""
    name, words = Column("Verb", "name"), Column("Reason", "words")
    failures = [(row.verb, row.shard, row.error) for row in data.failures]
    reasons = [(row.verb, row.reason, row.records) for row in data.quarantine]
    made = (
        table("Failed shards", (name, Column("Shard", "name"), Column("Error", "words")), failures),
        table("Quarantined records", (name, words, Column("Records")), reasons),
    )
    return [one for one in made if one.rows]


def source_table(data: ReportData) -> Table:
    """Make the table of what came in."""
    total = sum(row.documents for row in data.sources)
    columns = (
        Column("Source", "name"),
        Column("Documents"),
        Column("Share", "share"),
        Column("Text", "size"),
        Column("Text of a document", "size"),
    )
    rows = [
        (row.source, row.documents, _share(row.documents, total), row.text_bytes, _whole(row.text_bytes, row.documents))
        for row in data.sources
    ]  # fmt: skip
    return table("Sources", columns, rows)


def rule_table(data: ReportData) -> Table:
    """Make the table of what each rule drops, the most costly first, then of what filters match."""
    ordered = costliest(data.rules)
    most = max((row.dropped or 0 for row in ordered), default=0)
    rest = [row for row in data.rules if row.dropped is None]
    columns = (
        Column("Rule", "drawing"),
        Column("Drops"),
        Column("In all, and by it alone", "bar"),
        Column("Share", "share"),
        Column("By it alone"),
        Column("Text by it alone", "size"),
        Column("Matches"),
    )
    rows = [
        (
            _rule_cell(row),
            row.dropped,
            (_share(row.dropped, most), _share(row.only, most)) if row.dropped is not None else None,
            _share(row.dropped, row.dropped + row.matched_documents) if row.dropped is not None else None,
            row.only,
            row.only_bytes,
            row.matched_documents if row.dropped is None or not row.matched_documents else None,
        )
        for row in (*ordered, *rest)
    ]
    return table("What each rule drops", columns, rows)


def _rule_cell(row: RuleRow) -> Markup:
    words = Markup('<span class="plain">{}</span>').format(visible(row.plain)) if row.plain else Markup("")
    return folded(row.rule, _CODE) + words


_CODE = Markup("<code>{}</code>")


def kept_table(data: ReportData) -> Table | None:
    """Make the table of what is kept of each source, and the share that each rule drops of it; None without a rule."""
    if not any(row.kept_documents is not None for row in data.sources):
        return None
    shown = [row for row in costliest(data.rules) if row.dropped][:MOST_HEATED]
    columns = (
        Column("Source", "name"),
        Column("Documents"),
        Column("Kept"),
        Column("Kept share", "share"),
        Column("Kept text", "size"),
        *(Column(row.plain or row.rule[:60], "heat") for row in shown),
    )
    rows = [
        (
            row.source,
            row.documents,
            row.kept_documents,
            _share(row.kept_documents, row.documents),
            row.kept_text_bytes,
            *(
                _share(row.dropped[data.rules.index(rule)], row.documents) if row.dropped else None
                for rule in shown
            ),
        )
        for row in data.sources
    ]
    return table("Kept documents by source", columns, rows)


def token_table(data: ReportData) -> Table | None:
    """Make the table of tokens by source; None where they are not known."""
    rows = [
        (row.source, row.kept_documents, row.tokens, _share(row.tokens, sum(one.tokens or 0 for one in data.sources)),
         row.kept_text_bytes / row.tokens if row.kept_text_bytes and row.tokens else None)
        for row in data.sources
        if row.tokens is not None
    ]  # fmt: skip
    columns = (
        Column("Source", "name"),
        Column("Documents"),
        Column("Tokens"),
        Column("Share", "share"),
        Column("Bytes of text per token", "real"),
    )
    return table("Tokens by source", columns, rows) if rows else None


def shard_table(data: ReportData) -> Table:
    """Make the table of the token shards."""
    columns = (
        Column("Verb", "name"),
        Column("Tokens"),
        Column("Shards"),
        Column("Size", "size"),
        Column("Note", "words"),
    )
    rows = [
        (row.verb, row.tokens, row.shards, row.bytes_out, row.note) for row in data.stages if row.tokens is not None
    ]  # fmt: skip
    return table("Token shards", columns, rows)


def stage_table(data: ReportData) -> Table:
    """Make the table of what each verb took."""
    columns = (
        Column("Verb", "name"),
        Column("Documents in"),
        Column("out"),
        Column("Shards"),
        Column("Time", "seconds"),
        Column("CPU time", "seconds"),
        Column("Text per second", "speed"),
        Column("Written", "size"),
        Column("Failed", is_quiet=True),
        Column("Bad records", is_quiet=True),
        Column("Note", "words"),
    )
    rows = [
        (
            row.verb,
            row.documents_in,
            row.documents_out if row.documents_out != row.documents_in else None,
            row.shards,
            row.seconds,
            row.cpu_seconds,
            row.text_bytes / row.seconds if row.text_bytes and row.seconds else None,
            row.bytes_out or None,
            row.failed,
            row.bad_records,
            row.note,
        )
        for row in data.stages
    ]
    return table("Stages", columns, rows)


def _share(part: int | None, whole: int | None) -> float | None:
    return part / whole if part is not None and whole else None


def _whole(part: int | None, whole: int) -> int | None:
    return round(part / whole) if part is not None and whole else None


# ------------------------------------------------------------------------------------------------ signals and results


@dataclass(frozen=True)
class SignalView:
    """One signal as the page needs it."""

    signal: SignalHistogram
    number: int  # from 1
    kept: int | None
    kept_share: float | None  # None where it tells nothing: it is that of all documents
    drawn: list[bool]  # whether each threshold lies within the plot
    figure: Markup | None  # None: there is nothing to draw


@dataclass(frozen=True)
class ResultView:
    """One table of a result as the page needs it."""

    result: ResultTable
    table: Table
    figure: Markup | None  # None: there is nothing to draw
    number: int  # of the table


def result_views(data: ReportData, items: Iterator[Markup]) -> dict[str, list[ResultView]]:
    """Prepare all results for the page, by chapter; `items` are the figures of those that are drawn."""
    found: dict[str, list[ResultView]] = {}
    for number, one in enumerate(data.results):
        view = ResultView(
            one, by_looks(one.title, one.columns, one.rows), next(items) if one.plot else None, number
        )
        found.setdefault(CHAPTER_OF.get(one.section, "signals"), []).append(view)
    return found


def signal_views(
    signals: Sequence[SignalHistogram], items: Iterator[Markup], usual: float | None = None
) -> list[SignalView]:
    """Prepare every signal for the page; `items` are the figures of those that are drawn, `usual` is the share of all documents that was kept."""
    return [
        SignalView(
            signal,
            number,
            None if signal.kept_counts is None else int(signal.kept_counts.sum()),
            _kept_share(signal, usual),
            [axes.inside(bound, signal) for _, bound in signal.threshold],
            next(items) if is_drawn(signal) else None,
        )
        for number, signal in enumerate(signals, 1)
    ]


def _kept_share(signal: SignalHistogram, usual: float | None) -> float | None:
    if signal.kept_counts is None or not signal.n:
        return None
    share = float(signal.kept_counts.sum()) / signal.n
    return None if usual is not None and percent(share) == percent(usual) else share


def kept_of_all(data: ReportData) -> float | None:
    """Return the share of all documents that was kept; None without a rule."""
    kept = [row.kept_documents for row in data.sources if row.kept_documents is not None]
    return _share(sum(kept), sum(row.documents for row in data.sources)) if kept else None


def plots(views: Sequence[SignalView]) -> tuple[list[SignalView], list[SignalView]]:
    """Return the plots that are shown at first, and those that are folded."""
    deciding = [view for view in views if view.signal.threshold]
    others = [view for view in views if not view.signal.threshold]
    return (list(views), []) if len(views) <= MOST_PLOTS else (deciding, others)


def is_drawn(signal: SignalHistogram) -> bool:
    """Tell whether a plot says something: of flags, which are all 1, it does not."""
    return bool(len(signal.counts)) and signal.min != signal.max


def signal_table(views: Sequence[SignalView]) -> Table:
    """Make the table of all signals, each with its outline."""
    columns = (
        Column("Signal", "drawing"),
        Column("Values by size", "drawing"),
        Column("Values"),
        Column("Missing", is_quiet=True),
        Column("Minimum", "real"),
        Column("Median", "real"),
        Column("Maximum", "real"),
        Column("Kept", "share"),
        Column("Rule keeps", "drawing"),
    )
    return table("Signals", columns, [_signal_row(view) for view in views])


def _signal_row(view: SignalView) -> list[Any]:
    one = view.signal
    link = Markup('<a href="#signal-{}">{}</a>').format(view.number, key_name(one.key))
    bounds = Markup(" ").join(
        Markup("<code>{}\N{NO-BREAK SPACE}{}</code>").format(sign, real(bound))
        for sign, bound in one.threshold
    )
    return [
        link,
        drawing(one),
        one.n,
        one.nulls,
        one.min,
        one.quantiles.get(0.5),
        one.max,
        view.kept_share,
        bounds,
    ]


def drawing(signal: SignalHistogram) -> Markup:
    """Draw a signal as two small outlines: all values, and the kept ones before them."""
    kept = signal.counts if signal.kept_counts is None else signal.kept_counts
    shape = '<svg viewBox="0 0 120 26" width="120" height="26" preserveAspectRatio="none" aria-hidden="true"><path class="dropped" d="{}"/><path class="kept" d="{}"/></svg>'
    return Markup(shape).format(outline(signal.counts, signal), outline(kept, signal))


def outline(counts: npt.NDArray[np.int64], signal: SignalHistogram) -> str:
    """Outline the histogram of some counts as an SVG path in a box of 120 by 26."""
    most = int(signal.counts.max(initial=0))
    if not most or not is_drawn(signal):
        return ""
    ends = axes.positions(signal.edges, signal)
    x = (ends - ends[0]) / (ends[-1] - ends[0]) * 120
    y = 26 - counts / most * 26
    steps = "".join(f"V{y[i]:.1f}H{x[i + 1]:.1f}" for i in range(len(counts)))
    return f"M0 26{steps}V26Z"


def split_key(key: str) -> tuple[str, str]:
    """Split ``experiment__tagger__type`` into what precedes the type, and the type."""
    before, separator, name = key.rpartition("__")
    return (before + separator, name) if name else ("", key)


def key_name(key: str) -> Markup:
    """Write a key with what precedes its type in grey."""
    before, name = map(breakable, map(beginning, split_key(key)))
    return Markup('<span class="prefix">{}</span><wbr><span class="name">{}</span>').format(before, name)
