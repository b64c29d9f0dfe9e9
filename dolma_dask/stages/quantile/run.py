"""One call of `quantiles` from its plan to its summary: what is finished, what was kept, both parts, the one file of the result."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec

import dolma_dask
from dolma_dask import engine
from dolma_dask.dataset import Dataset
from dolma_dask.display import counted
from dolma_dask.engine import Input, Plan, RunOptions, Task, Unit
from dolma_dask.errors import StageError, UsageError
from dolma_dask.exchange.folders import (
    EXCHANGE,
    parent_of,
    remove_exchange,
    remove_others,
    remove_tree,
)
from dolma_dask.exchange.owners import owned
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.publish import publish
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.journal import Journal, Record, work_key
from dolma_dask.quality.groups import MOST_GROUPS, too_many
from dolma_dask.quality.levels import Level
from dolma_dask.quality.thresholds import Thresholds
from dolma_dask.stages.options import dataset_notes, told
from dolma_dask.stages.quantile.question import Question
from dolma_dask.stages.quantile.select import RESULTS, SelectStage, read_entries, select_tasks, write_index
from dolma_dask.stages.quantile.summary import QuantilesSummary
from dolma_dask.stages.quantile.thresholds import (
    QUANTILES,
    ThresholdStage,
    quantiles_path,
    read_table,
    read_thresholds,
    remove_outdated,
    thresholds_path,
)
from dolma_dask.stages.quantile.values import VALUES, ValueStage, value_tasks

VERSION = 1
"""Raised whenever quantiles writes other numbers for the same values."""


@dataclass(frozen=True)
class PublishStage:
    """From the quantiles of each signal to the one file of all.

    Attributes
    ----------
    root : str
        Of the dataset.
    folder : str
        Of the exchange.
    info : Mapping
        For the journal.
    """

    root: str
    folder: str
    info: Mapping[str, Any]
    verb: str = QUANTILES

    def run_shard(self, task: Task) -> list[Record]:
        """Write the file; see `dolma_dask.engine.Stage`."""
        unit = task.units[0]
        made: _Made = task.work
        signals = self.info["parameters"]["signals"]
        table = {
            signal: read_entries(self.folder, file)
            for signal, file in zip(signals, made.results, strict=True)
        }
        with publish(files.join(self.root, unit.name)) as out:
            out.write(msgspec.json.format(msgspec.json.encode(table)) + b"\n")
        written = FileRecord(unit.name, out.bytes, out.checksum)
        rows = int(made.counts["documents_in"])
        info = {**self.info, "unproved": list(made.unproved)}
        return [
            Record(
                unit.name,
                task.shard,
                unit.key,
                made.inputs,
                (written, *made.quarantine),
                rows,
                counts=made.counts,
                info=info,
                seconds=made.seconds,
            )
        ]


@dataclass(frozen=True)
class _Made:
    """What the first part has told of all its files."""

    inputs: tuple[InputRecord, ...]
    counts: dict[str, float]
    unproved: tuple[str, ...]
    quarantine: tuple[FileRecord, ...]
    seconds: float
    results: tuple[FileRecord, ...] = ()


@dataclass
class QuantilesRun:
    """One call."""

    dataset: Dataset
    chosen: Dataset
    question: Question
    name: str
    policy: RecordPolicy
    options: RunOptions

    def quantiles(self, level: Level | None) -> QuantilesSummary:
        """Do what is left, and return what there is then."""
        plan = self._plan()
        first = engine.run(plan, replace(self.options, dry_run=True)).summary
        shards = tuple(shard.path for shard in self.chosen.shards)
        if self.options.dry_run:
            skipped = 0 if first.planned else len(shards)
            shown = replace(first, planned=shards if first.planned else (), skipped=skipped)
            return QuantilesSummary(**vars(shown), file=plan.tasks[0].shard, parameters=self._parameters())
        here = replace(self.options, scheduler="synchronous", workers=None, progress=False)
        if first.planned:
            with owned(parent_of(self._folder), QUANTILES):
                last = engine.run(self._prepared(plan), here).summary
        else:
            last = engine.run(plan, here).summary
        remove_exchange(self._folder)
        remove_outdated(self.dataset.root, self.name)
        done, skipped = (len(shards), 0) if last.done else (0, len(shards))
        summary = QuantilesSummary(
            **{
                **vars(last),
                "done": done,
                "skipped": skipped,
                "notes": (*first.notes, *self._notes(last.counts)),
            },
            file=plan.tasks[0].shard,
            parameters=self._parameters(),
            quantiles=read_table(files.join(self.dataset.root, plan.tasks[0].shard)),
        )
        return summary if level is None else replace(summary, thresholds=self._thresholds(level, here))

    def _plan(self) -> Plan:
        """Return the plan of the one file: what it was made of decides whether it is finished."""
        path, root = quantiles_path(self.name), self.dataset.root
        inputs = {item.info.path: item for task in self._value_tasks for item in task.inputs}
        stage = PublishStage(root, self._folder, {"parameters": self._parameters()})
        left_out = len(self.dataset.shards) - len(self.chosen.shards)
        part = (
            (f"of {len(self.chosen.shards):,} of {counted(len(self.dataset.shards), 'shard')} alone",)
            if left_out
            else ()
        )
        return Plan(
            stage=stage,
            root=root,
            tasks=[Task(path, (Unit(path, self._key),), tuple(inputs.values()))],
            params=told({**self._parameters(), "source": self.dataset.source}),
            writes=(path,),
            version=dolma_dask.__version__,
            bad_is_loss=True,
            notes=(*dataset_notes(self.dataset), *part),
        )

    @cached_property
    def _key(self) -> str:
        shards = [shard.path for shard in self.chosen.shards]
        policy = {"max_record_bytes": self.policy.max_record_bytes}
        return work_key(QUANTILES, VERSION, {**self.question.params(), **policy, "shards": shards})

    @property
    def _folder(self) -> str:
        return files.join(self.dataset.root, f"{EXCHANGE}/{QUANTILES}-{self.name}/{self._key}")

    @cached_property
    def _value_tasks(self) -> list[Task]:
        return value_tasks(self.question, self.chosen, self._key)

    def _parameters(self) -> dict[str, Any]:
        question = self.question
        drawn = {"sample": question.sample, "seed": question.seed} if question.sample is not None else {}
        groups = {} if question.by is None else {"by": question.by, "by_kind": question.kind}
        return {
            "name": self.name,
            "signals": list(question.signals),
            **groups,
            "probabilities": list(question.probabilities),
            **drawn,
            "method": "exact",
        }

    def _prepared(self, plan: Plan) -> Plan:
        """Return the plan with what its task needs; a wrong argument that only the rows could tell leaves nothing behind."""
        (task,) = plan.tasks
        try:
            return replace(plan, tasks=[replace(task, work=self._prepare())])
        except UsageError:
            remove_exchange(self._folder)
            raise

    def _prepare(self) -> "_Made":
        """Do both parts, as far as they are not done, and return what the first has told."""
        question, folder = self.question, self._folder
        if self.options.overwrite:
            remove_tree(folder)
        remove_others(folder)
        drawn = (question.sample, question.seed)
        first = ValueStage(self.dataset.root, folder, question.signals, question.by, *drawn, self.policy)
        records = self._part(first, self._value_tasks, VALUES)
        index = write_index(folder, records, question.kind)
        if len({label for record in records for label in record.info["labels"]}) > MOST_GROUPS:
            raise too_many(str(question.by))
        second = SelectStage(folder, question.probabilities)
        selected = self._part(second, select_tasks(question.signals, index, self._key), RESULTS)
        return replace(_made(records), results=tuple(record.files[0] for record in selected))

    def _part(self, stage: ValueStage | SelectStage, tasks: Sequence[Task], folder: str) -> list[Record]:
        """Run one part in its own folder, and return the records of its tasks in their order."""
        plan = Plan(
            stage=stage,
            root=self._folder,
            tasks=tasks,
            params={},
            writes=(f"{folder}/",),
            version=dolma_dask.__version__,
            bad_is_loss=True,
        )
        try:
            engine.run(plan, replace(self.options, overwrite=False))
        except StageError as error:
            raise _from_root(error, self.dataset.root) from error
        known = Journal(self._folder, QUANTILES).records
        return [known[unit.name] for task in tasks for unit in task.units]

    def _notes(self, counts: Mapping[str, float]) -> Iterator[str]:
        rows = int(counts.get("documents_without_group", 0))
        if self.question.by is not None and rows:
            yield f"{counted(rows, 'document')} without {self.question.by}: in the group 'all' alone"
        infinite = int(counts.get("infinite_values", 0))
        if infinite:
            yield f"{counted(infinite, 'infinite value')}, which count as missing"

    def _thresholds(self, level: Level, options: RunOptions) -> Thresholds:
        """Write the thresholds of a level, if they are not there, and return them."""
        root, path, own = self.dataset.root, thresholds_path(self.name, level), quantiles_path(self.name)
        found = files.stat(files.join(root, own))
        stage = ThresholdStage(root, level, self.question.by, self.question.kind)
        key = work_key(
            "thresholds", VERSION, {"level": level, "by": self.question.by, "kind": self.question.kind}
        )
        source = Input(
            files.join(root, own), FileInfo(own, found.bytes if found else 0, found.stamp if found else "")
        )
        plan = Plan(
            stage=stage,
            root=root,
            tasks=[Task(path, (Unit(path, key),), (source,))],
            params={"name": self.name, "level": level},
            writes=(path,),
            version=dolma_dask.__version__,
        )
        engine.run(plan, options)
        return read_thresholds(files.join(root, path))


def _made(records: Sequence[Record]) -> _Made:
    counts: dict[str, float] = {}
    for record in records:
        for name, count in record.counts.items():
            counts[name] = counts.get(name, 0) + count
    unproved = sorted({name for record in records for name in record.info["unproved"]})
    kept = tuple(
        msgspec.convert(item, FileRecord) for record in records for item in record.info["quarantine"]
    )
    inputs = tuple(item for record in records for item in record.inputs)
    return _Made(inputs, counts, tuple(unproved), kept, sum(record.seconds for record in records))


def _from_root(error: StageError, root: str) -> Exception:
    """Return an error of a part as the error of the call: a wrong argument that only the rows could tell, or failed shards."""
    first = error.failures[0] if error.failures else None
    if first is not None and all(item.error == UsageError.__name__ for item in error.failures):
        return UsageError(first.message)
    summary: Any = error.details.get("summary")
    return StageError(
        str(error),
        failures=error.failures,
        summary=None if summary is None else replace(summary, target=root),
    )
