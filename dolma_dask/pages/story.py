"""The chapters of a page, each with sentences that say what its numbers mean. What is not known is not said."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

from dolma_dask.display import byte_size, counted, isolated, percent, seconds
from dolma_dask.pages.model import ReportData, RuleRow, SourceRow, StageRow
from dolma_dask.pages.words import COPIES, short
from dolma_dask.registry import VERBS
from dolma_dask.rules.tally import OTHER_GROUPS
from dolma_dask.verbs.dedupe.summary import BY_SOURCE

CHAPTER_OF = {
    "Checks": "wrong",
    "Thresholds": "dropped",
    "Levels": "dropped",
    "Downsampling": "dropped",
    "Budget": "dropped",
    "Duplicates": "duplicates",
    "Quantiles": "signals",
    "Packed rows": "tokens",
}
"""Chapter that the tables of a section of results stand in; those of other sections stand with the signals."""


class Chapter(Struct, frozen=True):
    """A part of the page."""

    id: str
    title: str
    lead: Sequence[str]  # sentences
    is_alarm: bool = False


class Totals(Struct, frozen=True):
    """Sums of a run; None is unknown. Documents are those that could be read: what raw files had in records is no part of any share."""

    came: int | None  # documents that were selected from
    left: int | None  # documents
    text_before: int | None
    text: int | None
    tokens: int | None
    written: int | None  # bytes, of all stages
    seconds: float | None  # of all tasks
    cpu_seconds: float | None
    failed: int
    bad: int

    @property
    def wrong(self) -> int:
        """Failed shards and bad records."""
        return self.failed + self.bad


def totals(data: ReportData) -> Totals:
    """Sum up a run: the documents that were selected from, and what came out of the last stage that counted it.

    Shares are of the documents that the page counts by source; without these, of those that the first stage had. Stages that add attributes change no documents, and may
    have read some alone.
    """
    made = [stage for stage in data.stages if makes_rows(stage)]
    came = next(iter([*_counts(data.sources, "documents"), *filter(None, map(documents_in, made))]), None)
    documents = _known(made, "documents_out") or _counts(data.sources, "documents")
    texts = _counts(data.sources, "text_bytes") or _known(
        [stage for stage in data.stages if stage.documents_out == came], "text_bytes"
    )
    text = _known(made, "text_bytes") or _counts(data.sources, "text_bytes")
    tokens = _known(data.stages, "tokens")
    sizes, spent = _known(data.stages, "bytes_out"), _known(data.stages, "seconds")
    cpu = [stage.cpu_seconds for stage in data.stages]
    return Totals(
        came=came,
        left=documents[-1] if documents else None,
        text_before=next(iter(texts), None),
        text=text[-1] if text else None,
        tokens=tokens[-1] if tokens else None,
        written=sum(sizes) if sizes else None,
        seconds=math.fsum(spent) if spent else None,
        cpu_seconds=math.fsum(filter(None, cpu)) if cpu and None not in cpu else None,
        failed=max(sum(stage.failed for stage in data.stages), len(data.failures)),
        bad=_bad_records(data),
    )


def _bad_records(data: ReportData) -> int:
    """Count records that could not be read, each once: the same rows of documents are met by every verb that reads them."""
    met = Counter[str]()
    for row in data.quarantine:
        met[row.verb] += row.records
    for stage in data.stages:
        met[stage.verb] = max(met[stage.verb], stage.bad_records)
    raw = [verb for verb in met if reads_raw(verb)]
    return sum(met.pop(verb) for verb in raw) + max(met.values(), default=0)


def reads_raw(verb: str) -> bool:
    """Tell whether a verb reads raw files: it counts their records, of which one may become no document or many."""
    return verb in VERBS and "inputs" in VERBS[verb].reads


def documents_in(stage: StageRow) -> int | None:
    """Return the documents that a stage could read; of raw files those that it made."""
    if reads_raw(stage.verb):
        return stage.documents_out
    return None if stage.documents_in is None else stage.documents_in - stage.bad_records


def makes_rows(stage: StageRow) -> bool:
    """Tell whether a stage makes documents or tokens, or has read all documents for the page; other verbs only look at some."""
    return stage.verb not in VERBS or bool(VERBS[stage.verb].makes)


def _counts(sources: Sequence[SourceRow], name: str) -> list[int]:
    """Return the sum over all sources, if it is known of each."""
    values = [getattr(row, name) for row in sources]
    return [sum(values)] if values and None not in values else []


def _known(stages: Sequence[StageRow], *names: str) -> list[int]:
    values = (getattr(stage, name) for stage in stages for name in names)
    return [value for value in values if value is not None]


def chapters(data: ReportData, has_findings: bool = False) -> dict[str, Chapter]:
    """Return the chapters that have something to say, in their order."""
    first = Chapter("findings", "What to look at first", ()) if has_findings else None
    found = (first, _came(data), _wrong(data), _junk(data), _dropped(data), *_others(data))
    return {chapter.id: chapter for chapter in found if chapter}


def _has(data: ReportData, chapter: str) -> bool:
    return any(CHAPTER_OF.get(table.section, "signals") == chapter for table in data.results)


def _others(data: ReportData) -> Iterator[Chapter]:
    if data.examples:
        words = (
            "For each rule, documents that it only just keeps, and documents that it alone only just drops.",
            "If the dropped ones read better than the kept ones, move the bound.",
        )
        shown = bool(data.clusters) or _has(data, "duplicates")
        copies = any(row.plain.startswith(COPIES) for row in data.rules)
        elsewhere = ("Copies are shown in the next chapter, beside what they are copies of.",)
        yield Chapter("examples", "Examples to read", (*words, *elsewhere) if shown and copies else words)
    if data.clusters or _has(data, "duplicates"):
        yield Chapter("duplicates", "Duplicates", tuple(_duplicate_words(data)))
    if data.signals or data.left_out or _has(data, "signals"):
        yield Chapter("signals", "Signals", tuple(_signal_words(data)))
    if totals(data).tokens is not None or _has(data, "tokens"):
        yield Chapter("tokens", "Tokens and shards", tuple(_token_words(data)))
    if data.stages:
        yield Chapter("cost", "What it cost", tuple(_cost_words(data)))


# ------------------------------------------------------------------------------------------------ what came in, what was wrong


def _came(data: ReportData) -> Chapter:
    return Chapter("sources", "What came in", tuple(_came_words(data)))


def _came_words(data: ReportData) -> Iterator[str]:
    documents, text = sum(row.documents for row in data.sources), 0
    if not data.sources:
        total = totals(data)
        yield (
            "Nothing is known of the documents."
            if total.came is None
            else f"{counted(total.came, 'document')} came in."
        )
        return
    sizes = [row.text_bytes for row in data.sources if row.text_bytes is not None]
    text = sum(sizes) if len(sizes) == len(data.sources) else 0
    yield from _raw_words(data)
    of = f" from {_source_count(data.sources)}" if len(data.sources) > 1 else ""
    came = f"are what {isolated(data.origin)} has" if data.origin else "came in"
    yield f"{counted(documents, 'document')}{of} {came}{f', with {byte_size(text)} of text' if text else ''}."
    first = data.sources[0]
    if len(data.sources) > 1 and documents:
        share = percent(first.documents, documents)
        yield f"The largest source, {_source(first)}, has {first.documents:,} of them ({share})."


def _raw_words(data: ReportData) -> Iterator[str]:
    """Say how many documents became of the records of raw files, where these are other numbers."""
    raw = [
        stage
        for stage in data.stages
        if reads_raw(stage.verb) and stage.documents_in and stage.documents_out is not None
    ]
    records, made = (
        sum(stage.documents_in or 0 for stage in raw),
        sum(stage.documents_out or 0 for stage in raw),
    )
    if records != made:
        yield f"{counted(records, 'record')} of raw files became {counted(made, 'document')}."


def _source(row: SourceRow) -> str:
    return isolated(short(row.source)) or "(none)"


def _source_count(sources: Sequence[SourceRow]) -> str:
    if sources[-1].source == OTHER_GROUPS:
        return f"more than {counted(len(sources) - 1, 'source')}"
    return counted(len(sources), "source")


def _wrong(data: ReportData) -> Chapter:
    total = totals(data)
    alarm = bool(total.wrong or data.unfinished) or any(table.is_alarm for table in data.results)
    return Chapter("problems", "What was wrong", tuple(_wrong_words(data, total)), alarm)


def _wrong_words(data: ReportData, total: Totals) -> Iterator[str]:
    checks = [table for table in data.results if table.section == "Checks"]
    if total.failed:
        yield (
            f"{counted(total.failed, 'shard')} failed. The output is incomplete until {'it is' if total.failed == 1 else 'they are'} done: the same command takes up where it stopped."
        )
    yield from data.unfinished
    if total.bad:
        yield f"{counted(total.bad, 'record')}{_of_read(data, total.bad)} could not be read{_set_aside(total) if data.quarantine else ''}."
    if not (total.wrong or data.unfinished or any(table.is_alarm for table in checks)):
        yield "Nothing: no shard failed, and every record could be read."


def kept_documents(data: ReportData) -> int:
    """Return how many documents the rule of a page keeps; without one, how many there are."""
    return sum(row.documents if row.kept_documents is None else row.kept_documents for row in data.sources)


def _junk(data: ReportData) -> Chapter | None:
    if not data.junk:
        return None
    whole = kept_documents(data)
    are = "is" if data.junk_documents == 1 else "are"
    shared = ", lines of many documents left aside" if any(one.is_shared for one in data.junk) else ""
    words = (
        f"{data.junk_documents:,} of {counted(whole, 'document')} ({percent(data.junk_documents, whole)}) {are} above one limit or more{shared}.",
        "Limits are measured on prose: what a signal finds is no junk where it is wanted, such as code. Read some before you drop them.",
    )
    return Chapter("junk", "What may be junk", words)


def _of_read(data: ReportData, bad: int) -> str:
    """Return the records among which one stage has met all bad ones."""
    stage = next((stage for stage in data.stages if stage.bad_records == bad and stage.documents_in), None)
    return f" of the {stage.documents_in:,} that {isolated(stage.verb)} read" if stage else ""


def _set_aside(total: Totals) -> str:
    return f" and {'stands' if total.bad == 1 else 'stand'} in the quarantine"


# ------------------------------------------------------------------------------------------------ what was dropped


def _dropped(data: ReportData) -> Chapter | None:
    words = tuple(_dropped_words(data))
    if not (words or data.where or data.rules or data.remarks or _has(data, "dropped")):
        return None
    return Chapter("rules", "What was dropped and why", words)


def _dropped_words(data: ReportData) -> Iterator[str]:
    before = sum(row.documents for row in data.sources)
    kept = [row.kept_documents for row in data.sources if row.kept_documents is not None]
    if not kept or len(kept) < len(data.sources):
        yield from _without_rule(data)
        return
    stays = sum(kept)
    yield f"{_kept_words(stays, before, stays == totals(data).left)}{_text_words(data)}."
    if stays < before:
        yield from _most_costly(costliest(data.rules), before)
        yield from _where_most_falls(data)


def _without_rule(data: ReportData) -> Iterator[str]:
    total = totals(data)
    if total.came is None or total.left is None:
        return
    if total.left == total.came:
        yield "Nothing was dropped."
    elif total.left < total.came:
        yield f"{_kept_words(total.left, total.came, True)}."


def _kept_words(kept: int, before: int, is_result: bool) -> str:
    """Say how many documents were kept, or only pass the rule where more than it decided."""
    one, many = ("was kept", "were kept") if is_result else ("passes the rule", "pass the rule")
    return f"{kept:,} of {counted(before, 'document')} {one if 1 in (kept, before) else many} ({percent(kept, before)})"


def _text_words(data: ReportData) -> str:
    """Return the text that was kept, for a sentence."""
    sizes = [(row.text_bytes, row.kept_text_bytes) for row in data.sources]
    known = [(every, kept) for every, kept in sizes if every is not None and kept is not None]
    every, kept = sum(one for one, _ in known), sum(one for _, one in known)
    if len(known) < len(sizes) or not every:
        return ""
    return f", with {byte_size(kept)} of {byte_size(every)} of text ({percent(kept, every)})"


def costliest(rules: Sequence[RuleRow]) -> list[RuleRow]:
    """Return the rules whose drops are counted, the most costly first: by what they drop alone, then by all that they drop."""
    counted_rules = [row for row in rules if row.dropped is not None]
    return sorted(counted_rules, key=lambda row: (-(row.only or 0), -(row.dropped or 0)))


def _most_costly(rules: Sequence[RuleRow], documents: int) -> Iterator[str]:
    if not rules or not rules[0].dropped:
        return
    row = rules[0]
    if len(rules) == 1:
        yield f"One rule decided: it drops {row.plain or 'all for which it does not hold'}."
        return
    what = f" It drops {row.plain}:" if row.plain else " It drops"
    yield (
        f"The rule that cost most is \N{LEFT DOUBLE QUOTATION MARK}{isolated(short(row.rule))}\N{RIGHT DOUBLE QUOTATION MARK}."
        f"{what} {counted(row.dropped or 0, 'document')} ({percent(row.dropped, documents)}). {_alone(row)}"
    )


def _where_most_falls(data: ReportData) -> Iterator[str]:
    """Say in which source the most costly rule drops most documents, and of which the largest share."""
    rules = costliest(data.rules)
    if not rules or not rules[0].dropped:
        return
    place = data.rules.index(rules[0])
    drops = [(row.dropped[place], row) for row in data.sources if row.dropped and row.documents]
    if len(drops) < 2:
        return
    most, first = max(drops, key=lambda drop: drop[0])
    many, hardest = max(drops, key=lambda drop: drop[0] / drop[1].documents)
    share = f"{many:,} of {counted(hardest.documents, 'document')} ({percent(many, hardest.documents)})"
    if hardest is first:
        yield f"Of the sources, {_source(first)} loses most by this rule: {share}."
    else:
        yield f"Of the sources, {_source(first)} loses most documents by this rule ({most:,}), {_source(hardest)} the largest share: {share}."


def _alone(row: RuleRow) -> str:
    if not row.only:
        return f"Other rules drop {'it' if row.dropped == 1 else 'all of these'} too."
    text = f", with {byte_size(row.only_bytes)} of text" if row.only_bytes is not None else ""
    them = "it" if row.dropped == 1 else "these" if row.only == row.dropped else f"{row.only:,} of these"
    they = "without this rule, it" if row.only == 1 else "without it, they"
    return f"No other rule drops {them}: {they} would come back{text}."


# ------------------------------------------------------------------------------------------------ signals, tokens, cost


def _duplicate_words(data: ReportData) -> Iterator[str]:
    for table in data.results:
        if table.columns == BY_SOURCE:
            documents, copies = (sum(int(row[column] or 0) for row in table.rows) for column in (1, 2))
            name = table.title.rpartition(",")[0]
            yield f"{name} marks {copies:,} of {counted(documents, 'document')} as {'a copy' if copies == 1 else 'copies'} ({percent(copies, documents)})."


def _signal_words(data: ReportData) -> Iterator[str]:
    if not data.signals:
        yield "No signal was recorded. The verb tag adds some."
        return
    deciding = sum(bool(signal.threshold or signal.is_cut) for signal in data.signals)
    by = f", {deciding:,} of which a rule cuts" if deciding else ""
    by = ", and a rule cuts it" if deciding == len(data.signals) == 1 else by
    yield f"{counted(len(data.signals), 'signal')} of each document {'is' if len(data.signals) == 1 else 'are'} known{by}."


def _token_words(data: ReportData) -> Iterator[str]:
    made = next((stage for stage in reversed(data.stages) if stage.tokens is not None), None)
    if made is None or made.tokens is None:
        return
    of = f"{counted(made.documents_out, 'document')} became " if made.documents_out is not None else ""
    size = (
        f": {made.text_bytes / made.tokens:.2f} bytes of text for each"
        if made.text_bytes and made.tokens
        else ""
    )
    yield f"{of}{counted(made.tokens, 'token')}{size}."


def _cost_words(data: ReportData) -> Iterator[str]:
    total = totals(data)
    spent = [stage for stage in data.stages if stage.seconds]
    if total.seconds is None or not spent:
        return
    cpu = f" and {seconds(total.cpu_seconds)} of CPU time" if total.cpu_seconds is not None else ""
    size = f", and wrote {byte_size(total.written)}" if total.written is not None else ""
    yield f"{counted(len(data.stages), 'stage')} took {seconds(total.seconds)} of work{cpu}{size}."
    if len(spent) > 1:
        longest = max(spent, key=lambda stage: stage.seconds or 0)
        yield f"The longest was {longest.verb}, with {seconds(longest.seconds)} ({percent(longest.seconds, total.seconds)})."
