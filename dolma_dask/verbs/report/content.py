"""The content of a page, put together from the journals and the sums of one pass over the documents.

A page shows what the `where` rule keeps, which is worked out from documents and attributes, and compared with what the journal says was kept. Filters,
samples and a least length of the text decide too where they are given: their effect is shown as the journal counted it, and never taken for a
disagreement.
"""

import io
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

import dolma_dask
from dolma_dask.display import counted
from dolma_dask.errors import CorruptFileError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.records import RuleCount, merge_rules
from dolma_dask.journal import Record
from dolma_dask.reading import CONVERTED
from dolma_dask.verbs.report.histogram import Histogram, boundary, signal_histogram
from dolma_dask.verbs.report.history import History, Origin, Step, is_packed, last_name, stem
from dolma_dask.verbs.report.model import (
    Example,
    QuarantineRow,
    ReportData,
    ResultTable,
    RuleRow,
    Side,
    SignalHistogram,
    SourceRow,
    StageRow,
)
from dolma_dask.verbs.report.results import result_tables
from dolma_dask.verbs.report.survey import Findings, Survey, Values, View, largest_sources

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)

SHOWN_SOURCES = 200
"""Rows of the table of sources; the rest share one more row."""


@dataclass(frozen=True)
class Recorded:
    """A selection as its records have counted it."""

    verb: str
    name: str  # of the dataset that it wrote
    documents_in: int = 0  # that could be read
    documents_out: int = 0
    matched: tuple[
        int | None, ...
    ] = ()  # documents for which each condition held; None where it was not counted
    filters: tuple[tuple[str, int], ...] = ()  # with the documents that each matched
    others: tuple[str, ...] = ()  # what decided besides the rule, in words
    changed: int = 0  # documents whose text was changed
    otherwise: int = 0  # shards that were made with another rule or other options than the newest
    gap: str = ""  # why these counts cannot be compared with those of now; empty if they can


@dataclass(frozen=True)
class QuarantineFile:
    """A file of quarantined records; the path of its info is relative to what the verb wrote."""

    verb: str
    url: str
    info: FileInfo


@dataclass(frozen=True)
class Known:
    """Content of a page that needs no document."""

    title: str
    dataset: str  # the name that a reader should see
    created: str  # end of the newest step
    stages: tuple[StageRow, ...]  # of the shards that are shown
    selecting: int | None  # the stage that selected
    where: str | None  # the rule as the user wrote it
    spelled: tuple[str, ...]  # its conditions as a reader should see them
    recorded: Recorded | None
    results: tuple[ResultTable, ...] = ()
    quarantine: tuple[QuarantineFile, ...] = ()

    def decides(self) -> dict[str, Any]:
        """Return all of it but the files as JSON-able values, the same wherever the files lie."""
        content: dict[str, Any] = msgspec.to_builtins(replace(self, quarantine=()))
        return content


def known_content(title: str, dataset: str, history: History, origin: Origin, view: View) -> Known:
    """Gather from the journals what belongs on the page of the shards of a view."""
    paths = [shard.path for shard in view.dataset.shards]
    is_all = len(paths) == len(origin.dataset.shards)
    shown = history.of_shards(origin.dataset.root, paths, is_all=is_all)
    steps = [(step.root, step.verb) for step in shown.steps]
    selecting = (origin.step.root, origin.step.verb) if origin.step else None
    return Known(
        title=title,
        dataset=dataset,
        created=shown.created(),
        stages=tuple(map(stage_row, shown.steps)),
        selecting=steps.index(selecting) if selecting in steps else None,
        where=origin.where,
        spelled=view.spelled,
        recorded=recorded_selection(shown, origin, view.survey.parts),
        results=result_tables(history),
        quarantine=tuple(quarantine_files(shown.steps)),
    )


def report_data(known: Known, shards: int, survey: Survey, findings: Findings) -> ReportData:
    """Put the content of a page together."""
    return ReportData(
        title=known.title,
        dataset=known.dataset,
        created=known.created,
        version=dolma_dask.__version__,
        stages=_stages(known, shards, findings),
        sources=source_rows(survey, findings),
        signals=signal_rows(survey, findings),
        rules=[*rule_rows(known.spelled, findings), *filter_rows(known.recorded)],
        examples=example_rows(survey, known.spelled, findings),
        where=known.where,
        remarks=remarks(known.recorded, bool(survey.parts), findings),
        quarantine=quarantine_rows(known.quarantine),
        results=known.results,
    )


