"""The content of a page, put together from the journals and the sums of one pass over the documents.

A page shows what the `where` rule keeps, which is worked out from documents and attributes, and compared with what the journal says was kept. Filters,
samples and a least length of the text decide too where they are given: their effect is shown as the journal counted it, and never taken for a
disagreement.
"""

import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import msgspec
import numpy as np

import dolma_dask
from dolma_dask.display import counted, isolated, listed, shown_name
from dolma_dask.engine import Input
from dolma_dask.errors import CorruptFileError
from dolma_dask.figures.histogram import Histogram, signal_histogram
from dolma_dask.figures.model import SignalHistogram
from dolma_dask.formats import layout
from dolma_dask.formats.json import NOT_JSON
from dolma_dask.io import files
from dolma_dask.io.records import RuleCount, merge_rules
from dolma_dask.journal import Record
from dolma_dask.pages.clusters import SimilarSet, cluster_examples, similar_sets
from dolma_dask.pages.history import TOKEN_VERBS, History, Origin, Step, is_packed, stem
from dolma_dask.pages.model import SIDES, QuarantineRow, ReportData, RuleRow, SourceRow, StageRow
from dolma_dask.pages.survey import Findings, Survey, View, largest_sources
from dolma_dask.pages.thresholds import threshold_tables, thresholds_part
from dolma_dask.questions.what_if.answer import WhatIf
from dolma_dask.reading import CONVERTED
from dolma_dask.registry import VERBS, load
from dolma_dask.results.table import Table
from dolma_dask.verbs.dedupe.signatures import FOLDER as SIGNATURES

SHOWN_SOURCES = 200
"""Rows of the table of sources; the rest share one more row."""


@dataclass(frozen=True)
class Recorded:
    """A selection as its records have counted it."""

    verb: str
    name: str  # of the dataset that it wrote
    stage: int  # its row among the stages
    documents_in: int = 0  # that could be read
    documents_out: int = 0
    # documents for which each condition held; None where it was not counted
    matched: tuple[int | None, ...] = ()
    filters: tuple[tuple[str, int], ...] = ()  # with the documents that each matched
    others: tuple[str, ...] = ()  # what decided besides the rule, in words
    changed: int = 0  # documents whose text was changed
    otherwise: int = 0  # shards that were made with another rule or other options than the newest
    gap: str = ""  # why these counts cannot be compared with those of now; empty if they can


@dataclass(frozen=True)
class Known:
    """Content of a page that needs no document."""

    data: ReportData  # without what documents tell
    recorded: Recorded | None
    quarantine: tuple[tuple[str, Input], ...] = ()  # files of quarantined records, each with its verb
    similar: tuple[SimilarSet, ...] = ()  # clusters to show, which `results` name too
    token_steps: tuple[Step, ...] = ()  # what made token shards

    def decides(self) -> dict[str, Any]:
        """Return all of it but the files and datasets as JSON-able values, the same wherever the files lie."""
        content: dict[str, Any] = msgspec.to_builtins(
            replace(self, quarantine=(), similar=(), token_steps=()),
            enc_hook=np.ndarray.tolist,  # arrays of plots
        )
        return content


def known_content(title: str | None, dataset: str, history: History, origin: Origin, view: View) -> Known:
    """Gather from the journals what belongs on the page of the shards of a view."""
    paths = [shard.path for shard in view.dataset.shards]
    is_all = len(paths) == len(origin.dataset.shards)
    shown = history.of_shards(origin.dataset.root, paths, is_all)
    stages = map(stage_row, shown.steps)
    data = ReportData(
        title=title or f"Report on {isolated(dataset)}",
        dataset=dataset,
        created=shown.created(),
        version="",  # another version of the package makes no other page
        stages=tuple(stages) if is_all else tuple(replace(row, cpu_seconds=None) for row in stages),
        where=origin.where,
        results=result_tables(history),
        unfinished=tuple(unfinished(shown.steps)),
        remarks=(*history.notes, *origin.notes),
    )
    recorded = recorded_selection(shown, origin, view.survey.parts)
    token_steps = tuple(step for step in shown.steps if step.verb in TOKEN_VERBS)
    return Known(data, recorded, tuple(quarantine_files(shown.steps)), similar_sets(history), token_steps)


