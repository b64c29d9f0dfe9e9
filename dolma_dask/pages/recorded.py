"""Content of a page that needs no document: the journals of a dataset tell which verbs ran, what they counted, and what is left undone.

A page shows what the `where` rule keeps, as the journal has counted it when the rule was applied; where no journal knows it, `dolma_dask.pages.content` counts it.
Filters, samples and a least length of the text decide too where they are given: their effect is shown as the journal counted it.
"""

import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

import dolma_dask
from dolma_dask.dataset import Shard
from dolma_dask.display import counted, isolated, last_name, listed, shown_name
from dolma_dask.errors import CorruptFileError
from dolma_dask.formats import layout
from dolma_dask.formats.json import NOT_JSON
from dolma_dask.io import files
from dolma_dask.io.records import InputRecord, RuleCount, merge_rules
from dolma_dask.journal import Record, sum_drops
from dolma_dask.pages.clusters import SimilarSet, similar_sets
from dolma_dask.pages.history import TOKEN_VERBS, History, Origin, Step, is_packed, stem, stems_of
from dolma_dask.pages.model import QuarantineRow, ReportData, StageRow
from dolma_dask.pages.survey import View
from dolma_dask.reading.sets import CONVERTED
from dolma_dask.registry import VERBS, Verb, load
from dolma_dask.results.table import Table
from dolma_dask.rules.tally import OTHER_GROUPS, Tally


class RecordedSelection(Struct, frozen=True):
    """A selection as its records have counted it."""

    verb: str
    name: str  # of the dataset that it wrote
    stage: int  # its row among the stages
    documents_in: int = 0  # that could be read
    documents_out: int = 0
    # by source; None: not counted of all documents of the page, or not for its conditions
    drops: Tally | None = None
    # files of the dataset that it read: path to checksum; none if there were several datasets
    inputs: Mapping[str, str] = {}
    filters: tuple[tuple[str, int], ...] = ()  # with the documents that each matched
    short: Mapping[str, str] = {}  # conditions that people are shown in other words
    others: tuple[str, ...] = ()  # what decided besides the rule, in words
    changed: int = 0  # documents whose text was changed
    otherwise: int = 0  # shards that were made with another rule or other options than the newest
    gap: str = ""  # why these counts cannot be compared with those of now; empty if they can


class RecordedContent(Struct, frozen=True):
    """Content of a page that needs no document."""

    data: ReportData  # without what documents tell
    selection: RecordedSelection | None
    quarantine: tuple["QuarantineFile", ...] = ()
    similar: tuple[SimilarSet, ...] = ()  # clusters to show, which `results` name too
    token_steps: tuple[Step, ...] = ()  # what made token shards

    @property
    def drops(self) -> Tally | None:
        """Documents that the conditions of the page drop by source, if a journal knows them."""
        return self.selection.drops if self.selection else None


def recorded_content(
    title: str | None, dataset: str, history: History, origin: Origin, view: View
) -> RecordedContent:
    """Gather from the journals what belongs on the page of the shards of a view."""
    paths = [shard.path for shard in view.dataset.shards]
    is_all = len(paths) == len(origin.dataset.shards)
    shown = history.of_shards(origin.dataset.root, paths, is_all)
    stages = map(stage_row, shown.steps)
    data = ReportData(
        title=title or f"Report on {isolated(dataset)}",
        dataset=dataset,
        created=shown.created(),
        version=dolma_dask.__version__,
        stages=tuple(stages) if is_all else tuple(replace(row, cpu_seconds=None) for row in stages),
        where=origin.where,
        origin=last_name(origin.dataset.root) if origin.dataset.root == history.parent else "",
        results=result_tables(history),
        unfinished=tuple(unfinished(shown.steps)),
        remarks=(*history.notes, *origin.notes),
    )
    selection = recorded_selection(shown, origin, view.survey.parts, view.dataset.shards)
    token_steps = tuple(step for step in shown.steps if step.verb in TOKEN_VERBS)
    return RecordedContent(
        data, selection, tuple(quarantine_files(shown.steps)), similar_sets(history), token_steps
    )


def result_tables(history: History) -> tuple[Table, ...]:
    """Return the tables that the registry names for the verbs of a history (of all shards), in the order of the registry."""
    return tuple(
        table
        for verb in VERBS.values()
        for step in history.steps
        if verb.tables and step.verb == verb.name
        for table in _tables_of(verb, step)
    )