def _stages(known: Known, shards: int, findings: Findings) -> list[StageRow]:
    rows = list(known.stages)
    if not rows:  # other tools made the dataset
        return [
            StageRow(
                verb="read",
                documents_in=findings.rows,
                documents_out=findings.rows - findings.bad,
                text_bytes=findings.text_bytes,
                shards=shards,
                bad_records=findings.bad,
                note="no journal: counted for this page",
            )
        ]
    note = disagreement(known.recorded, known.spelled, findings)
    if note and known.selecting is not None:
        row = rows[known.selecting]
        rows[known.selecting] = replace(row, note="; ".join(filter(None, (row.note, note))))
    return rows


# ------------------------------------------------------------------------------------------------ the selection, then and now


def recorded_selection(history: History, origin: Origin, parts: Sequence[object]) -> Recorded | None:
    """Sum up the records of a selection by the conditions `parts`; None if nothing was selected, or no record is left of it."""
    step = origin.step and history.step(origin.step.root, origin.step.verb)
    if origin.step is None or step is None:
        return None
    name = last_name(step.root)
    if not step.records:
        gap = f"{name} was cut into files by size: how many documents of some shards it has cannot be told"
        return Recorded(step.verb, name, gap=gap) if origin.step.packed else None
    counts: Counter[str] = Counter()
    for record in step.records:
        counts.update({key: int(count) for key, count in record.counts.items()})
    rules = merge_rules(record.rules for record in step.records)
    where = {rule.rule: rule.matched for rule in rules if rule.kind == "where"}
    is_gap = origin.gone and bool(step.packed)
    return Recorded(
        verb=step.verb,
        name=name,
        documents_in=counts["documents_in"] - counts["bad_records"],
        documents_out=counts["documents_out"],
        matched=tuple(where.get(str(part)) for part in parts),
        filters=tuple((rule.name, rule.matched) for rule in rules if rule.kind != "where"),
        others=_others(counts, rules),
        changed=counts["documents_changed"],
        otherwise=len({record.shard for record in step.records} - {record.shard for record in step.current}),
        gap=f"{name} was made of shards that are gone: its counts cannot be compared" if is_gap else "",
    )


def _others(counts: Counter[str], rules: Sequence[RuleCount]) -> tuple[str, ...]:
    others = []
    if any(rule.kind == "include" or (rule.kind == "exclude" and rule.matched) for rule in rules):
        others.append("filters")
    if counts["documents_too_short"]:
        others.append(
            f"the least length of a text ({counted(counts['documents_too_short'], 'document')} too short)"
        )
    if "documents_not_sampled" in counts:
        again = f", {counts['documents_again']:,} more than once" if counts["documents_again"] else ""
        others.append(f"a sample ({counted(counts['documents_not_sampled'], 'document')} not drawn{again})")
    return tuple(others)


def disagreement(recorded: Recorded | None, spelled: Sequence[str], findings: Findings) -> str | None:
    """Compare what the rule keeps now with what the journal says was kept, and how; None if it is the same, or cannot be compared."""
    if recorded is None or recorded.gap:
        return None
    if recorded.otherwise:
        return (
            f"{counted(recorded.otherwise, 'shard')} {'was' if recorded.otherwise == 1 else 'were'} made with another rule or other options than the "
            f"newest, which this page shows: run {recorded.verb} again for all shards"
        )
    now = _difference(recorded, spelled, findings)
    if now is None:
        return None
    return f"{now} when {recorded.verb} ran: documents or attributes were made again since; run {recorded.verb} again"


def _difference(recorded: Recorded, spelled: Sequence[str], findings: Findings) -> str | None:
    if not recorded.others and recorded.documents_out != findings.kept:
        return f"the rule keeps {findings.kept:,} documents now, {recorded.documents_out:,}"
    for part, count in enumerate(recorded.matched):
        matched = findings.matched.get(part, 0)
        if count is not None and count != matched:
            return f"{spelled[part]} holds for {matched:,} documents now, {count:,}"
    read = findings.rows - findings.bad
    if recorded.documents_in == read:
        return None
    return f"{read:,} documents are read now, {recorded.documents_in:,}"


