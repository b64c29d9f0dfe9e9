"""write_hdf5: a dataframe or bag becomes rows of a fixed number of tokens in HDF5 files, as `hdf5` makes them of documents.

A task tokenizes each partition into a staging file, sums of their tokens say which token each row begins with, and as many tasks as there are
partitions write the files: task k writes files k, k + n, k + 2n and so on, since their number is known only then. The bytes are those of `hdf5`
on the documents in the same order, however they are partitioned. Disk: the staging files take about half of the text.
"""

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from dask.delayed import Delayed
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.engine import Pass, Plan, Task, Unit, WorkDir, lease, run_job
from dolma_dask.errors import SourceChangedError, UsageError
from dolma_dask.frames.options import WriteOptions, frame_of
from dolma_dask.frames.partitions import collection_of, required, shard_names
from dolma_dask.frames.publishing import (
    MoveStage,
    StagedFiles,
    computed,
    last_task,
    run_options,
    work_folder,
)
from dolma_dask.frames.shards import documents_of, written
from dolma_dask.frames.targets import check_target
from dolma_dask.io import files
from dolma_dask.io.records import sum_counts
from dolma_dask.journal import Record, work_key
from dolma_dask.options.base import Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import RunOptions
from dolma_dask.outputs.hdf5.job import WINDOWS, Hdf5Job, Hdf5Summary, with_windows
from dolma_dask.outputs.hdf5.options import RowOptions, make_job
from dolma_dask.outputs.hdf5.staging import VERB


@dataclass(frozen=True, kw_only=True)
class Hdf5Options(RowOptions, WriteOptions):
    """Options of `write_hdf5`."""

    def check(self) -> None:
        """Refuse what only files of documents allow."""
        super().check()
        if self.record_fields():
            raise UsageError(
                f"mode {self.mode} reads fields of whole records, and write_hdf5 texts; expected LMData, LMData_VSL or FIM. Write the documents "
                "(write_documents), and make rows of these: hdf5."
            )
        if self.shuffle:
            raise UsageError(
                "write_hdf5 keeps the order of the collection; expected no shuffle. Shuffle the collection, or write the documents and use hdf5."
            )


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
    collection, source = collection_of(frame, "write_hdf5"), options.source
    collection.check(required(source), "write_hdf5")
    check_target(files.normalize(to), collection)
    # data_params.json tells what was given for rows, not for documents
    documents = replace(documents_of(shard_names(collection.npartitions), source), shown={})
    job = make_job(documents, to, options, options.policy)
    run_job(job, RunOptions(overwrite=options.overwrite, dry_run=True))
    work = work_folder(job.root, job.verb)
    first = job.tokenize(work, range(len(documents.parts)))
    tokens = written(collection.texts(), first.stage, first.tasks, work, places=("root", "folder"))
    finish = partial(_finish, job, work, options.overwrite, time.time())
    return computed(last_task(job.verb, finish, _tasks(job, work, tokens)), work, job.root, options)


class Moves(Struct, frozen=True):
    """Turns both passes of `hdf5` into moves of files that tasks of Dask have written."""

    root: str  # of the output
    staged: Mapping[str, StagedFiles]  # the file of each unit

    def __call__(self, step: Pass | Plan, work: WorkDir) -> Pass | Plan:
        """Return a pass, whose files go into the work folder of the job, or the plan of the files as moves."""
        stage = MoveStage(step.stage.verb, self.root)
        if isinstance(step, Pass):
            stage = replace(stage, root=work.url, quarantine=self.root, is_staging=True)
        tasks = [replace(task, work=self.staged.get(task.unit.name)) for task in step.tasks]
        return replace(step, stage=stage, tasks=tasks)


def _tasks(job: Hdf5Job, work: WorkDir, tokens: "Sequence[Delayed]") -> "list[Delayed]":
    """Return the tasks that write files, and after them the one that sums the tokens."""
    from dask import delayed

    shared = delayed(job, traverse=False, pure=False)
    gathered = delayed(partial(_gather, work.url, job), pure=False)(
        list(tokens), dask_key_name=f"hdf5-sums-{work.key}"
    )
    count = len(tokens)
    return [
        delayed(partial(_write_files, work.url, number, count), pure=False)(
            shared, gathered, dask_key_name=f"hdf5-rows-{number:05d}-{work.key}"
        )
        for number in range(count)
    ] + [gathered]


class StagedTokens(StagedFiles, frozen=True):
    """All staging files in one place."""

    windows: tuple[int, ...] | None = None  # rows of each window, where several segments share a row


def _gather(work: str, job: Hdf5Job, staged: list[StagedFiles]) -> StagedTokens:
    """Put the staging files of all attempts into one folder, named after their content: when this task is lost midway, the next attempt goes on there."""
    content = _content(record for each in staged for record in each.records)
    folder = files.join(work, work_key("tokens", 1, {"files": content}))
    stage = MoveStage(VERB, folder, is_staging=True)
    moved: list[Record] = []
    for each in staged:
        (record,) = each.records
        moved += stage.run_shard(Task(record.shard, (Unit(record.unit, record.key),), (), each))
    known = job.packed(job.summed(moved, {}), folder, {record.unit: record for record in moved})
    windows = known.info.get(WINDOWS)
    return StagedTokens(folder, tuple(moved), None if windows is None else tuple(windows))


def _content(records: Iterable[Record]) -> list[str]:
    return [file.checksum for record in records for file in record.files]


def _job_of(job: Hdf5Job, tokens: StagedTokens) -> Hdf5Job:
    """Return the job of what was tokenized: its key holds the content."""
    params = {**job.documents.params, "collection": _content(tokens.records)}
    return replace(job, documents=replace(job.documents, params=params))


def _rows_plan(job: Hdf5Job, tokens: StagedTokens) -> Plan:
    """Return the plan of all files, as `hdf5` has it."""
    records = [replace(record, key=job.key) for record in tokens.records]
    known = job.summed(records, sum_counts(record.counts for record in records))
    known = known if tokens.windows is None else with_windows(known, [tokens.windows])
    return job.rows_plan(known, tokens.folder, {record.unit: record for record in records})


def _write_files(work: str, number: int, count: int, job: Hdf5Job, tokens: StagedTokens) -> StagedFiles:
    """Write every `count`-th file from `number` on, into a folder that no other attempt has."""
    folder = files.join(work, uuid.uuid4().hex)
    plan = _rows_plan(_job_of(job, tokens), tokens)
    stage = replace(plan.stage, target=folder)  # type: ignore[type-var]
    records = [record for task in list(plan.tasks)[number::count] for record in stage.run_shard(task)]
    return StagedFiles(folder, tuple(records))


def _finish(job: Hdf5Job, work: WorkDir, overwrite: bool, started: float, made: list[Any]) -> Hdf5Summary:
    """Let all files appear, and write the journal."""
    *rows, tokens = made
    done = _job_of(job, tokens)
    keys = {record.unit: record.key for each in rows for record in each.records}
    if any(keys.get(task.unit.name) != task.unit.key for task in _rows_plan(done, tokens).tasks):
        raise SourceChangedError(
            f"{job.root}: rows were computed of other tokens than there are now, since a partition was computed again and came out otherwise. "
            "Expected functions that give the same each time. Call it again, perhaps of a persisted collection.",
            url=job.root,
        )
    staged = {record.unit: StagedFiles(each.folder, (record,)) for each in made for record in each.records}
    summary = run_job(replace(done, via=Moves(job.root, staged)), run_options(job.root, overwrite))
    work.clear()
    lease.remove_dead(work.parent)
    return replace(summary, seconds=time.time() - started)
