"""From Dask's tasks to files that appear: each task writes below ``_work/``, and the last one moves everything to its place.

A task may run twice, on two workers at once, or be killed: each attempt writes into a folder of its own and answers with records that name it,
so that a file and its record are always of the same attempt. Nothing appears before all partitions are there and proved. The last task is an
ordinary run of the engine whose stage only moves files: what is in the way is refused, leases, the journal and the removal of what an earlier
run has left are those of the verbs. Cost: a rename per file (in stores a copy, made by the store).
"""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.engine import Plan, Task, Unit, WorkDir, lease, run
from dolma_dask.errors import CorruptFileError, InterruptedStageError
from dolma_dask.formats import layout
from dolma_dask.frames.options import CollectionOptions
from dolma_dask.io import files, late
from dolma_dask.io.publish import move
from dolma_dask.io.records import FileRecord
from dolma_dask.io.staging import StagingReader
from dolma_dask.journal import Record, work_key
from dolma_dask.options.groups import RunOptions
from dolma_dask.progress import progress_of
from dolma_dask.results.summary import Summary

if TYPE_CHECKING:
    from dask.delayed import Delayed

ORIGIN = "dask://collection"
"""Stands for the root of what is read: files made from a dataset are not replaced silently."""


class StagedFiles(Struct, frozen=True):
    """Files that one attempt of a task has written, and their place."""

    folder: str
    records: tuple[Record, ...]


class Writing(Struct, frozen=True):
    """One call of a function that writes a collection; small, goes to workers."""

    plan: Plan  # a task for each unit; keys of what was requested
    work: WorkDir
    overwrite: bool = False
    notes: tuple[str, ...] = ()
    started: float = msgspec.field(default_factory=time.time)

    def check(self) -> None:
        """Refuse what is in the way, before anything is computed."""
        run(self.plan, RunOptions(overwrite=self.overwrite, dry_run=True))

    def publish(self, staged: Sequence[StagedFiles]) -> Summary:
        """Let all files appear, and write the journal."""
        plan = moving(self.plan, staged)
        summary = run(plan, run_options(self.plan.root, self.overwrite)).summary
        self.work.clear()
        lease.remove_dead(self.work.parent)
        return replace(summary, seconds=time.time() - self.started, notes=(*summary.notes, *self.notes))


def work_folder(root: str, verb: str, name: str = "collection") -> WorkDir:
    """Return the work folder of one call."""
    return WorkDir(root, verb, name, uuid.uuid4().hex)


def run_options(root: str, overwrite: bool) -> RunOptions:
    """Return how files are moved: a rename needs no help, requests of a store are made side by side."""
    scheduler = "synchronous" if files.is_local(root) else "threads"
    return RunOptions(overwrite=overwrite, scheduler=scheduler, progress=False)


def moving(plan: Plan, staged: Iterable[StagedFiles]) -> Plan:
    """Return the plan that moves what was staged for the units of `plan`.

    Keys hold the content, so that another call that computes the same has nothing to do.
    """
    found = {record.unit: (each.folder, record) for each in staged for record in each.records}
    tasks = [_moving(task, found) for task in plan.tasks]
    return replace(plan, stage=MoveStage(plan.verb, plan.root), tasks=tasks)


def _moving(task: Task, found: Mapping[str, tuple[str, Record]]) -> Task:
    (unit,) = task.units
    folder, record = found[unit.name]
    content = [file.checksum for file in record.files]
    key = work_key("collection", 1, {"of": unit.key, "files": content, "rows": record.rows})
    return replace(task, units=(Unit(unit.name, key),), work=StagedFiles(folder, (record,)))