def remarks(recorded: Recorded | None, has_rule: bool, findings: Findings) -> tuple[str, ...]:
    """Say what the numbers on a page do not show."""
    if recorded is None:
        return ()
    parts = [recorded.gap]
    others = " and ".join(filter(None, [", ".join(recorded.others[:-1]), *recorded.others[-1:]]))
    if others and has_rule:
        parts.append(
            f"The rule alone keeps {counted(findings.kept, 'document')}; {recorded.verb} wrote {recorded.documents_out:,}, because {others} decided too. "
            "Which documents these took is not worked out again: what is called kept on this page is what the rule alone keeps."
        )
    elif others:
        parts.append(
            f"No rule decided, but {others}: {recorded.verb} wrote {recorded.documents_out:,} of {counted(recorded.documents_in, 'document')}. Which ones is "
            "not worked out again: this page shows all that were read."
        )
    if recorded.changed:
        parts.append(
            f"{recorded.verb} changed the text of {counted(recorded.changed, 'document')}: sizes by source, signals and excerpts are of the text before."
        )
    return tuple(filter(None, parts))


def filter_rows(recorded: Recorded | None) -> list[RuleRow]:
    """Return the rows of the table of conditions for filters, as the journal counted them."""
    if recorded is None:
        return []
    return [
        RuleRow(name, count, count / recorded.documents_in if recorded.documents_in else 0.0)
        for name, count in recorded.filters
    ]


# ------------------------------------------------------------------------------------------------ from the journals


def stage_row(step: Step) -> StageRow:
    """Sum up the records of one verb."""
    counts = _totals(step.records)
    documents_in = counts.get("documents_in")
    written = sum(
        file.bytes for record in step.records for file in record.files if not file.path.startswith("_")
    )
    return StageRow(
        verb=step.verb,
        documents_in=documents_in,
        documents_out=counts.get("documents_out", documents_in),
        bytes_out=written if step.records else None,
        text_bytes=counts.get("text_bytes_out", counts.get("text_bytes")),
        tokens=counts.get("tokens"),
        seconds=round(sum(record.seconds for record in step.records), 3) or None,
        shards=_shards(step.records) or None,
        bad_records=counts.get("bad_records", 0),
        note=_note(step, counts),
    )


def _shards(records: Sequence[Record]) -> int:
    """Count shards; of files that were cut by size the files, since these are the shards of the new version."""
    packed = [record for record in records if is_packed(record)]
    others = {record.shard for record in records if record.shard != record.unit and record not in packed}
    return len(others) + sum(not file.path.startswith("_") for record in packed for file in record.files)


def _totals(records: Sequence[Record]) -> dict[str, int]:
    """Add up counts; attribute sets of one shard count the same documents, and only once."""
    units: dict[str, Counter[str]] = {}
    for record in records:
        derived = record.unit.startswith(f"{layout.ATTRIBUTES}/")
        known = units.setdefault(f"{layout.ATTRIBUTES}/{record.shard}" if derived else record.unit, Counter())
        known |= Counter({name: int(count) for name, count in record.counts.items()})  # the larger of both
    names = {name for record in records for name in record.counts}
    return {name: sum(counts[name] for counts in units.values()) for name in names}


def _note(step: Step, counts: Mapping[str, int]) -> str:
    params = step.params
    parts = [", ".join(sorted({name for record in step.records for name in record.info.get("taggers", ())}))]
    if step.verb == CONVERTED:
        parts.append(", ".join(sorted({_renaming(record) for record in step.records})))
    if isinstance(params.get("from"), str):
        parts.append(f"from {last_name(params['from'])}")
    parts += [f"{name} {params[name]}" for name in ("tokenizer", "bos", "eos") if params.get(name)]
    parts += ["shuffled"] if params.get("shuffle") else []
    parts += [f"files of at most {params['max_size']:,} bytes"] if params.get("max_size") else []
    if counts.get("unproved_attribute_files"):
        parts.append(
            counted(counts["unproved_attribute_files"], "attribute file")
            + " without a record of how it was made"
        )
    return "; ".join(filter(None, parts))


def _renaming(record: Record) -> str:
    """Tell which attribute set a record's file was made of, and which it belongs to."""
    old = [item.path.split("/")[1] for item in record.inputs if item.path.startswith(f"{layout.ATTRIBUTES}/")]
    return f"{', '.join(old)} to {record.unit.split('/')[1]}"


