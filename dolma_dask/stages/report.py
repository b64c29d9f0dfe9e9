"""report: one HTML page that shows what happened to a dataset, and the same content as JSON beside it.

The journals tell which verbs ran. One pass over the dataset that was selected from tells how its signals are distributed, where the rule
cuts, and which documents lie next to the cut. Nothing is taken on trust: documents and attributes must line up, and what the rule keeps
now is compared with what the journal says was kept. Memory: a few blocks per worker, and sums from at most `MOST_TASKS` workers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Unpack

import dolma_dask
from dolma_dask import engine
from dolma_dask.alignment import AlignedShard, AttributeSets, open_attributes, shard_inputs
from dolma_dask.dataset import Dataset, Shard, open_dataset
from dolma_dask.engine import Task, inputs_of
from dolma_dask.errors import MissingAttributesError, SchemaError, UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.documents import OPTIONAL
from dolma_dask.io import files
from dolma_dask.io.publish import publish
from dolma_dask.mixing.where import Rule, parse
from dolma_dask.reports.history import History, Step, last_name, quarantine_rows, read_history, stem
from dolma_dask.reports.model import ReportData, StageRow
from dolma_dask.reports.survey import (
    Findings,
    Survey,
    bounds_of,
    example_rows,
    look_at,
    rule_rows,
    signal_rows,
    source_rows,
)
from dolma_dask.stages.options import Many, RunArgs, as_dataset, dataset_notes, run_options
from dolma_dask.stages.selection import DOCUMENT_NAMES, ShardWork, conjuncts, select
from dolma_dask.summary import Summary

MOST_TASKS = 256
"""Results that are held at once, some 2 MB each for 24 signals; where there are more shards, several share a task."""

NUMERIC = ("document", "number", "dict")
"""Kinds of attribute keys that are signals: one number per document."""


def report(
    dataset: str | Dataset | Summary,
    /,
    *,
    to: str,
    tokens: Annotated[Sequence[str], Many] = (),
    title: str | None = None,
    examples: int = 3,
    source: str | None = None,
    **options: Unpack[RunArgs],
) -> Summary:
    """Write one HTML page that shows what happened to a dataset, and its content as JSON beside it.

    Example: dolma-dask report corpus/wiki/v1 --to wiki.html --tokens out/ragged

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ in it, usually the newest version. Earlier versions are found through its journal.
    to : str
        Path or URL of the page, ending in .html.
    tokens : list of str, optional
        Folders that ragged wrote from it.
    title : str, optional
        Heading of the page.
    examples : int, optional
        Documents to show on each side of each bound of the rule.
    source : str, optional
        Source of all documents, for files that lack the field.

    Returns
    -------
    Summary

    Raises
    ------
    UsageError
        `to` is no .html file, or is one that is no report; or a folder of `tokens` has no journal.
    StageError
        Some shards could not be read, for example because attributes are stale.
    """
    target = _page_url(to, options)
    found = as_dataset(dataset, source)
    history = read_history(found.root, [tokens] if isinstance(tokens, str) else tokens)
    _check_tokens(found, history)
    origin = _origin(found, history, source)
    chosen = origin.dataset.select(tuple(options.get("only", ())), options.get("prune"))
    view = _view(origin, chosen, examples)
    notes = (*dataset_notes(found), *history.notes, *origin.notes, *view.notes)
    if options.get("dry_run"):
        return _planned(target, history, view, notes)
    results: list[Findings] = engine.gather(view.stage, view.tasks(), run_options(options))
    findings = Findings()
    for result in results:
        findings.add(result, examples)
    history = history.of_shards({stem(shard.path) for shard in chosen.shards})
    data, more = _content(history, origin, view, findings, title, _shown(dataset, found))
    _publish(target, data)
    counts = {
        "documents": findings.rows - findings.bad,
        "signals": len(data.signals),
        "stages": len(data.stages),
    }
    return Summary("report", target, done=len(chosen.shards), counts=counts, notes=(*notes, *more))


def _planned(target: str, history: History, view: "View", notes: tuple[str, ...]) -> Summary:
    """Tell what would be read."""
    verbs = ", ".join(f"{step.verb} of {last_name(step.root)}" for step in history.steps) or "none"
    would = f"would read {len(view.stage.survey.keys)} signals of {last_name(view.dataset.root)}, and the journals: {verbs}"
    return Summary(
        "report", target, planned=tuple(shard.path for shard in view.dataset.shards), notes=(*notes, would)
    )


# ------------------------------------------------------------------------------------------------ where it came from


@dataclass(frozen=True)
class Origin:
    """What the documents were selected from.

    Attributes
    ----------
    dataset : Dataset
        The shards of the earlier version; the dataset itself if nothing was selected.
    step : Step or None
        What selected.
    notes : tuple of str
        What a person should know.
    """

    dataset: Dataset
    step: Step | None = None
    notes: tuple[str, ...] = ()

    @property
    def where(self) -> str | None:
        """The rule as the user wrote it."""
        where = self.step.params.get("where") if self.step else None
        return where if isinstance(where, str) else None

    @property
    def attributes(self) -> tuple[str, ...]:
        """Attribute sets that were read for the rule: those that stand in the records."""
        records = self.step.records if self.step else ()
        paths = [item.path.split("/") for record in records for item in record.inputs]
        return tuple(sorted({parts[1] for parts in paths if parts[0] == layout.ATTRIBUTES}))


def _origin(found: Dataset, history: History, source: str | None) -> Origin:
    step = history.step(found.root, "mix")
    if step is None:
        return Origin(found, _selecting_step(found, history))
    if history.parent is None:
        return Origin(found)
    source = source or step.params.get("source")
    parent = open_dataset(history.parent, source=source)
    stems = {stem(shard.path) for shard in found.shards}
    shards = tuple(shard for shard in parent.shards if stem(shard.path) in stems)
    if not shards:
        return Origin(
            found,
            notes=(f"{last_name(parent.root)} has none of the shards of {last_name(found.root)} any more",),
        )
    missing = len(parent.shards) - len(shards)
    notes = (
        (f"{missing} shards of {last_name(parent.root)} are not in {last_name(found.root)} and not counted",)
        if missing
        else ()
    )
    return Origin(replace(parent, shards=shards), step, notes)


def _selecting_step(found: Dataset, history: History) -> Step | None:
    """Return the step that made tokens straight from a selection of `found`, if one did."""
    ragged = (step for step in history.steps if step.verb == "ragged" and step.params.get("where"))
    return next(
        (step for step in ragged if last_name(str(step.params.get("from"))) == last_name(found.root)), None
    )


def _check_tokens(found: Dataset, history: History) -> None:
    stems = {stem(shard.path) for shard in found.shards}
    for step in history.steps:
        if (
            step.verb == "ragged"
            and step.records
            and not any(stem(record.shard) in stems for record in step.records)
        ):
            raise UsageError(
                f"{step.root} was made from other documents: its first shard {step.records[0].shard!r} is not in {found.root}; expected "
                "token shards of this dataset. Leave it out of --tokens."
            )


# ------------------------------------------------------------------------------------------------ what is read


@dataclass(frozen=True)
class ReportStage:
    """The work of `report` on some shards.

    Attributes
    ----------
    root : str
        Of the dataset that was selected from.
    source : str or None
        Source of documents that lack the field.
    survey : Survey
        What to look for.
    """

    root: str
    source: str | None
    survey: Survey
    verb: str = "report"

    def run_shard(self, task: Task) -> Findings:
        """Look at some shards; see `dolma_dask.engine.gather`."""
        found = Findings()
        for work in task.work:
            self._look(work, found)
        return found

    def _look(self, work: ShardWork, found: Findings) -> None:
        names = frozenset().union(*(part.names for part in self.survey.parts))
        fields = [name for name in OPTIONAL if name in names]
        for aligned in AlignedShard(self.root, work.shard, fields, work.sources, self.source):
            batch = aligned.block.batch
            documents = {name: batch.column(name) for name in batch.schema.names if name in DOCUMENT_NAMES}
            columns = {**documents, **aligned.attributes}
            seen = look_at(self.survey, work.shard.path, aligned.block.first_row, batch, columns)
            found.add(seen, self.survey.examples)


@dataclass(frozen=True)
class View:
    """What is read, and how the page spells the conditions of the rule."""

    stage: ReportStage
    dataset: Dataset
    sets: AttributeSets | None
    spelled: tuple[str, ...]
    notes: tuple[str, ...]

    def tasks(self) -> list[Task]:
        """Return the work, at most `MOST_TASKS` of nearly equal numbers of shards."""
        works = [self._work(shard) for shard in self.dataset.shards]
        size = -(-len(works) // MOST_TASKS)
        return [self._task(works[start : start + size]) for start in range(0, len(works), max(size, 1))]

    def _work(self, shard: Shard) -> ShardWork:
        survey = self.stage.survey
        names = frozenset(survey.keys).union(*(part.names for part in survey.parts))
        return ShardWork(shard, self.sets.sources(shard, sorted(names)) if self.sets else ())

    def _task(self, works: Sequence[ShardWork]) -> Task:
        infos = [info for work in works for info in shard_inputs(work.shard, work.sources)]
        return Task(works[0].shard.path, (), inputs_of(self.dataset.root, infos), tuple(works))


def _view(origin: Origin, chosen: Dataset, examples: int) -> View:
    if examples < 0:
        raise UsageError(f"examples is {examples}; expected 0 or more documents on each side of a bound.")
    written = parse(origin.where) if origin.where else None
    selection = select(chosen, written, origin.attributes if written else ())
    sets, notes = _readable_sets(chosen, tuple(selection.sets.files) if selection.sets else ())
    kinds = {key: kind for keys in (sets.kinds.values() if sets else ()) for key, kind in keys.items()}
    keys = tuple(key for key, kind in kinds.items() if kind in NUMERIC)
    parts = conjuncts(selection.rule)
    bounds = tuple(bound for bound in bounds_of(parts) if bound.key in keys)
    survey = Survey(keys, parts, bounds, examples)
    return View(ReportStage(chosen.root, chosen.source, survey), chosen, sets, _spell(written), notes)


def _spell(written: Rule | None) -> tuple[str, ...]:
    """Return the conditions with the short names that the user chose."""
    return tuple(str(part) for part in conjuncts(written))


def _readable_sets(dataset: Dataset, needed: tuple[str, ...]) -> tuple[AttributeSets | None, tuple[str, ...]]:
    """Open all attribute sets; those that the rule does not need may be unfinished and are left out then, with a note."""
    others = [name for name in dataset.attributes if name not in needed]
    taken, notes = list(needed), []
    try:
        return (open_attributes(dataset, [*taken, *others]) if taken or others else None), ()
    except (MissingAttributesError, SchemaError, UsageError):
        for name in others:
            try:
                open_attributes(dataset, [*taken, name])
                taken.append(name)
            except (MissingAttributesError, SchemaError, UsageError) as error:
                notes.append(f"attribute set {name} is left out: {error}")
    return (open_attributes(dataset, taken) if taken else None), tuple(notes)


# ------------------------------------------------------------------------------------------------ what is written


def _content(
    history: History, origin: Origin, view: View, found: Findings, title: str | None, shown: str
) -> tuple[ReportData, tuple[str, ...]]:
    """Put the page's content together; also return what a person should know of it."""
    from dolma_dask.reports.page import public_name  # Bokeh takes half a second: not for --help

    survey = view.stage.survey
    notes = _compare(history, origin, found)
    data = ReportData(
        title=title or f"Report on {public_name(shown)}",
        dataset=shown,
        created=history.created(),
        version=dolma_dask.__version__,
        stages=_stages(history, origin, view, found, notes),
        sources=source_rows(survey, found),
        signals=signal_rows(survey, found),
        rules=rule_rows(view.spelled, found),
        examples=example_rows(survey, view.spelled, found),
        where=origin.where,
        quarantine=quarantine_rows(history.steps, {stem(shard.path) for shard in view.dataset.shards}),
    )
    return data, notes


