"""write_hdf5: a dataframe or bag becomes rows of a fixed number of tokens in HDF5 files, as `hdf5` makes them of documents.

A task tokenizes each partition into a staging file, sums of their tokens say which token each row begins with, and as many tasks as there are
partitions write the files: task k writes files k, k + n, k + 2n and so on, since their number is known only then. The bytes are those of `hdf5`
on the documents in the same order, however they are partitioned. Disk: the staging files take about half of the text.
"""

import time
import uuid
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Annotated, Any

import msgspec
from dask.delayed import Delayed

from dolma_dask.engine import Input, Pass, Plan, Task, Unit, WorkDir, lease, run_job
from dolma_dask.errors import SourceChangedError
from dolma_dask.frames.options import WriteOptions, frame_of
from dolma_dask.frames.partitions import collection_of, required, shard_names
from dolma_dask.frames.publishing import (
    ORIGIN,
    MoveStage,
    StagedFiles,
    computed,
    last_task,
    run_options,
    work_folder,
)
from dolma_dask.frames.shards import Rows, written
from dolma_dask.frames.targets import check_target
from dolma_dask.io import files
from dolma_dask.io.records import sum_counts
from dolma_dask.journal import Record, work_key
from dolma_dask.options.base import Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import RunOptions
from dolma_dask.options.records import budget
from dolma_dask.outputs.hdf5.job import Documents, Hdf5Job, Hdf5Summary
from dolma_dask.outputs.hdf5.options import RowOptions, make_job
from dolma_dask.outputs.hdf5.staging import VERB, StagingOutput, staging_name


@dataclass(frozen=True, kw_only=True)
class Hdf5Options(RowOptions, WriteOptions):
    """Options of `write_hdf5`."""


@command
def write_hdf5(
    frame: Annotated[
        Any,
        frame_of(
            "Columns (or keys of the dicts) ``id text source``, strings; others are not read. Rows follow in their order."
        ),
    ],
    to: Annotated[str, Opt("Output folder or URL.")],
    /,
    *,
    options: Hdf5Options,
) -> Hdf5Summary | Delayed:
    """Pack the documents of a Dask dataframe or bag into rows of tokens for training, in HDF5 files.

    Returns
    -------
    Hdf5Summary or dask.delayed.Delayed

    Raises
    ------
    UsageError
        The tokenizer cannot be read, a column is missing, an option is unknown, files of others are in the way, or the target lies in
        folders of a dataset; nothing is computed then.
    BadRecordError, BadRecordBudgetError, SchemaError
        While computing.

    Examples
    --------
    >>> write_hdf5(df, "out/h5", tokenizer="neox.json", max_seq_length=2048)  # doctest: +SKIP
    """
    collection, policy, source = collection_of(frame, "write_hdf5"), options.policy, options.source
    collection.check(required(source), "write_hdf5")
    check_target(files.normalize(to), collection)
    parts = tuple(map(_Part, shard_names(collection.npartitions)))
    made = make_job(Documents(ORIGIN, parts), to, options, policy)
    job = CollectedJob(**{item.name: getattr(made, item.name) for item in fields(made)}, source=source)
    run_job(job, RunOptions(overwrite=options.overwrite, dry_run=True))
    work = work_folder(job.root, job.verb)
    output = StagingOutput(job.root, "", job.mode)
    wanted = [Task(part.name, (Unit(staging_name(number), ""),), ()) for number, part in enumerate(parts)]
    documents = Rows(collection.texts(), policy, source)
    tokens = written(documents, wanted, output, work, places=("root", "folder"))
    last = last_task(job.verb, partial(_finish, job, work, options.overwrite), _tasks(job, work, tokens))
    return computed(last, work, job.root, options)


@dataclass(frozen=True)
class _Part:
    """A partition by name, as a part of `Documents`; its rows are read elsewhere."""

    name: str
    inputs: tuple[Input, ...] = ()

    def read(self, *_: Any) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class Tokens:
    """The staging files of all partitions, in one folder, and their records."""

    folder: str
    staged: tuple[StagedFiles, ...]


