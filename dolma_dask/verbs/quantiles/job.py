"""The job of `quantiles`: the values of all shards are kept, each signal is looked up in them, the result is one file; thresholds of levels are made of that."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from dolma_dask import engine
from dolma_dask.dataset import Dataset
from dolma_dask.display import counted, near_or_all
from dolma_dask.engine import Input, Pass, Passes, Plan, Ran, Task, Unit, WorkDir, refusals, run_job
from dolma_dask.errors import StageError, UsageError
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.publish import publish
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.journal import Journal, Record, work_key
from dolma_dask.options.base import without_empty
from dolma_dask.options.groups import RunOptions
from dolma_dask.options.records import budget
from dolma_dask.ownership import dataset_notes
from dolma_dask.reading.quantiles import QuantilesSummary
from dolma_dask.reading.thresholds import (
    QUANTILES,
    is_outdated,
    level_words,
    quantiles_path,
    read_table,
    read_thresholds,
    thresholds_path,
)
from dolma_dask.rules.groups import MAX_GROUPS, too_many
from dolma_dask.rules.sampling import sample_in_words
from dolma_dask.rules.strictness import LEVELS, MIXED, Strictness
from dolma_dask.rules.tails import Tail
from dolma_dask.rules.thresholds import By, Kind, NullPolicy, one_kind, places_in, thresholds_of
from dolma_dask.verbs.quantiles.select import SelectStage, read_entries, select_tasks, write_index
from dolma_dask.verbs.quantiles.shares import KeptShares
from dolma_dask.verbs.quantiles.values import Request, ValueStage, value_tasks

VERSION = 1
"""Raised whenever quantiles writes other numbers for the same values."""

THRESHOLDS_VERSION = 2
"""Raised whenever thresholds are written differently for the same quantiles; 2: they name the policy for nulls."""


class _PublishStage(Struct, frozen=True):
    """From the quantiles of each signal to the one file of all."""

    root: str
    folder: str  # with the results of the signals
    signals: tuple[str, ...]
    verb: str = QUANTILES

    def run_shard(self, task: Task) -> list[Record]:
        """Write the file; ``task.work`` is its record before it is there, and the results."""
        record, results = task.work
        table = {
            signal: read_entries(self.folder, file)
            for signal, file in zip(self.signals, results, strict=True)
        }
        with publish(files.join(self.root, record.unit)) as out:
            out.write(msgspec.json.format(msgspec.json.encode(table)) + b"\n")
        file = FileRecord(record.unit, out.bytes, out.checksum)
        return [replace(record, files=(file, *record.files))]


class Quantiles(Struct, frozen=True, dict=True):
    """A call of `quantiles`, with everything that decides its result; see `dolma_dask.engine.Job`."""

    dataset: Dataset
    selected: Dataset
    request: Request
    name: str
    policy: RecordPolicy
    takes_all_signals: bool = False  # of the dataset, so that there may be more than before
    level: Strictness | None = None  # of the thresholds that are written too
    tails: Mapping[str, Tail] = {}  # ends of each signal that these cut
    nulls: NullPolicy = "drop"  # of these
    chosen: Mapping[str, str] = {}  # which documents are looked at, as it was given

    verb: ClassVar[str] = QUANTILES
    record: ClassVar[None] = None
    writes: ClassVar[Sequence[str]] = ()

    @property
    def root(self) -> str:
        """Root of the dataset."""
        return self.dataset.root

    @cached_property
    def key(self) -> str:
        """Digest of what was requested."""
        shards = [shard.path for shard in self.selected.shards]
        policy = {"max_record_bytes": self.policy.max_record_bytes}
        return work_key(QUANTILES, VERSION, {**self.request.params(), **policy, "shards": shards})

    @cached_property
    def inputs(self) -> tuple[Input, ...]:
        """Files of the selected shards."""
        return tuple({item.info.path: item for task in self._value_tasks for item in task.inputs}.values())

    @cached_property
    def _value_tasks(self) -> list[Task]:
        return value_tasks(self.request, self.selected, self.key)

    def outputs(self, known: Record | None, overwrite: bool) -> Plan:
        """Return the plan of the one file: what it was made of decides whether it is finished."""
        if not overwrite:
            self._check_replaced()
        return self._plan("", None)

    def _check_replaced(self) -> None:
        """Refuse to replace quantiles of other options, or of more shards: thresholds of them would go too."""
        path = quantiles_path(self.name)
        record = Journal(self.root, QUANTILES).records.get(path)
        if record is None or record.key == self.key or files.stat(files.join(self.root, path)) is None:
            return
        made, now = record.info["parameters"], self.parameters()
        if self.takes_all_signals and set(made["signals"]) < set(now["signals"]):
            now["signals"] = made["signals"]
        shown = refusals.differing(made, now)
        if len(self.selected.shards) < len(self.dataset.shards):
            shown.append(f"now {len(self.selected.shards):,} of {counted(len(self.dataset.shards), 'shard')}")
        if shown:
            raise UsageError(
                f"{self.root} holds {path}, made with other options: {'; '.join(shown)}. Expected the same ones, since thresholds may have "
                "been made of it. Give these quantiles a name of their own with --name, or replace it with --overwrite."
            )

    def _plan(self, folder: str, work: tuple[Record, tuple[FileRecord, ...]] | None) -> Plan:
        path = quantiles_path(self.name)
        left_out = len(self.dataset.shards) - len(self.selected.shards)
        part = f"of {len(self.selected.shards):,} of {counted(len(self.dataset.shards), 'shard')} alone"
        return Plan(
            stage=_PublishStage(self.root, folder, self.request.signals),
            root=self.root,
            tasks=[Task(path, (Unit(path, self.key),), self.inputs, work)],
            params=without_empty({**self.parameters(), **self.dataset.params}),
            writes=(path,),
            bad_is_loss=True,
            max_bad_fraction=budget(self.policy),
            notes=(*dataset_notes(self.dataset), *((part,) if left_out else ())),
            is_small=True,
        )

    def passes(self, work: WorkDir, known: Record | None) -> Passes:
        """Keep the values of all shards, find the quantiles of each signal, and write the files."""
        request = self.request
        try:
            first = ValueStage(self.root, work.url, request, self.policy)
            records = tuple((yield Pass(first, self._value_tasks)).records.values())
            if len({label for record in records for label in record.info["labels"]}) > MAX_GROUPS:
                raise too_many(str(request.label))
            self._check_sample(records)
        except (StageError, UsageError) as error:
            raise self._wrong_argument(work, error) from error
        index = write_index(work.url, records, one_kind(request.kind))
        second = SelectStage(work.url, request.probabilities)
        staged = sum(file.bytes for record in records for file in record.files)
        selected = yield Pass(second, select_tasks(request.signals, index, self.key, staged))
        results = tuple(record.files[0] for record in selected.records.values())
        ran: Ran = yield self._plan(work.url, (self._record(records), results))
        if self.level is not None:
            yield self.thresholds_plan(self.level)
        return ran

    def thresholds_plan(self, level: Strictness) -> Plan:
        """Return the plan of the thresholds of a level, from the quantiles that are there now."""
        path, own = thresholds_path(self.name, level.name), quantiles_path(self.name)
        places_in(read_table(files.join(self.root, own)), level)  # a wrong word is no failure of a shard
        stat = files.stat(files.join(self.root, own))
        info = FileInfo(own, stat.bytes if stat else 0, stat.stamp if stat else "")
        by, kind, tails = self.request.by, self.request.kind, self.tails
        decided = {"level": str(level), "by": by, "kind": kind, "tails": dict(tails), "nulls": self.nulls}
        key = work_key("thresholds", THRESHOLDS_VERSION, decided)
        return Plan(
            stage=ThresholdStage(
                self.root,
                level,
                by,
                kind,
                tails,
                self.nulls,
                KeptShares(self.selected, level, by, kind, tails, self.request.where),
            ),
            root=self.root,
            tasks=[Task(path, (Unit(path, key),), (Input(files.join(self.root, own), info),))],
            params={"name": self.name, "level": str(level)},
            writes=(path,),
            is_small=True,
        )

    def _check_sample(self, records: Sequence[Record]) -> None:
        """Refuse a sample that selects no document of any."""
        rows, drawn = (
            sum(record.counts.get(name, 0) for record in records)
            for name in ("documents_in", "documents_sampled")
        )
        sample = self.request.sample
        if sample is not None and rows and not drawn:
            raise UsageError(
                f"sample {sample_in_words(sample)} selects none of {counted(int(rows), 'document')}; expected one or more. Take a larger fraction, "
                "or another seed."
            )
        labels = {label for record in records for label in record.info["labels"]}
        if isinstance(sample, Mapping) and (unknown := sorted(sample.keys() - labels)):
            raise UsageError(
                f"sample names {self.request.label} {' '.join(map(repr, unknown))}, of which it selects no document; expected some of each. Take a larger fraction, "
                f"leave it out, or correct the name; {near_or_all(unknown[0], sorted(labels))}"
            )

    def _record(self, records: Sequence[Record]) -> Record:
        """Return the record of the file, without the file, from those of the values."""
        path = quantiles_path(self.name)
        counts: Counter[str] = Counter()
        for record in records:
            counts.update(record.counts)
        unproved = sorted({name for record in records for name in record.info["unproved"]})
        quarantine = [item for record in records for item in record.info["quarantine"]]
        return Record(
            path,
            path,
            self.key,
            tuple(item for record in records for item in record.inputs),
            msgspec.convert(quarantine, tuple[FileRecord, ...]),
            int(counts["documents_in"]),
            counts=dict(counts),
            info={"parameters": self.parameters(), "unproved": unproved},
            seconds=sum(record.seconds for record in records),
        )

    def _wrong_argument(self, work: WorkDir, error: StageError | UsageError) -> Exception:
        """Return the error; a wrong argument that only the rows could tell leaves nothing behind."""
        failures = error.failures if isinstance(error, StageError) else ()
        if failures and all(item.error == UsageError.__name__ for item in failures):
            error = UsageError(failures[0].message)
        if isinstance(error, UsageError):
            work.clear()
        return error

    def parameters(self) -> dict[str, Any]:
        """Return what was requested, for people."""
        request = self.request
        sample = {"sample": request.sample, "seed": request.seed} if request.sample is not None else {}
        by, kind = (list(one) if isinstance(one, tuple) else one for one in (request.by, request.kind))
        groups = {} if by is None else {"by": by, "by_kind": kind}
        return {
            "name": self.name,
            "signals": list(request.signals),
            **groups,
            "probabilities": list(request.probabilities),
            **sample,
            **self.chosen,
            "method": "exact",
        }

    def summarize(self, ran: Ran, known: Record | None) -> QuantilesSummary:
        """Return the summary, which counts shards rather than the one file, with the quantiles."""
        summary, shards = ran.summary, tuple(shard.path for shard in self.selected.shards)
        path = quantiles_path(self.name)
        if summary.planned or not ran.records:
            planned = {"planned": shards if summary.planned else ()}
            return QuantilesSummary(**{**asdict(summary), **planned}, file=path, parameters=self.parameters())
        removed = remove_outdated(self.root, self.name)
        done, skipped = (len(shards), 0) if summary.done else (0, len(shards))
        notes = (*summary.notes, *self._notes(summary.counts), *removed)
        return QuantilesSummary(
            **{**asdict(summary), "done": done, "skipped": skipped, "notes": notes},
            file=path,
            parameters=self.parameters(),
            quantiles=read_table(files.join(self.root, path)),
        )

    def _notes(self, counts: Mapping[str, float]) -> Iterator[str]:
        rows = int(counts.get("documents_without_group", 0))
        if self.request.by is not None and rows:
            yield f"{counted(rows, 'document')} without {self.request.label}: in the group 'all' alone"
        if self.chosen:
            rule = ", ".join(f"{name}: {text}" for name, text in self.chosen.items())
            yield f"{counted(int(counts.get('documents_excluded', 0)), 'document')} left out ({rule})"
        infinite = int(counts.get("infinite_values", 0))
        if infinite:
            yield f"{counted(infinite, 'infinite value')}, which count as missing"
        if isinstance(self.request.sample, Mapping):
            yield "the group 'all' has the groups as they were sampled, not as they are in the dataset"


def run_quantiles(job: Quantiles, options: RunOptions) -> QuantilesSummary:
    """Do what is left of quantiles, and of the thresholds of a level."""
    summary = run_job(job, options)
    if job.level is None or options.dry_run:
        return summary
    if summary.done:  # another run may have replaced the files since the lease has ended
        request = job.request
        made = thresholds_of(
            summary.quantiles, str(job.level), request.by, request.kind, job.tails, job.nulls
        )
    else:
        engine.run(job.thresholds_plan(job.level), options)
        made = read_thresholds(files.join(job.root, thresholds_path(job.name, job.level.name)))
    record = Journal(job.root, QUANTILES).records.get(thresholds_path(job.name, job.level.name))
    return replace(summary, thresholds=made, levels=record.info.get("levels", {}) if record else {})


def remove_outdated(root: str, name: str) -> list[str]:
    """Remove the thresholds that `quantiles` wrote from other quantiles of that name than there are now; return a note for each."""
    known = Journal(root, QUANTILES).records
    notes = []
    for level in (*LEVELS, MIXED):
        record = known.get(thresholds_path(name, level))
        if record is not None and is_outdated(root, record):
            files.remove(files.join(root, record.unit))
            notes.append(
                f"{record.unit} removed: it was made of the quantiles that are replaced; --level {level_words(level)} makes it again"
            )
    return notes


class ThresholdStage(Struct, frozen=True):
    """Writes the thresholds of a level from the quantiles of a dataset."""

    root: str  # of the dataset
    level: Strictness
    by: By  # column of the groups
    kind: Kind  # type of that column
    tails: Mapping[str, Tail]  # ends of each signal that are cut
    nulls: NullPolicy
    shares: KeptShares
    verb: str = QUANTILES

    def run_shard(self, task: Task) -> list[Record]:
        """Write the thresholds; see `dolma_dask.engine.Stage`."""
        unit, (source,) = task.units[0], task.inputs
        table = read_table(source.url)
        found = thresholds_of(table, str(self.level), self.by, self.kind, self.tails, self.nulls)
        info = {"levels": self.shares.count(table)}
        with publish(files.join(self.root, unit.name)) as out:
            out.write(msgspec.json.format(msgspec.json.encode(found.to_json())) + b"\n")
        read = InputRecord(source.info.path, source.info.bytes, source.info.stamp, files.checksum(source.url))
        return [task.record([FileRecord(unit.name, out.bytes, out.checksum)], [read], info=info)]