def result_tables(history: History) -> tuple[Table, ...]:
    """Return the tables that the registry names for the verbs of a history (of all shards), in the order of the registry."""
    return tuple(
        table
        for verb in VERBS.values()
        for step in history.steps
        if verb.tables and step.verb == verb.name
        for table in load(verb.tables)(step)
    )


def report_data(
    known: Known,
    shards: int,
    survey: Survey,
    findings: Findings,
    note: str | None,
    left_out: Sequence[str],
    answer: WhatIf | None = None,
    is_used: bool = True,
) -> ReportData:
    """Put the content of a page together; `note` is what `disagreement` says, `left_out` names attribute sets that are left out, `answer` is about thresholds, by which the selection was made if `is_used`."""
    return replace(
        known.data,
        version=dolma_dask.__version__,
        stages=_stages(known, shards, findings, note),
        sources=source_rows(survey, findings, tokens_by_source(known.token_steps, findings)),
        signals=signal_rows(survey, findings),
        rules=rule_rows(survey, findings, known.recorded),
        examples=[
            near for bound in survey.bounds for side in SIDES for near in findings.near.get((bound, side), ())
        ],
        clusters=cluster_examples(known.similar),
        remarks=(*known.data.remarks, *remarks(known.recorded, bool(survey.parts), findings)),
        quarantine=quarantine_rows(known.quarantine),
        left_out=left_out,
        results=(*threshold_tables(answer, is_used), *known.data.results),
        thresholds=thresholds_part(answer, is_used),
    )


def _stages(known: Known, shards: int, findings: Findings, note: str | None) -> list[StageRow]:
    rows = list(known.data.stages)
    if not rows:  # other tools made the dataset
        return [
            StageRow(
                verb="read",
                documents_in=findings.rows,
                documents_out=findings.documents,
                text_bytes=findings.text_bytes,
                shards=shards,
                bad_records=findings.bad,
                note="no journal: counted for this page",
            )
        ]
    if note and known.recorded:
        row = rows[known.recorded.stage]
        rows[known.recorded.stage] = replace(row, note="; ".join(filter(None, (row.note, note))))
    return rows


# ------------------------------------------------------------------------------------------------ the selection, then and now