def _tables_of(verb: Verb, step: Step) -> Iterator[Table]:
    """Yield the tables of a step; one line instead of them if its records are of another form, as those of a damaged journal may be."""
    try:
        yield from load(verb.tables)(step)
    except (LookupError, TypeError, ValueError, AttributeError, msgspec.ValidationError) as error:
        where = f"{layout.JOURNAL}/{step.verb} of {shown_name(step.root)}"
        yield Table(verb.name, (), (), f"{where} has records that cannot be read: {error}", is_alarm=True)


# ------------------------------------------------------------------------------------------------ the selection, then and now


def recorded_selection(
    history: History, origin: Origin, parts: Sequence[object] = (), shards: Sequence[Shard] = ()
) -> RecordedSelection | None:
    """Sum up the records of a selection, by the conditions `parts` if all `shards` are in them; None if nothing was selected, or no record is left of it."""
    step = origin.step and history.step(origin.step.root, origin.step.verb)
    if origin.step is None or step is None:
        return None
    name, stage = shown_name(step.root), history.steps.index(step)
    if not step.records:
        gap = f"{name} was cut into files by size: how many documents of some shards it has cannot be told"
        return RecordedSelection(step.verb, name, stage, gap=gap) if origin.step.packed else None
    counts: Counter[str] = Counter()
    for record in step.records:
        counts.update({key: int(count) for key, count in record.counts.items()})
    rules = merge_rules(record.rules for record in step.records)
    is_gap = origin.gone and bool(step.packed)
    return RecordedSelection(
        verb=step.verb,
        name=name,
        stage=stage,
        documents_in=counts["documents_in"] - counts["bad_records"],
        documents_out=counts["documents_out"],
        drops=None if is_gap else _recorded_drops(step.records, parts, shards),
        inputs={
            one.path: one.checksum for record in step.records for one in record.inputs if _is_own(one.path)
        },
        filters=tuple((rule.name, rule.matched) for rule in rules if rule.kind != "where"),
        short={rule.rule: rule.short for rule in rules if rule.kind == "where" and rule.short},
        others=_others(counts, rules),
        changed=counts["documents_changed"],
        otherwise=len({record.shard for record in step.records} - {record.shard for record in step.current}),
        gap=f"{name} was made of shards that are gone: its counts cannot be compared" if is_gap else "",
    )


def _recorded_drops(
    records: Sequence[Record], parts: Sequence[object], shards: Sequence[Shard]
) -> Tally | None:
    """Return what the conditions `parts` dropped by source, if the records know it of each and of all shards."""
    known = frozenset[str]().union(*(stems_of(record.inputs) for record in records))
    if not {stem(shard.path) for shard in shards} <= known:
        return None
    rules = [rule.rule for rule in records[0].rules if rule.kind == "where"]
    drops = sum_drops(records) if rules == list(map(str, parts)) else None
    return None if drops is None or OTHER_GROUPS in drops.groups else drops


def _is_own(path: str) -> bool:
    """Tell whether a path is relative to the dataset that was read, and not that of a file of several."""
    return path.startswith((f"{layout.DOCUMENTS}/", f"{layout.ATTRIBUTES}/"))


def _others(counts: Counter[str], rules: Sequence[RuleCount]) -> tuple[str, ...]:
    others = []
    if any(rule.kind == "include" or (rule.kind == "exclude" and rule.matched) for rule in rules):
        others.append("filters")
    if counts["documents_too_short"]:
        others.append(
            f"the least length of a text ({counted(counts['documents_too_short'], 'document')} too short)"
        )
    again = f", {counts['documents_again']:,} more than once" if counts["documents_again"] else ""
    if "documents_beyond_cut" in counts:
        others.append(f"downsampling ({counted(counts['documents_beyond_cut'], 'document')} left out{again})")
    if "documents_not_sampled" in counts:
        others.append(f"a sample ({counted(counts['documents_not_sampled'], 'document')} not drawn{again})")
    return tuple(others)


def outdated(recorded: RecordedSelection | None, inputs: Sequence[InputRecord]) -> str | None:
    """Say that a selection was made of other files than those that are there, or in several ways; None if neither can be told."""
    if recorded is None or recorded.gap:
        return None
    if recorded.otherwise:
        return (
            f"{counted(recorded.otherwise, 'shard')} {'was' if recorded.otherwise == 1 else 'were'} made with another rule or other options than the "
            f"newest, which this page shows: run {recorded.verb} again for all shards"
        )
    changed = _changed(recorded.inputs, inputs) if recorded.inputs else 0
    if not changed:
        return None
    were = "was" if changed == 1 else "were"
    return f"{counted(changed, 'file')} of documents or attributes {were} made again since {recorded.verb} ran; run {recorded.verb} again"


