"""The page that compares two datasets, in the language of the report, and the same content as JSON.

Plots are outlines of both sides as SVG: the page needs no Bokeh, and has some 50 kB.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

from dolma_dask.display import byte_size, counted, isolated, percent, real
from dolma_dask.pages import page
from dolma_dask.pages.model import ComparisonPart, ReportData, RuleRow, SignalChange
from dolma_dask.pages.names import key_name, shown_names
from dolma_dask.pages.outlines import is_drawn, overlay
from dolma_dask.pages.story import Chapter, totals
from dolma_dask.pages.words import short
from dolma_dask.results.answer import plain
from dolma_dask.results.table import Column, Kind, Table
from dolma_dask.rules.signal_names import short_name
from dolma_dask.verbs.dedupe.summary import BY_SOURCE

FORMAT, FORMAT_VERSION = "dolma_dask.comparison", 1

MAX_DRAWN = 6
"""Plots that are shown at first: those of the signals that have changed most."""


def render(data: ComparisonPart) -> str:
    """Draw the comparison as one self-contained HTML page; write it as UTF-8."""
    return page.render_page(
        "compare.html.j2",
        data.title,
        [],
        [],
        version=data.after.version,
        data=data,
        names=names(data),
        copies=bool(duplicates(data.before) or duplicates(data.after)),
        chapters=chapters(data),
        tables={
            "whole": whole_table(data),
            "sources": source_table(data),
            "rules": rule_table(data),
            "options": option_table(data),
            "signals": signal_table(data),
            "verbs": verb_table(data),
        },
        drawn=[change for change in data.signals if is_drawn(change.before, change.after)],
        most=MAX_DRAWN,
        overlay=lambda change: overlay(change.before, change.after),
        key_name=lambda key: key_name(key, _names(data)),
        words=plot_words,
    )


def write_json(data: ComparisonPart) -> bytes:
    """Return the content of the page as UTF-8 JSON."""
    return page.json_bytes({"format": FORMAT, "format_version": FORMAT_VERSION, **plain(data)})


def names(data: ComparisonPart) -> tuple[str, str]:
    """Return what both datasets are called."""
    return data.before.dataset, data.after.dataset


# ------------------------------------------------------------------------------------------------ what is said


def chapters(data: ComparisonPart) -> dict[str, Chapter]:
    """Return the chapters that have something to say."""
    found = [Chapter("change", "What is different", tuple(_whole_words(data)))]
    if data.options or rule_table(data).rows:
        found.append(Chapter("options", "Rules and options", tuple(_option_words(data))))
    if source_table(data).rows:
        found.append(Chapter("sources", "Sources", ()))
    if data.signals or data.only_before or data.only_after:
        found.append(Chapter("signals", "Signals", tuple(_signal_words(data))))
    if verb_table(data).rows:
        found.append(Chapter("cost", "What it cost", ()))
    return {chapter.id: chapter for chapter in found}


def _whole_words(data: ComparisonPart) -> Iterator[str]:
    before, after = map(isolated, names(data))
    old, new = documents(data.before), documents(data.after)
    if old == new:
        yield f"{after} has as many documents as {before}: {new:,}."
    else:
        change = percent(abs(new - old), old) if old else ""
        more = "more" if new > old else "fewer"
        yield f"{after} has {counted(new, 'document')}, {abs(new - old):,} {more} than {before}{f' ({change})' if change else ''}."
    texts = text_bytes(data.before), text_bytes(data.after)
    if texts[0] is not None and texts[1] is not None and texts[0] != texts[1]:
        more = "more" if texts[1] > texts[0] else "less"
        yield f"It has {byte_size(abs(texts[1] - texts[0]))} {more} text."
    most = max(data.signals, key=lambda change: change.distance or 0.0, default=None)
    if most is not None and most.distance:
        yield f"The values that have changed most are those of {_key(most)} (distance {real(most.distance)})."


def _option_words(data: ComparisonPart) -> Iterator[str]:
    if not data.options:
        yield "All options of both are the same."


def _signal_words(data: ComparisonPart) -> Iterator[str]:
    same = sum(not change.change for change in data.signals)
    if data.signals:
        yield f"{counted(len(data.signals), 'signal')} of both can be compared{f'; {same:,} did not change' if same else ''}."
        yield "The distance is the largest difference between the shares of documents below any one value: 0 is the same, 1 has nothing in common."
        yield from _aside_words(data)
    elif data.only_before and data.only_after:
        yield "No signal is in both, so no values can be compared."
    for name, only in zip(names(data), (data.only_before, data.only_after), strict=True):
        if only:
            some = ", ".join(isolated(short(key)) for key in only[:5])
            yield f"Only {isolated(name)} has {counted(len(only), 'signal')}: {some}{f' and {len(only) - 5:,} more' if len(only) > 5 else ''}."


def _aside_words(data: ComparisonPart) -> Iterator[str]:
    """Say what has become of missing and of infinite values, which are no part of distances."""
    counts: tuple[Literal["nulls", "infinite"], ...] = ("nulls", "infinite")
    for count in counts:
        word = "missing" if count == "nulls" else "infinite"
        if not any(getattr(side, count) for change in data.signals for side in (change.before, change.after)):
            continue
        moved = [change for change in data.signals if change.share_change(count)]
        if not moved:
            yield f"The share of {word} values, which are no part of it, is the same in each."
            continue
        most = max(moved, key=lambda change: change.share_change(count))
        sides = [
            f"{getattr(side, count):,} of {counted(side.n + side.nulls, 'document')} in {isolated(name)} ({percent(getattr(side, count), side.n + side.nulls)})"
            for side, name in zip((most.before, most.after), names(data), strict=True)
        ]
        yield (
            f"The share of {word} values, which are no part of it, changed in {counted(len(moved), 'signal')}, most in {_key(most)}: "
            f"{sides[0]}, {sides[1]}."
        )
    without = sum(change.distance is None for change in data.signals)
    if without:
        yield f"{counted(without, 'signal')} {'has' if without == 1 else 'have'} no finite value on one side or both, and so no distance."


def _names(data: ComparisonPart) -> dict[str, str]:
    return shown_names(change.before.key for change in data.signals)


def _key(change: SignalChange) -> str:
    return isolated(short(short_name(change.before.key)))


# ------------------------------------------------------------------------------------------------ numbers of a side


def documents(data: ReportData) -> int:
    """Return the documents of a dataset: those that its rule keeps, if it was selected by one."""
    return sum(row.documents if row.kept_documents is None else row.kept_documents for row in data.sources)


def text_bytes(data: ReportData) -> int | None:
    """Return the bytes of their text; None if they are not known of all sources."""
    sizes = [row.text_bytes if row.kept_documents is None else row.kept_text_bytes for row in data.sources]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def duplicates(data: ReportData) -> dict[str, int]:
    """Return the copies that each set of flags marks."""
    return {
        f"Copies marked by {one.title.split(' in ')[0]}": sum(int(row[2] or 0) for row in one.rows)
        for one in data.results
        if one.columns == BY_SOURCE
    }


# ------------------------------------------------------------------------------------------------ tables


def _sides(data: ComparisonPart, kind: Kind, change: Kind = "change") -> tuple[Column, ...]:
    before, after = names(data)
    return Column(before, kind, is_data=True), Column(after, kind, is_data=True), Column("Change", change)


def _pair(before: float | None, after: float | None) -> tuple[float | None, float | None, float | None]:
    return before, after, None if before is None or after is None else after - before


def whole_table(data: ComparisonPart) -> Table:
    """Make the table of sums; each row has a unit of its own."""
    sums = totals(data.before), totals(data.after)
    copies = duplicates(data.before), duplicates(data.after)
    rows: list[tuple[str, Any, Any, Kind]] = [
        ("Documents", documents(data.before), documents(data.after), "integer"),
        ("Text", text_bytes(data.before), text_bytes(data.after), "size"),
        ("Tokens", sums[0].tokens, sums[1].tokens, "integer"),
        *((name, copies[0].get(name), copies[1].get(name), "integer") for name in dict.fromkeys((*copies[0], *copies[1]))),
        ("Failed shards and bad records", sums[0].wrong, sums[1].wrong, "integer"),
        ("Work", sums[0].seconds, sums[1].seconds, "seconds"),
    ]  # fmt: skip
    columns = (
        Column("", "name"),
        *_sides(data, "mixed", "mixed"),
        Column("Change in percent", "percent_change"),
    )
    cells = [
        (
            name,
            *((value, kind) for value in (before, after)),
            (_pair(before, after)[2], _CHANGE[kind]),
            _relative(before, after),
        )
        for name, before, after, kind in rows
        if before is not None or after is not None
    ]
    return Table("Sums", columns, cells)


_CHANGE: dict[str, Kind] = {"integer": "change", "size": "size_change", "seconds": "seconds_change"}


def _relative(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None or not before else after / before - 1


def source_table(data: ComparisonPart) -> Table:
    """Make the table of sources, those with the largest change first."""
    sides = [
        {
            row.source: (row.documents, row.text_bytes) if row.kept_documents is None else (row.kept_documents, row.kept_text_bytes)
            for row in side.sources
        }
        for side in (data.before, data.after)
    ]  # fmt: skip
    rows = []
    for source in dict.fromkeys((*sides[0], *sides[1])):
        (old, old_text), (new, new_text) = (side.get(source, (0, 0)) for side in sides)
        rows.append((source, *_pair(old, new), _relative(old, new), *_pair(old_text, new_text)))
    rows.sort(key=lambda row: (-abs(row[3] or 0), row[0]))
    columns = (
        Column("Source", "name"),
        *_sides(data, "integer"),
        Column("Change in percent", "percent_change"),
        *(Column(f"Text of {isolated(name)}", "size") for name in names(data)),
        Column("Change of text", "size_change"),
    )
    return Table("Sources", columns, rows)


def rule_table(data: ComparisonPart) -> Table:
    """Make the table of what the conditions of both rules drop."""
    sides: list[dict[str, RuleRow]] = [
        {row.rule: row for row in side.rules if row.dropped is not None} for side in (data.before, data.after)
    ]
    rows = [
        (rule, *(f"{side[rule].dropped:,}" if rule in side else "no such rule" for side in sides))
        for rule in dict.fromkeys((*sides[0], *sides[1]))
    ]
    columns = (
        Column("Rule", "name"),
        *(Column(f"Drops in {isolated(name)}", "name") for name in names(data)),
    )
    return Table("What rules drop", columns, rows)


def option_table(data: ComparisonPart) -> Table:
    """Make the table of options that differ."""
    columns = (
        Column("Verb", "name"),
        Column("Option", "name"),
        *(Column(name, "words", is_data=True) for name in names(data)),
    )
    rows = [(row.verb, row.option, row.before, row.after) for row in data.options]
    return Table("Options that differ", columns, rows)


def signal_table(data: ComparisonPart) -> Table:
    """Make the table of all signals of both, with their quantiles."""
    before, after = names(data)
    shares = (("5 %", 0.05), ("Median", 0.5), ("95 %", 0.95))
    columns = (
        Column("Signal", "drawing"),
        Column("Distance", "real"),
        *(Column(f"{words}, {isolated(name)}", "real") for words, _ in shares for name in (before, after)),
        *(
            Column(f"{words}, {isolated(name)}", is_quiet=True)
            for words in ("Missing", "Infinite")
            for name in (before, after)
        ),
    )
    shown = _names(data)
    rows = [
        (
            key_name(change.before.key, shown),
            change.distance,
            *(side.quantiles.get(share) for _, share in shares for side in (change.before, change.after)),
            *(side.nulls for side in (change.before, change.after)),
            *(side.infinite for side in (change.before, change.after)),
        )
        for change in data.signals
    ]
    return Table("Signals", columns, rows)


def verb_table(data: ComparisonPart) -> Table:
    """Make the table of the time that each verb took."""
    sides = [Counter[str](), Counter[str]()]
    for side, spent in zip((data.before, data.after), sides, strict=True):
        for row in side.stages:
            spent[row.verb] += row.seconds or 0  # type: ignore[assignment]
    rows = [
        (verb, *_pair(*(side.get(verb) for side in sides))) for verb in dict.fromkeys((*sides[0], *sides[1]))
    ]
    return Table("Time", (Column("Verb", "name"), *_sides(data, "seconds", "seconds_change")), rows)


# ------------------------------------------------------------------------------------------------ plots


def plot_words(data: ComparisonPart, change: SignalChange) -> str:
    """Say what a plot shows to those who do not see it."""
    medians = [real(side.quantiles.get(0.5)) for side in (change.before, change.after)]
    before, after = names(data)
    return f"Shares of values of {change.before.key}: the median is {medians[0]} in {before}, {medians[1]} in {after}"