def recorded_selection(history: History, origin: Origin, parts: Sequence[object]) -> Recorded | None:
    """Sum up the records of a selection by the conditions `parts`; None if nothing was selected, or no record is left of it."""
    step = origin.step and history.step(origin.step.root, origin.step.verb)
    if origin.step is None or step is None:
        return None
    name, stage = shown_name(step.root), history.steps.index(step)
    if not step.records:
        gap = f"{name} was cut into files by size: how many documents of some shards it has cannot be told"
        return Recorded(step.verb, name, stage, gap=gap) if origin.step.packed else None
    counts: Counter[str] = Counter()
    for record in step.records:
        counts.update({key: int(count) for key, count in record.counts.items()})
    rules = merge_rules(record.rules for record in step.records)
    where = {rule.rule: rule.matched for rule in rules if rule.kind == "where"}
    is_gap = origin.gone and bool(step.packed)
    return Recorded(
        verb=step.verb,
        name=name,
        stage=stage,
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
    if "documents_beyond_cut" in counts:
        others.append(f"downsampling ({counted(counts['documents_beyond_cut'], 'document')} left out)")
    if "documents_not_sampled" in counts:
        again = f", {counts['documents_again']:,} more than once" if counts["documents_again"] else ""
        others.append(f"a sample ({counted(counts['documents_not_sampled'], 'document')} not drawn{again})")
    return tuple(others)


def disagreement(recorded: Recorded | None, survey: Survey, findings: Findings) -> str | None:
    """Compare what the rule keeps now with what the journal says was kept, and how; None if it is the same, or cannot be compared."""
    if recorded is None or recorded.gap:
        return None
    if recorded.otherwise:
        return (
            f"{counted(recorded.otherwise, 'shard')} {'was' if recorded.otherwise == 1 else 'were'} made with another rule or other options than the "
            f"newest, which this page shows: run {recorded.verb} again for all shards"
        )
    now = _difference(recorded, survey, findings)
    if now is None:
        return None
    return f"{now} when {recorded.verb} ran: documents or attributes were made again since; run {recorded.verb} again"


def _difference(recorded: Recorded, survey: Survey, findings: Findings) -> str | None:
    if not recorded.others and recorded.documents_out != findings.kept:
        return f"the rule keeps {counted(findings.kept, 'document')} now, {recorded.documents_out:,}"
    for part, count in enumerate(recorded.matched):
        matched = findings.matched.get(part, 0)
        if count is not None and count != matched:
            return f"{isolated(survey.spelled[part])} holds for {counted(matched, 'document')} now, {count:,}"
    if recorded.documents_in == findings.documents:
        return None
    return f"{counted(findings.documents, 'document')} {'is' if findings.documents == 1 else 'are'} read now, {recorded.documents_in:,}"


def remarks(recorded: Recorded | None, has_rule: bool, findings: Findings) -> tuple[str, ...]:
    """Say what the numbers on a page do not show."""
    if recorded is None:
        return ()
    parts = [recorded.gap]
    others = listed(recorded.others)
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


def rule_rows(survey: Survey, findings: Findings, recorded: Recorded | None = None) -> list[RuleRow]:
    """Make the table of conditions, and of filters as the journal counted them."""
    documents = findings.documents
    rows = [
        _rule_row(
            rule, findings.matched.get(part, 0), documents, *findings.drops.get(part, _NONE).tolist(), plain
        )
        for part, (rule, plain) in enumerate(zip_longest(survey.spelled, survey.plain, fillvalue=""))
    ]
    if recorded is not None:
        rows += [_rule_row(name, count, recorded.documents_in) for name, count in recorded.filters]
    return rows


_NONE = np.zeros(4, np.int64)


def _rule_row(rule: str, matched: int, documents: int, *drops: Any) -> RuleRow:
    return RuleRow(rule, matched, matched / documents if documents else 0.0, *drops)


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
        cpu_seconds=_cpu_seconds(step),
    )


def _cpu_seconds(step: Step) -> float | None:
    """Add up the CPU-seconds of the runs that have finished something; None if one of them has not told."""
    ended = [record.finished for record in step.records]
    runs = [run for run in step.runs if any(run.started <= end <= (run.finished or end) for end in ended)]
    return round(sum(run.cpu for run in runs), 3) if runs and all(run.cpu for run in runs) else None


def _shards(records: Sequence[Record]) -> int:
    """Count shards; of files that were cut by size the files, since these are the shards of the new version."""
    packed = [record for record in records if is_packed(record)]
    others = {record.shard for record in records if record.shard != record.unit and record not in packed}
    return len(others) + sum(not file.path.startswith("_") for record in packed for file in record.files)


def _totals(records: Sequence[Record]) -> dict[str, int]:
    """Add up counts; sets of attributes or of signatures of one shard count the same documents, and only once."""
    units: dict[str, Counter[str]] = {}
    for record in records:
        folder = record.unit.split("/")[0]
        derived = folder in (layout.ATTRIBUTES, SIGNATURES)
        known = units.setdefault(f"{folder}/{record.shard}" if derived else record.unit, Counter())
        known |= Counter({name: int(count) for name, count in record.counts.items()})  # the larger of both
    names = {name for record in records for name in record.counts}
    return {name: sum(counts[name] for counts in units.values()) for name in names}


