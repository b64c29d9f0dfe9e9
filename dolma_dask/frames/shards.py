"""A file for each partition: the outputs of the verbs (`dolma_dask.sinks.sink`) take the rows of a collection, a task of Dask each.

A task returns records alone. It is fused with what computes its partition (`publishing.last_task`), so that rows never travel.
"""

import dataclasses
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.engine import Plan, Stage, Task, WorkDir
from dolma_dask.engine.attempts import placed
from dolma_dask.engine.documents import DocumentList, DocumentStage
from dolma_dask.engine.map import MapWork
from dolma_dask.frames.options import CollectionOptions
from dolma_dask.frames.partitions import Collection, PartitionDocuments
from dolma_dask.frames.publishing import ORIGIN, StagedFiles, Writing, computed, last_task, work_folder
from dolma_dask.io import files
from dolma_dask.results.summary import Summary

if TYPE_CHECKING:
    from dask.delayed import Delayed


def documents_of(
    shards: Sequence[str], source: str | None, params: Mapping[str, Any] | None = None
) -> DocumentList:
    """Return the documents of partitions, by the shards that they become; `source` is that of rows that have none, `params` are further ones."""
    parts = tuple(PartitionDocuments(shard, source=source) for shard in shards)
    known = {"source": source}
    return DocumentList(ORIGIN, parts, tuple(shards), {**known, **(params or {})}, known)


def _changed(output: Any, **values: str) -> Any:
    """Return an output with other values; those of plug-ins are dataclasses."""
    change: Any = dataclasses.replace if dataclasses.is_dataclass(output) else replace
    return change(output, **values)


class PartitionWriter(Struct, frozen=True):
    """Writes the files of partitions; goes to workers with each."""

    stage: DocumentStage  # with one output
    work: str  # URL of the work folder
    places: tuple[str, ...]  # fields of the output that say where it writes

    def write(self, part: Any, task: Task) -> StagedFiles:
        """Write what `task` asks for, into a folder that no other attempt has."""
        folder = files.join(self.work, uuid.uuid4().hex)
        (output,) = self.stage.outputs
        there = _changed(output, **dict.fromkeys(self.places, folder))
        work = MapWork(replace(task.work.source, part=part))
        stage = dataclasses.replace(self.stage, outputs=(there,))
        with placed(stage.verb, task.shard):
            records = stage.run_shard(replace(task, work=work))
        return StagedFiles(folder, tuple(records))


def written(
    collection: Collection,
    stage: Stage,
    tasks: Sequence[Task],
    work: WorkDir,
    places: tuple[str, ...] = ("root",),
) -> "list[Delayed]":
    """Return a task of Dask for each partition; its result is `StagedFiles`."""
    from dask import delayed

    assert isinstance(stage, DocumentStage)
    writer = PartitionWriter(stage, work.url, places)
    named = f"{stage.outputs[0].verb}-{{}}-{work.key}"
    return [
        delayed(partial(writer.write, task=task), pure=False)(part, dask_key_name=named.format(task.shard))
        for part, task in zip(collection.delayed(), tasks, strict=True)
    ]


def write_each(collection: Collection, plan: Plan, options: CollectionOptions) -> "Summary | Delayed":
    """Write the units of a plan of `documents_of`, one for each partition."""
    writing = Writing(plan, work_folder(plan.root, plan.verb), options.overwrite)
    writing.check()
    last = last_task(plan.verb, writing.publish, written(collection, plan.stage, plan.tasks, writing.work))
    return computed(last, writing.work, plan.root, options)