@dataclass(frozen=True)
class CollectedJob(Hdf5Job):
    """A call of `hdf5` both passes of which tasks of Dask have done: what is left is to move the files and write the journal."""

    source: str | None = None  # of rows that have none
    tokens: Tokens | None = None
    rows: tuple[StagedFiles, ...] = field(default=(), repr=False)
    started: float = field(default_factory=time.time)

    def of(self, tokens: Tokens, rows: Sequence[StagedFiles] = ()) -> "CollectedJob":
        """Return the job of what was tokenized: its key holds the content."""
        content = [
            file.checksum for each in tokens.staged for record in each.records for file in record.files
        ]
        documents = replace(self.documents, params={"source": self.source, "collection": content})
        return replace(self, documents=documents, tokens=tokens, rows=tuple(rows))

    def rows_plan(self) -> Plan:
        """Return the plan of all files, as `hdf5` has it."""
        assert self.tokens is not None
        records = [record for each in self.tokens.staged for record in each.records]
        records = [_with_key(record, self.key) for record in records]
        known = self._sum(records, sum_counts(record.counts for record in records))
        return super()._rows_plan(known, self.tokens.folder, {record.unit: record for record in records})

    def _tokenize(self, work: WorkDir, numbers: Sequence[int], max_bad_fraction: float | None = None) -> Pass:
        """Return the pass that moves the staging files of some partitions into the work folder of the job."""
        parts, staged = self.documents.parts, self.tokens.staged if self.tokens else ()
        tasks = [
            Task(
                parts[number].name,
                (Unit(staging_name(number), self.key),),
                (),
                staged[number] if staged else None,
            )
            for number in numbers
        ]
        allowed = budget(self.policy) if max_bad_fraction is None else max_bad_fraction
        stage = MoveStage(VERB, work.url, quarantine=self.root, is_staging=True)
        return Pass(stage, tasks, max_bad_fraction=allowed, notes=self.documents.notes)

    def _rows_plan(self, known: Record, folder: str = "", made: Mapping[str, Record] | None = None) -> Plan:
        plan = super()._rows_plan(known, folder, made)
        found = {
            record.unit: StagedFiles(each.folder, (record,)) for each in self.rows for record in each.records
        }
        tasks = [replace(task, work=found.get(task.shard)) for task in plan.tasks]
        return replace(plan, stage=MoveStage(self.verb, self.root), tasks=tasks)

    def _needed(self, plan: Plan, left: Set[str]) -> list[int]:
        """Return all partitions: the tokens are there, and the tasks of files do not name theirs any more."""
        return list(range(len(self.documents.parts)))


def _with_key(record: Record, key: str) -> Record:
    return msgspec.structs.replace(record, key=key)


def _tasks(job: CollectedJob, work: WorkDir, tokens: "Sequence[Delayed]") -> "list[Delayed]":
    """Return the tasks that write files, and before them the one that sums the tokens."""
    from dask import delayed

    shared = delayed(job, traverse=False, pure=False)
    gathered = delayed(partial(_gather, work.url), pure=False)(
        list(tokens), dask_key_name=f"hdf5-sums-{work.key}"
    )
    count = len(tokens)
    return [
        delayed(partial(_write_files, work.url, number, count), pure=False)(
            shared, gathered, dask_key_name=f"hdf5-rows-{number:05d}-{work.key}"
        )
        for number in range(count)
    ] + [gathered]


def _gather(work: str, staged: list[StagedFiles]) -> Tokens:
    """Put the staging files of all attempts into one folder, named after their content: when this task is lost midway, the next attempt goes on there."""
    content = [file.checksum for each in staged for record in each.records for file in record.files]
    folder = files.join(work, work_key("tokens", 1, {"files": content}))
    stage = MoveStage(VERB, folder, is_staging=True)
    moved = []
    for each in staged:
        (record,) = each.records
        task = Task(record.shard, (Unit(record.unit, record.key),), (), each)
        moved.append(StagedFiles(folder, tuple(stage.run_shard(task))))
    return Tokens(folder, tuple(moved))


def _write_files(work: str, number: int, count: int, job: CollectedJob, tokens: Tokens) -> StagedFiles:
    """Write every `count`-th file from `number` on, into a folder that no other attempt has."""
    folder = files.join(work, uuid.uuid4().hex)
    plan = job.of(tokens).rows_plan()
    stage = replace(plan.stage, target=folder)  # type: ignore[type-var]
    records = [record for task in list(plan.tasks)[number::count] for record in stage.run_shard(task)]
    return StagedFiles(folder, tuple(records))


def _finish(job: CollectedJob, work: WorkDir, overwrite: bool, made: list[Any]) -> Hdf5Summary:
    """Let all files appear, and write the journal."""
    *rows, tokens = made
    done = job.of(tokens, rows)
    keys = {record.unit: record.key for each in rows for record in each.records}
    if any(keys.get(unit.name) != unit.key for task in done.rows_plan().tasks for unit in task.units):
        raise SourceChangedError(
            f"{job.root}: rows were computed of other tokens than there are now, since a partition was computed again and came out otherwise. "
            "Expected functions that give the same each time. Call it again, perhaps of a persisted collection.",
            url=job.root,
        )
    summary = run_job(done, run_options(job.root, overwrite))
    work.clear()
    lease.remove_dead(work.parent)
    return replace(summary, seconds=time.time() - job.started)
