"""A run of `validate` from its listing to its report: shards that are left, then identities, then everything that is known, put together."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import dolma_dask
from dolma_dask import engine
from dolma_dask.clusters import shared_cluster
from dolma_dask.dataset import Dataset
from dolma_dask.display import counted
from dolma_dask.engine import Plan, RunOptions, Task
from dolma_dask.errors import StageError
from dolma_dask.exchange.folders import remove_exchange
from dolma_dask.exchange.owners import owned
from dolma_dask.formats import layout
from dolma_dask.io.publish import sweep
from dolma_dask.journal import Journal, Record
from dolma_dask.stages.options import dataset_notes
from dolma_dask.stages.validation.identities import IDS_FOLDER, Identities, Shuffle, by_stem, write_records
from dolma_dask.stages.validation.listing import Listing, disagreements
from dolma_dask.stages.validation.problems import Problems
from dolma_dask.stages.validation.shard import ValidateStage
from dolma_dask.stages.validation.summary import Found, ValidateSummary
from dolma_dask.summary import Summary

KEYS_FOLDER = "_exchange/validate-keys"
"""Identities of the shards that were checked, until they are compared."""

REPORT = "report"
"""Unit whose record holds the newest report."""


@dataclass(frozen=True)
class Check:
    """One call of `validate`.

    Attributes
    ----------
    stage : ValidateStage
        The work on a shard.
    dataset, chosen : Dataset
        All shards, and those to look at.
    earlier : Dataset or None
        The earlier version.
    listing : Listing
        The files to look at.
    is_sample : bool
        Whether only the earlier files of the same names are read.
    shuffle : Shuffle
        How identities meet.
    options : RunOptions
        How to run.
    """

    stage: ValidateStage
    dataset: Dataset
    chosen: Dataset
    earlier: Dataset | None
    listing: Listing
    is_sample: bool
    shuffle: Shuffle
    options: RunOptions

    def run(self, scope: Mapping[str, Any], show: int) -> ValidateSummary:
        """Check what is left and put the report together."""
        started = time.monotonic()
        plan = self._plan([self.stage.task(work) for work in self.listing.works])
        with shared_cluster(), self._owned():
            try:
                summary = engine.run(plan, self.options).summary
            except StageError as error:
                raise self._failed(error, plan, scope, show) from error
            if self.options.dry_run:
                notes = (*self._notes(()), *self._scope_notes())
                return ValidateSummary(**_fields(summary), scope=scope).with_notes(notes)
            records = self._records(plan)
            whole = Identities(
                self.stage,
                self.dataset,
                self.chosen,
                self.earlier,
                self.is_sample,
                self.shuffle,
                self.options,
            ).run(records)
            remove_exchange(self.dataset.url(KEYS_FOLDER))
        sweep(self.dataset.url(f"{layout.JOURNAL}/{self.stage.verb}"))
        report = self._summary(summary, records, whole.info["problems"], scope, show)
        self._remember(plan, report.report())
        return replace(report, seconds=time.monotonic() - started)

    def _owned(self) -> AbstractContextManager[None]:
        """Keep a second call out: both would write and remove the same keys."""
        if self.options.dry_run:
            return nullcontext()
        return owned(self.dataset.url(IDS_FOLDER), self.stage.verb)

    def _plan(self, tasks: Sequence[Task]) -> Plan:
        params: dict[str, Any] = {"files": len(self.chosen.shards)}
        return Plan(
            self.stage, self.dataset.root, tasks, params, (), dolma_dask.__version__, bad_is_loss=True
        )

    def _records(self, plan: Plan) -> list[Record]:
        """Return the record of each shard that is checked, in the order of the shards."""
        known = Journal(self.dataset.root, self.stage.verb).records
        units = [unit for task in plan.tasks for unit in task.units]
        return [known[unit.name] for unit in units if unit.name in known and known[unit.name].key == unit.key]

    def _remember(self, plan: Plan, report: dict[str, Any]) -> None:
        """Keep the newest report in the journal, for the page that `report` makes."""
        journal = Journal(self.dataset.root, self.stage.verb)
        known = journal.records.get(REPORT)
        if known is None or known.info != report:
            write_records(plan, journal, [Record(REPORT, REPORT, "", info=report, finished=time.time())])

    def _failed(self, error: StageError, plan: Plan, scope: Mapping[str, Any], show: int) -> StageError:
        """Return the error with a report on the shards that could be checked."""
        failed = {failure.shard for failure in error.failures}
        records = [record for record in self._records(plan) if record.shard not in failed]
        base = error.details.get("summary")
        summary = base if isinstance(base, Summary) else Summary(self.stage.verb, self.dataset.root)
        report = self._summary(summary, records, {}, {**scope, "files": len(records)}, show)
        note = "uniqueness of ids was NOT checked, because some files could not be read"
        return StageError(
            str(error), failures=error.failures, summary=report.with_notes((*report.notes, note))
        )

    def _summary(
        self,
        summary: Summary,
        records: Sequence[Record],
        whole: Mapping[str, Any],
        scope: Mapping[str, Any],
        show: int,
    ) -> ValidateSummary:
        problems = Problems(self.stage.keep)
        for found in (
            self.listing.problems.to_record(),
            *(record.info["problems"] for record in records),
            whole,
        ):
            problems.merge(found)
        paths = {
            (work.shard.path, one.name): one.info.path for work in self.listing.works for one in work.sources
        }
        disagreements(records, paths, problems)
        counts: Counter[str] = Counter()
        for record in records:
            counts.update(record.counts)
        counts.pop("problems", None)
        shown = {
            kind: Found(problems.counts[kind], tuple(problems.first(kind)[:show])) for kind in problems.kinds
        }
        notes = (*self._notes(records), *self._scope_notes())
        fields = {**_fields(summary), "counts": dict(sorted(counts.items())), "notes": notes}
        return ValidateSummary(**fields, found=shown, scope=scope)

    def _notes(self, records: Sequence[Record]) -> Iterator[str]:
        yield from dataset_notes(self.dataset)
        yield from self.listing.notes
        unproved = Counter(name for record in records for name in record.info["unproved"])
        if unproved:
            sets = ", ".join(f"{name} ({counted(count, 'file')})" for name, count in sorted(unproved.items()))
            yield f"unproved attributes, whose rows line up but no journal says from which text they were made: {sets}"

    def _scope_notes(self) -> Iterator[str]:
        """Say loudly what was not looked at."""
        count, total = len(self.chosen.shards), len(self.dataset.shards)
        if count < total:
            yield (
                f"looked at {count:,} of {total:,} files: NOTHING is known of the other {total - count:,}, and ids were compared among the "
                f"{count:,} only"
            )
        if self.earlier is not None and self.is_sample:
            alone = len(
                {layout.stem_of(one.path) for one in self.chosen.shards} - by_stem(self.earlier.shards).keys()
            )
            yield (
                "documents were looked for in the earlier files of the same names only, because of --sample"
                + (f"; those of {counted(alone, 'file')} without such a file NOT at all" if alone else "")
            )


def _fields(summary: Summary) -> dict[str, Any]:
    """Return the fields of a plain summary."""
    return {name: getattr(summary, name) for name in Summary.__dataclass_fields__}