def _compare(history: History, origin: Origin, found: Findings) -> tuple[str, ...]:
    """Compare what the rule keeps now with what the journal says was kept."""
    step = origin.step and history.step(origin.step.root, origin.step.verb)
    if step is None or not step.records:
        return ()
    counted = int(sum(record.counts.get("documents_out", 0) for record in step.records))
    if counted == found.kept:
        return ()
    return (
        f"the rule keeps {found.kept:,} documents now, {counted:,} when {step.verb} ran: documents or attributes were made again since. "
        f"Run {step.verb} again",
    )


def _stages(
    history: History, origin: Origin, view: View, found: Findings, notes: tuple[str, ...]
) -> list[StageRow]:
    rows = history.stage_rows()
    if not rows:
        return [_read_row(view, found)]
    for index, step in enumerate(history.steps):
        if notes and origin.step and (step.root, step.verb) == (origin.step.root, origin.step.verb):
            rows[index] = replace(rows[index], note="; ".join(filter(None, (rows[index].note, *notes))))
    return rows


def _read_row(view: View, found: Findings) -> StageRow:
    """Tell what was read of a dataset that other tools made."""
    documents = found.rows - found.bad
    return StageRow(
        verb="read",
        documents_in=found.rows,
        documents_out=documents,
        text_bytes=found.text_bytes,
        shards=len(view.dataset.shards),
        bad_records=found.bad,
        note="no journal: counted for this page",
    )


