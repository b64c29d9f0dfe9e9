"""report: one HTML page that shows what happened to a dataset, and the same content as JSON beside it.

The journals tell which verbs ran. One pass over the dataset that was selected from tells how its signals are distributed, where the rule
cuts, and which documents lie next to the cut. Nothing is taken on trust: documents and attributes must line up, and what the rule keeps
now is compared with what the journal says was kept. Memory: a few blocks per worker, and the sums of at most `MOST_TASKS` tasks.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Unpack

from dolma_dask import engine
from dolma_dask.alignment import AlignedShard, AttributeSets, Catalog, check_clash, shard_inputs
from dolma_dask.dataset import Dataset, Shard
from dolma_dask.display import counted
from dolma_dask.engine import Task, inputs_of
from dolma_dask.errors import DataError, UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.documents import OPTIONAL
from dolma_dask.formats.json_attributes import AttributeKind
from dolma_dask.io import files
from dolma_dask.io.publish import publish
from dolma_dask.mixing.where import parse
from dolma_dask.reports.content import disagreement, report_data
from dolma_dask.reports.history import last_name, read_history, stem
from dolma_dask.reports.model import ReportData
from dolma_dask.reports.origin import Origin, find_origin
from dolma_dask.reports.survey import Findings, Survey, bounds_of, look_at
from dolma_dask.stages.options import (
    DatasetLike,
    Many,
    RunArgs,
    as_dataset,
    checked,
    dataset_notes,
    run_options,
    words_of,
)
from dolma_dask.stages.report_results import result_tables
from dolma_dask.stages.selection import DOCUMENT_NAMES, ShardWork, conjuncts, select, spelled_conjuncts
from dolma_dask.summary import Summary

MOST_TASKS = 256
"""Results that are held at once, some 2 MB each for 24 signals; where there are more shards, several share a task."""

NUMERIC = ("document", "number", "dict")
"""Kinds of attribute keys that are signals: one number per document."""


def report(
    dataset: DatasetLike,
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
        `to` is no .html file, or is one that is no report; or a folder of `tokens` has no journal;
        or an argument is unknown, or has a value that it cannot have.
    StageError
        Some shards could not be read, for example because attributes that the rule needs are stale; sets that it does not need are
        left out then, with a note.
    """
    options = checked(report, options, RunArgs)
    tokens = words_of("tokens", tokens)
    started = time.monotonic()
    target = _page_url(to, options)
    listed = as_dataset(dataset, source)
    history = read_history(listed.root, tokens)
    origin = find_origin(listed, history, source)
    view = _view(
        origin, origin.dataset.select(tuple(options.get("only", ())), options.get("prune")), examples
    )
    notes = (*dataset_notes(listed), *history.notes, *origin.notes, *view.notes)
    paths = tuple(shard.path for shard in view.dataset.shards)
    if options.get("dry_run"):
        steps = ", ".join(f"{step.verb} in {last_name(step.root)}" for step in history.steps) or "none"
        would = f"would read {counted(len(view.survey.keys), 'signal')} of {last_name(view.dataset.root)}; journals: {steps}"
        return Summary("report", target, planned=paths, notes=(*notes, would))
    found = Findings()
    for result in engine.gather(view.stage(), view.tasks(), run_options(options)):
        found.add(result, examples)
    view = view.without(found.left_out)
    results = result_tables(history)
    history = history.of_shards({stem(path) for path in paths})
    shown = _shown(dataset, listed)
    data = report_data(
        _title(title, shown), shown, history, origin, paths, view.survey, view.spelled, found, results
    )
    _publish(target, data)
    changed = disagreement(history, origin, found)
    return Summary(
        "report",
        target,
        done=len(paths),
        counts={
            "documents": found.rows - found.bad,
            "signals": len(data.signals),
            "stages": len(data.stages),
        },
        notes=(*notes, *_left_out_notes(found.left_out), *((changed,) if changed else ())),
        seconds=time.monotonic() - started,
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
    needed : frozenset of str
        Attribute sets that the rule reads; any other is left out where it does not belong to the documents.
    """

    root: str
    source: str | None
    survey: Survey
    needed: frozenset[str] = frozenset()
    verb: str = "report"

    def run_shard(self, task: Task) -> Findings:
        """Look at some shards; see `dolma_dask.engine.gather`."""
        found = Findings()
        for work in task.work:
            found.add(self._look(work), self.survey.examples)
        return found

    def _look(self, work: ShardWork) -> Findings:
        """Look at one shard; again without a set that does not belong to it, unless the rule needs the set."""
        left_out: dict[str, str] = {}
        while True:
            try:
                found = self._look_once(work, left_out)
            except DataError as error:
                name = _set_of(error, self.root, work)
                if name is None or name in self.needed or name in left_out:
                    raise
                left_out[name] = str(error)
            else:
                found.left_out = left_out
                return found

    def _look_once(self, work: ShardWork, left_out: Collection[str]) -> Findings:
        sources = [source for source in work.sources if source.name not in left_out]
        dropped = {key for source in work.sources if source.name in left_out for key in source.kinds}
        survey = replace(self.survey, keys=tuple(key for key in self.survey.keys if key not in dropped))
        found = Findings()
        fields = [name for name in OPTIONAL if name in survey.names]
        rows = AlignedShard(self.root, work.shard, fields, sources, self.source, fields=work.fields)
        for aligned in rows:
            batch = aligned.block.batch
            documents = {name: batch.column(name) for name in batch.schema.names if name in DOCUMENT_NAMES}
            columns = {**documents, **aligned.attributes}
            seen = look_at(survey, work.shard.path, aligned.block.first_row, batch, columns)
            found.add(seen, survey.examples)
        return found


def _set_of(error: DataError, root: str, work: ShardWork) -> str | None:
    """Return the attribute set whose file an error is about."""
    named = error.details.get("attributes")
    files_of = {files.join(root, source.info.path): source.name for source in work.sources}
    return named if isinstance(named, str) else files_of.get(str(error.details.get("url")))


def _left_out_notes(left_out: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"attribute set {name} is left out: {error}" for name, error in sorted(left_out.items()))


@dataclass(frozen=True)
class View:
    """What is read: shards, attribute sets and those that the rule needs, fields of the metadata that it names, and how the page spells
    its conditions."""

    dataset: Dataset
    sets: AttributeSets | None
    fields: Mapping[str, AttributeKind]
    needed: frozenset[str]
    survey: Survey
    spelled: tuple[str, ...]
    notes: tuple[str, ...]

    def stage(self) -> ReportStage:
        """Return what goes to workers."""
        return ReportStage(self.dataset.root, self.dataset.source, self.survey, self.needed)

    def without(self, names: Collection[str]) -> "View":
        """Return the view without the signals of some sets."""
        owners = self.sets.owners if self.sets else {}
        keys = tuple(key for key in self.survey.keys if owners[key] not in names)
        return replace(self, survey=replace(self.survey, keys=keys))

    def tasks(self) -> list[Task]:
        """Return the work: at most `MOST_TASKS` tasks of equally many shards."""
        works = [self._work(shard) for shard in self.dataset.shards]
        size = -(-len(works) // MOST_TASKS)
        return [self._task(works[start : start + size]) for start in range(0, len(works), size)]

    def _work(self, shard: Shard) -> ShardWork:
        sources = self.sets.sources(shard, sorted(self.survey.names)) if self.sets else ()
        return ShardWork(shard, sources, self.fields)

    def _task(self, works: Sequence[ShardWork]) -> Task:
        infos = [info for work in works for info in shard_inputs(work.shard, work.sources)]
        return Task(works[0].shard.path, (), inputs_of(self.dataset.root, infos), tuple(works))


def _view(origin: Origin, chosen: Dataset, examples: int) -> View:
    if examples < 0:
        raise UsageError(
            f"examples is {examples}; expected how many documents to show on each side of a bound."
        )
    written = parse(origin.where) if origin.where else None
    selection = select(chosen, written, origin.attributes if written is not None else ())
    needed = tuple(selection.sets.files) if selection.sets else ()
    sets, notes = _open_sets(chosen, needed)
    kinds = {key: sets.kinds[name][key] for key, name in sets.owners.items()} if sets else {}
    keys = [key for key, kind in kinds.items() if kind in NUMERIC]
    parts = conjuncts(selection.rule)
    bounds = tuple(bound for bound in bounds_of(parts) if bound.key in keys)
    keys = list(dict.fromkeys([*(bound.key for bound in bounds), *keys]))  # what decides comes first
    spelled = spelled_conjuncts(selection.rule, written)  # with the short names that the user chose
    survey = Survey(tuple(keys), parts, bounds, examples)
    return View(chosen, sets, selection.fields, frozenset(needed), survey, spelled, notes)


def _open_sets(dataset: Dataset, needed: Sequence[str]) -> tuple[AttributeSets | None, tuple[str, ...]]:
    """Open all attribute sets; one that the rule does not need may be unfinished or clash, and is left out then with a note."""
    catalog = Catalog(dataset)
    taken, kinds = list(needed), {name: catalog.kinds(name) for name in needed}
    left_out: dict[str, str] = {}
    for name in dataset.attributes:
        if name in needed:
            continue
        try:
            found = catalog.kinds(name)
            check_clash({**kinds, name: found}, found)
        except (DataError, UsageError) as error:
            left_out[name] = str(error)
        else:
            taken.append(name)
            kinds[name] = found
    return (catalog.open(taken) if taken else None), _left_out_notes(left_out)


# ------------------------------------------------------------------------------------------------ what is written


def _shown(dataset: DatasetLike, listed: Dataset) -> str:
    """Return the dataset's name as the user gave it, if that is a relative path below here; else its root."""
    given = layout.dataset_root(dataset).removeprefix("./") if isinstance(dataset, str) else ""
    return listed.root if not given or "://" in given or given.startswith(("/", "~", ".")) else given


def _title(title: str | None, shown: str) -> str:
    from dolma_dask.reports.page import (
        public_name,
    )  # brings Bokeh along, which takes half a second: not for --help

    return title or f"Report on {public_name(shown)}"


def _page_url(to: str, options: RunArgs) -> str:
    """Return the URL of the page; refuse what is no page, and a file that is no report."""
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
                f"{url} is there and is no report of ours; expected a free place. Choose another name, or replace it with --overwrite."
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
    for url, content in ((_json_url(target), write_json(data)), (target, page)):
        with publish(url) as out:
            out.write(content)
