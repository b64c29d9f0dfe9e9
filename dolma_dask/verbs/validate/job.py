"""The job of `validate`: the checks of all shards, then the identities of all documents, then everything that is known put together."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import asdict, replace

from dolma_dask.dataset import Dataset
from dolma_dask.display import counted
from dolma_dask.engine import Announce, Input, LazyTasks, Passes, Plan, Ran, WorkDir
from dolma_dask.errors import StageError
from dolma_dask.formats import layout
from dolma_dask.journal import Journal, Record, garbage_notes, journals, work_key
from dolma_dask.ownership import dataset_notes
from dolma_dask.results.summary import Summary
from dolma_dask.verbs.validate.identities import Identities, by_stem
from dolma_dask.verbs.validate.listing import CheckedFiles, disagreements
from dolma_dask.verbs.validate.problems import Problems
from dolma_dask.verbs.validate.shard import VERSION, ValidateStage
from dolma_dask.verbs.validate.summary import REPORT, KindProblems, ValidateSummary

_REPEATED = "duplicate_id"


def _again_notes(repeated: int, again: int) -> Iterator[str]:
    """Say which repeated ids are meant, of all of them and of the copies that a mix has made."""
    if repeated and again:
        which = f"all {repeated:,}" if repeated <= again else f"{again:,} of {repeated:,}"
        yield f"{which} ids that stand more than once are those of documents that mix took several times, by budget or sample"


class Check(Struct, frozen=True, dict=True):
    """A call of `validate`; see `dolma_dask.engine.Job`."""

    stage: ValidateStage
    dataset: Dataset
    selected: Dataset
    listing: CheckedFiles  # the files to look at
    identities: Identities
    scope: Mapping[str, Any]
    show: int  # problems of each kind

    verb: ClassVar[str] = "validate"
    writes: ClassVar[Sequence[str]] = ()

    @property
    def root(self) -> str:
        """Root of the dataset."""
        return self.dataset.root

    @property
    def name(self) -> str:
        """Name of the comparison: that of a part replaces no other."""
        return self.record.replace(" ", "-")

    @property
    def record(self) -> str:
        """Unit of the comparison of all identities."""
        part = " of a part" if len(self.selected.shards) < len(self.dataset.shards) else ""
        return f"ids{part}{' and of an earlier version' if self.identities.earlier else ''}"

    @property
    def key(self) -> str:
        """Digest of what was requested of the identities; shards have keys of their own."""
        earlier = self.identities.earlier
        params = {
            "source": self.stage.source,
            **self.dataset.params,
            "keep": self.stage.keep,
            "max_record_bytes": self.stage.max_record_bytes,
            "same_names": self.identities.is_sample,
            "earlier_source": earlier.source if earlier else None,
            **({"earlier_ids_as_text": True} if earlier and earlier.ids_as_text else {}),
        }
        return work_key(f"{self.verb} ids", VERSION, params)

    @cached_property
    def inputs(self) -> tuple[Input, ...]:
        """Document files of both versions."""
        return self.identities.inputs

    def outputs(self, known: Record | None, overwrite: bool) -> Plan:
        """Return the plan of the checks of all shards."""
        return self._plan(self.stage)

    def _plan(self, stage: ValidateStage) -> Plan:
        tasks = LazyTasks(self.listing.works, stage.task)
        params: dict[str, Any] = {"files": len(self.selected.shards)}
        return Plan(stage, self.root, tasks, params, (), bad_is_loss=True)

    def passes(self, work: WorkDir, known: Record | None) -> Passes:
        """Check the shards, and compare the identities of all documents."""
        plan = self._plan(replace(self.stage, keys_folder=f"{work.path}/keys"))
        try:
            ran: Ran = yield plan
        except StageError as error:
            raise self._failed(error, plan) from error
        if known is None:
            records = list(ran.records.values())
            yield Announce((yield from self.identities.compare(work, self.record, self.key, records)))
        return ran

    def _failed(self, error: StageError, plan: Plan) -> StageError:
        """Return the error with a report on the shards that could be checked."""
        failed = {failure.shard for failure in error.failures}
        known = Journal(self.root, self.verb).records
        units = [unit for task in plan.tasks if task.shard not in failed for unit in task.units]
        records = [
            known[unit.name] for unit in units if unit.name in known and known[unit.name].key == unit.key
        ]
        summary = error.details["summary"]
        assert isinstance(summary, Summary)
        report = self._summary(summary, records, {}, {**self.scope, "files": len(records)})
        note = "uniqueness of ids was NOT checked, because some files could not be read"
        report = replace(report, notes=(*report.notes, note))
        return StageError(str(error), failures=error.failures, summary=report)

    def summarize(self, ran: Ran, known: Record | None) -> ValidateSummary:
        """Return the report."""
        if known is None or ran.summary.planned:
            fields = {**asdict(ran.summary), "notes": (*self._notes(()), *self._scope_notes())}
            return ValidateSummary(**fields, scope=self.scope)
        records = list(ran.records.values())
        return self._summary(ran.summary, records, known.info["problems"], self.scope)

    def remember(self, report: Mapping[str, Any]) -> None:
        """Keep the newest report in the journal, for the page that `report` makes."""
        journal = Journal(self.root, self.verb)
        known = journal.records.get(REPORT)
        if known is None or known.info != report:
            journal.append(Record(REPORT, REPORT, "", info=dict(report), finished=time.time()))

    def _summary(
        self,
        summary: Summary,
        records: Sequence[Record],
        identities: Mapping[str, Any],
        scope: Mapping[str, Any],
    ) -> ValidateSummary:
        problems = Problems(self.stage.keep)
        every = (record.info["problems"] for record in records)
        for one in (self.listing.problems.to_record(), *every, identities):
            problems.merge(one)
        paths = {
            (work.shard.path, one.name): one.info.path for work in self.listing.works for one in work.sources
        }
        disagreements(records, paths, problems)
        counts: Counter[str] = Counter()
        for record in records:
            counts.update(record.counts)
        counts.pop("problems", None)
        shown = {
            kind: KindProblems(problems.counts[kind], tuple(problems.first(kind)[: self.show]))
            for kind in problems.kinds
        }
        repeated, again = problems.counts[_REPEATED], self._taken_again()
        if repeated <= again:
            shown.pop(_REPEATED, None)
        notes = (*self._notes(records), *_again_notes(repeated, again), *self._scope_notes())
        fields = {**asdict(summary), "counts": dict(sorted(counts.items())), "notes": notes}
        return ValidateSummary(**fields, found=shown, scope=scope)

    def _taken_again(self) -> int:
        """Return how many copies of documents a mix put into the selected files, as its journal has it."""
        paths = {layout.document_path(shard.path) for shard in self.selected.shards}
        known = Journal(self.root, "mix").records.values()
        own = (
            record for record in known if not record.stale and any(one.path in paths for one in record.files)
        )
        return sum(int(record.counts.get("documents_again", 0)) for record in own)

    def _notes(self, records: Sequence[Record]) -> Iterator[str]:
        yield from dataset_notes(self.dataset)
        yield from garbage_notes(journals(self.dataset.root))
        yield from self.listing.notes
        unproved = Counter(name for record in records for name in record.info["unproved"])
        if unproved:
            sets = ", ".join(f"{name} ({counted(count, 'file')})" for name, count in sorted(unproved.items()))
            yield f"unproved attributes, whose rows line up but no journal says from which text they were made: {sets}"

    def _scope_notes(self) -> Iterator[str]:
        """Say loudly what was not looked at."""
        count, total, earlier = len(self.selected.shards), len(self.dataset.shards), self.identities.earlier
        if count < total:
            yield (
                f"looked at {count:,} of {total:,} files: NOTHING is known of the other {total - count:,}, and ids were compared among the "
                f"{count:,} only"
            )
        if earlier is not None and self.identities.is_sample:
            stems = {layout.stem_of(one.path) for one in self.selected.shards}
            alone = len(stems - by_stem(earlier.shards).keys())
            yield (
                "documents were looked for in the earlier files of the same names only, because of --sample"
                + (f"; those of {counted(alone, 'file')} without such a file NOT at all" if alone else "")
            )