def _note(step: Step, counts: Mapping[str, int]) -> str:
    params = step.params
    parts = [", ".join(sorted({name for record in step.records for name in record.info.get("taggers", ())}))]
    if step.verb == "dedupe":  # one journal of all sets of flags
        units = (record.unit.split("/") for record in step.records)
        parts.append(", ".join(sorted({unit[1] for unit in units if unit[0] == layout.ATTRIBUTES})))
    if step.verb == CONVERTED:
        parts.append(", ".join(sorted({_renaming(record) for record in step.records})))
    if isinstance(params.get("from"), str):
        parts.append(f"from {shown_name(params['from'])}")
    parts += [f"{name} {params[name]}" for name in ("tokenizer", "bos", "eos") if params.get(name)]
    parts += ["shuffled"] if params.get("shuffle") else []
    parts += [counted(params["shards"], "file")] if params.get("shards") else []
    parts += [f"files of at most {counted(params['max_size'], 'byte')}"] if params.get("max_size") else []
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


def unfinished(steps: Sequence[Step]) -> Iterator[str]:
    """Yield a sentence for the newest run of each verb that was stopped, or left files undone."""
    for step in steps:
        newest = {run.writes: run for run in step.runs}
        for run in newest.values():
            what = f"{step.verb} of {shown_name(step.root)}"
            if not run.finished:
                yield f"The last {what} was stopped or still goes on."
            elif run.missing:
                yield f"{what} left {counted(run.missing, 'file')} undone (failures, --only, --share or --prune)."


class _Quarantined(msgspec.Struct):
    """The part of a quarantined record that is counted."""

    reason: str


def quarantine_files(steps: Sequence[Step]) -> list[tuple[str, Input]]:
    """List the files of quarantined records of the shards that the steps show, each once, with its verb."""
    listed: dict[str, tuple[str, Input]] = {}
    for step in steps:
        folder = f"{layout.QUARANTINE}/{step.verb}"
        for info in files.list_files(files.join(step.root, folder)):
            shard, _, suffix = info.path.rpartition(".")
            url = files.join(step.root, f"{folder}/{info.path}")
            if suffix == "jsonl" and (step.stems is None or stem(shard) in step.stems) and url not in listed:
                # of several datasets: the number keeps them apart
                path = f"quarantine:{len(listed)}/{folder}/{info.path}"
                listed[url] = step.verb, Input(url, replace(info, path=path))
    return list(listed.values())


def quarantine_rows(listed: Sequence[tuple[str, Input]]) -> list[QuarantineRow]:
    """Count quarantined records by verb, in the order in which these come first, and reason.

    Raises `CorruptFileError`: a quarantine file is damaged.
    """
    counts = Counter((verb, reason) for verb, file in listed for reason in _reasons(file.url))
    verbs = list(dict.fromkeys(verb for verb, _ in listed))
    order = sorted(counts, key=lambda item: (verbs.index(item[0]), -counts[item], item[1]))
    return [QuarantineRow(verb, reason.replace("_", " "), counts[verb, reason]) for verb, reason in order]


def _reasons(url: str) -> Iterable[str]:
    decoder = msgspec.json.Decoder(_Quarantined)
    with io.BufferedReader(files.open_read(url)) as lines:  # type: ignore[type-var]
        for number, line in enumerate(lines):
            try:
                yield decoder.decode(line).reason
            except NOT_JSON as error:
                raise CorruptFileError(
                    f"{url}, line {number}: {error}; expected a quarantined record. Run the verb again, or delete the file.",
                    url=url,
                ) from error


# ------------------------------------------------------------------------------------------------ from the documents


def signal_rows(survey: Survey, findings: Findings) -> list[SignalHistogram]:
    """Bin every signal for the page."""
    return [
        signal_histogram(
            key,
            findings.signals.get(key, Histogram()),
            findings.kept_signals.get(key, Histogram()) if survey.parts else None,
            tuple(dict.fromkeys((bound.sign, bound.value) for bound in survey.bounds if bound.key == key)),
        )
        for key in survey.keys
    ]


def source_rows(
    survey: Survey, findings: Findings, tokens: Mapping[str, int] | None = None
) -> list[SourceRow]:
    """Make the table of sources, largest first."""
    known = 4 if survey.parts else 2
    rows = largest_sources(findings.sources, SHOWN_SOURCES)
    return [
        replace(
            SourceRow(source, *counts[:known].tolist()),
            tokens=tokens.get(source) if tokens else None,
            dropped=tuple(counts[4:].tolist()),
        )
        for source, counts in rows.items()
    ]


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
