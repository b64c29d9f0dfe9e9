"""report: one HTML page that shows what happened to a dataset, and the same content as JSON beside it.

The journals tell which verbs ran. One pass over the dataset that was selected from tells how its signals are distributed, where the rule
cuts, and which documents lie next to the cut. Nothing is taken on trust: documents and attributes must line up, and what the rule keeps
now is compared with what the journal says was kept. While nothing that a page shows has changed, the same command reads journals and a listing
and writes nothing (`report_record`). Memory: a few blocks per worker, and the sums of at most 256 tasks.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Unpack

from dolma_dask import engine
from dolma_dask.dataset import Dataset
from dolma_dask.display import counted
from dolma_dask.engine import RunOptions
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.publish import publish
from dolma_dask.io.records import InputRecord
from dolma_dask.journal import Record
from dolma_dask.summary import Summary
from dolma_dask.verbs.options import (
    DatasetLike,
    Many,
    RunArgs,
    as_dataset,
    checked,
    dataset_notes,
    run_options,
    selected,
    told,
    words_of,
)
from dolma_dask.verbs.report.agreement import disagreement
from dolma_dask.verbs.report.content import Known, report_data, what_is_known
from dolma_dask.verbs.report.history import History
from dolma_dask.verbs.report.lineage import read_history
from dolma_dask.verbs.report.model import ReportData
from dolma_dask.verbs.report.names import last_name, public_name
from dolma_dask.verbs.report.origin import Origin, find_origin
from dolma_dask.verbs.report.record import Page
from dolma_dask.verbs.report.results import result_tables
from dolma_dask.verbs.report.view import Looked, View, left_out_notes, make_view


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

    Notes
    -----
    While nothing that the page shows has changed, the same command writes nothing.
    """
    options = checked(report, options, RunArgs)
    tokens = words_of("tokens", tokens)
    started = time.monotonic()
    target = _page_url(to, options)
    listed = as_dataset(dataset, source)
    history = read_history(listed.root, tokens)
    origin = find_origin(listed, history, source)
    view = make_view(origin, selected(origin.dataset, options), examples)
    shown = _shown(dataset, listed)
    known = _known(title or f"Report on {public_name(shown)}", shown, history, origin, view)
    params = told({"to": target, "title": title, "tokens": list(tokens), "examples": examples})
    page = _page(listed.root, target, known, view, params)
    notes = (*dataset_notes(listed), *history.notes, *origin.notes, *view.notes)
    making = _Making(page, known, view, run_options(options), Summary("report", target, notes=notes), started)
    done = page.done_before(making.options.overwrite, making.options.dry_run)
    if done is not None:
        return making.summary_of(done)
    return making.planned(history) if making.options.dry_run else making.make()


@dataclass(frozen=True)
class _Making:
    """A page that is to be made: what is known before a document is read."""

    page: Page
    known: Known
    view: View
    options: RunOptions
    summary: Summary
    started: float

    @property
    def paths(self) -> tuple[str, ...]:
        """The shards that are shown."""
        return tuple(shard.path for shard in self.view.dataset.shards)

    def planned(self, history: History) -> Summary:
        """Return what would be done."""
        return replace(
            self.summary, planned=self.paths, notes=(*self.summary.notes, _would(self.view, history))
        )

    def make(self) -> Summary:
        """Look at the documents and write the page."""
        looked = Looked()
        for result in engine.gather(self.view.stage(), self.view.tasks(), self.options):
            looked.add(result, self.view.survey.examples)
        found = looked.found
        data = report_data(self.known, len(self.paths), self.view.without(found.left_out).survey, found)
        changed = disagreement(self.known.told, self.known.spelled, found)
        notes = (*left_out_notes(found.left_out), *((changed,) if changed else ()))
        counts: dict[str, float] = {
            "documents": found.rows - found.bad,
            "signals": len(data.signals),
            "stages": len(data.stages),
        }
        written = _publish(self.page, data)
        seconds = time.monotonic() - self.started
        record = self.page.record(written, looked.inputs, found.rows, counts, notes, seconds)
        lost = self.page.remember([record])
        summary = replace(self.summary_of(record), done=len(self.paths), skipped=0)
        return replace(summary, notes=(*summary.notes, *((lost,) if lost else ())))

    def summary_of(self, record: Record) -> Summary:
        """Return what a page that is there came to."""
        return replace(
            self.summary,
            skipped=len(self.paths),
            counts=record.counts,
            notes=(*self.summary.notes, *record.info["notes"]),
            seconds=time.monotonic() - self.started,
        )


def _known(title: str, shown: str, history: History, origin: Origin, view: View) -> Known:
    """Return what the journals tell of the shards that are shown."""
    paths = [shard.path for shard in view.dataset.shards]
    is_all = len(paths) == len(origin.dataset.shards)
    results = result_tables(history)
    shown_history = history.of_shards(origin.dataset.root, paths, is_all=is_all)
    return what_is_known(title, shown, shown_history, origin, view.survey, view.spelled, results)


def _page(root: str, target: str, known: Known, view: View, params: dict[str, object]) -> Page:
    """Return the page as its journal knows it."""
    decides = {**known.decides(), "dataset": public_name(known.dataset), "view": view.decides()}
    inputs = [item for task in view.tasks() for item in task.inputs]
    return Page(root, target, _json_url(target), view.dataset.root, decides, inputs, known.quarantine, params)


def _would(view: View, history: History) -> str:
    """Say what a page would be made of."""
    steps = ", ".join(f"{step.verb} in {last_name(step.root)}" for step in history.steps) or "none"
    return f"would read {counted(len(view.survey.keys), 'signal')} of {last_name(view.dataset.root)}; journals: {steps}"


# ------------------------------------------------------------------------------------------------ what is written


def _shown(dataset: DatasetLike, listed: Dataset) -> str:
    """Return the dataset's name as the user gave it, if that is a relative path below here; else its root."""
    given = layout.dataset_root(dataset).removeprefix("./") if isinstance(dataset, str) else ""
    return listed.root if not given or "://" in given or given.startswith(("/", "~", ".")) else given


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


def _publish(page: Page, data: ReportData) -> list[InputRecord]:
    """Write the JSON, then the page, each whole or not at all; return what was written."""
    from dolma_dask.verbs.report.page import (
        render,
        write_json,
    )  # brings Bokeh along, which takes half a second: not for --help, nor where the page is there

    text = render(data).encode()
    written = []
    for url, content in ((page.content, write_json(data)), (page.target, text)):
        with publish(url) as out:
            out.write(content)
        info = files.stat(url)
        written.append(InputRecord(last_name(url), out.bytes, info.stamp if info else "", out.checksum))
    return written
