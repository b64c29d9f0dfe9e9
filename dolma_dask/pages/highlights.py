"""What to look at first on a page: sources that vanish, the rule that costs most text, junk that is left; each with the command that changes it."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.display import byte_size, counted, isolated, listed, percent, real
from dolma_dask.errors import UsageError
from dolma_dask.figures.histogram import Histogram, boundary
from dolma_dask.pages.model import Beyond, ReportData, RuleRow, SourceRow
from dolma_dask.pages.names import shortened
from dolma_dask.pages.story import costliest, kept_documents, totals
from dolma_dask.pages.words import is_flagged, short
from dolma_dask.rules.values import Name
from dolma_dask.rules.where import parse
from dolma_dask.verbs.dedupe.summary import BY_SOURCE

PUBLISHED: Mapping[str, tuple[str, float]] = {
    **dict.fromkeys(("word_count", "rps_doc_word_count"), (">=", 50.0)),
    **dict.fromkeys(("symbol_to_word_ratio", "rps_doc_symbol_to_word_ratio"), ("<=", 0.1)),
    "fraction_of_words_with_alpha_character": (">=", 0.8),
    "fraction_of_lines_starting_with_bullet_point": ("<=", 0.9),
    "fraction_of_lines_ending_with_ellipsis": ("<=", 0.3),
    "rps_doc_frac_lines_end_with_ellipsis": ("<=", 0.3),
    "fraction_of_duplicate_lines": ("<=", 0.3),
    "fraction_of_characters_in_duplicate_lines": ("<=", 0.2),
    **{
        name.format(n): ("<=", bound)
        for n, bound in ((2, 0.2), (3, 0.18), (4, 0.16))
        for name in ("fraction_of_characters_in_most_common_{}grams", "rps_doc_frac_chars_top_{}gram")
    },
    **{
        name.format(n): ("<=", (20 - n) / 100)
        for n in range(5, 11)
        for name in ("fraction_of_characters_in_duplicate_{}grams", "rps_doc_frac_chars_dupe_{}grams")
    },
}
"""Bounds of the Gopher paper (Rae et al. 2021, section A1.1 and table A1), by the names of signals that count what the paper counts.

