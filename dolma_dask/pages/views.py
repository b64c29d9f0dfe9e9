"""Parts of a page as its template needs them: tables, the funnel, and the plots of signals and results."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from markupsafe import Markup
from msgspec import Struct

from dolma_dask.display import listed, percent, real
from dolma_dask.figures import axes
from dolma_dask.figures.model import SignalHistogram
from dolma_dask.pages.markup import folded, visible
from dolma_dask.pages.model import ReportData, RuleRow, SourceRow, StageRow
from dolma_dask.pages.names import key_name, shown_names
from dolma_dask.pages.outlines import is_drawn, small_outline
from dolma_dask.pages.story import CHAPTER_OF, costliest, documents_in, makes_rows, reads_raw
from dolma_dask.results.table import Column, Table

MAX_PLOTS = 8
"""Plots of signals without a bound that are shown at first, if there are no more."""

MAX_HEATED = 8
"""Rules that have a column in the table of sources."""


# ------------------------------------------------------------------------------------------------ the funnel


class Bar(NamedTuple):
    """A bar of the funnel: a number, and its share of the first one."""

    value: int
    share: float


class FunnelStep(NamedTuple):
    """A line of the funnel: documents and text after some verbs."""

    label: str
    documents: Bar
    text: Bar | None


def funnel(stages: Sequence[StageRow]) -> list[FunnelStep]:
    """Lay out documents and text wherever their number changes, from the first documents on; nothing where it never does."""
    rows = [stage for stage in stages if makes_rows(stage)]
    lines: list[tuple[str, int, int | None]] = []
    first = documents_in(rows[0]) if rows and not reads_raw(rows[0].verb) else None
    if first is not None:
        lines.append(("came in", first, None))
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
        FunnelStep(label, Bar(documents, documents / most), Bar(text, text / most_text) if text else None)
        for label, documents, text in lines
        if most and len(lines) > 1
    ]


# ------------------------------------------------------------------------------------------------ tables


_FAILURES = (Column("verb", "name"), Column("shard", "name"), Column("error", "words"))
_QUARANTINE = (
    Column("verb", "name"),
    Column("reason", "words"),
    Column("records"),
    Column("file", "name"),
    Column("first row"),
    Column("source", "name"),
)


def problem_tables(data: ReportData) -> list[Table]:
    """Make the tables of failed shards and quarantined records."""
    made = (
        Table.of("Failed shards", _FAILURES, data.failures),
        Table.of("Quarantined records", _QUARANTINE, data.quarantine),
    )
    return [one for one in made if one.rows]


_JUNK = (
    Column("signal", "drawing", lambda row: key_name(row[1].key, row[0])),
    Column("what it is", "words", lambda row: row[1].meaning),
    Column("limit", "real", lambda row: row[1].limit),
    Column("documents above", of=lambda row: row[1].documents),
    Column("share", "share", lambda row: row[1].share),
)


def junk_table(data: ReportData) -> Table:
    """Make the table of signals with documents above their limit."""
    names = shown_names(signal.key for signal in data.signals)
    return Table.of("What may be junk", _JUNK, [(names, row) for row in data.junk])


def source_table(data: ReportData) -> Table:
    """Make the table of what came in."""
    total = sum(row.documents for row in data.sources)
    columns = (
        Column("source", "name"),
        Column("documents"),
        Column("share", "share", lambda row: _share(row.documents, total)),
        Column("text", "size", "text_bytes"),
        Column("text of a document", "size", lambda row: _share(row.text_bytes, row.documents)),
    )
    return Table.of("Sources", columns, data.sources)


def rule_table(data: ReportData) -> Table:
    """Make the table of what each rule drops, the most costly first, then of what filters match."""
    ordered = costliest(data.rules)
    most = max((row.dropped or 0 for row in ordered), default=0)
    columns = (
        Column("rule", "drawing", _rule_cell),
        Column("drops", of="dropped"),
        Column("in all, and by it alone", "bar", lambda row: _bar(row, most)),
        Column("share", "share", lambda row: _share(row.dropped, (row.dropped or 0) + row.matched_documents)),
        Column("by it alone", of="only"),
        Column("text by it alone", "size", "only_bytes"),
        Column("matches", of=_matches),
    )
    rest = [row for row in data.rules if row.dropped is None]
    return Table.of("What each rule drops", columns, [*ordered, *rest])


def _bar(row: RuleRow, most: int) -> tuple[float | None, float | None] | None:
    return None if row.dropped is None else (_share(row.dropped, most), _share(row.only, most))


def _matches(row: RuleRow) -> int | None:
    """Return the documents that a rule matches, where its drops do not say it."""
    return row.matched_documents if row.dropped is None or not row.matched_documents else None


def _rule_cell(row: RuleRow) -> Markup:
    words = Markup('<span class="plain">{}</span>').format(visible(row.plain)) if row.plain else Markup("")
    return folded(row.rule, _CODE) + words


_CODE = Markup("<code>{}</code>")


def kept_table(data: ReportData) -> Table | None:
    """Make the table of what is kept of each source, and the share that each rule drops of it; None without a rule."""
    if not any(row.kept_documents is not None for row in data.sources):
        return None
    shown = [row for row in costliest(data.rules) if row.dropped][:MAX_HEATED]
    columns = (
        Column("source", "name"),
        Column("documents"),
        Column("kept", of="kept_documents"),
        Column("kept share", "share", lambda row: _share(row.kept_documents, row.documents)),
        Column("kept text", "size", "kept_text_bytes"),
        *(_heat_column(rule, data.rules.index(rule)) for rule in shown),
    )
    return Table.of("Kept documents by source", columns, data.sources)


def _heat_column(rule: RuleRow, place: int) -> Column:
    """Return the column of the share of a source that a rule drops."""

    def share(row: SourceRow) -> float | None:
        return _share(row.dropped[place], row.documents) if row.dropped else None

    return Column(rule.plain or rule.rule[:60], "heat", share, is_data=True)


def token_table(data: ReportData) -> Table | None:
    """Make the table of tokens by source; None where they are not known."""
    total = sum(one.tokens or 0 for one in data.sources)
    columns = (
        Column("source", "name"),
        Column("documents", of="kept_documents"),
        Column("tokens"),
        Column("share", "share", lambda row: _share(row.tokens, total)),
        Column(
            "bytes of text per token", "real", lambda row: _share(row.kept_text_bytes or None, row.tokens)
        ),
    )
    rows = [row for row in data.sources if row.tokens is not None]
    return Table.of("Tokens by source", columns, rows) if rows else None


_SHARDS = (
    Column("verb", "name"),
    Column("tokens"),
    Column("shards"),
    Column("size", "size", "bytes_out"),
    Column("note", "words"),
)


def shard_table(data: ReportData) -> Table:
    """Make the table of the token shards."""
    return Table.of("Token shards", _SHARDS, [row for row in data.stages if row.tokens is not None])


_STAGES = (
    Column("verb", "name"),
    Column("documents in"),
    Column("out", of=lambda row: row.documents_out if row.documents_out != row.documents_in else None),
    Column("shards"),
    Column("time", "seconds", "seconds"),
    Column("CPU time", "seconds", "cpu_seconds"),
    Column("text per second", "speed", lambda row: _share(row.text_bytes or None, row.seconds)),
    Column("written", "size", lambda row: row.bytes_out or None),
    Column("failed", is_quiet=True),
    Column("bad records", is_quiet=True),
    Column("note", "words"),
)


def stage_table(data: ReportData) -> Table:
    """Make the table of what each verb took."""
    return Table.of("Stages", _STAGES, data.stages)


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


# ------------------------------------------------------------------------------------------------ signals and results


class SignalView(Struct, frozen=True):
    """One signal as the page needs it."""

    signal: SignalHistogram
    name: Markup
    number: int  # from 1
    kept: int | None
    kept_share: float | None  # None where it tells nothing: it is that of all documents
    drawn: list[bool]  # whether each threshold lies within the plot
    figure: Markup | None  # None: there is nothing to draw


class ResultView(Struct, frozen=True):
    """One table of a result as the page needs it."""

    table: Table
    figure: Markup | None  # None: there is nothing to draw
    number: int  # of the table


def result_views(data: ReportData, items: Iterator[Markup]) -> dict[str, list[ResultView]]:
    """Prepare all results for the page, by chapter; `items` are the figures of those that are drawn."""
    found: dict[str, list[ResultView]] = {}
    for number, one in enumerate(data.results):
        view = ResultView(one, next(items) if one.plot else None, number)
        found.setdefault(CHAPTER_OF.get(one.section, "signals"), []).append(view)
    return found


def signal_views(
    signals: Sequence[SignalHistogram], items: Iterator[Markup], usual: float | None = None
) -> list[SignalView]:
    """Prepare every signal for the page; `items` are the figures of those that are drawn, `usual` is the share of all documents that was kept."""
    names = shown_names(signal.key for signal in signals)
    return [
        SignalView(
            signal,
            key_name(signal.key, names),
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
    deciding = [view for view in views if view.signal.threshold or view.signal.is_cut]
    others = [view for view in views if not (view.signal.threshold or view.signal.is_cut)]
    return (list(views), []) if len(views) <= MAX_PLOTS else (deciding, others)


def signal_table(views: Sequence[SignalView]) -> Table:
    """Make the table of all signals, each with its outline."""
    return Table.of("Signals", _SIGNALS, views)


def _signal_link(view: SignalView) -> Markup:
    return Markup('<a href="#signal-{}">{}</a>').format(view.number, view.name)


def _bounds(signal: SignalHistogram) -> Markup:
    shape = Markup("<code>{}\N{NO-BREAK SPACE}{}</code>")
    bounds = [shape.format(sign, real(bound)) for sign, bound in signal.threshold]
    return Markup(" ").join([*bounds, *(["in part"] if signal.partial else [])])


def partial_words(signal: SignalHistogram) -> str:
    """Return the bounds that hold together with other conditions, such as those of groups: for each operator the range of its numbers."""
    values: dict[str, list[float]] = {}
    for sign, value in signal.partial:
        values.setdefault(sign, []).append(value)
    return listed(
        [
            f"{sign} {real(min(of))}" + (f" to {real(max(of))}" if max(of) > min(of) else "")
            for sign, of in values.items()
        ]
    )


_SIGNALS = (
    Column("signal", "drawing", _signal_link),
    Column("values by size", "drawing", lambda view: small_outline(view.signal)),
    Column("values", of=lambda view: view.signal.n),
    Column("missing", of=lambda view: view.signal.nulls, is_quiet=True),
    Column("minimum", "real", lambda view: view.signal.min),
    Column("median", "real", lambda view: view.signal.quantiles.get(0.5)),
    Column("maximum", "real", lambda view: view.signal.max),
    Column("kept", "share", "kept_share"),
    Column("rule keeps", "drawing", lambda view: _bounds(view.signal)),
)