def _shown(dataset: str | Dataset | Summary, found: Dataset) -> str:
    """Return the name of the dataset as the user gave it, if it is a relative path below here; else its root."""
    given = layout.dataset_root(dataset).removeprefix("./") if isinstance(dataset, str) else ""
    hidden = not given or "://" in given or given.startswith(("/", "~", "."))
    return found.root if hidden else given


def _page_url(to: str, options: RunArgs) -> str:
    """Return the URL of the page; refuse what is no page, or a file that is no report."""
    if not to.endswith(".html") or last_name(to) == ".html":
        raise UsageError(
            f"to is {to!r}; expected the path or URL of a page that ends in .html, such as report.html."
        )
    target = files.normalize(to)
    for url, mark in (
        (target, b'content="dolma_dask '),
        (_json_url(target), b'"format":"dolma_dask.report"'),
    ):
        if not options.get("overwrite") and files.stat(url) and not _has(url, mark):
            raise UsageError(
                f"{url} is there and is no report; expected a free place. Choose another name, or replace it with --overwrite."
            )
    return target


def _has(url: str, mark: bytes) -> bool:
    """Tell whether `mark` stands at the beginning of a file."""
    with files.open_read(url) as handle:
        return mark in handle.read(4096)


def _json_url(target: str) -> str:
    return target.removesuffix(".html") + ".json"


def _publish(target: str, data: ReportData) -> None:
    from dolma_dask.reports.page import render, write_json

    page = render(data).encode()
    with publish(_json_url(target)) as out:
        out.write(write_json(data))
    with publish(target) as out:
        out.write(page)