`rps_doc_frac_no_alph_words` does not: its tokens include punctuation, so that ordinary prose is beyond the bound for words without a letter.
"""

MAX_SOURCES, MAX_BEYOND = 3, 1
"""Findings of a kind."""

VANISHING = 0.25
"""A source vanishes if less than this share of it is kept, and less than half of the share of all."""

MAX_BEYOND_SHARE = 0.5
"""A bound beyond which more of the kept documents are than this share does not fit them: nobody is told to drop these."""

MAX_JUNK = 4
"""Signals of junk that a sentence names."""

MAX_JUNK_SHARE = 0.1
"""A limit above which more of the kept documents are than this share tells what the dataset is made of, such as code: nobody is told to drop these."""

MAX_RULE = 600
"""Characters of a rule that a command repeats."""


class Highlight(Struct, frozen=True):
    """A sentence, and the command that changes what it says; without one there is nothing to type."""

    text: str
    command: str = ""
    where: str | None = None  # rule of another version, which the command makes


def beyond_published(
    kept: Mapping[str, Histogram], names: Mapping[str, str], cut: frozenset[str]
) -> list[Beyond]:
    """Count the kept documents beyond published bounds of signals (key to short name) that no rule cuts; those of most documents first."""
    found = []
    for key, histogram in kept.items():
        sign, bound = PUBLISHED.get(names.get(key, key), ("", 0.0))
        if not sign or key in cut:
            continue
        lower = boundary(histogram.keys, histogram.shift)
        outside = int(histogram.counts[lower < bound if sign == ">=" else lower > bound].sum())
        if outside:
            found.append(Beyond(key, sign, bound, outside, outside / histogram.n))
    return sorted(found, key=lambda one: (-one.documents, one.key))


def highlights(data: ReportData, names: Mapping[str, str]) -> list[Highlight]:
    """Return what a reader should look at first; `names` are those of the signals on the page."""
    found = [
        *_wrong(data),
        *_junk(data, names),
        *_vanished(data, names),
        *_costs_most(data, names),
        *_copies_left(data),
        *_beyond(data, names),
    ]
    targets, version = list[Highlight](), data.dataset
    for one in found:
        if one.where is not None:  # each makes a version of its own: the second of one name would be refused
            version = _next(version)
            one = replace(one, command=_mix(data, one.where, version))
        targets.append(one)
    return targets


# ------------------------------------------------------------------------------------------------ what was lost


def _wrong(data: ReportData) -> Iterator[Highlight]:
    """Yield what makes the other numbers incomplete: failed shards, bad records, and checks that have found something."""
    total = totals(data)
    if total.failed:
        yield Highlight(f"{counted(total.failed, 'shard')} failed: see what was wrong.")
    if total.bad:
        are = "is" if total.bad == 1 else "are"
        yield Highlight(
            f"{counted(total.bad, 'record')} could not be read and {are} not among the documents."
        )
    for table in data.results:
        if table.section == "Checks" and table.is_alarm:
            yield Highlight(f"Checks of {table.title} have found something: {table.caption}")


def _vanished(data: ReportData, names: Mapping[str, str]) -> Iterator[Highlight]:
    """Yield the sources of which little is left, those with most documents first."""
    rows = [row for row in data.sources if row.kept_documents is not None and row.documents]
    kept, every = sum(row.kept_documents or 0 for row in rows), sum(row.documents for row in rows)
    if every and not kept:
        yield Highlight(f"Nothing is kept of {counted(every, 'document')}.")
    limit = min(VANISHING, kept / every / 2) if every else 0
    lost = [row for row in rows if kept and (row.kept_documents or 0) <= limit * row.documents]
    for row in sorted(lost, key=lambda row: -row.documents)[:MAX_SOURCES]:
        yield _vanishing(data, row, names)
    if len(lost) > MAX_SOURCES:
        yield Highlight(
            f"{counted(len(lost) - MAX_SOURCES, 'more source')} vanish too: the table of sources has them."
        )


def _vanishing(data: ReportData, row: SourceRow, names: Mapping[str, str]) -> Highlight:
    what = "vanishes" if not row.kept_documents else "nearly vanishes"
    text = f"Source {isolated(short(row.source)) or '(none)'} {what}: {row.kept_documents:,} of {counted(row.documents, 'document')} are kept ({percent(row.kept_documents, row.documents)})"
    conditions = _conditions(data)
    if not row.dropped or not any(row.dropped):
        return Highlight(f"{text}.")
    place = int(np.argmax(row.dropped))
    rule = data.rules[place]
    text = f"{text}; most fall to {_quoted(rule, names)} ({row.dropped[place]:,})."
    if not conditions or not row.source or _drops_flagged(rule, data):
        return Highlight(text)
    excepted = f"({conditions[place]} or source == {row.source!r})"
    return Highlight(text, where=_rule(data, [*conditions[:place], excepted, *conditions[place + 1 :]]))


def _costs_most(data: ReportData, names: Mapping[str, str]) -> Iterator[Highlight]:
    """Yield the rule that costs most, as the chapter on rules has it; documents that a verb has flagged are no loss, and the next rule is told."""
    rules = [row for row in costliest(data.rules) if row.only_bytes or row.dropped_bytes]
    if not rules:
        return
    row = next((row for row in rules if not _drops_flagged(row, data)), None)
    if row is None:
        flagged = f": {rules[0].plain}" if rules[0].plain else ""
        yield Highlight(f"{_quoted(rules[0], names)} costs most{flagged}, {_cost(rules[0], data)}.")
        return
    flagged = f"{_quoted(rules[0], names)} costs most, and drops flagged documents alone; of the other rules "
    first = "" if row is rules[0] else flagged
    how = "that no other rule drops" if row.only else "all of which other rules drop too"
    how = "" if len(rules) == 1 else f" {how}" if row.only else f", {how}"
    text = f"{first}{_quoted(row, names)} costs most: {_cost(row, data)}{how}."
    others = [one for one, rule in zip(_conditions(data), data.rules, strict=False) if rule is not row]
    without = _rule(data, others) if row.only else None
    if without is not None:
        yield Highlight(f"{text} Without it:", where=without)
    else:
        yield Highlight(f"{text} With other bounds:", _what_if(data))


def _cost(row: RuleRow, data: ReportData) -> str:
    """Return the documents that a rule drops alone, else all that it drops, and their text."""
    documents, size = (row.only, row.only_bytes) if row.only else (row.dropped, row.dropped_bytes)
    every = sum(one.text_bytes or 0 for one in data.sources)
    share = f"{percent(size or 0, every)} of what came in"
    return f"{counted(documents or 0, 'document')} with {byte_size(size or 0)} of text ({share})"


def _drops_flagged(row: RuleRow, data: ReportData) -> bool:
    """Tell whether a rule drops what a verb has flagged, such as copies: without it, these would be back."""
    return is_flagged(row.plain) or any(_names(name, row.rule) for name, _ in _copies(data))


# ------------------------------------------------------------------------------------------------ what is left


def _copies_left(data: ReportData) -> Iterator[Highlight]:
    """Yield what is known of copies among the documents that are left."""
    if not any(_copies(data)):
        if data.stages and data.sources:
            yield Highlight(
                "Nobody has looked for copies.", f"dolma-dask dedupe {shlex.quote(_origin(data))} --how fuzzy"
            )
        return
    for name, copies in _copies(data):
        if copies and not _names(name, data.where or ""):
            text = f"{isolated(name)} marks {counted(copies, 'document')} as copies, and no rule drops them."
            yield Highlight(text, where=_rule(data, [*_conditions(data), f"{Name(name)} is None"]))


def _copies(data: ReportData) -> Iterator[tuple[str, int]]:
    """Yield the name of each set of flags of copies, and how many documents it marks."""
    for table in data.results:
        if table.columns == BY_SOURCE:
            name = table.title.rpartition(",")[0].partition(" in ")[0]
            yield name, sum(int(row[2] or 0) for row in table.rows)


def _names(name: str, rule: str) -> bool:
    """Tell whether a rule names a set of flags or its key."""
    words = "|".join(map(re.escape, [name, *name.split("/")]))
    return re.search(rf"(?<!\w)({words})(?!\w)", rule) is not None


def _junk(data: ReportData, names: Mapping[str, str]) -> Iterator[Highlight]:
    """Yield how many kept documents are above the limits of junk, and the rule that drops them."""
    if not data.junk:
        return
    own = [one for one in data.junk if not one.is_shared]
    signals = [f"{isolated(names.get(one.key, one.key))} ({one.documents:,})" for one in own]
    whole = kept_documents(data)
    told = [
        f"{data.junk_documents:,} of {counted(whole, 'document')} ({percent(data.junk_documents, whole)}) "
        f"may be junk, above a limit of {_first(signals)}."
    ] * bool(own)
    told += [
        f"{one.documents:,} of {counted(whole, 'document')} ({percent(one.share)}) have more than {percent(one.limit)} of their text in lines "
        f"that many documents have ({isolated(names.get(one.key, one.key))})."
        for one in data.junk
        if one.is_shared
    ]
    text = " ".join(told)
    common = [one for one in data.junk if one.share > MAX_JUNK_SHARE]
    if common:
        them = _first([isolated(names.get(one.key, one.key)) for one in common])
        text += f" More than a tenth are above that of {them}, which may be what the dataset is made of: no rule is proposed for {'it' if len(common) == 1 else 'them'}."
    limits = [f"{names.get(one.key, one.key)} <= {one.limit:g}" for one in data.junk if one not in common]
    where = _rule(data, [*_conditions(data), *limits]) if limits else None
    drop = f", or drop {'the others' if common else 'them'}:"
    yield Highlight(f"{text} Read some below{'.' if where is None else drop}", where=where)


def _first(signals: Sequence[str]) -> str:
    """Return the first signals of junk as in a sentence, and how many more there are."""
    left = len(signals) - MAX_JUNK
    return listed([*signals[:MAX_JUNK], *([counted(left, "more signal")] if left > 0 else [])])


def _beyond(data: ReportData, names: Mapping[str, str]) -> Iterator[Highlight]:
    """Yield the published bounds beyond which most of the kept documents are."""
    is_kept = any(row.kept_documents is not None for row in data.sources)
    fitting = [one for one in data.beyond if one.share <= MAX_BEYOND_SHARE][:MAX_BEYOND]
    for one in fitting:
        name = names.get(one.key, one.key)
        side = "below" if one.sign == ">=" else "above"
        text = (
            f"{counted(one.documents, 'kept document' if is_kept else 'document')} ({percent(one.share)}) {'has' if one.documents == 1 else 'have'} "
            f"{isolated(name)} {side} {real(one.bound)}, the bound of the Gopher paper."
        )
        where = _rule(data, [*_conditions(data), f"{name} {one.sign} {one.bound:g}"])
        yield Highlight(text if where is None else f"{text} Read some, or drop them:", where=where)
    others = [
        f"{isolated(names.get(one.key, one.key))} {one.sign} {real(one.bound)} ({one.documents:,})"
        for one in data.beyond
        if one not in fitting
    ]
    if others:
        which = "Further bounds of that paper" if fitting else "Bounds of the Gopher paper"
        yield Highlight(f"{which}, with the documents beyond each: {listed(others[:4])}.")


# ------------------------------------------------------------------------------------------------ commands


def _conditions(data: ReportData) -> list[str]:
    """Return the conditions of the rule as they can be typed; none if they cannot."""
    rules = [row.rule for row in data.rules if row.dropped is not None]
    try:
        for rule in rules:
            parse(rule)
    except UsageError:  # bounds by group have no spelling of their own
        return []
    return [f"({rule})" if " or " in rule else rule for rule in rules]


def _rule(data: ReportData, conditions: Sequence[str]) -> str | None:
    """Return the rule of another version; None if it is too long, or only a part of what decides."""
    known = [row for row in data.rules if row.dropped is not None]
    rule = " and ".join(conditions)
    return None if not rule or len(rule) > MAX_RULE or (known and not _conditions(data)) else rule


def _mix(data: ReportData, rule: str, version: str) -> str:
    """Return the command that makes another version."""
    return f"dolma-dask mix {shlex.quote(_origin(data))} --where {_shell(rule)} --to {shlex.quote(version)}"


def _what_if(data: ReportData) -> str:
    rule = " and ".join(_conditions(data))
    asked = f" --where {_shell(rule)}" if rule and len(rule) <= MAX_RULE else ""
    return f"dolma-dask what-if {shlex.quote(_origin(data))}{asked} --to what_if.html"


def _shell(text: str) -> str:
    """Quote a rule for a shell; rules hold single quotes more often than what double ones do not keep."""
    return shlex.quote(text) if "'" not in text or re.search(r'["$`\\!]', text) else f'"{text}"'


def _origin(data: ReportData) -> str:
    """Return the dataset that is selected from, beside the one that is shown."""
    parent, slash, name = data.dataset.rstrip("/").rpartition("/")
    return f"{parent}{slash}{data.origin or name}"


def _next(dataset: str) -> str:
    """Return a name for the next version: v2 behind v1."""
    name = dataset.rstrip("/")
    number = re.search(r"\d+$", name)
    return f"{name[: number.start()]}{int(number[0]) + 1}" if number else f"{name}-2"


def _quoted(rule: RuleRow, names: Mapping[str, str]) -> str:
    text = isolated(short(shortened(rule.rule, names)))
    return f"\N{LEFT DOUBLE QUOTATION MARK}{text}\N{RIGHT DOUBLE QUOTATION MARK}"
