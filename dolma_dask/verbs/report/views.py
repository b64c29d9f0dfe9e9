"""What the page works out from a report: totals, the funnel, example groups, and a view of each signal.

Plain arithmetic over the records of `dolma_dask.verbs.report.model`; nothing here knows HTML except the figure's JSON, which is made safe to stand in a
page where it is made.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from dolma_dask.verbs.report import plots
from dolma_dask.verbs.report.model import Example, ResultTable, SignalHistogram, StageRow


@dataclass(frozen=True)
class Totals:
    """First and last known numbers of the run."""

    documents_in: int | None
    documents_out: int | None
    text_in: int | None
    text_out: int | None
    bytes_out: int | None
    tokens: int | None
    seconds: float | None
    failed: int
    bad_records: int


def totals(stages: Sequence[StageRow]) -> Totals:
    """Sum up a run: what went into its first verb, what came out of its last one that counted it."""
    documents = [n for stage in stages for n in (stage.documents_in, stage.documents_out) if n is not None]
    text = [stage.text_bytes for stage in stages if stage.text_bytes is not None]
    tokens = [stage.tokens for stage in stages if stage.tokens is not None]
    size = [stage.bytes_out for stage in stages if stage.bytes_out is not None]
    times = [stage.seconds for stage in stages if stage.seconds is not None]
    return Totals(
        documents[0] if documents else None,
        documents[-1] if documents else None,
        text[0] if text else None,
        text[-1] if text else None,
        size[-1] if size else None,
        tokens[-1] if tokens else None,
        math.fsum(times) if times else None,
        sum(stage.failed for stage in stages),
        sum(stage.bad_records for stage in stages),
    )


@dataclass(frozen=True)
class Bar:
    """One bar of the funnel: the number, its share of the first known one, and its width in percent of the widest."""

    value: int | None
    share: float | None
    width: float


@dataclass(frozen=True)
class FunnelRow:
    """One stage of the funnel."""

    verb: str
    documents: Bar
    text: Bar
    tokens: Bar


def funnel(stages: Sequence[StageRow]) -> list[FunnelRow]:
    """Lay out documents, text and tokens after every stage, headed by what went into the first one."""
    if not stages:
        return []
    verbs = [stage.verb for stage in stages]
    documents = [stage.documents_out for stage in stages]
    text = [stage.text_bytes for stage in stages]
    tokens = [stage.tokens for stage in stages]
    if stages[0].documents_in is not None:
        verbs, documents = ["input", *verbs], [stages[0].documents_in, *documents]
        text, tokens = [None, *text], [None, *tokens]
    return [FunnelRow(*row) for row in zip(verbs, _bars(documents), _bars(text), _bars(tokens), strict=True)]


def _bars(values: Sequence[int | None]) -> list[Bar]:
    known = [value for value in values if value is not None]
    first, most = (known[0], max(known)) if known else (0, 0)
    return [
        Bar(
            value,
            value / first if value is not None and first else None,
            round(100 * (value or 0) / most, 2) if most else 0.0,
        )
        for value in values
    ]


@dataclass(frozen=True)
class ExampleGroup:
    """The examples on both sides of one rule."""

    rule: str
    outside: list[Example]
    inside: list[Example]


def example_groups(examples: Sequence[Example]) -> list[ExampleGroup]:
    """Gather the examples by rule, in the order in which the rules first appear."""
    groups: dict[str, ExampleGroup] = {}
    for example in examples:
        group = groups.setdefault(example.rule, ExampleGroup(example.rule, [], []))
        (group.inside if example.kind == "just inside" else group.outside).append(example)
    return list(groups.values())


def sections(results: Sequence[ResultTable]) -> list[tuple[str, list[ResultTable]]]:
    """Gather the tables by section, in the order in which the sections first appear."""
    found: dict[str, list[ResultTable]] = {}
    for table in results:
        found.setdefault(table.section, []).append(table)
    return list(found.items())


@dataclass(frozen=True)
class SignalView:
    """One signal as the page needs it; `figure` is None when there is nothing to draw."""

    number: int
    prefix: str
    name: str
    signal: SignalHistogram
    kept: int | None
    drawn: list[bool]
    outlines: dict[str, str]
    figure: Markup | None


def signal_views(signals: Sequence[SignalHistogram]) -> list[SignalView]:
    """Prepare every signal for the page: its plot, outline, and which thresholds lie within the plot."""
    items = map(script_json, plots.figure_items([s for s in signals if len(s.counts)]))
    return [
        SignalView(
            number,
            *split_key(signal.key),
            signal,
            None if signal.kept_counts is None else int(signal.kept_counts.sum()),
            [plots.inside(bound, signal) for _, bound in signal.threshold],
            outlines(signal),
            next(items) if len(signal.counts) else None,
        )
        for number, signal in enumerate(signals, 1)
    ]


def split_key(key: str) -> tuple[str, str]:
    """Split ``experiment__tagger__type`` into what precedes the type, and the type."""
    before, separator, name = key.rpartition("__")
    return (before + separator, name) if name else ("", key)


def outlines(signal: SignalHistogram, width: int = 120, height: int = 26) -> dict[str, str]:
    """Outline the histogram as two SVG paths, ``all`` and ``kept``, in a box of `width` by `height`."""
    kept = signal.counts if signal.kept_counts is None else signal.kept_counts
    return {"all": _path(signal.counts, signal, width, height), "kept": _path(kept, signal, width, height)}


def _path(counts: Any, signal: SignalHistogram, width: int, height: int) -> str:
    most = int(signal.counts.max(initial=0))
    if not most:
        return ""
    ends = plots.positions(signal.edges, signal)
    x = (ends - ends[0]) / (ends[-1] - ends[0]) * width
    y = height - counts / most * height
    steps = "".join(f"V{y[i]:.1f}H{x[i + 1]:.1f}" for i in range(len(counts)))
    return f"M0 {height}{steps}V{height}Z"


def script_json(value: Any) -> Markup:
    """Return JSON that can stand inside a script element: no ``<``, ``>`` or ``&`` in it."""
    text = json.dumps(value, separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))