def _changed(recorded: Mapping[str, str], inputs: Sequence[InputRecord]) -> int:
    """Count the files that are not those of the records, and the documents that no record knows."""
    known = frozenset(stem(path.removeprefix(f"{layout.DOCUMENTS}/")) for path in recorded)
    changed = 0
    for one in inputs:
        checksum = recorded.get(one.path)
        is_other = not stems_of([one]) <= known if checksum is None else checksum not in ("", one.checksum)
        changed += bool(one.checksum) and is_other
    return changed


def remarks(recorded: RecordedSelection | None, has_rule: bool, kept: int) -> tuple[str, ...]:
    """Say what the numbers on a page do not show."""
    if recorded is None:
        return ()
    parts = [recorded.gap]
    others = listed(recorded.others)
    if others and has_rule:
        parts.append(
            f"The rule alone keeps {counted(kept, 'document')}; {recorded.verb} wrote {recorded.documents_out:,}, because {others} decided too. "
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
    """Add up counts; files beside documents, such as sets of attributes of one shard or quantiles, count the same documents, and only once."""
    units: dict[str, Counter[str]] = {}
    for record in records:
        known = units.setdefault(_counted_by(record), Counter())
        known |= Counter({name: int(count) for name, count in record.counts.items()})  # the larger of both
    names = {name for record in records for name in record.counts}
    return {name: sum(counts[name] for counts in units.values()) for name in names}


def _counted_by(record: Record) -> str:
    """Return a name for the documents that a record counts: its shard, or all of a dataset."""
    folder = record.unit.split("/")[0]
    if folder == layout.DOCUMENTS:
        return record.unit
    return folder if record.shard == record.unit else f"{folder}/{record.shard}"


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


class QuarantineFile(Struct, frozen=True):
    """A file of quarantined records."""

    verb: str
    shard: str  # whose records they are
    url: str


class _Quarantined(msgspec.Struct):
    """The part of a quarantined record that is told."""

    reason: str
    url: str = ""
    row: int | None = None


def quarantine_files(steps: Sequence[Step]) -> list[QuarantineFile]:
    """List the files of quarantined records of the shards that the steps show, each once."""
    listed: dict[str, QuarantineFile] = {}
    for step in steps:
        folder = f"{layout.QUARANTINE}/{step.verb}"
        for info in files.list_files(files.join(step.root, folder)):
            shard, _, suffix = info.path.rpartition(".")
            url = files.join(step.root, f"{folder}/{info.path}")
            if suffix == "jsonl" and (step.stems is None or stem(shard) in step.stems):
                listed.setdefault(url, QuarantineFile(step.verb, shard, url))
    return list(listed.values())


def quarantine_rows(
    listed: Sequence[QuarantineFile], sources: Mapping[str, str] | None = None
) -> list[QuarantineRow]:
    """Count quarantined records by verb, in the order in which these come first, reason and file; `sources` are those of shards, by `stem`.

    Raises `CorruptFileError`: a quarantine file is damaged.
    """
    counts: Counter[tuple[str, str, str, str]] = Counter()
    first: dict[tuple[str, str, str, str], int | None] = {}
    for one in listed:
        source = (sources or {}).get(stem(one.shard), "")
        for record in _records(one.url):
            # of folders of a machine nothing is told: documents are named by their shard, raw files by their last name
            file = one.shard if last_name(record.url) == last_name(one.shard) else last_name(record.url)
            place = (one.verb, record.reason.replace("_", " "), file or one.shard, source)
            counts[place] += 1
            first.setdefault(place, record.row)
    verbs = list(dict.fromkeys(one.verb for one in listed))
    order = sorted(counts, key=lambda item: (verbs.index(item[0]), -counts[item], item[1:]))
    return [
        QuarantineRow(verb, reason, counts[place], file, first[place], source)
        for place in order
        for verb, reason, file, source in [place]
    ]


def _records(url: str) -> Iterator[_Quarantined]:
    decoder = msgspec.json.Decoder(_Quarantined)
    with io.BufferedReader(files.open_read(url)) as lines:  # type: ignore[type-var]
        for number, line in enumerate(lines):
            try:
                yield decoder.decode(line)
            except NOT_JSON as error:
                raise CorruptFileError(
                    f"{url}, line {number}: {error}; expected a quarantined record. Run the verb again, or delete the file.",
                    url=url,
                ) from error