class MoveStage(Struct, frozen=True):
    """Moves files that tasks of Dask have written; see `dolma_dask.engine.Stage`."""

    verb: str
    root: str  # where they appear
    quarantine: str = ""  # root of the files of bad records, if it is another one
    is_staging: bool = False  # they are read with `StagingReader`

    def run_shard(self, task: Task) -> list[Record]:
        """Move the files of one unit, the first one last: it says that all are there, and an old one goes before."""
        staged: StagedFiles = task.work
        (unit,), (record,) = task.units, staged.records
        if len(record.files) > 1 and files.stat(files.join(staged.folder, record.files[0].path)):
            files.remove(files.join(self.root, record.files[0].path))
        moved = [self._move(staged.folder, file) for file in reversed(record.files)]
        return [replace(record, key=unit.key, files=tuple(reversed(moved)))]

    def _move(self, folder: str, file: FileRecord) -> FileRecord:
        root = (self.quarantine or self.root) if layout.is_set_aside(file.path) else self.root
        source, target = files.join(folder, file.path), files.join(root, file.path)
        try:
            move(source, target)
        except FileNotFoundError:
            if self._holds(target, file):
                pass  # an earlier attempt of this very task has moved it
            elif late.is_seen(source):
                move(source, target)
            else:
                raise CorruptFileError(
                    f"{source} is gone; expected what a task of this call had written. Did another call write to {self.root} at the same time? "
                    "Call it again: all of it is computed anew.",
                    url=source,
                ) from None
        info = files.stat(target) if file.stamp else None
        return replace(file, stamp=info.stamp) if info else file

    def _holds(self, url: str, file: FileRecord) -> bool:
        info = files.stat(url)
        if info is None or info.bytes != file.bytes:
            return False
        if not self.is_staging or layout.is_set_aside(file.path):
            return files.checksum(url) == file.checksum
        with suppress(CorruptFileError), StagingReader(url, file.checksum):
            return True
        return False


def last_task(name: str, finish: Callable[[list[Any]], Summary], written: Sequence["Delayed"]) -> "Delayed":
    """Return the task that takes what all others return.

    A task that writes is made one with those that compute its partition: rows never go from task to task, and so neither to the process that called
    (under ``processes``) nor to another worker. Dask does that for dataframes, but not for what follows them.
    """
    from dask import delayed
    from dask._task_spec import convert_legacy_graph, fuse_linear_task_spec
    from dask.delayed import Delayed

    key = f"{name}-finish-{uuid.uuid4().hex}"
    last = delayed(finish, pure=False)(list(written), dask_key_name=key)
    graph = convert_legacy_graph(dict(last.__dask_graph__()))
    return Delayed(key, fuse_linear_task_spec(graph, {key}))


def computed(last: "Delayed", work: WorkDir, output: str, options: CollectionOptions) -> "Summary | Delayed":
    """Return the result of the last task, or with ``compute=False`` the task."""
    if not options.compute:
        return last
    with _working(work, output):
        scheduler = {} if options.scheduler is None else {"scheduler": options.scheduler}
        with _shown(work.verb, len(last.__dask_graph__()), options):
            summary: Summary = last.compute(**scheduler)
    return summary


@contextmanager
def _shown(verb: str, tasks: int, options: CollectionOptions) -> Iterator[None]:
    """Show how many tasks are done, as far as the schedulers of this process say it."""
    from dask.callbacks import Callback

    with (
        progress_of(verb, 0, tasks, options.progress) as shown,
        Callback(posttask=lambda *_: shown.advance(0, 1)),
    ):
        yield


@contextmanager
def _working(work: WorkDir, output: str) -> Iterator[None]:
    """Hold the lease of the work folder, which is empty before and after."""
    try:
        with lease.leased(work.parent, work.verb, output=output):
            work.clear_others()
            try:
                yield
            finally:
                with suppress(
                    OSError
                ):  # after a failure other tasks may still write there; the next call removes it
                    work.clear()
    except KeyboardInterrupt:
        raise InterruptedStageError(
            f"{work.verb} was stopped before all partitions were computed; what had been in {output} is as it was. Call it again: all of it is "
            "computed anew."
        ) from None