class _Quarantined(msgspec.Struct):
    """The part of a quarantined record that is counted."""

    reason: str


def quarantine_files(steps: Sequence[Step]) -> list[QuarantineFile]:
    """List the files of quarantined records of the shards that the steps show."""
    listed: dict[str, QuarantineFile] = {}
    for step in steps:
        folder = f"{layout.QUARANTINE}/{step.verb}"
        for info in files.list_files(files.join(step.root, folder)):
            shard, _, suffix = info.path.rpartition(".")
            if suffix == "jsonl" and (step.stems is None or stem(shard) in step.stems):
                path = f"{folder}/{info.path}"
                url = files.join(step.root, path)
                listed[url] = QuarantineFile(step.verb, url, FileInfo(path, info.bytes, info.stamp))
    return list(listed.values())


def quarantine_rows(listed: Sequence[QuarantineFile]) -> list[QuarantineRow]:
    """Count quarantined records by verb, in the order in which these come first, and reason.

    Raises `CorruptFileError`: a quarantine file is damaged.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for file in listed:
        counts.update((file.verb, reason) for reason in _reasons(file.url))
    verbs = list(dict.fromkeys(file.verb for file in listed))
    order = sorted(counts, key=lambda item: (verbs.index(item[0]), -counts[item], item[1]))
    return [QuarantineRow(verb, reason.replace("_", " "), counts[verb, reason]) for verb, reason in order]


def _reasons(url: str) -> Iterable[str]:
    decoder = msgspec.json.Decoder(_Quarantined)
    with io.BufferedReader(files.open_read(url)) as lines:  # type: ignore[type-var]
        for number, line in enumerate(lines):
            try:
                yield decoder.decode(line).reason
            except msgspec.DecodeError as error:
                raise CorruptFileError(
                    f"{url}, line {number}: {error}; expected a quarantined record. Run the verb again, or delete the file.",
                    url=url,
                ) from error


# ------------------------------------------------------------------------------------------------ from the documents


def signal_rows(survey: Survey, findings: Findings) -> list[SignalHistogram]:
    """Bin every signal for the page."""
    return [_signal_row(survey, key, findings.signals.get(key, Values())) for key in survey.keys]


def _signal_row(survey: Survey, key: str, values: Values) -> SignalHistogram:
    lines = dict.fromkeys((bound.sign, bound.value) for bound in survey.bounds if bound.key == key)
    return signal_histogram(
        key,
        values.every,
        values.kept if survey.parts else None,
        quantiles=quantiles(values.every),
        threshold=tuple(lines),
    )


def quantiles(histogram: Histogram, probabilities: Iterable[float] = QUANTILES) -> dict[float, float]:
    """Return the smallest finite value that at least this share of finite values does not exceed.

    True to one bin of the histogram: a 4,096th of the value while no more than 4,096 bins are used, exact for whole numbers below 8,192.
    """
    total = np.cumsum(histogram.counts)
    if not len(total):
        return {}
    lower = np.clip(boundary(histogram.keys, histogram.shift), histogram.min, histogram.max)
    ranks = {p: max(1, math.ceil(p * int(total[-1]))) for p in probabilities}
    return {p: float(lower[np.searchsorted(total, rank)]) for p, rank in ranks.items()}


def source_rows(survey: Survey, findings: Findings) -> list[SourceRow]:
    """Make the table of sources, largest first."""
    known = 4 if survey.parts else 2
    rows = largest_sources(findings.sources, SHOWN_SOURCES)
    return [SourceRow(source, *counts[:known].tolist()) for source, counts in rows.items()]


def rule_rows(spelled: Sequence[str], findings: Findings) -> list[RuleRow]:
    """Make the table of conditions, each spelled as in `spelled`."""
    documents = findings.rows - findings.bad
    counts = [findings.matched.get(part, 0) for part in range(len(spelled))]
    return [
        RuleRow(rule, n, n / documents if documents else 0.0) for rule, n in zip(spelled, counts, strict=True)
    ]


def example_rows(survey: Survey, spelled: Sequence[str], findings: Findings) -> list[Example]:
    """Make the examples: by condition, those inside before those outside, nearest first."""
    sides: tuple[Side, ...] = ("just inside", "just outside")
    return [
        Example(side, spelled[bound.part], bound.key, **near.shown())
        for bound in survey.bounds
        for side in sides
        for near in findings.near.get((bound.part, side), ())
    ]
