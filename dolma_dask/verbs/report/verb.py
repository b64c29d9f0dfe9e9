"""report: one HTML page that shows what happened to a dataset, and the same content as JSON beside it.

The journals tell which verbs ran. One pass over the dataset that was selected from tells how its signals are distributed, where the rule
cuts, and which documents lie next to the cut. Nothing is taken on trust: documents and attributes must line up, and what the rule keeps
now is compared with what the journal says was kept.

A page is a unit of the journal of the dataset that it shows, named by its path as seen from there. Its key is a digest of what the journals and
the listing put on the page, of the options and of `VERSION`; its inputs are the documents and attributes that were read and the files of
quarantined records. While these are the same, and the page and the JSON beside it are as they were written, the same command reads journals and a
listing and writes nothing: a journal that is merged, or a copy elsewhere, makes no new page.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Unpack

import msgspec

import dolma_dask
from dolma_dask import engine
from dolma_dask.dataset import Dataset
from dolma_dask.display import counted
from dolma_dask.engine import RunOptions, Task, Unit, resume
from dolma_dask.errors import StoreAccessError, UsageError
from dolma_dask.extras import require
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.publish import publish, sweep
from dolma_dask.io.records import InputRecord
from dolma_dask.journal import Journal, Record, is_same_file, work_key
from dolma_dask.metering import CpuClock
from dolma_dask.summary import Summary
from dolma_dask.verbs.options import (
    DatasetLike,
    Many,
    RunArgs,
    as_dataset,
    checked,
    dataset_notes,
    of_version,
    run_options,
    selected,
    without_empty,
    words_of,
)
from dolma_dask.verbs.report.content import Known, disagreement, known_content, report_data
from dolma_dask.verbs.report.history import History, find_origin, last_name, public_name, read_history
from dolma_dask.verbs.report.model import VERSION, ReportData
from dolma_dask.verbs.report.survey import Findings, View, left_out_notes, make_view
from dolma_dask.verbs.report.thresholds import Found, find_thresholds


def report(
    dataset: DatasetLike,
    /,
    *,
    to: str,
    tokens: Annotated[Sequence[str], Many] = (),
    title: str | None = None,
    examples: int = 3,
    source: str | None = None,
    version: str | None = None,
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
        Folders that ragged or hdf5 wrote from it.
    title : str, optional
        Heading of the page.
    examples : int, optional
        Documents to show on each side of each bound of the rule.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself.

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
    require("bokeh", "the report")
    tokens = words_of("tokens", tokens)
    started, clock = time.monotonic(), CpuClock()
    target = _page_url(to, options)
    dataset = of_version(dataset, source, version)
    listed = as_dataset(dataset, source)
    history = read_history(listed.root, tokens)
    origin = find_origin(listed, history, source)
    view = make_view(origin, selected(origin.dataset, options), examples)
    known = known_content(title, public_name(_shown(dataset, listed)), history, origin, view)
    params = without_empty({"to": target, "title": title, "tokens": list(tokens), "examples": examples})
    thresholds = find_thresholds(view.dataset, view.survey.parts, examples)
    page = Page(listed.root, target, known, view, thresholds, params)
    run, shards = run_options(options), tuple(shard.path for shard in view.dataset.shards)
    notes = (*dataset_notes(listed), *history.notes, *origin.notes, *view.notes)
    record, done, lost = page.unchanged(run), 0, None
    if record is None and run.dry_run:
        return Summary("report", target, planned=shards, notes=(*notes, _would(view, history)))
    if record is None:
        record, done = page.make(run, started), len(shards)
        lost = page.remember([record], clock.take())
    return Summary(
        "report",
        target,
        done=done,
        skipped=len(shards) - done,
        counts=record.counts,
        notes=(*notes, *record.info["notes"], *filter(None, [lost])),
        seconds=time.monotonic() - started,
    )


def _would(view: View, history: History) -> str:
    """Say what a page would be made of."""
    steps = ", ".join(f"{step.verb} in {last_name(step.root)}" for step in history.steps) or "none"
    return f"would read {counted(len(view.survey.keys), 'signal')} of {last_name(view.dataset.root)}; journals: {steps}"


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
    signatures = ((target, b'content="dolma_dask '), (_json_url(target), b'"format":"dolma_dask.report"'))
    for url, signature in signatures:
        if not options.get("overwrite") and files.stat(url) and not _has(url, signature):
            raise UsageError(
                f"{url} is there and is no report of ours; expected a free path. Choose another name, or replace it with --overwrite."
            )
    return target


def _has(url: str, signature: bytes) -> bool:
    """Tell whether `signature` stands at the beginning of a file."""
    with files.open_read(url) as handle:
        return signature in handle.read(4096)


def _json_url(target: str) -> str:
    return target.removesuffix(".html") + ".json"


@dataclass(frozen=True)
class Page:
    """A page and the JSON beside it, as the journal of the dataset knows them."""

    root: str  # of the dataset that it shows; the journal is there
    target: str
    known: Known
    view: View
    thresholds: Found
    params: Mapping[str, Any]  # of the call, for the journal

    @cached_property
    def unit(self) -> Unit:
        """The page, by its path relative to the dataset where both are local: the same after both were moved."""
        name = self.target
        if files.is_local(self.target) and files.is_local(self.root):
            name = os.path.relpath(files.local_path(self.target), files.local_path(self.root))
        decides = {"view": self.view.decides(), "thresholds": self.thresholds.decides()}
        return Unit(name, work_key("report", VERSION, {**self.known.decides(), **decides}))

    def unchanged(self, run: RunOptions) -> Record | None:
        """Return the record of the page if it is as this call would make it; remember new time stamps of its inputs."""
        read = {item.info.path: item for task in self.view.tasks() for item in task.inputs}
        quarantined = (file for _, file in self.known.quarantine)
        task = Task(
            self.unit.name, (self.unit,), (*{**self.thresholds.inputs, **read}.values(), *quarantined)
        )
        state = resume.look_back_at(self.root, "report", [task], overwrite=run.overwrite)
        known = state.finished.get(self.unit.name)
        if known is None or not self._is_as_written(known):
            return None
        if state.restamped and not run.dry_run:
            self.remember(state.restamped)
        return known

    def make(self, run: RunOptions, started: float) -> Record:
        """Read the documents and write the page; return its record."""
        survey, findings = self.view.survey, Findings()
        for part in engine.gather(survey, self.view.tasks(), run):
            findings.add(part, survey.examples)
        survey = survey.without(
            [key for key, name in self.view.sets_of_keys.items() if name in findings.left_out]
        )
        changed = disagreement(self.known.recorded, survey, findings)
        answer, why_not = self.thresholds.answer(run)
        left_out = (
            *left_out_notes(self.view.dataset.root, findings.left_out),
            *filter(None, [why_not]),
        )
        shards, unread = len(self.view.dataset.shards), (*self.view.notes, *left_out)
        data = report_data(
            self.known, shards, survey, findings, changed, unread, answer, self.thresholds.is_used
        )
        written = self._publish(data)
        quarantined = (
            InputRecord(file.info.path, file.info.bytes, file.info.stamp, files.checksum(file.url))
            for _, file in self.known.quarantine
        )
        notes = [*left_out, *filter(None, [changed])]
        return Record(
            unit=self.unit.name,
            shard=self.unit.name,
            key=self.unit.key,
            inputs=(*findings.inputs, *self._others(findings), *quarantined),
            rows=findings.rows,
            counts={
                "documents": findings.documents,
                "signals": len(data.signals),
                "stages": len(data.stages),
            },
            info={"written": msgspec.to_builtins(written), "notes": notes},
            seconds=round(time.monotonic() - started, 4),
            finished=time.time(),
        )

    def _others(self, findings: Findings) -> list[InputRecord]:
        """Return the files that were read for the thresholds alone."""
        read = {one.path for one in findings.inputs}
        others = [one.info for path, one in self.thresholds.inputs.items() if path not in read]
        return [InputRecord(info.path, info.bytes, info.stamp, "") for info in others]

    def remember(self, records: Sequence[Record], cpu: float = 0.0) -> str | None:
        """Write records to the journal, and the CPU-seconds of the page; return what a person should know if that cannot be."""
        journal, read = Journal(self.root, "report"), self.view.dataset.root
        try:
            sweep(journal.folder)
            origin = "" if read == self.root else resume.origin_of(self.root, read)
            writer = journal.start(self.params, (self.unit.name,), dolma_dask.__version__, origin)
            try:
                for record in records:
                    writer.add(record)
                writer.finish(0, cpu=cpu)
            finally:
                writer.close()
        except (OSError, StoreAccessError) as error:  # a dataset that may only be read has a page too
            return f"the same command will make the page again, because it cannot be recorded in {self.root}: {error}"
        return None

    def _is_as_written(self, record: Record) -> bool:
        written = msgspec.convert(record.info.get("written", []), list[InputRecord])
        urls = (_json_url(self.target), self.target)
        return len(written) == 2 and all(
            is_same_file(one, url, files.stat(url)) for one, url in zip(written, urls, strict=True)
        )

    def _publish(self, data: ReportData) -> list[InputRecord]:
        """Write the JSON, then the page, each complete or not at all; return what was written."""
        # brings Bokeh along, which takes half a second: not for --help, nor where the page is there
        from dolma_dask.verbs.report.page import render, write_json

        text = render(data).encode()
        written = []
        for url, content in ((_json_url(self.target), write_json(data)), (self.target, text)):
            with publish(url) as out:
                out.write(content)
            info = files.stat(url)
            written.append(InputRecord(last_name(url), out.bytes, info.stamp if info else "", out.checksum))
        return written
